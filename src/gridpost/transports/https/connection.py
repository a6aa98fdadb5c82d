"""One HTTPS connection: whose it is, how slow it may be, and when it has to end.

The verified chain of the client is in the ASGI scope under `extensions["tls"]`; that is the only
place from which an application learns who is asking.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gridpost.core.certificate import CertificateKind
from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.https.stream import HIGH_WATER
from gridpost.transports.https.tls import verified_chain
from gridpost.wire.x509 import read_certificate

if TYPE_CHECKING:
    from gridpost.transports.https.server import HttpsServer


TOO_LARGE = "The head of the request is too large."


@dataclass(eq=False, slots=True)
class LiveConnection:
    """An open connection, for whoever has to end it (503 cl. 8.6)."""

    chain: tuple[bytes, ...]
    """The client's verified chain, leaf first; empty where no certificate is asked for."""
    address: str
    _transport: asyncio.Transport = field(repr=False)

    def close(self) -> None:
        """At once: what is under way gets no answer."""
        self._transport.abort()


def client_chain(scope: Mapping[str, Any]) -> tuple[bytes, ...]:
    """The verified chain of whoever sent this request; empty when there is none."""
    chain = scope.get("extensions", {}).get("tls", {}).get("client_chain", ())
    return tuple(chain)


class TlsHttpProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with the client's chain in the scope and a deadline for each phase."""

    owner: HttpsServer  # set by the server before the connection is made

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._deadline: tuple[str, asyncio.TimerHandle] | None = None
        self._write_deadline: asyncio.TimerHandle | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._phase: str | None = None
        self._head = self._unfinished = self._begun = 0
        peer = transport.get_extra_info("ssl_object")
        self._version = peer.version() if peer is not None else None
        try:
            chain = verified_chain(peer)
        except (ssl.SSLError, ValueError):
            chain = ()
        host = f"{self.client[0]}:{self.client[1]}" if self.client else "?"
        self.live = LiveConnection(chain, host, transport)
        # A resumed session, or a client without a certificate where one is demanded.
        if not chain and self.owner.certificate_required:
            transport.abort()
            self.owner.refused(
                Refusal(Rule.PEER_UNKNOWN, "the connection has no verified certificate"), host
            )
            return
        self._end_with_certificate(chain)
        self.owner.connections.add(self.live)
        self._enter("header")

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch(None)
        for timer in (self._expiry, self._write_deadline):
            if timer is not None:
                timer.cancel()
        self.owner.connections.discard(self.live)
        self.owner.gone()
        super().connection_lost(exc)

    def data_received(self, data: bytes | memoryview) -> None:
        if self.transport.is_closing():
            return
        if self._phase is None:
            self._enter("header")
        alone, self._begun = self._phase == "header", 0
        super().data_received(data)  # type: ignore[arg-type]
        if self._phase == "header" and alone and self._begun <= 1:
            # llhttp keeps what is incomplete, without a limit of its own.
            self._unfinished += len(data)
            if self._unfinished > self.owner.limits.max_header:
                self.send_400_response(TOO_LARGE)
        if self.transport.is_closing():
            self._watch(None)

    def on_message_begin(self) -> None:
        self._head = self._unfinished = 0
        self._begun += 1
        self._enter("header")
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (not hosts and self.parser.get_http_version() == "1.1"):
            raise ValueError("RFC 9112 3.2: a request names one host")
        self._enter("body")
        # Set here, where every request passes, pipelined ones included.
        self.server_state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """As uvicorn does it, but what arrives while nothing waits is handed on without a copy."""
        cycle: Any = self.cycle
        if cycle.response_complete or (self.parser.should_upgrade() and self._should_upgrade()):
            return
        if not cycle.body:
            cycle.body = body
        elif isinstance(cycle.body, bytes):
            cycle.body = bytearray(cycle.body + body)
        else:
            cycle.body += body
        if len(cycle.body) > HIGH_WATER:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        self._enter(None)
        super().on_message_complete()

    def _count(self, octets: int) -> None:
        self._head += octets
        if self._head > self.owner.limits.max_header:
            raise ValueError(TOO_LARGE)

    def _enter(self, phase: str | None) -> None:
        self._phase = phase
        self._watch(phase)

    def on_response_complete(self) -> None:
        if self._phase == "body" and self.cycle.response_complete:
            # Answered before it was all here: what still comes would be read without a limit.
            self.transport.close()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        seconds = self.owner.limits.write_seconds
        self._write_deadline = self.loop.call_later(seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_deadline is not None:
            self._write_deadline.cancel()
            self._write_deadline = None

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP never reaches the application, which would answer in its own form."""
        answer = self.owner.malformed_answer
        if self.transport.is_closing():
            return
        cycle: Any = self.cycle  # None before the first request, whatever uvicorn declares
        if cycle is not None and not cycle.response_complete:
            self.transport.abort()  # in the middle of an answer there is no place for another one
            return
        media_type, body = ("text/plain", msg.encode()) if answer is None else answer(msg)
        head = (
            "HTTP/1.1 400 Bad Request\r\n"
            f"content-type: {media_type}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
        self.transport.close()

    def tls_extension(self) -> dict[str, Any]:
        return {
            "client_chain": self.live.chain,
            "tls_version": self._version,
            "connection": self.live,
        }

    def _watch(self, phase: str | None) -> None:
        """One deadline per phase: bytes that trickle in do not prolong it."""
        if self._deadline is not None:
            if self._deadline[0] == phase:
                return
            self._deadline[1].cancel()
            self._deadline = None
        if phase is not None:
            limits = self.owner.limits
            seconds = limits.header_seconds if phase == "header" else limits.body_seconds
            self._deadline = (phase, self.loop.call_later(seconds, self.transport.abort))

    def _end_with_certificate(self, chain: tuple[bytes, ...]) -> None:
        """503 cl. 8.3.2: whatever uses a certificate fails once it has expired."""
        ends = []
        for der in chain:
            try:
                ends.append(read_certificate(der, CertificateKind.AUTHENTICATION).not_after)
            except Refusal as refusal:
                self.transport.abort()
                self.owner.refused(refusal, self.live.address)
                return
        if ends:
            left = (min(ends) - self.owner.clock()).total_seconds()
            self._expiry = self.loop.call_later(max(0.0, left), self._expired)

    def _expired(self) -> None:
        self.transport.abort()
        self.owner.refused(
            Refusal(Rule.CERTIFICATE_EXPIRED, "the certificate of an open connection has expired"),
            self.live.address,
        )
