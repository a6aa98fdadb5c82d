"""Real TLS on loopback for tests: credentials, an application that echoes, proxies, a raw client."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import cache

from starlette.types import Receive, Scope, Send

from gridpost.core.certificate import CertificateKind
from gridpost.core.https import TlsCredentials
from gridpost.stores.keys.rsa_operations import to_pkcs8
from support.pki import TestComponent, TestPki


@cache
def live_pki(directory: str = "CD-1", root: str = "ROOT") -> TestPki:
    """Valid now: OpenSSL looks at the real clock."""
    return TestPki(directory, root, now=datetime.now(UTC))


def credentials(component: TestComponent, *roots: bytes) -> TlsCredentials:
    return TlsCredentials(
        tuple(component.chain),
        to_pkcs8(component.keys[CertificateKind.AUTHENTICATION]),
        roots or (live_pki().root,),
    )


@cache
def live(code: str) -> TlsCredentials:
    return credentials(live_pki().component(code, [CertificateKind.AUTHENTICATION]))


class Echo:
    """Answers with what it got, and remembers it."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, bytes]] = []
        self.chains: list[tuple[bytes, ...]] = []
        self.asked = asyncio.Event()
        self.hold = asyncio.Event()
        self.hold.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        self.seen.append((scope["method"], scope["path"], body))
        self.chains.append(scope["extensions"]["tls"]["client_chain"])
        self.asked.set()
        await self.hold.wait()
        answer = b"<echo>" + body + b"</echo>"
        headers = [(b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


@asynccontextmanager
async def raw_tls(
    port: int, context: ssl.SSLContext
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError, ssl.SSLError):
            await writer.wait_closed()


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What still comes until the peer ends the connection."""
    try:
        return await asyncio.wait_for(reader.read(), 60)
    except (ConnectionError, ssl.SSLError):
        return b""


@asynccontextmanager
async def listening(
    handler: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    context: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    tasks: set[asyncio.Task[None]] = set()

    async def handled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await handler(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            tasks.discard(task)

    server = await asyncio.start_server(handled, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=5)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)


class Proxy:
    """An HTTP proxy (CONNECT) and a SOCKS 5 proxy on one port; remembers whom it led to."""

    def __init__(self) -> None:
        self.targets: list[str] = []
        self.hosts: dict[str, str] = {}
        """Names that only this proxy can resolve."""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.readexactly(1)
        if first == b"\x05":
            await reader.readexactly((await reader.readexactly(1))[0])
            writer.write(b"\x05\x00")
            _, _, _, kind = await reader.readexactly(4)
            if kind == 3:
                host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
            else:
                host = ".".join(map(str, await reader.readexactly(4)))
            port = int.from_bytes(await reader.readexactly(2))
            reply = b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x00"
        else:
            head = first + await reader.readuntil(b"\r\n\r\n")
            host, _, number = head.split()[1].decode().partition(":")
            port = int(number)
            reply = b"HTTP/1.1 200 Connection established\r\n\r\n"
        self.targets.append(f"{host}:{port}")
        try:
            inner_reader, inner_writer = await asyncio.open_connection(
                self.hosts.get(host, host), port
            )
        except OSError:
            writer.close()
            return
        writer.write(reply)
        await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
