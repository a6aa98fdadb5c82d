"""Where a judge stands between the end of a TLS handshake and the first byte of a request.

HTTP libraries show the peer's certificate only with the answer, when the request is long out. Here
the network streams of httpcore are wrapped, which is the one public place before that.
"""

# ruff: noqa: ASYNC109  (the signatures are those of httpcore)

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress

import httpcore


class JudgingBackend(httpcore.AsyncNetworkBackend):
    """Hands out streams that let a judge look at the peer as soon as TLS stands."""

    def __init__(self, judge: Callable[[ssl.SSLObject | None], None]) -> None:
        self._judge = judge
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
        return _JudgingStream(stream, self._judge, lambda: self._opened.discard(stream))

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """What nobody owns: httpcore forgets a stream when whoever waits for a proxy gives up."""
        opened, self._opened = self._opened, set()
        for stream in opened:
            await stream.aclose()


class _JudgingStream(httpcore.AsyncNetworkStream):
    def __init__(
        self,
        inner: httpcore.AsyncNetworkStream,
        judge: Callable[[ssl.SSLObject | None], None],
        owned: Callable[[], None],
    ) -> None:
        """`owned` tells that from now on httpcore closes it, or that it is closed."""
        self._inner = inner
        self._judge = judge
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
        try:
            self._judge(secured.get_extra_info("ssl_object"))
        except BaseException:
            await secured.aclose()
            raise
        return _SecuredStream(secured)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._inner.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        self._owned()
        await self._inner.aclose()

    def get_extra_info(self, info: str) -> object:
        return self._inner.get_extra_info(info)


class _SecuredStream(httpcore.AsyncNetworkStream):
    """Reads whatever has come in: a TLS record holds 16 KiB, and each read costs a turn of HTTP."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner
        self._peer: ssl.SSLObject | None = inner.get_extra_info("ssl_object")

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        first = await self._inner.read(max_bytes, timeout)
        if self._peer is None or not first:
            return first
        records, size = [first], len(first)
        # At the end of the stream nothing is lost: the next read of `inner` says so again.
        with suppress(ssl.SSLError):
            while size < max_bytes and (record := self._peer.read(max_bytes - size)):
                records.append(record)
                size += len(record)
        return b"".join(records)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.AsyncNetworkStream:
        return await self._inner.start_tls(ssl_context, server_hostname, timeout)

    def get_extra_info(self, info: str) -> object:
        return self._inner.get_extra_info(info)
