"""Plain HTTP for this machine alone: an administration that is reached from outside needs TLS."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from ipaddress import ip_address

import uvicorn
from starlette.types import ASGIApp

from gridpost.core.refusal import Refusal, Rule

IDLE_SECONDS = 75


@asynccontextmanager
async def serve_loopback(app: ASGIApp, host: str, port: int) -> AsyncIterator[int]:
    """Runs `app` until the block ends; gives the port, which is a free one where 0 was asked for."""
    address = "127.0.0.1" if host == "localhost" else host
    if not ip_address(address).is_loopback:
        raise Refusal(Rule.USAGE, f"{host} is not a loopback address: use HTTPS there")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
        # From here on whoever connects is heard, if need be a little later.
        listener.listen()
    except OSError as error:
        listener.close()
        raise Refusal(Rule.USAGE, f"{address}:{port} cannot be used: {error.strerror}") from None
    server = _Server(
        uvicorn.Config(
            app,
            http="h11",  # which bounds the head of a request
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=5,
            # Longer than clients keep an idle connection: whoever closes it last loses a request.
            timeout_keep_alive=IDLE_SECONDS,
        )
    )
    task = asyncio.create_task(server.serve([listener]))
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await task


class _Server(uvicorn.Server):
    """Signals are the business of whoever runs the whole component."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()
