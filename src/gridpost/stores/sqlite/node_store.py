"""The books of a MADES 1.1 node in SQLite: works are committed in groups, contents lie beside."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from gridpost.core.journal import Identity
from gridpost.core.message_box import Content, Staged
from gridpost.stores.sqlite import database
from gridpost.stores.sqlite.arriving import Arriving
from gridpost.stores.sqlite.bodies import Bodies, NoFiles
from gridpost.stores.sqlite.committer import Committer
from gridpost.stores.sqlite.node_schema import MIGRATIONS
from gridpost.stores.sqlite.node_unit import SqliteNodeUnit
from gridpost.stores.sqlite.readers import Readers

T = TypeVar("T")

IN_ROWS = 64 * 1024
"""Contents up to here lie in the database, larger ones in files."""
_MAX_GROUP = 64
_MAX_GROUP_BYTES = 64 * 1024 * 1024


class _Committer(Committer):
    def _execute(self, job: Any) -> None:
        work = job.work
        job.work = lambda _: work(SqliteNodeUnit(self._connection, job.files))
        super()._execute(job)


class SqliteNodeStore:
    """core.node_ports.NodeStore."""

    def __init__(self, folder: Path, opened: database.Opened, resources: ExitStack) -> None:
        """Use `open`."""
        self.identity: Identity = opened.identity
        self._resources = resources
        self._bodies = Bodies(opened.contents, IN_ROWS)
        self._bodies.sweep(_named(opened.connection))
        self._readers = Readers(folder, resources, 2, "gridpost-node-reader")
        self._committer = _Committer(
            opened.connection,
            self._bodies,
            max_group=_MAX_GROUP,
            max_bytes=_MAX_GROUP_BYTES,
            remove_files=self._bodies.remove,
            # Works of a node were never asked to bear being done again.
            savepoints=True,
        )
        self._committer.start()

    @classmethod
    def open(cls, folder: Path, component: str) -> SqliteNodeStore:
        resources = ExitStack()
        try:
            opened = database.open_folder(folder, component, resources, MIGRATIONS)
            return cls(folder, opened, resources)
        except BaseException:
            resources.close()
            raise

    async def run(self, work: Callable[[SqliteNodeUnit], T]) -> T:
        submitted: Any = work  # the committer hands it our kind of unit
        result: T = await self._committer.submit(submitted)
        return result

    async def read(self, work: Callable[[SqliteNodeUnit], T]) -> T:
        return await self._readers.read(
            lambda connection: work(SqliteNodeUnit(connection, NoFiles(self._bodies)))
        )

    def arriving(self) -> BinaryIO:
        return cast(BinaryIO, self._bodies.arriving())

    def stage(self, arrived: BinaryIO) -> Content:
        return self._bodies.adopt(cast(Arriving, arrived))

    def discard(self, content: Content) -> None:
        if isinstance(content, Staged):
            self._bodies.discard(content)

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._committer.stop()
        self._readers.shutdown()
        self._resources.close()


def _named(connection: sqlite3.Connection) -> set[str]:
    return {
        name for (name,) in connection.execute("SELECT file FROM message WHERE file IS NOT NULL")
    }
