"""One AMQP connection: what proton reports goes to the links, and how connections open and end."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from gridpost.core.links import Peer
from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.amqp10.conditions import RESOURCE_LIMIT, render
from gridpost.transports.amqp10.engine import (
    Engine,
    condition_of,
    lib,
    set_condition,
)
from gridpost.transports.amqp10.limits import AmqpLimits, Ledger
from gridpost.transports.amqp10.link import Link
from gridpost.transports.amqp10.output import Output
from gridpost.transports.amqp10.receiver import Receiver
from gridpost.transports.amqp10.sender import Sender
from gridpost.transports.amqp10.stream import Stream

log = logging.getLogger("gridpost.amqp")

_DELIVERY: Final = lib.PN_DELIVERY
_LINK_FLOW: Final = lib.PN_LINK_FLOW


class AmqpConnection:
    """What servers and clients have in common; `_on_*` is where they differ."""

    holds_peer_to_credit = True

    def __init__(self, limits: AmqpLimits, ledger: Ledger, container: str) -> None:
        self.limits = limits
        self.ledger = ledger
        self.peer = Peer("")
        self.identity = ""
        self.undecided_octets = 0
        """Of complete messages; the rest of the ledger is half-received ones."""
        self.stalled = False
        """Something was not read for want of room."""
        self.stream: Stream | None = None
        self.engine: Engine | None = None
        self.sessions: set[Any] = set()
        self.peer_done = False
        """The peer has closed, or said something after which nothing can be understood."""
        self.output = Output(self)
        self.touch = self.output.touch
        self._container = container
        self._loop = asyncio.get_running_loop()
        self._links: dict[Any, Link] = {}
        self._dispatching = False
        self._closing = False
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._reason: tuple[str, str] | None = None
        """Why it ended, as the peer or proton said it."""

    # ------------------------------------------------------------ where servers and clients differ

    def _on_octets(self, octets: memoryview) -> None:
        """Octets before proton takes over."""
        raise NotImplementedError

    def _on_open(self) -> None:
        """The peer's OPEN."""

    def _on_attach(self, pn: Any) -> None:
        """The peer's ATTACH, first or in answer to ours."""

    def _on_detach(self, link: Link, condition: tuple[str, str] | None) -> None:
        """The peer's DETACH."""

    def _on_closed(self) -> None:
        """Everything is gone; called once."""

    # ------------------------------------------------------------ from the stream

    def stream_ready(self, chain: tuple[bytes, ...]) -> None:
        raise NotImplementedError

    def stream_data(self, octets: memoryview) -> None:
        try:
            if self.engine is None:
                self._on_octets(octets)
            else:
                self._feed(octets)
        except Exception as error:
            self.fail(error)

    def stream_writable(self) -> None:
        self.output.flush()

    def stream_lost(self, error: Exception | None) -> None:
        if error is not None and self._reason is None:
            self._reason = ("gridpost:connection-lost", str(error))
        self._finish()

    # ------------------------------------------------------------ opening and closing

    def _start_engine(self, *, server: bool, hostname: str = "") -> Engine:
        self.engine = Engine(
            server=server, container=self._container, hostname=hostname, limits=self.limits
        )
        return self.engine

    def close(self, refusal: Refusal | None = None) -> None:
        """CLOSE, with the reason when there is one. The peer gets a while to answer."""
        if self._closing or self._closed:
            return
        if refusal is not None:
            self.note(refusal)
        if self.engine is None:
            self._closing = True
            self._reason = self._reason or (render(refusal) if refusal else None)
            self._drop()
            return
        engine = self.engine
        if refusal is not None:
            self._reason = self._reason or render(refusal)
            set_condition(lib.pn_connection_condition(engine.connection), *render(refusal))
            if lib.pn_connection_state(engine.connection) & lib.PN_REMOTE_UNINIT:
                # Proton withholds CLOSE until the peer has sent OPEN, unless the transport failed.
                set_condition(lib.pn_transport_condition(engine.transport), *render(refusal))
                lib.pn_transport_close_tail(engine.transport)
                self.peer_done = True
        # A peer that has not had our OPEN gets it now: CLOSE without OPEN is no AMQP.
        lib.pn_connection_open(engine.connection)
        self._shut()

    def abort(self) -> None:
        """Drop the connection without a word."""
        self._closing = True
        if self.stream is not None:
            self.stream.abort()  # stream_lost follows

    def note(self, refusal: Refusal) -> None:
        """A refusal that the peer gets to see; its id joins the two."""
        log.info(
            "refused",
            extra={
                "refusal": refusal.id,
                "rule": refusal.rule.name,
                "reason": refusal.message,
                "identity": self.identity,
                "peer": self.peer.address,
            },
        )

    def tell(self, refusal: Refusal) -> None:
        """A refusal that was decided here and not by the service: somebody has to write it down."""

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def reason(self) -> tuple[str, str] | None:
        return self._reason

    def _shut(self) -> None:
        """Our CLOSE goes out; links end now, whatever the peer does."""
        assert self.engine is not None
        self._closing = True
        self._end_links()
        lib.pn_connection_close(self.engine.connection)
        self._set_timer(self.limits.close_seconds, self._drop)
        self.touch()

    def _drop(self) -> None:
        if self.stream is not None:
            self.stream.close()

    def fail(self, error: Exception) -> None:
        """Something went wrong on this connection: a refusal is the peer's fault, the rest ours."""
        if self._closing or self._closed:
            if not isinstance(error, Refusal):
                log.error("failed while closing", exc_info=error)
            return
        if not isinstance(error, Refusal):
            log.error(
                "connection failed",
                exc_info=error,
                extra={"identity": self.identity, "peer": self.peer.address},
            )
            error = Refusal(Rule.INTERNAL, "the server failed to handle this connection")
        self.tell(error)
        self.close(error)

    def _finish(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._end_links()
        self._free()
        try:
            self._on_closed()
        except Exception as error:
            log.error("failed while closing", exc_info=error)

    def _end_links(self) -> None:
        for link in list(self._links.values()):
            try:
                link.lost()
            except Exception as error:
                log.error("failed to detach", exc_info=error)

    def _free(self) -> None:
        engine, self.engine = self.engine, None
        for link in self._links.values():
            link.gone()
        self._links.clear()
        self.sessions.clear()
        if engine is not None:
            engine.free()

    # ------------------------------------------------------------ input

    def _feed(self, octets: bytes | memoryview) -> None:
        engine = self.engine
        if engine is None:
            return
        engine.push(octets)
        self.dispatch()
        self.touch()

    def dispatch(self) -> None:
        """Hand every event of proton to whom it concerns."""
        engine = self.engine
        if engine is None or self._dispatching:
            return
        self._dispatching = True
        collector, links = engine.collector, self._links
        peek, pop, kind_of = lib.pn_collector_peek, lib.pn_collector_pop, lib.pn_event_type
        try:
            while True:
                event = peek(collector)
                if not event:
                    break
                kind = kind_of(event)
                if kind == _DELIVERY:
                    delivery = lib.pn_event_delivery(event)
                    link = links.get(lib.pn_delivery_link(delivery))
                    if link is not None:
                        link.on_event(delivery)
                elif kind == _LINK_FLOW:
                    link = links.get(lib.pn_event_link(event))
                    if isinstance(link, Sender):
                        link.on_flow()
                else:
                    name = _HANDLERS.get(kind)
                    if name is not None:
                        getattr(self, name)(event)
                pop(collector)
        except Exception as error:
            # What is left in the collector is of no interest any more, but must not be seen again.
            while pop(collector):
                pass
            self.fail(error)
        finally:
            self._dispatching = False

    def _remote_open(self, event: Any) -> None:
        self._set_timer(0, self._tick)
        self._on_open()

    def _session_open(self, event: Any) -> None:
        session = lib.pn_event_session(event)
        self.sessions.add(session)
        if len(self.sessions) > self.limits.max_sessions:
            raise Refusal(Rule.LIMIT_EXCEEDED, "too many sessions")
        if lib.pn_session_state(session) & lib.PN_LOCAL_UNINIT:
            lib.pn_session_set_incoming_capacity(session, self.limits.session_window)
            lib.pn_session_open(session)

    def _session_close(self, event: Any) -> None:
        session = lib.pn_event_session(event)
        if session not in self.sessions:
            return
        self.sessions.discard(session)
        for pn, link in list(self._links.items()):
            if link.session == session:
                link.gone()  # freed with its session
                self._unlink(pn)
        self.output.owes_answer()
        lib.pn_session_close(session)
        lib.pn_session_free(session)

    def _link_open(self, event: Any) -> None:
        self._on_attach(lib.pn_event_link(event))

    def _link_close(self, event: Any) -> None:
        pn = lib.pn_event_link(event)
        link = self._links.get(pn)
        if link is None:
            return
        link.lost()
        self._on_detach(link, condition_of(lib.pn_link_remote_condition(pn)))
        self._unlink(pn)
        link.free()

    def _link_detach(self, event: Any) -> None:
        # Resumption is not offered (503 cl. 6.1.6); the answer mirrors what the peer said.
        lib.pn_link_detach(lib.pn_event_link(event))
        self._link_close(event)

    def _remote_close(self, event: Any) -> None:
        assert self.engine is not None
        said = condition_of(lib.pn_connection_remote_condition(self.engine.connection))
        self._reason = self._reason or said or ("gridpost:closed-by-peer", "")
        self.peer_done = True
        if not self._closing:
            self._shut()

    def _transport_error(self, event: Any) -> None:
        assert self.engine is not None
        said = condition_of(lib.pn_transport_condition(self.engine.transport))
        self._reason = self._reason or said
        self.peer_done = True
        log.info(
            "protocol error",
            extra={"reason": said, "identity": self.identity, "peer": self.peer.address},
        )
        if not self._closing:
            condition, description = said or ("", "")
            late = condition == RESOURCE_LIMIT  # the idle timeout (AMQP 2.4.5)
            rule = Rule.LIMIT_EXCEEDED if late else Rule.AMQP_PROTOCOL
            self.tell(Refusal(rule, f"{condition}: {description}"))
            self._shut()

    def _tail_closed(self, event: Any) -> None:
        """Proton reads no more. After a frame that it cannot dispatch it does not say why."""
        self.peer_done = True
        if not self._closing:
            self.fail(Refusal(Rule.AMQP_PROTOCOL, "a frame that is not AMQP 1.0"))

    def _link(self, pn: Any, link: Link) -> None:
        self._links[pn] = link

    def _unlink(self, pn: Any) -> None:
        self._links.pop(pn, None)
        self.output.owes_answer()

    # ------------------------------------------------------------ too much input

    def stall(self, link: Receiver) -> None:
        """Something does not fit: read on when decisions make room, if any are to come."""
        if not self.undecided_octets:
            refusal = Refusal(Rule.LIMIT_EXCEEDED, "too much is being received at once")
            self.tell(refusal)
            link.close(refusal)
            return
        self.stalled = True

    def before_output(self) -> None:
        """Decisions of this turn may have made room for what was left unread."""
        if not self.stalled:
            return
        self.stalled = False
        receivers = [link for link in self._links.values() if isinstance(link, Receiver)]
        for link in receivers:
            link.read()
        if not self.stalled:
            for link in receivers:
                link.grant()

    # ------------------------------------------------------------ time

    def _set_timer(self, seconds: float, call: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, call)

    def _tick(self) -> None:
        """Heartbeats of ours, and whether the peer's still come (AMQP 2.4.5)."""
        self._timer = None
        if self.engine is None or self._closing:
            return
        now = int(self._loop.time() * 1000)
        due = lib.pn_transport_tick(self.engine.transport, now)
        self.dispatch()
        if due and not self._closing:
            self._set_timer(max(0.01, (due - now) / 1000), self._tick)
        self.output.flush()


_HANDLERS: Final = {
    lib.PN_CONNECTION_REMOTE_OPEN: "_remote_open",
    lib.PN_CONNECTION_REMOTE_CLOSE: "_remote_close",
    lib.PN_SESSION_REMOTE_OPEN: "_session_open",
    lib.PN_SESSION_REMOTE_CLOSE: "_session_close",
    lib.PN_LINK_REMOTE_OPEN: "_link_open",
    lib.PN_LINK_REMOTE_CLOSE: "_link_close",
    lib.PN_LINK_REMOTE_DETACH: "_link_detach",
    lib.PN_TRANSPORT_ERROR: "_transport_error",
    lib.PN_TRANSPORT_TAIL_CLOSED: "_tail_closed",
}
