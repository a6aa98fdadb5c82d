"""The server's side of one connection: who the peer is, and which links it gets.

503 Table 4 is decided by the service. Decided here is when it is asked: once after the certificate
or the password is known, and once per ATTACH. A peer that is turned away learns it by CLOSE after
OPEN, because neither TLS nor SASL can carry a reason.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from gridpost.core.links import Admission, Gatekeeper, PasswordCheck, Peer
from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.amqp10.connection import AmqpConnection
from gridpost.transports.amqp10.engine import lib, write_value
from gridpost.transports.amqp10.link import Link, answer, attachment_of, refuse
from gridpost.transports.amqp10.receiver import Receiver
from gridpost.transports.amqp10.sasl import EXTERNAL, PLAIN, Init, ServerSasl, Unwelcome
from gridpost.transports.amqp10.sender import Sender
from gridpost.transports.amqp10.transactions import CoordinatorLink
from gridpost.transports.handshakes import not_let_in, too_slow
from gridpost.wire.amqp.types import Map, Symbol

if TYPE_CHECKING:
    from gridpost.transports.amqp10.server import AmqpServer

log = logging.getLogger("gridpost.amqp")

_COORDINATOR_CREDIT: Final = 50
_FAILED_OPEN: Final = Map(((Symbol("amqp:connection-establishment-failed"), True),))


class ServerConnection(AmqpConnection):
    """A peer that came to us."""

    def __init__(
        self, server: AmqpServer, gatekeeper: Gatekeeper, password: PasswordCheck | None
    ) -> None:
        super().__init__(server.limits, server.ledger_for_connection(), server.container)
        self._server = server
        self._gatekeeper = gatekeeper
        self._password = password
        self._sasl = ServerSasl((EXTERNAL,) if password is None else (PLAIN,))
        self._refusal: Refusal | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.admission: Admission | None = None
        self.opened_at = 0.0
        self._set_timer(self.limits.handshake_seconds, self._too_slow)

    # ------------------------------------------------------------ who it is

    def stream_ready(self, chain: tuple[bytes, ...]) -> None:
        assert self.stream is not None
        self.peer = Peer(self.stream.address, chain)
        if self._password is None and not chain:
            self.tell(Refusal(Rule.PEER_UNKNOWN, "the peer showed no certificate"))
            self.abort()

    def stream_lost(self, error: Exception | None) -> None:
        if isinstance(error, ssl.SSLError) and not self.peer.address and self.stream is not None:
            self.peer = Peer(self.stream.address)
            self.tell(not_let_in(error))
        super().stream_lost(error)

    def tell(self, refusal: Refusal) -> None:
        self._server.refused(refusal, self.identity, self.peer.address)

    def _on_octets(self, octets: memoryview | bytes) -> None:
        assert self.stream is not None
        if self._closing:
            return
        try:
            reply, init = self._sasl.feed(octets)
        except Unwelcome as unwelcome:
            self.tell(Refusal(Rule.AMQP_PROTOCOL, str(unwelcome)))
            self.stream.write(unwelcome.answer)
            self.close()
            return
        self.stream.write(reply)
        if init is not None:
            # Nothing is read until it is known who this is.
            self.stream.pause_reading()
            self._run(self._authenticate(init))
        elif self._sasl.done:
            self._start_engine(server=True)
            rest = bytes(self._sasl.rest)
            self._feed(rest)

    async def _authenticate(self, init: Init) -> None:
        assert self.stream is not None
        if self._password is not None:
            self.peer = replace(self.peer, user=init.user)
            if not await self._password(init.user, init.password):
                log.warning("wrong password", extra={"user": init.user, "peer": self.peer.address})
                self.stream.write(self._sasl.decide(accepted=False))
                self.close()
                return
        try:
            self.admission = await self._gatekeeper.admit(self.peer, self)
            self.identity = self.admission.identity
        except Refusal as refusal:
            self._refusal = refusal
        else:
            try:
                self._server.count_in(self, self.admission)
            except Refusal as refusal:
                self.tell(refusal)
                self._refusal = refusal
        if self._closed and self.admission is not None:
            self.admission.handler.on_closed()
        if self._closing:
            return
        self.stream.write(self._sasl.decide(accepted=True))
        self.stream.resume_reading()
        self._on_octets(b"")

    def _on_open(self) -> None:
        assert self.engine is not None
        connection = self.engine.connection
        if not lib.pn_connection_state(connection) & lib.PN_LOCAL_UNINIT:
            raise Refusal(Rule.AMQP_PROTOCOL, "OPEN came twice")
        if self._refusal is not None:
            write_value(lib.pn_connection_properties(connection), _FAILED_OPEN)
            self.close(self._refusal)
            return
        lib.pn_connection_open(connection)
        self.opened_at = self._loop.time()

    def _too_slow(self) -> None:
        if self.stream is not None:
            self.peer = replace(self.peer, address=self.stream.address)
        self.tell(too_slow(self.limits.handshake_seconds))
        self.abort()

    # ------------------------------------------------------------ links

    def _on_attach(self, pn: Any) -> None:
        if self._closing:
            return
        link: Receiver | Sender
        is_coordinator = (
            lib.pn_terminus_get_type(lib.pn_link_remote_target(pn)) == lib.PN_COORDINATOR
        )
        attachment = attachment_of(pn)
        if lib.pn_link_is_sender(pn):
            link = Sender(self, pn, attachment)
        else:
            credit = _COORDINATOR_CREDIT if is_coordinator else self.limits.credit
            link = Receiver(self, pn, attachment, credit)
        self._link(pn, link)
        try:
            if len(self._links) > self.limits.max_links:
                raise Refusal(
                    Rule.LIMIT_EXCEEDED, f"one connection has {self.limits.max_links} links"
                )
            if self._server.stopping:
                raise Refusal(Rule.STOPPING, "this server is about to stop")
            if is_coordinator and isinstance(link, Receiver):
                self._attach_coordinator(link, pn)
                return
            assert self.admission is not None
            unnamed = attachment.address is None or attachment.dynamic
            if unnamed and not self.admission.unnamed_links:
                raise Refusal(Rule.LINK_UNNAMED, "links lead to a queue that has a name")
        except Refusal as refusal:
            self.tell(refusal)
            self._refuse(link, pn, refusal)
        else:
            self._run(self._attach(link, pn))

    async def _attach(self, link: Receiver | Sender, pn: Any) -> None:
        assert self.admission is not None
        handler = self.admission.handler
        try:
            if isinstance(link, Receiver):
                producer = await handler.attach_producer(link)
                if self._still_wanted(link, pn):
                    answer(pn, link.max_message_size)
                    link.started(producer)
                else:
                    producer.on_detached()
            else:
                consumer = await handler.attach_consumer(link)
                if self._still_wanted(link, pn):
                    answer(pn, 0)
                    link.started(consumer)
                else:
                    consumer.on_detached()
        except Refusal as refusal:
            if self._still_wanted(link, pn):
                self._refuse(link, pn, refusal)
        self.touch()

    def _attach_coordinator(self, link: Receiver, pn: Any) -> None:
        assert self.admission is not None
        coordinator = self.admission.handler.coordinator()
        if coordinator is None:
            raise Refusal(Rule.NOT_OFFERED, "transactions are not offered")
        answer(pn, link.max_message_size)
        link.started(CoordinatorLink(coordinator, self.fail, self.tell))

    def _refuse(self, link: Link, pn: Any, refusal: Refusal) -> None:
        self.note(refusal)
        link.live = False
        refuse(pn, refusal)
        self.touch()

    def _still_wanted(self, link: Link, pn: Any) -> bool:
        """The peer may have gone, or ended the link, while its attachment was decided."""
        return link.live and self._links.get(pn) is link

    # ------------------------------------------------------------ the rest

    def hush(self) -> int:
        """Grant no more credit; how many deliveries still wait for a decision."""
        receivers = [link for link in self._links.values() if isinstance(link, Receiver)]
        for link in receivers:
            link.pause()
        return sum(link.undecided for link in receivers)

    @property
    def links(self) -> int:
        return sum(link.live for link in self._links.values())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ran)

    def _ran(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    def _on_closed(self) -> None:
        self._server.count_out(self)
        if self.admission is not None:
            self.admission.handler.on_closed()
