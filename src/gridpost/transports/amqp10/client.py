"""Connections that we open: to brokers and endpoints, and by applications to their endpoint.

A connection has one session and lives until it is lost; links are not resumed (503 cl. 6.1.6).
Keeping one up is the keeper's work.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from gridpost.core.links import (
    UNSENT,
    Attachment,
    LinkRefused,
    Octets,
    Outcome,
    OutcomeKind,
    OutgoingLink,
    Peer,
    ReceivedDelivery,
    SentDelivery,
    ServerCheck,
)
from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.amqp10.conditions import MESSAGE_SIZE, render
from gridpost.transports.amqp10.connection import AmqpConnection
from gridpost.transports.amqp10.engine import condition_of, lib, read_value
from gridpost.transports.amqp10.limits import AmqpLimits, Ledger
from gridpost.transports.amqp10.link import Link
from gridpost.transports.amqp10.receiver import Receiver
from gridpost.transports.amqp10.sasl import ClientSasl, Credentials, Unwelcome
from gridpost.transports.amqp10.sender import Sender
from gridpost.transports.amqp10.stream import Stream
from gridpost.transports.amqp10.tls import ClientContexts, TlsProvider
from gridpost.transports.socks import SocksProxy, connect_through
from gridpost.wire.amqp.types import Map

_PORTS: Final = {"amqps": 5671, "amqp": 5672}
_LOST: Final = "gridpost:connection-lost"
_FAILED: Final = "amqp:connection-establishment-failed"


class ClientProducer:
    """The sending end of a link that we attached; feeds it as the peer grants credit."""

    def __init__(self, link: Sender, max_message_size: int) -> None:
        self._link = link
        self._max_message_size = max_message_size
        self._waiting: deque[tuple[tuple[Octets, ...], asyncio.Future[Outcome]]] = deque()
        self._loop = asyncio.get_running_loop()
        self.detached = asyncio.Event()

    @property
    def attached(self) -> bool:
        return self._link.live

    def send(self, *octets: Octets) -> asyncio.Future[Outcome]:
        future: asyncio.Future[Outcome] = self._loop.create_future()
        if not self._link.live:
            future.set_result(UNSENT)
        elif 0 < self._max_message_size < sum(map(len, octets)):
            text = f"the peer takes messages of up to {self._max_message_size} octets"
            future.set_result(Outcome(OutcomeKind.REJECTED, MESSAGE_SIZE, text))
        elif self._waiting or not self._link.sendable:
            self._waiting.append((octets, future))
        else:
            self._link.send(*octets, context=future)
        return future

    def close(self) -> None:
        self._link.close()

    def on_credit(self, link: OutgoingLink) -> None:
        waiting = self._waiting
        while waiting and link.sendable:
            octets, future = waiting.popleft()
            if not future.cancelled():
                link.send(*octets, context=future)
        if not waiting:
            link.drained()

    def on_outcome(self, delivery: SentDelivery, outcome: Outcome) -> None:
        future: asyncio.Future[Outcome] = delivery.context
        if not outcome.settled:
            delivery.settle()
        if not future.done():
            future.set_result(outcome)

    def on_detached(self) -> None:
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_result(UNSENT)
        self.detached.set()


class ClientConsumer:
    """The receiving end of a link that we attached."""

    def __init__(
        self,
        link: Receiver,
        on_delivery: Callable[[ReceivedDelivery], None],
        on_settled: Callable[[ReceivedDelivery], None] | None = None,
    ) -> None:
        self._link = link
        self.on_delivery = on_delivery
        self._on_settled = on_settled
        self.detached = asyncio.Event()

    @property
    def attached(self) -> bool:
        return self._link.live

    def close(self) -> None:
        """What is undecided goes back to the peer."""
        self._link.close()

    def on_settled(self, delivery: ReceivedDelivery) -> None:
        if self._on_settled is not None:
            self._on_settled(delivery)

    def on_detached(self) -> None:
        self.detached.set()


class ClientConnection(AmqpConnection):
    """A peer that we went to."""

    # RabbitMQ up to 3.13 counts credit in another process than deliveries, and sends a few too many.
    holds_peer_to_credit = False

    def __init__(
        self, client: AmqpClient, hostname: str, limits: AmqpLimits, container: str
    ) -> None:
        ledger = Ledger(limits.max_incoming_octets_total)
        super().__init__(limits, ledger, container)
        self._client = client
        self._hostname = hostname
        self._sasl = ClientSasl(client.credentials)
        self._session: Any = None
        self._names = itertools.count()
        self._attaching: dict[Any, asyncio.Future[None]] = {}
        self._checking: asyncio.Task[None] | None = None
        self.opened: asyncio.Future[None] = self._loop.create_future()
        self.lost: asyncio.Future[tuple[str, str]] = self._loop.create_future()
        """Done when the connection is gone, with condition and description."""

    # ------------------------------------------------------------ opening

    def stream_ready(self, chain: tuple[bytes, ...]) -> None:
        assert self.stream is not None
        self.peer = Peer(self.stream.address, chain)
        self._checking = self._loop.create_task(self._check())

    async def _check(self) -> None:
        """Who answers is decided before we say anything."""
        assert self.stream is not None
        try:
            if self._client.check is not None:
                await self._client.check(self.peer)
        except Refusal as refusal:
            self._reason = render(refusal)
            self.close(refusal)
        except Exception as error:
            self.fail(error)
        else:
            self.stream.write(self._sasl.start())

    def _on_octets(self, octets: memoryview) -> None:
        assert self.stream is not None
        try:
            self.stream.write(self._sasl.feed(octets))
        except Unwelcome as unwelcome:
            self._reason = ("amqp:unauthorized-access", str(unwelcome))
            self.close()
            return
        if self._sasl.done:
            engine = self._start_engine(server=False, hostname=self._hostname)
            lib.pn_connection_open(engine.connection)
            self._session = lib.pn_session(engine.connection)
            lib.pn_session_set_incoming_capacity(self._session, self.limits.session_window)
            lib.pn_session_open(self._session)
            self.sessions.add(self._session)
            self._feed(bytes(self._sasl.rest))

    def _on_open(self) -> None:
        assert self.engine is not None
        properties = read_value(lib.pn_connection_remote_properties(self.engine.connection))
        if isinstance(properties, Map) and any(key == _FAILED for key, _ in properties.pairs):
            # The OPEN of a peer that refuses us: its CLOSE, with the reason, follows.
            return
        if not self.opened.done():
            self.opened.set_result(None)

    # ------------------------------------------------------------ links

    async def attach_producer(self, address: str, *, exactly_once: bool = False) -> ClientProducer:
        """Unsettled, so that every message has an outcome. LinkRefused when the peer says no."""
        pn = lib.pn_sender(self._live_session(), self._name("producer"))
        lib.pn_terminus_set_address(lib.pn_link_target(pn), address.encode())
        lib.pn_terminus_set_address(lib.pn_link_source(pn), self._container.encode())
        lib.pn_link_set_snd_settle_mode(pn, lib.PN_SND_UNSETTLED)
        if exactly_once:
            lib.pn_link_set_rcv_settle_mode(pn, lib.PN_RCV_SECOND)
        link = Sender(self, pn, Attachment("", address, exactly_once=exactly_once))
        await self._attach(link, pn)
        producer = ClientProducer(link, lib.pn_link_remote_max_message_size(pn))
        link.started(producer)
        return producer

    async def attach_consumer(
        self,
        address: str,
        on_delivery: Callable[[ReceivedDelivery], None],
        *,
        credit: int,
        exactly_once: bool = False,
        on_settled: Callable[[ReceivedDelivery], None] | None = None,
    ) -> ClientConsumer:
        """`on_delivery` gets every message and says its outcome once it is safe.

        With `exactly_once` the peer settles first, and `on_settled` hears of it.
        """
        pn = lib.pn_receiver(self._live_session(), self._name("consumer"))
        lib.pn_terminus_set_address(lib.pn_link_source(pn), address.encode())
        lib.pn_terminus_set_address(lib.pn_link_target(pn), self._container.encode())
        lib.pn_link_set_max_message_size(pn, self.limits.max_message_size)
        if exactly_once:
            lib.pn_link_set_rcv_settle_mode(pn, lib.PN_RCV_SECOND)
        link = Receiver(self, pn, Attachment("", address, exactly_once=exactly_once), credit)
        await self._attach(link, pn)
        consumer = ClientConsumer(link, on_delivery, on_settled)
        link.started(consumer)
        return consumer

    async def _attach(self, link: Link, pn: Any) -> None:
        self._link(pn, link)
        future: asyncio.Future[None] = self._loop.create_future()
        self._attaching[pn] = future
        lib.pn_link_open(pn)
        self.touch()
        try:
            async with asyncio.timeout(self.limits.handshake_seconds):
                await future
        except TimeoutError:
            link.close()
            raise LinkRefused("gridpost:timeout", "the peer does not answer ATTACH") from None
        finally:
            self._attaching.pop(pn, None)
        if not link.live:
            self._raise_lost()

    def _on_attach(self, pn: Any) -> None:
        link = self._links.get(pn)
        future = self._attaching.get(pn)
        if link is not None and future is None:
            return  # given up meanwhile
        if link is None or future is None:
            # Nothing of ours is open to peers that we went to.
            raise Refusal(Rule.AMQP_PROTOCOL, "the server attaches a link of its own")
        if isinstance(link, Sender):
            terminus = lib.pn_link_remote_target(pn)
        else:
            terminus = lib.pn_link_remote_source(pn)
        # AMQP 2.6.3: without a terminus it is a refusal, whose reason comes with DETACH.
        if lib.pn_terminus_get_type(terminus) != lib.PN_UNSPECIFIED and not future.done():
            future.set_result(None)

    def _on_detach(self, link: Link, condition: tuple[str, str] | None) -> None:
        for pn, future in self._attaching.items():
            if self._links.get(pn) is link and not future.done():
                future.set_exception(LinkRefused(*(condition or ("amqp:detached", ""))))

    def _live_session(self) -> Any:
        if self._closing or self._session is None or self._session not in self.sessions:
            self._raise_lost()
        return self._session

    def _raise_lost(self) -> NoReturn:
        raise LinkRefused(*(self._reason or (_LOST, "")))

    def _name(self, kind: str) -> bytes:
        return f"{self._container}-{kind}-{next(self._names)}".encode()

    # ------------------------------------------------------------ the end

    def _session_close(self, event: Any) -> None:
        # Some brokers refuse a link by ending its session.
        session = lib.pn_event_session(event)
        said = condition_of(lib.pn_session_remote_condition(session))
        self._reason = self._reason or said
        super()._session_close(event)
        self._session = None
        self.close()

    def _on_closed(self) -> None:
        reason = self._reason or (_LOST, "")
        for future in (self.opened, *self._attaching.values()):
            if not future.done():
                future.set_exception(LinkRefused(*reason))
                future.exception()  # whoever waits sees it; nobody has to
        if not self.lost.done():
            self.lost.set_result(reason)


class AmqpClient:
    """How to reach one peer: its addresses, our credentials, and the way there."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        container: str,
        tls: TlsProvider | None,
        check: ServerCheck | None = None,
        credentials: Credentials | None = None,
        proxy: SocksProxy | None = None,
        limits: AmqpLimits | None = None,
    ) -> None:
        self.urls = list(urls)
        self.container = container
        self.check = check
        self.credentials = credentials or Credentials()
        self.limits = limits or AmqpLimits()
        self._contexts = ClientContexts(tls) if tls is not None else None
        self._proxy = proxy

    async def connect(self) -> ClientConnection:
        """503 cl. 10: the first address that works, in the order of the directory."""
        failure: Exception = LinkRefused("gridpost:no-address", "the peer has no address")
        for url in self.urls:
            try:
                async with asyncio.timeout(self.limits.handshake_seconds):
                    return await self._connect(url)
            except TimeoutError:
                failure = LinkRefused("gridpost:timeout", f"{url} does not answer")
            except OSError as error:
                failure = LinkRefused("gridpost:unreachable", f"{url}: {error}")
            except LinkRefused as refused:
                failure = refused
        raise failure

    async def _connect(self, url: str) -> ClientConnection:
        scheme, host, port = _parse(url)
        if (scheme == "amqps") != (self._contexts is not None):
            raise ValueError(f"{url}: amqps needs TLS credentials, amqp takes none")
        connection = ClientConnection(self, host, self.limits, self.container)
        stream = Stream(
            connection,
            self._contexts.context() if self._contexts is not None else None,
            write_high_water=self.limits.write_high_water,
            close_seconds=self.limits.close_seconds,
        )
        connection.stream = stream
        loop = asyncio.get_running_loop()
        if self._proxy is not None:
            socket = await connect_through(self._proxy, host, port)
            await loop.create_connection(lambda: stream, sock=socket)
        else:
            await loop.create_connection(lambda: stream, host, port)
        try:
            await connection.opened
        except BaseException:
            connection.abort()
            await connection.lost
            raise
        return connection


def _parse(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"{url} is no AMQP address")
    return parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme]
