"""The HTTPS server: accepts connections within limits and lets uvicorn speak HTTP on them.

TLS is started here and not by uvicorn, so that each connection gets the newest context, a
connection counts from its first packet on, and a slow handshake has a deadline of its own.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.server import ServerState

from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.handshakes import not_let_in
from gridpost.transports.https.connection import LiveConnection, TlsHttpProtocol
from gridpost.transports.https.stream import TlsStream
from gridpost.transports.https.tls import ClientCertificate, ServerTls

_log = logging.getLogger(__name__)

MalformedAnswer = Callable[[str], tuple[str, bytes]]
"""Media type and body of the answer to what is no HTTP request."""
OnRefused = Callable[[Refusal, str], None]
"""Told of every connection that was not let in or not let stay, with the address of the peer."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one client, and all of them together, may ask of a server."""

    max_connections: int = 1_000
    max_body: int = 4 * 1024 * 1024
    max_header: int = 16 * 1024
    handshake_seconds: float = 10.0
    header_seconds: float = 10.0
    body_seconds: float = 60.0
    write_seconds: float = 60.0
    """How long a client may leave an answer unread."""
    idle_seconds: float = 30.0
    shutdown_seconds: float = 5.0


class HttpsServer:
    """A running server. `connections` are the open ones, by which revoked clients are put out."""

    def __init__(
        self,
        app: ASGIApp,
        tls: ServerTls,
        limits: Limits,
        malformed_answer: MalformedAnswer | None,
        clock: Callable[[], datetime],
        on_refused: OnRefused | None = None,
    ) -> None:
        self.limits = limits
        self._on_refused = on_refused
        self.connections: set[LiveConnection] = set()
        self.malformed_answer = malformed_answer
        self.clock = clock
        self.host = ""
        self.port = 0
        self._tls = tls
        self._open = 0
        self._empty = asyncio.Event()
        self._empty.set()
        self._arriving: set[_ServerStream] = set()
        self._stopping = False
        self._state = ServerState()
        self._config = uvicorn.Config(
            _guarded(app, limits),
            http=TlsHttpProtocol,
            ws="none",
            lifespan="auto",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=cast(int, limits.idle_seconds),
        )
        self._config.load()
        self._lifespan = self._config.lifespan_class(self._config)

    @property
    def certificate_required(self) -> bool:
        return self._tls.client is ClientCertificate.REQUIRED

    def close_where(self, predicate: Callable[[LiveConnection], bool]) -> int:
        """503 cl. 8.6: end the connections of a revoked component; how many there were."""
        doomed = [connection for connection in self.connections if predicate(connection)]
        for connection in doomed:
            connection.close()
        return len(doomed)

    async def start(self, host: str, port: int) -> None:
        self._tls()  # credentials that cannot be used are found at the start
        await self._lifespan.startup()
        if self._lifespan.should_exit:
            raise Refusal(Rule.INTERNAL, "the application could not start")
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _ServerStream(self), host, port, backlog=1024
        )
        self.host, self.port = self._server.sockets[0].getsockname()[:2]

    async def stop(self) -> None:
        self._stopping = True
        self._server.close()
        for stream in list(self._arriving):
            stream.abort()
        for protocol in list(self._state.connections):
            protocol.shutdown()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.limits.shutdown_seconds):
                while self._state.tasks:
                    await asyncio.wait(list(self._state.tasks))
        for connection in list(self.connections):
            connection.close()
        for request in list(self._state.tasks):
            request.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.limits.shutdown_seconds):
                await self._empty.wait()
        await self._lifespan.shutdown()

    def stream(self) -> _ServerStream:
        """For each connection that the listener takes."""
        return _ServerStream(self)

    def accept(self, stream: _ServerStream) -> ssl.SSLContext | None:
        """With what context it may go on; it is aborted where it may not."""
        address = address_of(stream)
        if self._stopping:
            stream.abort()
            return None
        if self._open >= self.limits.max_connections:
            stream.abort()
            self.refused(Refusal(Rule.BUSY, f"{self._open} connections are open already"), address)
            return None
        try:
            context = self._tls()
        except Refusal as refusal:
            stream.abort()
            self.refused(refusal, address)
            return None
        self._open += 1
        self._empty.clear()
        self._arriving.add(stream)
        return context

    def speak(self, stream: _ServerStream) -> TlsHttpProtocol:
        """TLS stands: HTTP takes the connection over."""
        self._arriving.discard(stream)
        protocol = TlsHttpProtocol(self._config, self._state, self._lifespan.state)
        protocol.owner = self
        protocol.app = _with_tls(self._config.loaded_app, protocol)
        protocol.connection_made(cast(asyncio.Transport, stream))
        return protocol

    def not_secured(self, stream: _ServerStream, error: Exception | None) -> None:
        self._arriving.discard(stream)
        self.gone()
        address = address_of(stream)
        if isinstance(error, ssl.SSLError):
            self.refused(not_let_in(error), address)
        else:
            # It went away or said nothing: there was nobody to refuse.
            _log.info("no TLS with %s: %s", address, error)

    def refused(self, refusal: Refusal, address: str) -> None:
        """Everybody can cause this: whoever listens has to bound what it keeps."""
        _log.info("connection of %s refused: %s", address, refusal.message)
        if self._on_refused is not None:
            self._on_refused(refusal, address)

    def gone(self) -> None:
        self._open -= 1
        if not self._open:
            self._empty.set()


@asynccontextmanager
async def serve(
    app: ASGIApp,
    host: str,
    port: int,
    tls: ServerTls,
    limits: Limits | None = None,
    *,
    malformed_answer: MalformedAnswer | None = None,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    on_refused: OnRefused | None = None,
) -> AsyncIterator[HttpsServer]:
    """Runs `app` until the block ends. Port 0 takes a free one, told by `port` of the server."""
    server = HttpsServer(app, tls, limits or Limits(), malformed_answer, clock, on_refused)
    await server.start(host, port)
    try:
        yield server
    finally:
        await server.stop()


class _ServerStream(TlsStream):
    """A connection from its first packet on; uvicorn takes it for a transport."""

    def __init__(self, server: HttpsServer) -> None:
        super().__init__(server.limits.shutdown_seconds)
        self._server = server
        self._accepted = False
        self._protocol: TlsHttpProtocol | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def on_made(self) -> None:
        context = self._server.accept(self)
        if context is None:
            return
        self._accepted = True
        seconds = self._server.limits.handshake_seconds
        self._deadline = self._loop.call_later(seconds, self.abort)
        self.start_tls(context, server_side=True)

    def on_secured(self, tls: ssl.SSLObject) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        try:
            self._protocol = self._server.speak(self)
        except Exception:
            # A bug of ours costs this connection and nothing else.
            _log.exception("a connection could not be served")
            self.abort()

    def on_octets(self, octets: memoryview) -> None:
        if self._protocol is not None:
            self._protocol.data_received(octets)

    def on_writable(self, writable: bool) -> None:
        if self._protocol is not None:
            (self._protocol.resume_writing if writable else self._protocol.pause_writing)()

    def on_lost(self, error: Exception | None, orderly: bool) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        if self._protocol is not None:
            self._protocol.connection_lost(error)
        elif self._accepted:
            self._server.not_secured(self, error)


def _with_tls(app: Any, protocol: TlsHttpProtocol) -> ASGIApp:
    async def in_scope(scope: Scope, receive: Receive, send: Send) -> None:
        extensions = scope.setdefault("extensions", {})
        extensions["tls"] = protocol.tls_extension()
        await app(scope, receive, send)

    return in_scope


def _guarded(app: ASGIApp, limits: Limits) -> ASGIApp:
    """A body that is too large is a Refusal in `receive`, which the application renders."""

    async def limited(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        received = int(declared) if declared.isdigit() else 0
        too_large = received > limits.max_body
        received = 0

        async def counted() -> Message:
            nonlocal received
            if too_large:
                raise _too_large(limits)
            message = await receive()
            received += len(message.get("body", b""))
            if received > limits.max_body:
                raise _too_large(limits)
            return message

        await app(scope, counted, send)

    return limited


def address_of(transport: asyncio.BaseTransport | TlsStream) -> str:
    peer = transport.get_extra_info("peername")
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "?"


def _too_large(limits: Limits) -> Refusal:
    return Refusal(
        Rule.LIMIT_EXCEEDED, f"the request is larger than the limit of {limits.max_body} bytes"
    )
