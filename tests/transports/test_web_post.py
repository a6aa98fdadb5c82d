"""POST requests to web services of others."""

from __future__ import annotations

import asyncio
import base64

import pytest

from gridpost.core.refusal import Refusal
from gridpost.transports.web_post import WebPost, web_context
from support.waiting import eventually

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntook"


async def test_a_handshake_that_is_given_up_leaves_no_connection_open() -> None:
    ends: list[bool] = []

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()
        await writer.wait_closed()
        ends.append(True)

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    post = WebPost(web_context())
    try:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await post(f"https://127.0.0.1:{port}/", b"x", {})
        await eventually(lambda: len(ends) == 3)
    finally:
        await post.close()
        server.close()


async def test_a_connection_is_kept_and_the_name_in_an_address_is_shown() -> None:
    seen: list[tuple[int, bytes]] = []
    connections = 0
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        number = connections
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(2)
                seen.append((number, head))
                writer.write(ANSWER)
        except asyncio.IncompleteReadError:
            writer.close()
            await writer.wait_closed()
            over.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    post = WebPost(web_context())
    try:
        for _ in range(2):
            url = f"http://us%40er:secret@127.0.0.1:{port}/in?a=b"
            assert await post(url, b"hi", {"content-type": "text/plain"}) == (
                200,
                {"content-length": "4"},
                b"took",
            )
    finally:
        await post.close()
        await over.wait()
        server.close()
    assert [number for number, _ in seen] == [1, 1]
    head = seen[0][1]
    assert head.startswith(b"POST /in?a=b HTTP/1.1\r\n")
    assert b"Basic " + base64.b64encode(b"us@er:secret") in head
    assert b"Content-Length: 2\r\n" in head
    assert f"Host: 127.0.0.1:{port}\r\n".encode() in head


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "gopher://x/", "http://[", "http:///"])
async def test_what_cannot_be_reached_is_refused(url: str) -> None:
    post = WebPost(web_context())
    with pytest.raises(Refusal, match="cannot be reached"):
        await post(url, b"x", {})
    await post.close()
