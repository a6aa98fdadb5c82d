"""Who is logged in, and the private queues of each user (CMM 3.1.2, 3.2.1, 5.2.1).

Only a Login makes a session, and it ends with the response queue: whoever let it expire has to log in
again. The ledger keeps both ends of a session: a queue that was made only to answer a refusal is none,
also after a restart. Bindings follow the grants of a user, whatever they were when it logged in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime
from time import monotonic
from typing import TYPE_CHECKING

import structlog

from gridpost.core.amqp091 import Channel, RabbitConnection
from gridpost.core.broadcast import login_filter
from gridpost.core.capacity_ledger import CapacityUnit
from gridpost.core.journal import SessionEvent, SessionRow
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.capacity import topology
from gridpost.wire.cmm import Login, LoginResp

if TYPE_CHECKING:
    from gridpost.services.capacity.service import CapacityService

log = structlog.get_logger(__name__)

# Each is a question to the broker; beyond it a Login of the client costs less.
_UNBOUND_AT_MOST = 1000
# Its number of combinations was looked at when the Login came.
_NO_LIMIT = 1 << 62


class Sessions:
    def __init__(self, service: CapacityService) -> None:
        self._service = service
        self._logins: dict[str, str] = {}
        """User -> arguments of its Login."""
        self._bound: dict[str, frozenset[topology.Binding]] = {}
        """What is certain; a Login of an earlier run is not in it."""
        self._queue_until: dict[str, float] = {}
        """User -> until when its response queue certainly exists."""
        self._entering: dict[str, asyncio.Lock] = {}

    async def open(self) -> None:
        self._logins = await self._service.ledger.read(lambda reader: reader.logins())

    @property
    def users(self) -> frozenset[str]:
        return frozenset(self._logins)

    async def connected(self, connection: RabbitConnection) -> None:
        """Of an earlier connection, run or service only what the broker still has is left."""
        self._queue_until.clear()
        self._bound.clear()
        await self.follow_grants(connection)

    async def login(self, user: str, request: Login) -> LoginResp:
        async with self._entering.setdefault(user, asyncio.Lock()):
            return await self._login(user, request)

    def certain(self, user: str) -> bool:
        """It is logged in, no Login is under way, and its response queue is there."""
        lock = self._entering.get(user)
        busy = lock is not None and lock.locked()
        return not busy and user in self._logins and self._queue_is_certain(user)

    async def require(self, user: str) -> None:
        """Refuses who is not logged in; a Login under way counts."""
        if self.certain(user):
            return
        async with self._entering.setdefault(user, asyncio.Lock()):
            if await self._goes_on(user):
                return
        raise Refusal(Rule.NOT_LOGGED_IN, "Login is the first request of a session.")

    async def ensure_response_queue(self, user: str) -> None:
        """A known user is answered also when it is not logged in."""
        if self._queue_is_certain(user):
            return
        async with self._entering.setdefault(user, asyncio.Lock()):
            connection = self._service.connection
            # Before the queue is made again: after it nothing would show that the session had ended.
            if connection is None or await self._goes_on(user):
                return
            channel = await connection.channel()
            try:
                await topology.declare_response(connection, channel, self._service.settings, user)
            finally:
                await channel.close()

    async def _goes_on(self, user: str) -> bool:
        """Its session, as the broker knows it: one whose response queue is gone has ended."""
        connection = self._service.connection
        if user not in self._logins or connection is None:
            return False
        if self._queue_is_certain(user):
            return True
        if await _exists(connection, self._service.settings.names.response_queue(user)):
            self._known_until(user)
            return True
        await self._end(user)
        return False

    def _queue_is_certain(self, user: str) -> bool:
        return self._queue_until.get(user, 0) > monotonic()

    def response_returned(self, user: str) -> None:
        self._queue_until.pop(user, None)

    async def follow_grants(self, connection: RabbitConnection) -> None:
        """Bind and unbind what the grants of now ask for, without a new Login."""
        for user in list(self._logins):
            async with self._entering.setdefault(user, asyncio.Lock()):
                # Of its own for each user: the broker closes one that names a queue that is gone.
                channel = await connection.channel()
                try:
                    await self._follow(connection, channel, user)
                except Refusal as refusal:
                    if refusal.rule is not Rule.AMQP091_NOT_FOUND:
                        raise
                    self._bound.pop(user, None)
                finally:
                    await channel.close()

    async def _login(self, user: str, request: Login) -> LoginResp:
        service = self._service
        settings, connection = service.settings, service.connection
        if connection is None:
            raise Refusal(Rule.UNREACHABLE, "the broker is away")
        arguments = request.arguments or ""
        try:
            chosen = login_filter(arguments, settings.max_bindings)
            bindings = topology.login_bindings(settings, settings.parties[user], chosen)
        except Refusal as refusal:
            service.metrics.requests.labels("Login", "refused").inc()
            return LoginResp(False, refusal.message)
        now = service.clock.now()

        def enter(unit: CapacityUnit) -> None:
            unit.login(user, arguments, now)
            unit.note(self._row(unit, now, user, SessionEvent.LOGIN, arguments, bindings))

        await service.ledger.run(enter)
        await self._make_response_queue(connection, user)
        channel = await connection.channel()
        try:
            await topology.declare_broadcast(connection, channel, settings, user, bindings)
        finally:
            await channel.close()
        self._logins[user] = arguments
        self._bound[user] = bindings
        self._known_until(user)
        service.metrics.requests.labels("Login", "done").inc()
        return LoginResp(True)

    async def _make_response_queue(self, connection: RabbitConnection, user: str) -> None:
        """One with other settings goes first: it would refuse every Login for as long as it is used."""
        settings = self._service.settings
        for last in (False, True):
            channel = await connection.channel()
            try:
                await topology.declare_response(connection, channel, settings, user)
                return
            except Refusal as refusal:
                if last or refusal.rule is not Rule.AMQP091_FAILED:
                    raise
            finally:
                await channel.close()
            log.warning("a response queue with other settings is replaced", user=user)
            channel = await connection.channel()
            try:
                await channel.delete_queue(settings.names.response_queue(user))
            finally:
                await channel.close()

    async def _follow(self, connection: RabbitConnection, channel: Channel, user: str) -> None:
        settings = self._service.settings
        party, queue = settings.parties.get(user), settings.names.broadcast_queue(user)
        if party is None:
            await channel.delete_queue(queue)
            await channel.delete_queue(settings.names.response_queue(user))
            await self._end(user)
            return
        if not await _exists(connection, settings.names.response_queue(user)):
            await self._end(user)
            return
        if not await _exists(connection, queue):
            # It takes no broadcasts, and is logged in all the same.
            self._bound.pop(user, None)
            return
        chosen = login_filter(self._logins[user], _NO_LIMIT)
        wanted, known = topology.wanted_bindings(settings, party, chosen), self._bound.get(user)
        stale = (topology.possible_bindings(settings, chosen) if known is None else known) - wanted
        if len(stale) > _UNBOUND_AT_MOST:
            log.warning("too many bindings to look for: the queue goes", user=user)
            await channel.delete_queue(queue)
            self._bound.pop(user, None)
            return
        for binding in stale:
            await channel.unbind(queue, binding.exchange, "", dict(binding.arguments))
        for binding in wanted - (known or frozenset()):
            await channel.bind(queue, binding.exchange, "", dict(binding.arguments))
        self._bound[user] = wanted
        if known is not None and known != wanted:
            now, arguments = self._service.clock.now(), self._logins[user]
            event = SessionEvent.BINDINGS
            await self._service.ledger.run(
                lambda unit: unit.note(self._row(unit, now, user, event, arguments, wanted))
            )

    def _row(
        self,
        unit: CapacityUnit,
        now: datetime,
        user: str,
        event: SessionEvent,
        arguments: str = "",
        bindings: Iterable[topology.Binding] = (),
    ) -> SessionRow:
        settings, bound = self._service.settings, {binding.exchange for binding in bindings}
        groups = [group for group in settings.groups if settings.names.allocation(group) in bound]
        filtered = bool(login_filter(arguments, _NO_LIMIT).headers)
        return SessionRow(now, user, event, arguments, filtered, " ".join(groups), unit.run)

    async def _end(self, user: str) -> None:
        now = self._service.clock.now()

        def leave(unit: CapacityUnit) -> None:
            unit.session_ended(user, now)
            unit.note(self._row(unit, now, user, SessionEvent.ENDED))

        await self._service.ledger.run(leave)
        self._logins.pop(user, None)
        self._bound.pop(user, None)
        self._queue_until.pop(user, None)

    def _known_until(self, user: str) -> None:
        # A declaration starts the expiry of a queue anew.
        expires = self._service.settings.queue_expires.total_seconds()
        self._queue_until[user] = monotonic() + expires * 0.9


async def _exists(connection: RabbitConnection, queue: str) -> bool:
    channel = await connection.channel()
    try:
        await channel.declare_queue(queue, passive=True)
    except Refusal as refusal:
        if refusal.rule is Rule.AMQP091_NOT_FOUND:
            return False
        raise
    finally:
        await channel.close()
    return True
