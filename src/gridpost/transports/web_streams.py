"""The sockets of an HTTP library that forgets some: whoever gives up a handshake leaves them open.

The network streams of httpcore are wrapped, which is the one public place to know of each of them.
"""

# ruff: noqa: ASYNC109  (the signatures are those of httpcore)

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable

import httpcore


class WebStreams(httpcore.AsyncNetworkBackend):
    """Knows every stream until TLS stands and httpcore looks after it."""

    def __init__(self) -> None:
        self._inner = httpcore.AnyIOBackend()
        self._opened: set[httpcore.AsyncNetworkStream] = set()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        stream = await self._inner.connect_tcp(host, port, timeout, local_address, socket_options)
        self._opened.add(stream)
        return _Stream(stream, lambda: self._opened.discard(stream))

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        opened, self._opened = self._opened, set()
        for stream in opened:
            await stream.aclose()


class _Stream(httpcore.AsyncNetworkStream):
    def __init__(self, inner: httpcore.AsyncNetworkStream, owned: Callable[[], None]) -> None:
        """`owned` tells that from now on httpcore closes it, or that it is closed."""
        self._inner = inner
        self._owned = owned

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            secured = await self._inner.start_tls(ssl_context, server_hostname, timeout)
        except BaseException:
            # httpcore leaves it open when whoever waits for the handshake gives up.
            await self.aclose()
            raise
        self._owned()
        return secured

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._inner.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        self._owned()
        await self._inner.aclose()

    def get_extra_info(self, info: str) -> object:
        return self._inner.get_extra_info(info)
