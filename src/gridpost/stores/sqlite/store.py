"""The embedded store of one component: opening, reading, staging and closing.

A store is a folder that only its owner can read: the database, the folder of large contents, and
the lock that keeps a second process out.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TypeVar

from gridpost.core.journal import Identity
from gridpost.core.message_box import Content, Staged
from gridpost.stores.sqlite import database
from gridpost.stores.sqlite.bodies import Bodies, NoFiles
from gridpost.stores.sqlite.committer import Committer
from gridpost.stores.sqlite.faults import refusing
from gridpost.stores.sqlite.group import NoRows
from gridpost.stores.sqlite.readers import Readers
from gridpost.stores.sqlite.unit import SqliteUnit

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Settings:
    """What an operator may tune; the defaults suit an endpoint on one machine."""

    file_threshold: int = 256 * 1024
    """Contents above this many bytes become files."""
    max_group: int = 256
    """How many works may share one commit."""
    max_group_bytes: int = 8 * 1024 * 1024
    """A commit takes no further work once its contents in rows reach this size."""
    readers: int = 2
    """Threads that read, each with a connection of its own."""


class SqliteStore:
    """core.ports.Store, and core.directory_ports.RegistryStore."""

    def __init__(
        self,
        folder: Path,
        identity: Identity,
        connection: sqlite3.Connection,
        bodies: Bodies,
        settings: Settings,
        resources: ExitStack,
    ) -> None:
        """Use `open`."""
        self.identity = identity
        self._bodies = bodies
        self._resources = resources
        self._closing = Lock()
        self._files = ThreadPoolExecutor(2, thread_name_prefix="gridpost-files")
        self._readers = Readers(folder, resources, settings.readers, "gridpost-reader")
        self._committer = Committer(
            connection,
            bodies,
            max_group=settings.max_group,
            max_bytes=settings.max_group_bytes,
            remove_files=lambda names: self._files.submit(bodies.remove, names),
        )
        self._committer.start()

    @classmethod
    def open(cls, folder: Path, component: str, settings: Settings | None = None) -> SqliteStore:
        """Open the store of a component, or make it. Blocks while it recovers and migrates.

        Refuses a store that another process has open, that belongs to another component, or that
        a newer Gridpost has written.
        """
        settings = settings or Settings()
        resources = ExitStack()
        try:
            opened = database.open_folder(folder, component, resources)
            bodies = Bodies(opened.contents, settings.file_threshold)
            bodies.sweep(database.named_files(opened.connection))
        except BaseException:
            resources.close()
            raise
        return cls(folder, opened.identity, opened.connection, bodies, settings, resources)

    async def run(self, work: Callable[[SqliteUnit], T]) -> T:
        result: T = await self._committer.submit(work)
        return result

    async def read(self, work: Callable[[SqliteUnit], T]) -> T:
        return await self._readers.read(
            lambda connection: work(
                SqliteUnit(NoRows(connection, self._committer.lately), NoFiles(self._bodies))
            )
        )

    @asynccontextmanager
    async def staged(self, content: bytes) -> AsyncIterator[Content]:
        if len(content) <= self._bodies.threshold:
            yield content
            return
        writing = self._files.submit(self._stage, content)
        try:
            staged = await asyncio.wrap_future(writing)
        except asyncio.CancelledError:
            # The thread goes on; nobody will use what it writes.
            writing.add_done_callback(self._discard_written)
            raise
        try:
            yield staged
        finally:
            self._discard(staged)

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _stage(self, content: bytes) -> Staged:
        with refusing():
            return self._bodies.stage(content)

    def _discard_written(self, writing: Future[Staged]) -> None:
        if not writing.cancelled() and writing.exception() is None:
            self._bodies.discard(writing.result())

    def _discard(self, staged: Staged) -> None:
        try:
            self._files.submit(self._bodies.discard, staged)
        except RuntimeError:
            # The store was closed inside the block.
            self._bodies.discard(staged)

    def _close(self) -> None:
        with self._closing:
            self._committer.stop()
            self._readers.shutdown()
            self._files.shutdown()
            self._resources.close()
