"""The capacity ledger as a store: who may open it, how works are committed, and how the book follows.

The law of this file: the book in memory is what the committed ledger says. A work that fails after
it touched the book, and a commit that fails, make the book anew from the ledger.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from gridpost.core.capacity import Book, Market
from gridpost.core.capacity_ledger import KEEP_BEHIND
from gridpost.core.journal import Identity
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.capacity_work import Bookkeeping, State, worked
from gridpost.stores.sqlite import database
from gridpost.stores.sqlite.bodies import Bodies
from gridpost.stores.sqlite.capacity.schema import MIGRATIONS
from gridpost.stores.sqlite.capacity.unit import (
    SqliteCapacityReader,
    SqliteCapacityUnit,
    replay,
)
from gridpost.stores.sqlite.committer import Committer
from gridpost.stores.sqlite.readers import Readers

T = TypeVar("T")

TURN = "turn"
_MAX_GROUP = 256
_NO_FILES = 1 << 62


class _Committer(Committer):
    """Gives works the book, and takes it back to the ledger when something failed."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        bodies: Bodies,
        rebuild: Callable[[], State],
    ) -> None:
        super().__init__(
            connection,
            bodies,
            max_group=_MAX_GROUP,
            max_bytes=_NO_FILES,
            remove_files=lambda names: None,
            # The book cannot take back what the works before a failed one did.
            savepoints=True,
        )
        self._rebuild = rebuild
        self.books = Bookkeeping(rebuild())

    def _execute(self, job: Any) -> None:
        work = job.work
        with self.books.undoing(lambda: job.error is not None, self._rebuild):
            job.work = lambda unit: self.books.alone(
                lambda state: worked(
                    SqliteCapacityUnit(self._connection, unit.journal, state), work
                )
            )
            super()._execute(job)

    def _begin(self) -> None:
        super()._begin()
        self.books.begin(self._rebuild)

    def _abandon(self, group: Any, error: Exception) -> None:
        self.books.stale = True
        super()._abandon(group, error)


class SqliteCapacityLedger:
    """core.capacity_ledger.CapacityLedger."""

    def __init__(
        self,
        folder: Path,
        opened: database.Opened,
        market: Market,
        now: Callable[[], datetime],
        resources: ExitStack,
    ) -> None:
        """Use `open`."""
        self.identity: Identity = opened.identity
        self._connection = opened.connection
        self._market = market
        self._now = now
        self._resources = resources
        self._readers = Readers(folder, resources, 2, "gridpost-capacity-reader")
        [(runs,)] = opened.connection.execute("SELECT count(*) FROM entry WHERE kind = 'active'")
        self._run = int(runs) + 1
        self._committer = _Committer(
            opened.connection, Bodies(opened.contents, _NO_FILES), self._rebuild
        )
        self._committer.start()

    @classmethod
    def open(
        cls, folder: Path, component: str, market: Market, now: Callable[[], datetime]
    ) -> SqliteCapacityLedger:
        """Refuses a ledger that another service has open: see `wait_for_turn`."""
        resources = ExitStack()
        try:
            opened = database.open_folder(folder, component, resources, MIGRATIONS)
            return cls(folder, opened, market, now, resources)
        except BaseException:
            resources.close()
            raise

    async def activate(self, holder: str, at: datetime) -> int:
        """Write down who is the active service from now on; the number of this run."""
        await self.run(lambda unit: unit.active(holder, at))
        return self._run

    async def run(self, work: Callable[[SqliteCapacityUnit], T]) -> T:
        submitted: Any = work  # the committer hands it our kind of unit
        result: T = await self._committer.submit(submitted)
        return result

    async def read(self, work: Callable[[SqliteCapacityReader], T]) -> T:
        return await self._readers.read(lambda connection: work(SqliteCapacityReader(connection)))

    def look(self, work: Callable[[Book], T]) -> T:
        return self._committer.books.alone(lambda state: work(state.book))

    async def change_market(self, market: Market) -> None:
        """New reference data: the book is made anew for it."""

        def work(unit: SqliteCapacityUnit) -> None:
            self._market = market
            self._committer.books.replace(self._rebuild())

        await self.run(work)

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _rebuild(self) -> State:
        book = Book(self._market)
        state = State(book, self._run)
        state.commit = replay(self._connection, book, self._now() - KEEP_BEHIND)
        return state

    def _close(self) -> None:
        self._committer.stop()
        self._readers.shutdown()
        self._resources.close()


async def wait_for_turn(folder: Path) -> Callable[[], None]:
    """Returns when no other service holds the ledger; the lock goes with the process, however it ends.

    What it returns gives the turn up. A standby waits here, without looking again and again.
    """
    handle = await asyncio.to_thread(_turn_file, folder)
    loop = asyncio.get_running_loop()
    turn: asyncio.Future[None] = loop.create_future()

    def wait() -> None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            error: OSError | None = None
        except OSError as failed:
            error = failed

        def tell() -> None:
            if turn.done():
                os.close(handle)
            elif error is None:
                turn.set_result(None)
            else:
                os.close(handle)
                turn.set_exception(
                    Refusal(Rule.INTERNAL, "the ledger cannot be locked", str(error))
                )

        try:
            loop.call_soon_threadsafe(tell)
        except RuntimeError:
            # The loop is gone, and with it whoever waited.
            os.close(handle)

    # A daemon: a standby that is told to stop must not wait for its turn first.
    Thread(target=wait, name="gridpost-capacity-turn", daemon=True).start()
    await turn
    return lambda: os.close(handle)


def _turn_file(folder: Path) -> int:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(folder / TURN, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
