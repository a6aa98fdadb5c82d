"""A TCP relay that cuts a connection at a chosen point: when the client has sent a certain word."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class CuttingProxy:
    """While `word` is set: once it was sent to the server, the answer is swallowed, and both ends go."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self.port = 0
        self.word: bytes | None = None
        self.cuts = 0
        self.refusing_new = False

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing_new:
            writer.close()
            return
        there, back = await asyncio.open_connection("127.0.0.1", self._server_port)
        answers = asyncio.create_task(_relay(there, writer))
        try:
            while data := await reader.read(65536):
                if self.word is not None and self.word in data:
                    self.word = None
                    self.cuts += 1
                    answers.cancel()
                    back.write(data)
                    await back.drain()
                    # The answer shows that the server is done with it; nobody gets to see it.
                    await there.read(1)
                    return
                back.write(data)
                await back.drain()
        except ConnectionError:
            return
        finally:
            answers.cancel()
            with suppress(asyncio.CancelledError, ConnectionError):
                await answers
            for stream in (writer, back):
                stream.close()


@asynccontextmanager
async def cutting_proxy(port: int) -> AsyncIterator[CuttingProxy]:
    proxy = CuttingProxy(port)
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
