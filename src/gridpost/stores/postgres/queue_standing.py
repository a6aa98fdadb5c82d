"""How an edge stands with the database of its queues: opened when it answers, its number, or why none."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from datetime import timedelta
from hashlib import sha256
from typing import TypeVar

import structlog
from psycopg import Notify

from gridpost.core.journal import Identity
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.postgres import queue_work
from gridpost.stores.postgres.edge import EdgeConnection
from gridpost.stores.postgres.queue_schema import BROKER_QUEUES
from gridpost.stores.postgres.settings import PostgresSettings
from gridpost.stores.postgres.store import PostgresStore
from gridpost.stores.postgres.transaction import Transaction
from gridpost.stores.tasks import Tasks

T = TypeVar("T")
log = structlog.get_logger(__name__)

_WAITABLE = frozenset({Rule.STORE_UNREACHABLE})


class Standing:
    def __init__(
        self,
        identity: Identity,
        settings: PostgresSettings,
        tasks: Tasks,
        *,
        look: timedelta,
        retry: timedelta,
        told: Callable[[Notify], None],
        freed: Callable[[str], None],
        lost: Callable[[Refusal, bool], None],
    ) -> None:
        """`freed` gets queues of which a dead edge had messages; `lost` why, and if we had a number."""
        self.edge: int | None = None
        """Our number among the edges; None: whatever we had is void."""
        self.joined: set[str] = set()
        """Queues to which links may lead under this number."""
        self.why: Refusal | None = _not_connected()
        self.channel = "gridpost_" + sha256(settings.schema.encode()).hexdigest()[:16]
        self._component = identity.component
        self._settings = settings
        self._tasks = tasks
        self._look_seconds = look.total_seconds()
        self._retry_seconds = retry.total_seconds()
        self._freed = freed
        self._lost = lost
        self._store: PostgresStore[Transaction] | None = None
        self._first = asyncio.Event()
        self._connection = EdgeConnection(
            settings,
            self.channel,
            f"{socket.gethostname()} {os.getpid()} {identity.instance}",
            taken=self._stood_up,
            told=told,
            lost=self._was_lost,
            retry=retry,
        )

    async def serve(self) -> None:
        """Refuses a database that does not keep what it commits; waits for one that is away."""
        try:
            await self._open()
        except Refusal as refusal:
            if refusal.rule not in _WAITABLE:
                raise
            self.why = refusal
            self._tasks.start(self._keep())
        else:
            self._tasks.start(self._keep())
            await self._first.wait()

    async def _open(self) -> None:
        self._store = await asyncio.to_thread(
            PostgresStore.open, self._settings, self._component, BROKER_QUEUES, _transaction
        )

    async def _keep(self) -> None:
        while self._store is None:
            await asyncio.sleep(self._retry_seconds)
            try:
                await self._open()
            except Refusal as refusal:
                self.why = refusal
                log.warning("no database", why=refusal.message, detail=refusal.details)
        self._tasks.start(self._look())
        await self._connection.run()

    def _stood_up(self, edge: int) -> None:
        self.edge, self.why = edge, None
        log.info("edge", number=edge)
        self._first.set()

    def _was_lost(self, refusal: Refusal) -> None:
        had, self.edge, self.why = self.edge, None, refusal
        self.joined.clear()
        self._first.set()
        if had is None:
            log.warning("no database", why=refusal.message, detail=refusal.details)
        self._lost(refusal, had is not None)

    def drop(self, refusal: Refusal) -> None:
        """What this edge had is void, at once: nothing may be told to a client after this."""
        self._connection.drop(refusal)
        self._was_lost(refusal)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self._look_seconds)
            try:
                await self._bury()
            except Refusal as refusal:
                log.info("other edges not looked at", why=refusal.message)

    async def _bury(self) -> None:
        store, edge = self._store, self.edge
        if store is None or edge is None:
            return
        if not await store.read(lambda t: queue_work.dead_edges(t.connection, edge)):
            return
        freed = await store.run(lambda t: queue_work.bury(t.connection, self.channel, edge))
        log.warning("took over from a dead edge", messages=freed)
        for queue in freed:
            self._freed(queue)

    async def free(self) -> None:
        """For others, at once: what this edge has was not delivered in vain."""
        edge, store = self.edge, self._store
        if edge is not None and store is not None:
            await store.run(lambda t: queue_work.free(t.connection, self.channel, [edge], failed=0))

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()

    # ------------------------------------------------------------ what there is, or why there is not

    @property
    def number(self) -> int:
        if self.edge is None:
            raise self.reason
        return self.edge

    async def run(self, work: Callable[[Transaction], T]) -> T:
        return await self._reached().run(work)

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await self._reached().read(work)

    def _reached(self) -> PostgresStore[Transaction]:
        if self._store is None:
            raise self.reason
        return self._store

    @property
    def reason(self) -> Refusal:
        return self.why or _not_connected()


def _transaction(transaction: Transaction) -> Transaction:
    return transaction


def _not_connected() -> Refusal:
    return Refusal(Rule.STORE_UNREACHABLE, "not connected to the database yet")
