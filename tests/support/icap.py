"""A small ICAP server (RFC 3507) for tests: real sockets, preview, 100 Continue, 204 and 200."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class Asked:
    method: str
    headers: dict[str, str]
    http: bytes
    body: bytes
    previewed: int
    continued: bool


Verdict = Callable[[bytes], str]
"""Of a body: `clean`, `threat`, `block`, `same` (200 with what it was given), `change`, `broken`."""


@dataclass
class IcapServer:
    verdict: Verdict
    early: Callable[[bytes], bool] = lambda preview: False
    """Is the preview enough to say that the rest is not wanted?"""
    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    hold: asyncio.Event | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.hold is not None:
                await self.hold.wait()
            await self._one(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.at_once -= 1
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (h.partition(":") for h in head[1:] if h)}
        last, offset = headers["encapsulated"].split(",")[-1].strip().split("=")
        assert last in ("req-body", "res-body")
        http = await reader.readexactly(int(offset))
        body, whole = await _chunked(reader)
        previewed = len(body)
        assert previewed <= int(headers["preview"])
        continued = not whole and not self.early(body)
        if continued:
            writer.write(b"ICAP/1.0 100 Continue\r\n\r\n")
            more, _ = await _chunked(reader)
            body += more
        self.asked.append(Asked(head[0].split(" ")[0], headers, http, body, previewed, continued))
        writer.write(_answer(self.verdict(body), last, body))
        await writer.drain()


async def _chunked(reader: asyncio.StreamReader) -> tuple[bytes, bool]:
    body = b""
    while True:
        size, _, extension = (await reader.readuntil(b"\r\n")).decode().strip().partition(";")
        if int(size, 16) == 0:
            await reader.readuntil(b"\r\n")
            return body, "ieof" in extension
        body += await reader.readexactly(int(size, 16))
        await reader.readuntil(b"\r\n")


def _answer(verdict: str, part: str, body: bytes) -> bytes:
    if verdict == "clean":
        return b"ICAP/1.0 204 No Content\r\nISTag: t\r\n\r\n"
    if verdict == "broken":
        return b"ICAP/1.0 500 Server error\r\nISTag: t\r\n\r\n"
    if verdict == "nonsense":
        return b"SSH-2.0-what\r\n\r\n"
    found = b""
    if verdict == "threat":
        found = b"X-Infection-Found: Type=0; Resolution=2; Threat=Eicar-Test-Signature;\r\n"
    if verdict in ("threat", "block"):
        page, text = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\n", b"no"
        part = "res-body"
    else:
        page = b"POST / HTTP/1.1\r\n\r\n" if part == "req-body" else b"HTTP/1.1 200 OK\r\n\r\n"
        text = body if verdict == "same" else body + b"!"
    name = part.replace("body", "hdr").encode()
    return (
        b"ICAP/1.0 200 OK\r\nISTag: t\r\n" + found
        + b"Encapsulated: %b=0, %b=%d\r\n\r\n" % (name, part.encode(), len(page))
        + page + b"%x\r\n%b\r\n0\r\n\r\n" % (len(text), text)
    )  # fmt: skip


@asynccontextmanager
async def icap_server(server: IcapServer) -> AsyncIterator[IcapServer]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
