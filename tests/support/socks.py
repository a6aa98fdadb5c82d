"""A SOCKS 5 server (RFC 1928) with user and password (RFC 1929) that remembers where it led."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class SocksServer:
    user: str
    password: str
    port: int = 0
    led_to: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    refused: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await self._serve(reader, writer)
        writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, count = await reader.readexactly(2)
        if 2 not in await reader.readexactly(count):
            writer.write(b"\x05\xff")
            return
        writer.write(b"\x05\x02")
        await reader.readexactly(1)
        user = await reader.readexactly((await reader.readexactly(1))[0])
        password = await reader.readexactly((await reader.readexactly(1))[0])
        if (user.decode(), password.decode()) != (self.user, self.password):
            self.refused += 1
            writer.write(b"\x01\x01")
            return
        writer.write(b"\x01\x00")
        _, _, _, kind = await reader.readexactly(4)
        if kind == 3:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        else:
            host = ".".join(map(str, await reader.readexactly(4)))
        port = int.from_bytes(await reader.readexactly(2))
        try:
            far_reader, far_writer = await asyncio.open_connection(host, port)
        except OSError:
            self.failed.append(port)
            writer.write(b"\x05\x05\x00\x01" + bytes(6))
            await writer.drain()
            return
        self.led_to.append(port)
        writer.write(b"\x05\x00\x00\x01" + bytes(6))
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def socks_server(user: str, password: str) -> AsyncIterator[SocksServer]:
    found = SocksServer(user, password)
    listening = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = listening.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        listening.close()
