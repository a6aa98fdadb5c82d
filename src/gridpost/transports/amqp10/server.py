"""Listening for AMQP connections, and everything that concerns more than one of them:
limits, revocation, expiry of certificates, orderly stop.
"""

from __future__ import annotations

import asyncio
import heapq
import ipaddress
import itertools
import logging
import ssl
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from gridpost.core.links import Admission, Gatekeeper, PasswordCheck
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.amqp10.admission import ServerConnection
from gridpost.transports.amqp10.limits import AmqpLimits, Ledger
from gridpost.transports.amqp10.stream import Stream
from gridpost.transports.amqp10.tls import ServerContexts, TlsProvider

log = logging.getLogger("gridpost.amqp")

OnRefused: TypeAlias = Callable[[Refusal, str, str], None]
"""Who was refused: component code or user, empty when that is not known, and network address."""

_BACKLOG: Final = 1_024
_SWEEP_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class ConnectionView:
    """One line of `gridpost broker connections`."""

    identity: str
    address: str
    seconds: float
    links: int
    octets_in: int
    octets_out: int
    undecided_octets: int
    until: datetime | None


class AmqpServer:
    """Several listeners may share one server, and then share its limits."""

    def __init__(
        self,
        *,
        container: str,
        clock: Clock,
        limits: AmqpLimits | None = None,
        on_refused: OnRefused | None = None,
    ) -> None:
        """`on_refused` hears of what is refused here and not by the service."""
        self.container = container
        self._on_refused = on_refused
        self._limits = limits or AmqpLimits()
        self.stopping = False
        self._clock = clock
        self._total = Ledger(self._limits.max_incoming_octets_total)
        self._listeners: list[asyncio.Server] = []
        self._connections: set[ServerConnection] = set()
        self._of_identity: defaultdict[str, set[ServerConnection]] = defaultdict(set)
        self._expiring: list[tuple[datetime, int, ServerConnection]] = []
        self._number = itertools.count()
        self._sweeper: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()

    @property
    def limits(self) -> AmqpLimits:
        """May be replaced at any time; connections keep what they started with.

        What concerns all of them together counts at once.
        """
        return self._limits

    @limits.setter
    def limits(self, limits: AmqpLimits) -> None:
        self._limits = limits
        self._total.limit = limits.max_incoming_octets_total

    async def listen(
        self,
        host: str,
        port: int,
        gatekeeper: Gatekeeper,
        *,
        tls: TlsProvider | None,
        password: PasswordCheck | None = None,
    ) -> int:
        """Accept connections; the port, which matters where 0 was asked for.

        With `password` applications authenticate by SASL PLAIN, without it components do by
        EXTERNAL. 503 Table 4 knows no connection without TLS: only this machine may have one.
        """
        if tls is None and (password is None or not _is_loopback(host)):
            raise ValueError("without TLS only password users on a loopback address are served")
        contexts = ServerContexts(tls) if tls is not None else None
        loop = asyncio.get_running_loop()
        try:
            listener = await loop.create_server(
                lambda: self._accept(gatekeeper, contexts, password), host, port, backlog=_BACKLOG
            )
        except OSError as error:
            raise Refusal(Rule.USAGE, f"{host}:{port} cannot be used: {error.strerror}") from None
        self._listeners.append(listener)
        if self._sweeper is None:
            self._sweep()
        chosen: int = listener.sockets[0].getsockname()[1]
        return chosen

    def _accept(
        self,
        gatekeeper: Gatekeeper,
        contexts: ServerContexts | ssl.SSLContext | None,
        password: PasswordCheck | None,
    ) -> asyncio.BaseProtocol:
        if self.stopping or len(self._connections) >= self.limits.max_connections:
            return _TurnedAway(self._turned_away)
        connection = ServerConnection(self, gatekeeper, password)
        connection.stream = Stream(
            connection,
            contexts,
            write_high_water=self.limits.write_high_water,
            close_seconds=self.limits.close_seconds,
        )
        self._connections.add(connection)
        self._idle.clear()
        return connection.stream

    # ------------------------------------------------------------ for connections

    def ledger_for_connection(self) -> Ledger:
        return Ledger(self.limits.max_incoming_octets, self._total)

    def refused(self, refusal: Refusal, identity: str, address: str) -> None:
        """Without an identity everybody can cause this: whoever listens bounds what it keeps."""
        if self._on_refused is not None:
            self._on_refused(refusal, identity, address)
        elif not identity:
            # Of those who are known their connection tells it, see `note`.
            log.info(
                "refused",
                extra={
                    "refusal": refusal.id,
                    "rule": refusal.rule.name,
                    "reason": refusal.message,
                    "peer": address,
                },
            )

    def _turned_away(self, address: str) -> None:
        count = len(self._connections)
        if self.stopping:
            refusal = Refusal(Rule.STOPPING, "this server is about to stop")
        else:
            refusal = Refusal(Rule.BUSY, f"{count} connections are open already")
        self.refused(refusal, "", address)

    def count_in(self, connection: ServerConnection, admission: Admission) -> None:
        if connection.closed:
            return
        known = self._of_identity[admission.identity]
        if len(known) >= self.limits.max_connections_per_identity:
            message = f"{admission.identity} has {len(known)} connections already"
            raise Refusal(Rule.LIMIT_EXCEEDED, message)
        known.add(connection)
        if admission.until is not None:
            heapq.heappush(self._expiring, (admission.until, next(self._number), connection))

    def count_out(self, connection: ServerConnection) -> None:
        self._connections.discard(connection)
        known = self._of_identity.get(connection.identity)
        if known is not None:
            known.discard(connection)
            if not known:
                del self._of_identity[connection.identity]
        if not self._connections:
            self._idle.set()

    # ------------------------------------------------------------ for services and operators

    def connections(self) -> list[ConnectionView]:
        now = asyncio.get_running_loop().time()
        return [
            ConnectionView(
                identity=connection.identity,
                address=connection.peer.address,
                seconds=now - connection.opened_at,
                links=connection.links,
                octets_in=connection.stream.octets_in if connection.stream else 0,
                octets_out=connection.stream.octets_out if connection.stream else 0,
                undecided_octets=connection.undecided_octets,
                until=connection.admission.until if connection.admission else None,
            )
            for connection in self._connections
            if connection.opened_at
        ]

    async def drain(self, seconds: float) -> bool:
        """Take nothing new, wait for decisions that are under way, then close; False: some were cut."""
        self.stopping = True
        for listener in self._listeners:
            listener.close()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while self._hush():
            if loop.time() >= deadline:
                break
            await asyncio.sleep(0.02)
        complete = not self._hush()
        # One more turn, so that the last settlements are written before CLOSE.
        await asyncio.sleep(0)
        for connection in list(self._connections):
            connection.close(Refusal(Rule.STOPPING, "this server stops"))
        await self.close()
        return complete

    def _hush(self) -> int:
        return sum([connection.hush() for connection in self._connections])

    async def close(self) -> None:
        """Close listeners and connections; what a peer does not answer in time is cut."""
        self.stopping = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for listener in self._listeners:
            listener.close()
        for connection in list(self._connections):
            connection.close()
        if self._connections:
            try:
                async with asyncio.timeout(2 * self.limits.close_seconds):
                    await self._idle.wait()
            except TimeoutError:
                for connection in list(self._connections):
                    connection.abort()
                await self._idle.wait()
        for listener in self._listeners:
            await listener.wait_closed()
        self._listeners.clear()

    def _sweep(self) -> None:
        """503 cl. 8.3.2: nothing is done with a certificate that has expired."""
        now = self._clock.now()
        while self._expiring and self._expiring[0][0] < now:
            _, _, connection = heapq.heappop(self._expiring)
            if not connection.closed:
                refusal = Refusal(Rule.CERTIFICATE_EXPIRED, "the certificate has expired")
                connection.tell(refusal)
                connection.close(refusal)
        if len(self._expiring) > 2 * len(self._connections) + 64:
            self._expiring = [entry for entry in self._expiring if not entry[2].closed]
            heapq.heapify(self._expiring)
        self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self._sweep)


class _TurnedAway(asyncio.Protocol):
    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        peer = transport.get_extra_info("peername")
        self._tell(f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "")
        transport.abort()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
