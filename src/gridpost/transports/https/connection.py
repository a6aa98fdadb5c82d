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

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from gridpost.core.certificate import CertificateKind
from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.https.tls import verified_chain
from gridpost.wire.x509 import read_certificate

if TYPE_CHECKING:
    from gridpost.transports.https.server import HttpsServer


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


class TlsHttpProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 with the client's chain in the scope and a deadline for each phase."""

    owner: HttpsServer  # set by the server before the connection is made

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._deadline: tuple[str, asyncio.TimerHandle] | None = None
        self._write_deadline: asyncio.TimerHandle | None = None
        self._expiry: asyncio.TimerHandle | None = None
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
        self._watch("header")

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch(None)
        for timer in (self._expiry, self._write_deadline):
            if timer is not None:
                timer.cancel()
        self.owner.connections.discard(self.live)
        self.owner.gone()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.conn.their_state is h11.IDLE:
            self._watch("header")
        super().data_received(data)
        if self.transport.is_closing():
            self._watch(None)
        elif self.conn.their_state is h11.SEND_BODY:
            self._watch("body")
        elif self.conn.their_state is not h11.IDLE:
            self._watch(None)

    def handle_events(self) -> None:
        # Set here, where every request passes, pipelined ones included.
        self.server_state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
        super().handle_events()

    def on_response_complete(self) -> None:
        self._watch(None)
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
        if answer is None:
            super().send_400_response(msg)
            return
        media_type, body = answer(msg)
        headers = [
            (b"content-type", media_type.encode("ascii")),
            (b"content-length", str(len(body)).encode("ascii")),
            (b"connection", b"close"),
        ]
        events = (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        for event in events:
            self.transport.write(self.conn.send(event) or b"")
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
