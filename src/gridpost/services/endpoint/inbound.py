"""What becomes of each AMQP message that reaches this endpoint, by a broker or directly.

Accepted after the commit of everything it led to; rejected when it cannot even be answered; given
back when the fault is ours and may pass. How many are worked on at once is bounded here, what waits
behind them by the credit that was granted.
"""

from __future__ import annotations

import asyncio

import structlog

from gridpost.core.delivery import Side
from gridpost.core.journal import TransferRow, refusal_row
from gridpost.core.links import Octets, ReceivedDelivery
from gridpost.core.message import InternalType
from gridpost.core.message_path import Route
from gridpost.core.refusal import Refusal
from gridpost.services.endpoint.arrival import Arrival
from gridpost.services.endpoint.context import EndpointContext
from gridpost.wire.amqp.sections import split_head
from gridpost.wire.mades.amqp_message import Fields, read_fields

log = structlog.get_logger(__name__)

_GIVE_BACK_SECONDS = 1.0
"""A message that is given back at once would come again at once."""


class Inbound:
    def __init__(self, context: EndpointContext, arrival: Arrival, at_once: int = 64) -> None:
        self._context = context
        self._arrival = arrival
        self._room = asyncio.Semaphore(at_once)
        self._tasks: set[asyncio.Task[None]] = set()
        self._last: dict[tuple[str, str], asyncio.Task[None]] = {}

    @property
    def under_way(self) -> int:
        return len(self._tasks)

    def take(self, delivery: ReceivedDelivery, came_by: Route) -> None:
        # Ours from here on: the delivery lets go of it with its decision.
        data = delivery.message
        before: asyncio.Task[None] | None = None
        key = self._key(data)
        if key is not None:
            before = self._last.get(key)
        task = asyncio.get_running_loop().create_task(self._take(delivery, data, came_by, before))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if key is not None:
            self._last[key] = task
            task.add_done_callback(lambda done: self._forget(key, done))

    async def drain(self, seconds: float) -> None:
        """What has begun is finished; the rest goes back to the senders."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=seconds)
        for task in list(self._tasks):
            task.cancel()

    def _key(self, data: Octets) -> tuple[str, str] | None:
        """503 cl. 5.11: a message-type that keeps its order does so on arrival as well."""
        if not self._context.settings.ordered:
            return None
        try:
            fields = read_fields(split_head(data))
        except Refusal:
            return None
        if fields.internal_type is not InternalType.STANDARD_MESSAGE:
            return None
        if not self._context.settings.keeps_order(fields.subject):
            return None
        return fields.sender_code, fields.subject

    def _forget(self, key: tuple[str, str], task: asyncio.Task[None]) -> None:
        if self._last.get(key) is task:
            del self._last[key]

    async def _take(
        self,
        delivery: ReceivedDelivery,
        data: Octets,
        came_by: Route,
        before: asyncio.Task[None] | None,
    ) -> None:
        try:
            if before is not None:
                await asyncio.wait([before])
            async with self._room:
                await self._arrival.arrive(data, came_by)
        except Refusal as refusal:
            await self._refused(delivery, data, came_by, refusal)
        except asyncio.CancelledError:
            delivery.release()
            raise
        except Exception:
            # Our bug: the sender keeps the message, and counts that it failed here.
            log.exception("arrival failed")
            await asyncio.sleep(_GIVE_BACK_SECONDS)
            delivery.modify(failed=True)
        else:
            delivery.accept()

    async def _refused(
        self, delivery: ReceivedDelivery, data: Octets, came_by: Route, refusal: Refusal
    ) -> None:
        fields = _fields(data)
        log.warning(
            "message not taken",
            rule=refusal.rule.name,
            reason=refusal.message,
            id=refusal.id,
            message_id="" if fields is None else fields.message_id,
        )
        if refusal.retryable:
            await asyncio.sleep(_GIVE_BACK_SECONDS)
            delivery.release()
            return
        now = self._context.clock.now()
        peer = "" if fields is None else fields.sender_code
        message_id = "" if fields is None else fields.message_id
        row = refusal_row(refusal, now, peer=peer, message_id=message_id, security=True)
        transfer = TransferRow(
            now,
            Side.RECEIVED,
            message_id,
            peer,
            self._context.code,
            "" if fields is None else fields.subject,
            came_by.broker or peer,
            len(data),
            "rejected",
            refusal.message,
        )
        try:
            await self._context.store.run(
                lambda work: (work.journal.append(row), work.journal.append(transfer))
            )
        except Refusal as failed:
            log.error("refusal not journalled", reason=failed.message, id=refusal.id)
        delivery.reject(refusal)


def _fields(data: Octets) -> Fields | None:
    try:
        return read_fields(split_head(data))
    except Refusal:
        return None
