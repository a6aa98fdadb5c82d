"""Threads that read a store beside the one that writes, each with a connection of its own."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import local
from typing import TypeVar

from gridpost.stores.sqlite import database
from gridpost.stores.sqlite.faults import primary_code, refusing

T = TypeVar("T")


class Readers:
    def __init__(self, folder: Path, resources: ExitStack, threads: int, name: str) -> None:
        """`resources` get the connections, to be closed behind `shutdown`."""
        self._folder = folder
        self._resources = resources
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._reading = local()

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, work)

    def shutdown(self) -> None:
        self._pool.shutdown()

    def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection: sqlite3.Connection | None = getattr(self._reading, "connection", None)
        if connection is None:
            connection = self._reading.connection = database.connect_reader(self._folder)
            self._resources.callback(connection.close)
        with refusing():
            connection.execute("BEGIN")
            try:
                return work(connection)
            except sqlite3.OperationalError as error:
                if primary_code(error) == sqlite3.SQLITE_READONLY:
                    raise RuntimeError("work that reads must not change anything") from error
                raise
            finally:
                connection.execute("ROLLBACK")
