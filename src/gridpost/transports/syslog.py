"""Lines to a syslog server: TLS or TCP with octet counting (RFC 5425, RFC 6587), or UDP (RFC 5426)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from gridpost.core.refusal import Refusal, Rule

_SECONDS = 10.0
_PORTS = {"udp": 514, "tcp": 601, "tls": 6514}


class SyslogPort:
    """One connection that is opened again when it breaks. What was not handed over raises."""

    def __init__(self, address: str, ca: Path | None = None) -> None:
        parts = urlsplit(address)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise Refusal(
                Rule.USAGE,
                f"'{address}' is no syslog address: write tls://, tcp:// or udp://host:port",
            )
        self._scheme, self._host = parts.scheme, parts.hostname
        self._port = parts.port or _PORTS[parts.scheme]
        self._tls = ssl.create_default_context(cafile=ca) if parts.scheme == "tls" else None
        self._stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, lines: Sequence[bytes]) -> None:
        async with asyncio.timeout(_SECONDS):
            if self._scheme == "udp":
                await self._send_datagrams(lines)
            else:
                await self._send_stream(lines)

    async def _send_stream(self, lines: Sequence[bytes]) -> None:
        try:
            reader, writer = self._stream or await asyncio.open_connection(
                self._host, self._port, ssl=self._tls
            )
            self._stream = (reader, writer)
            # A server that has closed the connection would swallow what is written now.
            if reader.at_eof():
                raise ConnectionResetError("the syslog server has closed the connection")
            writer.writelines([b"%d %b" % (len(line), line) for line in lines])
            await writer.drain()
        except BaseException:
            if self._stream is not None:
                self._stream[1].close()
            self._stream = None
            raise

    async def _send_datagrams(self, lines: Sequence[bytes]) -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, remote_addr=(self._host, self._port)
        )
        try:
            for line in lines:
                transport.sendto(line)
        finally:
            transport.close()

    async def close(self) -> None:
        if self._stream is not None:
            self._stream[1].close()
            self._stream = None
