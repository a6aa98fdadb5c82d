"""The directory client's view of a broker's database: its copy commits like everything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gridpost.stores.sqlite.directory_client import SqliteClientUnit
from gridpost.stores.sqlite.queues.store import SqliteQueueStore

T = TypeVar("T")


class QueueClientStore:
    """core.ports.DirectoryClientStore."""

    def __init__(self, store: SqliteQueueStore) -> None:
        self._store = store

    async def run(self, work: Callable[[SqliteClientUnit], T]) -> T:
        return await self._store.execute(lambda connection: work(SqliteClientUnit(connection)))

    async def read(self, work: Callable[[SqliteClientUnit], T]) -> T:
        return await self._store.ask(lambda connection: work(SqliteClientUnit(connection)))
