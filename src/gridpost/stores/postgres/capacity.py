"""The capacity ledger in PostgreSQL: one active service by a lock of the server, and a fence behind it.

The law of this file: the book in memory is what the committed ledger says, and only the newest holder
writes. Each transaction checks the number of its take-over, so that a service that was cut off and
comes back with an old book stores nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from gridpost.core.capacity import Book, Market
from gridpost.core.capacity_ledger import KEEP_BEHIND
from gridpost.core.journal import Identity
from gridpost.stores.capacity_work import Bookkeeping, State, worked
from gridpost.stores.postgres.capacity_schema import CAPACITY
from gridpost.stores.postgres.capacity_unit import (
    PostgresCapacityReader,
    PostgresCapacityUnit,
    replay,
    runs,
)
from gridpost.stores.postgres.committer import Committer
from gridpost.stores.postgres.faults import refusing
from gridpost.stores.postgres.leases import Leases, take_over
from gridpost.stores.postgres.session import Connection
from gridpost.stores.postgres.settings import PostgresSettings
from gridpost.stores.postgres.store import PostgresStore, prepare_schema
from gridpost.stores.postgres.transaction import Fence, Transaction

T = TypeVar("T")

LEDGER, TURN = "capacity ledger", "capacity turn"


class _Committer(Committer):
    """Gives works the book, and takes it back to the ledger when something failed."""

    def __init__(
        self, settings: PostgresSettings, holder: str, rebuild: Callable[[Connection, int], State]
    ) -> None:
        super().__init__(settings, exclusive=True, prepare=self._take_over)
        self._holder = holder
        self._make = rebuild
        self._run = 0
        self._fence: Fence | None = None
        self._books: Bookkeeping | None = None

    @property
    def books(self) -> Bookkeeping:
        if self._books is None:
            raise RuntimeError("the committer has not started")
        return self._books

    @property
    def run(self) -> int:
        return self._run

    def rebuild(self, connection: Connection) -> State:
        return self._make(connection, self._run)

    def _take_over(self, connection: Connection) -> None:
        """Once: a later connection of this process goes on only if nobody has taken over since."""
        if self._fence is None:
            self._fence = take_over(connection, LEDGER, self._holder)

    def _begin(self) -> Connection:
        connection = super()._begin()
        assert self._fence is not None
        Transaction(connection, self.stream, writing=True).require(self._fence)
        if self._books is None:
            self._run = runs(connection) + 1
            self._books = Bookkeeping(self.rebuild(connection))
        self._books.begin(lambda: self.rebuild(connection))
        return connection

    def _execute(self, connection: Connection, job: Any) -> None:
        work = job.work

        def on_the_book(transaction: Transaction) -> Any:
            return self.books.alone(
                lambda state: worked(PostgresCapacityUnit(transaction, state), work)
            )

        with self.books.undoing(lambda: job.error is not None, lambda: self.rebuild(connection)):
            job.work = on_the_book
            super()._execute(connection, job)
        job.work = work

    def _abandon(self, group: Any, error: BaseException) -> None:
        if self._books is not None:
            self._books.stale = True
        super()._abandon(group, error)


class PostgresCapacityLedger:
    """core.capacity_ledger.CapacityLedger."""

    def __init__(
        self,
        settings: PostgresSettings,
        component: str,
        market: Market,
        now: Callable[[], datetime],
    ) -> None:
        """Use `open`."""
        self._market = market
        self._now = now
        self._settings = settings
        self._component = component
        self.identity: Identity
        self._committer: _Committer
        self._store: PostgresStore[PostgresCapacityReader]

    @classmethod
    def open(
        cls,
        settings: PostgresSettings,
        component: str,
        market: Market,
        now: Callable[[], datetime],
        holder: str = "",
    ) -> PostgresCapacityLedger:
        """Refuses a ledger that another service has open: see `wait_for_turn`. Blocks."""
        ledger = cls(settings, component, market, now)
        with refusing():
            prepare_schema(settings, component, CAPACITY)
            committer = _Committer(settings, holder, ledger._rebuild)
            try:
                committer.start()
            except BaseException:
                committer.stop()
                raise
        ledger._committer = committer
        ledger._store = PostgresStore(settings, component, PostgresCapacityReader, committer)
        ledger.identity = ledger._store.identity
        return ledger

    async def activate(self, holder: str, at: datetime) -> int:
        """Write down who is the active service from now on; the number of this run."""
        await self.run(lambda unit: unit.active(holder, at))
        return self._committer.run

    async def run(self, work: Callable[[PostgresCapacityUnit], T]) -> T:
        submitted: Any = work  # the committer hands it our kind of unit
        result: T = await self._committer.submit(submitted)
        return result

    async def read(self, work: Callable[[PostgresCapacityReader], T]) -> T:
        return await self._store.read(work)

    def look(self, work: Callable[[Book], T]) -> T:
        return self._committer.books.alone(lambda state: work(state.book))

    async def change_market(self, market: Market) -> None:
        """New reference data: the book is made anew for it."""

        def work(unit: PostgresCapacityUnit) -> None:
            self._market = market
            self._committer.books.replace(self._committer.rebuild(unit.connection))

        await self.run(work)

    async def close(self) -> None:
        await self._store.close()

    def _rebuild(self, connection: Connection, run: int) -> State:
        book = Book(self._market)
        state = State(book, run)
        state.commit = replay(connection, book, self._now() - KEEP_BEHIND)
        return state


@dataclass(frozen=True, slots=True)
class Turn:
    """This process is the active one, until it gives its turn up or loses it."""

    lost: asyncio.Future[None]
    _serving: asyncio.Task[None]

    async def release(self) -> None:
        self._serving.cancel()
        with suppress(asyncio.CancelledError):
            await self._serving


async def wait_for_turn(settings: PostgresSettings, component: str, holder: str) -> Turn:
    """Returns when no other service has its turn at this ledger."""

    def prepare() -> None:
        with refusing():
            prepare_schema(settings, component, CAPACITY)

    await asyncio.to_thread(prepare)
    loop = asyncio.get_running_loop()
    taken: asyncio.Future[None] = loop.create_future()
    lost: asyncio.Future[None] = loop.create_future()

    async def duty(_: Fence) -> None:
        if taken.done():
            # Lost before: whoever owned that turn gives it up and begins anew.
            return
        taken.set_result(None)
        try:
            await asyncio.Event().wait()
        finally:
            if not lost.done():
                lost.set_result(None)

    leases = Leases(settings, holder)
    leases.add(TURN, duty)
    serving = asyncio.create_task(leases.run())
    try:
        await taken
    except BaseException:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving
        raise
    return Turn(lost, serving)
