"""What a bus can have wrong: no broker, envelopes that nobody took, a journal that outlives its time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta

import structlog

from gridpost.core.alerts import AlertKind, Condition, Severity
from gridpost.core.amqp091 import RabbitConnection
from gridpost.core.bus import BusUnit
from gridpost.core.refusal import Refusal
from gridpost.services.bus.service import BusService
from gridpost.services.operations.alerting import Observer

log = structlog.get_logger(__name__)

_PRUNE_EVERY = timedelta(minutes=10)
_ANSWER_SECONDS = 10.0


def broker(service: BusService) -> Observer:
    async def observe() -> Sequence[Condition]:
        if service.post.channel is not None:
            return []
        text = "there is no connection to RabbitMQ: no request is taken and nothing is sent"
        return [Condition(AlertKind.RABBITMQ, "rabbitmq", text, Severity.CRITICAL)]

    return observe


class DeadLetters:
    """How many envelopes nobody took. They stay until somebody has looked at them."""

    def __init__(
        self, service: BusService, connection: Callable[[], RabbitConnection | None]
    ) -> None:
        self._service = service
        self._connection = connection
        self._counting: asyncio.Task[dict[str, int]] | None = None

    async def count(self) -> dict[str, int] | None:
        """By the name of the queue of each context; None: RabbitMQ cannot be asked."""
        connection = self._connection()
        if connection is None:
            return None
        if self._counting is None or self._counting.done():
            self._counting = asyncio.create_task(self._count(connection))
        try:
            # Whoever asks may be cancelled, the question must not be: the library waits for ever for
            # the end of a channel on which an answer was given up.
            return await asyncio.shield(self._counting)
        except (Refusal, TimeoutError) as error:
            log.warning("dead letters were not counted", reason=str(error))
            return None

    async def observe(self) -> Sequence[Condition]:
        # That there is no broker is an alert of its own.
        counts = await self.count() or {}
        return [
            Condition(
                AlertKind.DEAD_LETTERS,
                queue,
                f"{count} envelopes that nobody took are in the queue {queue}",
            )
            for queue, count in counts.items()
            if count
        ]

    async def close(self) -> None:
        """Before the connection is closed."""
        if self._counting is not None:
            await asyncio.wait({self._counting}, timeout=_ANSWER_SECONDS)

    async def _count(self, connection: RabbitConnection) -> dict[str, int]:
        # Of its own: RabbitMQ closes the channel on which a queue was asked for that is not there.
        channel = await connection.channel(confirms=False)
        found = {}
        try:
            for context in sorted(self._service.settings.contexts):
                queue = self._service.settings.names.dead_letters(context)
                _, counts = await channel.declare_queue(queue, passive=True)
                self._service.metrics.dead_letters.labels(context).set(counts.messages)
                found[queue] = counts.messages
        finally:
            await channel.close()
        return found


async def keep_journal(service: BusService, retention: timedelta, keep_exported: timedelta) -> None:
    """Until cancelled: rows of the journal go when their time is over."""

    def work(unit: BusUnit) -> int:
        return unit.prune(service.clock.now(), retention, keep_exported)

    while True:
        try:
            while await service.ledger.run(work):
                pass
        except Refusal as refusal:
            log.warning("the journal was not pruned", reason=refusal.message)
        await asyncio.sleep(_PRUNE_EVERY.total_seconds())
