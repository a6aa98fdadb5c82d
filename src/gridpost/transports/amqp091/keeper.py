"""When a lost connection is tried again; what of the work has to be done again, its owner decides."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count

from gridpost.core.amqp091 import RabbitClient, RabbitConnection
from gridpost.core.refusal import Refusal, Rule

log = logging.getLogger("gridpost.rabbitmq")

# A node that starts lets nobody in at first, and then has queues that are not there yet.
_RECOVERING = frozenset(
    {
        Rule.AMQP091_UNREACHABLE,
        Rule.AMQP091_NOT_FOUND,
        Rule.AMQP091_LOCKED,
        Rule.AMQP091_NOT_CONFIRMED,
    }
)


class Amqp091Keeper:
    """core.amqp091.ConnectionKeeper."""

    def __init__(
        self,
        client: RabbitClient,
        work: Callable[[RabbitConnection], Awaitable[None]],
        *,
        purpose: str = "",
        lost: Callable[[Refusal], None] | None = None,
        first: float = 0.2,
        most: float = 10.0,
    ) -> None:
        self.connection: RabbitConnection | None = None
        self.why: Refusal | None = None
        self._client = client
        self._work = work
        self._purpose = purpose
        self._lost = lost
        self._first, self._most = first, most
        self._task: asyncio.Task[None] | None = None

    async def start(self, *, insist: bool = True, patience: float = 0.0) -> None:
        try:
            await self._open_within(patience)
        except Refusal as refusal:
            if insist or refusal.rule is not Rule.AMQP091_UNREACHABLE:
                raise
            self.why = refusal
            log.warning("RabbitMQ does not answer", extra={"reason": refusal.message})
        self._task = asyncio.create_task(self._run())

    async def _open_within(self, patience: float) -> None:
        end = time.monotonic() + patience
        for failures in count():
            try:
                await self._open()
                return
            except Refusal as refusal:
                wait = self._pause(failures)
                left = end - time.monotonic()
                if refusal.rule not in _RECOVERING or left < wait:
                    raise
                self.why = refusal
                told = {"reason": refusal.message, "seconds_left": round(left)}
                log.warning("waiting for RabbitMQ", extra=told)
                await asyncio.sleep(wait)

    def _pause(self, failures: int) -> float:
        wait = min(self._most, self._first * 2.0 ** min(failures, 16))
        # Not everybody at once when it comes back.
        return wait * random.uniform(0.5, 1.0)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self.connection is not None:
            await self.connection.close()
            self.connection = None

    async def _open(self) -> None:
        connection = await self._client.connect(self._purpose)
        try:
            await self._work(connection)
        except BaseException:
            await connection.close()
            raise
        self.connection, self.why = connection, None
        log.info("connected to RabbitMQ", extra={"address": connection.address})

    async def _run(self) -> None:
        while True:
            if self.connection is not None:
                refusal = await asyncio.shield(self.connection.lost)
                self.connection, self.why = None, refusal
                log.warning("lost RabbitMQ", extra={"reason": refusal.message})
                if self._lost is not None:
                    self._lost(refusal)
            for failures in count():
                await asyncio.sleep(self._pause(failures))
                try:
                    await self._open()
                    break
                except Refusal as again:
                    self.why = again
                    log.warning("RabbitMQ does not answer", extra={"reason": again.message})
