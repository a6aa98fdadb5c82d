"""Writes the database of the current version of each embedded store, where its file is missing."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path

from gridpost.stores.sqlite import SqliteStore
from gridpost.stores.sqlite.bus import SqliteBusLedger
from gridpost.stores.sqlite.capacity import SqliteCapacityLedger
from gridpost.stores.sqlite.database import DATABASE
from gridpost.stores.sqlite.node_store import SqliteNodeStore
from gridpost.stores.sqlite.queues import QueueSettings, SqliteQueueStore
from stores.schemas.content import QUEUE, QUEUED, fill_box
from support.capacity_market import DE_DK, market
from support.queues import NOW, SetClock, commit, put

FOLDER = Path(__file__).parent
COMPONENT = "C1"
PLENTY = QueueSettings(min_free=0)


def clock() -> datetime:
    return NOW


async def box(folder: Path) -> None:
    store = SqliteStore.open(folder, COMPONENT)
    await store.run(fill_box)
    await store.close()


async def queues(folder: Path) -> None:
    store = SqliteQueueStore.open(folder, COMPONENT, SetClock(), PLENTY)
    await commit(store, put(QUEUE, QUEUED))
    await store.close()


async def node(folder: Path) -> None:
    store = SqliteNodeStore.open(folder, COMPONENT)
    await store.run(lambda unit: unit.set_note("kept", "since then"))
    await store.close()


async def bus(folder: Path) -> None:
    await SqliteBusLedger.open(folder, COMPONENT).close()


async def capacity(folder: Path) -> None:
    ledger = SqliteCapacityLedger.open(folder, COMPONENT, market(DE_DK), clock)
    await ledger.activate("elsewhere", NOW)
    await ledger.close()


STORES: dict[str, Callable[[Path], Awaitable[None]]] = {
    f.__name__: f for f in (box, queues, node, bus, capacity)
}


def dump(folder: Path) -> tuple[int, str]:
    with closing(sqlite3.connect(folder / DATABASE)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        return version, "\n".join([*connection.iterdump(), f"PRAGMA user_version = {version};", ""])


def main() -> None:
    for name, write in STORES.items():
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(write(Path(folder)))
            version, text = dump(Path(folder))
        file = FOLDER / f"{name}-{version}.sql"
        if not file.exists():
            file.write_text(text, encoding="utf-8")
            print(file.name)


if __name__ == "__main__":
    main()
