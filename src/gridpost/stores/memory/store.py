"""The memory store: transactions that happen entirely or not at all, on a disk that is none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from gridpost.core.journal import Identity
from gridpost.core.message_box import Content
from gridpost.core.ports import UnitOfWork
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.memory.box import MemoryBox
from gridpost.stores.memory.controls import MemoryControls
from gridpost.stores.memory.journal import MemoryJournal
from gridpost.stores.memory.notices import MemoryNotices
from gridpost.stores.memory.state import MemoryDisk, State

T = TypeVar("T")


class MemoryUnit:
    """core.ports.UnitOfWork over a copy of the tables."""

    def __init__(self, tables: State) -> None:
        self.box = MemoryBox(tables)
        self.journal = MemoryJournal(tables)
        self.notices = MemoryNotices(tables)
        self.controls = MemoryControls(tables)


class MemoryStore:
    """core.ports.Store. Each transaction copies the tables: meant for thousands of messages."""

    def __init__(self, component: str, disk: MemoryDisk | None = None) -> None:
        self._disk = disk or MemoryDisk()
        if self._disk.in_use:
            raise Refusal(Rule.STORE_IN_USE, "another store is open on this disk")
        owner = self._disk.component or component
        if owner != component:
            raise Refusal(
                Rule.STORE_OF_ANOTHER, f"the store belongs to {owner}, not to {component}"
            )
        self._disk.component = component
        self._disk.in_use = True
        self._closed = False

    @property
    def identity(self) -> Identity:
        return Identity(self._disk.component, self._disk.instance)

    async def run(self, work: Callable[[UnitOfWork], T]) -> T:
        self._check_open()
        # Others get their turn here, as they do while a disk is busy.
        await asyncio.sleep(0)
        tables = self._disk.state.copy()
        result = work(MemoryUnit(tables))
        self._disk.state = tables
        return result

    async def read(self, work: Callable[[UnitOfWork], T]) -> T:
        self._check_open()
        await asyncio.sleep(0)
        tables = self._disk.state.copy()
        result = work(MemoryUnit(tables))
        if tables != self._disk.state:
            raise RuntimeError("work that reads must not change anything")
        return result

    @asynccontextmanager
    async def staged(self, content: bytes) -> AsyncIterator[Content]:
        yield content

    async def close(self) -> None:
        # Works that wait for their turn go first.
        await asyncio.sleep(0)
        if not self._closed:
            self._closed = True
            self._disk.in_use = False

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the store is closed")
