"""Keeping a connection up: when to try again, and what of it the caller has to repeat.

Nothing is resumed (503 cl. 6.1.6). A message whose outcome was still to come when the connection
went is reported as LOST, one that never left as UNSENT; the caller has it in its store and sends it
again. Links that are wanted are attached again on every new connection.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass

from gridpost.core.links import UNSENT, LinkRefused, Octets, Outcome, ReceivedDelivery
from gridpost.transports.amqp10.client import (
    AmqpClient,
    ClientConnection,
    ClientConsumer,
    ClientProducer,
)

log = logging.getLogger("gridpost.amqp")


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits double from `first` to `most`; each is shortened at random by up to half of it,
    so that a broker that comes back is not met by everybody at once."""

    first: float = 0.5
    most: float = 60.0

    def wait(self, failures: int) -> float:
        full = min(self.most, self.first * 2.0 ** min(failures, 32))
        return full * random.uniform(0.5, 1.0)


class _Kept:
    """A link that is wanted whether or not there is a connection."""

    def __init__(self, keeper: SessionKeeper, address: str) -> None:
        self._keeper = keeper
        self.address = address
        self.refused: LinkRefused | None = None
        self._changed = asyncio.Event()
        self._end: ClientProducer | ClientConsumer | None = None
        self._wanted = True

    @property
    def attached(self) -> bool:
        return self._end is not None and self._end.attached

    async def ready(self) -> None:
        while not self.attached:
            self._changed.clear()
            if self.refused is not None and self._keeper.connected:
                raise self.refused
            if not self._wanted or self._keeper.closed:
                raise LinkRefused("gridpost:closed", "the link is no longer wanted")
            await self._changed.wait()

    async def close(self) -> None:
        self._wanted = False
        self._keeper.forget(self)
        if self._end is not None:
            self._end.close()
        self._changed.set()

    def wake(self) -> None:
        self._changed.set()

    async def keep(self, connection: ClientConnection, backoff: Backoff) -> None:
        """Attach, and again when the peer detaches, as long as the connection lasts."""
        failures = 0
        while self._wanted:
            try:
                self._end = await self._attach(connection)
                self.refused, failures = None, 0
                self._changed.set()
                await self._end.detached.wait()
            except LinkRefused as refused:
                self.refused = refused
                self._changed.set()
                log.warning("link refused", extra={"address": self.address, "reason": str(refused)})
            if connection.lost.done():
                return
            await asyncio.wait([connection.lost], timeout=backoff.wait(failures))
            failures += 1

    async def _attach(self, connection: ClientConnection) -> ClientProducer | ClientConsumer:
        raise NotImplementedError


class KeptProducer(_Kept):
    """Fulfils `core.links.Producer`."""

    def send(self, *octets: Octets) -> asyncio.Future[Outcome]:
        if isinstance(self._end, ClientProducer):
            return self._end.send(*octets)
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        future.set_result(UNSENT)
        return future

    async def _attach(self, connection: ClientConnection) -> ClientProducer:
        return await connection.attach_producer(
            self.address, exactly_once=self._keeper.exactly_once
        )


class KeptConsumer(_Kept):
    """Fulfils `core.links.Consumer`."""

    def __init__(
        self,
        keeper: SessionKeeper,
        address: str,
        on_delivery: Callable[[ReceivedDelivery], None],
        credit: int,
        on_settled: Callable[[ReceivedDelivery], None] | None = None,
    ) -> None:
        super().__init__(keeper, address)
        self._on_delivery = on_delivery
        self._on_settled = on_settled
        self._credit = credit

    async def _attach(self, connection: ClientConnection) -> ClientConsumer:
        return await connection.attach_consumer(
            self.address,
            self._on_delivery,
            credit=self._credit,
            exactly_once=self._keeper.exactly_once or self._on_settled is not None,
            on_settled=self._on_settled,
        )


class SessionKeeper:
    """Fulfils `core.links.LinkKeeper`: one peer, one connection at a time (503 cl. 6.4)."""

    def __init__(
        self,
        client: AmqpClient,
        *,
        backoff: Backoff | None = None,
        on_state: Callable[[bool, str], None] | None = None,
        exactly_once: bool = False,
    ) -> None:
        """`on_state` is told when the connection comes up or goes, and why."""
        self.exactly_once = exactly_once
        self._client = client
        self._backoff = backoff or Backoff()
        self._on_state = on_state
        self._links: dict[_Kept, asyncio.Task[None] | None] = {}
        self._connection: ClientConnection | None = None
        self._dead: set[asyncio.Task[None]] = set()
        self.closed = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def connected(self) -> bool:
        return self._connection is not None

    def producer(self, address: str) -> KeptProducer:
        kept = KeptProducer(self, address)
        self._want(kept)
        return kept

    def consumer(
        self,
        address: str,
        on_delivery: Callable[[ReceivedDelivery], None],
        credit: int,
        on_settled: Callable[[ReceivedDelivery], None] | None = None,
    ) -> KeptConsumer:
        """`on_settled` is told when the peer has answered an outcome: it has it for good."""
        kept = KeptConsumer(self, address, on_delivery, credit, on_settled)
        self._want(kept)
        return kept

    async def close(self) -> None:
        self.closed = True
        self._task.cancel()
        await asyncio.wait([self._task])
        for kept in list(self._links):
            kept.wake()
        tasks = [task for task in self._links.values() if task is not None]
        if self._connection is not None:
            self._connection.close()
            await asyncio.wait([self._connection.lost])
            self._connection = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def forget(self, kept: _Kept) -> None:
        task = self._links.pop(kept, None)
        if task is not None:
            task.cancel()
            self._dead.add(task)
            task.add_done_callback(self._dead.discard)

    def _want(self, kept: _Kept) -> None:
        self._links[kept] = None
        if self._connection is not None:
            self._start(kept, self._connection)

    def _start(self, kept: _Kept, connection: ClientConnection) -> None:
        loop = asyncio.get_running_loop()
        self._links[kept] = loop.create_task(kept.keep(connection, self._backoff))

    async def _run(self) -> None:
        failures = 0
        while not self.closed:
            try:
                connection = await self._client.connect()
            except LinkRefused as refused:
                self._say(False, str(refused))
            else:
                self._connection = connection
                self._say(True, connection.peer.address)
                for kept in list(self._links):
                    self._start(kept, connection)
                began = asyncio.get_running_loop().time()
                condition, description = await asyncio.shield(connection.lost)
                self._connection = None
                # A peer that lets us in and throws us out at once is as bad as one that is down.
                if asyncio.get_running_loop().time() - began > self._backoff.first:
                    failures = 0
                self._say(False, f"{condition}: {description}")
            await asyncio.sleep(self._backoff.wait(failures))
            failures += 1

    def _say(self, connected: bool, why: str) -> None:
        log.info("connected" if connected else "not connected", extra={"reason": why})
        if self._on_state is not None:
            self._on_state(connected, why)
