"""The plain listener of this machine alone: how long it waits for a client that is silent."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from gridpost.transports.loopback import serve_loopback

REQUEST = b"GET / HTTP/1.1\r\nhost: here\r\n\r\n"
POOLED = 5.5
"""Seconds; httpx keeps an idle connection for five."""


async def _answer(request: Request) -> Response:
    return Response("here")


async def test_a_connection_that_a_client_still_keeps_is_not_closed_under_its_next_request():
    app = Router([Route("/", _answer)])
    async with serve_loopback(app, "127.0.0.1", 0) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for pause in (POOLED, 0):
                writer.write(REQUEST)
                assert b"200 OK" in await reader.readuntil(b"here")
                await asyncio.sleep(pause)
        finally:
            writer.close()
            await writer.wait_closed()
