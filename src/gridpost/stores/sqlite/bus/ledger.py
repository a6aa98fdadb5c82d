"""The store of a bus: works are committed in groups, and a work that never ends is left behind.

Several processes on one machine may have it open: SQLite lets one of them write at a time.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from gridpost.core.bus import Instance, Posted
from gridpost.core.journal import Identity
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.sqlite import database
from gridpost.stores.sqlite.bodies import Bodies
from gridpost.stores.sqlite.bus.schema import MIGRATIONS
from gridpost.stores.sqlite.bus.unit import SqliteBusUnit
from gridpost.stores.sqlite.committer import Committer
from gridpost.stores.sqlite.faults import refusing

T = TypeVar("T")

_MAX_GROUP = 64
_NO_FILES = 1 << 62


class _Lane:
    """A connection with the thread that writes on it."""

    def __init__(self, folder: Path, component: str) -> None:
        self._resources = ExitStack()
        opened = database.open_folder(folder, component, self._resources, MIGRATIONS, shared=True)
        self.identity = opened.identity
        self._connection = opened.connection
        self._committer = Committer(
            opened.connection,
            Bodies(opened.contents, _NO_FILES),
            max_group=_MAX_GROUP,
            max_bytes=_NO_FILES,
            remove_files=lambda names: None,
            # Works are handlers, which may do more than what is undone here.
            savepoints=True,
        )
        self._waiting: set[asyncio.Future[Any]] = set()
        self._committer.start()

    def submit(self, work: Callable[[SqliteBusUnit], T]) -> tuple[asyncio.Future[T], list[bool]]:
        begun: list[bool] = []

        def job(_: object) -> T:
            begun.append(True)
            return work(SqliteBusUnit(self._connection))

        future = self._committer.submit(job)
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        return future, begun

    def abandon(self) -> None:
        """A work does not return: what it did is rolled back, and its thread is left to itself."""
        for future in list(self._waiting):
            if not future.done():
                future.set_exception(
                    Refusal(Rule.BUSY, "a handler beside this one hung; this one was undone")
                )
        self._connection.interrupt()
        with suppress(sqlite3.Error):
            self._connection.rollback()
        with suppress(sqlite3.Error):
            self._connection.close()

    def close(self) -> None:
        self._committer.stop()
        self._resources.close()


class SqliteBusLedger:
    """core.bus.BusLedger."""

    def __init__(self, folder: Path, component: str) -> None:
        self._folder, self._component = folder, component
        self._lane = _Lane(folder, component)
        self.abandoned = 0

    @classmethod
    def open(cls, folder: Path, component: str) -> SqliteBusLedger:
        return cls(folder, component)

    @property
    def identity(self) -> Identity:
        return self._lane.identity

    async def run(self, work: Callable[[SqliteBusUnit], T], within: float | None = None) -> T:
        lane = self._lane
        future, begun = lane.submit(work)
        try:
            async with asyncio.timeout(within):
                return await asyncio.shield(future)
        except TimeoutError:
            if future.done():
                return future.result()
            if not begun:
                future.cancel()
                raise Refusal(
                    Rule.HANDLER_TIMEOUT, f"other requests took longer than {within:g} s"
                ) from None
            future.cancel()
            if lane is self._lane:
                # The old one may hold the lock of the database: it goes first. Nobody else may
                # meet the gap between them, so this is not left to another thread.
                lane.abandon()
                self._lane = _Lane(self._folder, self._component)
                self.abandoned += 1
            raise Refusal(
                Rule.HANDLER_TIMEOUT, f"the handler was not done after {within:g} s"
            ) from None

    async def unsent(self, limit: int) -> Sequence[Posted]:
        return await self.run(lambda unit: unit.unsent(limit))

    async def sent(self, sequences: Sequence[int]) -> None:
        await self.run(lambda unit: unit.sent(sequences))

    async def forget(self, before: datetime) -> int:
        return await self.run(lambda unit: unit.forget(before))

    async def alive(self, instance: str, at: datetime, load: int) -> None:
        await self.run(lambda unit: unit.alive(instance, at, load))

    async def instances(self, since: datetime) -> Sequence[Instance]:
        return await self.run(lambda unit: unit.instances(since))

    async def read(self, work: Callable[[SqliteBusUnit], T]) -> T:
        """Beside whoever writes: what operators look at holds no request up."""
        return await asyncio.to_thread(self._read, work)

    def _read(self, work: Callable[[SqliteBusUnit], T]) -> T:
        with refusing(), closing(database.connect_reader(self._folder)) as reader:
            return work(SqliteBusUnit(reader))

    async def close(self) -> None:
        await asyncio.to_thread(self._lane.close)
