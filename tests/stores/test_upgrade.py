"""Upgrade in place: a store of every earlier version opens, becomes a current one and keeps all it had."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from gridpost.core.delivery import Side, State
from gridpost.core.journal import AdministrationRow
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.sqlite import SqliteStore, schema
from gridpost.stores.sqlite.bus import SqliteBusLedger
from gridpost.stores.sqlite.bus import schema as bus_schema
from gridpost.stores.sqlite.capacity import SqliteCapacityLedger
from gridpost.stores.sqlite.capacity import schema as capacity_schema
from gridpost.stores.sqlite.database import DATABASE
from gridpost.stores.sqlite.node_schema import MIGRATIONS as NODE_MIGRATIONS
from gridpost.stores.sqlite.node_store import SqliteNodeStore
from gridpost.stores.sqlite.queues import SqliteQueueStore
from gridpost.stores.sqlite.queues import schema as queue_schema
from stores.schemas.content import QUEUE, QUEUED, RECEIVED, SENT
from stores.schemas.make import COMPONENT, FOLDER, PLENTY, STORES, clock
from support.boxed import box_entry, put
from support.capacity_market import DE_DK, market
from support.queues import SetClock

MIGRATIONS: Mapping[str, Sequence[Sequence[str]]] = {
    "box": schema.MIGRATIONS,
    "queues": queue_schema.MIGRATIONS,
    "node": NODE_MIGRATIONS,
    "bus": bus_schema.MIGRATIONS,
    "capacity": capacity_schema.MIGRATIONS,
}


def versions(name: str) -> range:
    return range(1, len(MIGRATIONS[name]) + 1)


def restore(name: str, version: int, folder: Path) -> Path:
    folder.mkdir(parents=True)
    with closing(sqlite3.connect(folder / DATABASE)) as connection:
        connection.executescript((FOLDER / f"{name}-{version}.sql").read_text(encoding="utf-8"))
    return folder


def shape(folder: Path) -> tuple[int, list[str]]:
    """Version and every definition, however it is laid out."""
    with closing(sqlite3.connect(folder / DATABASE)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        found = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
        return version, sorted(" ".join(text.split()) for (text,) in found)


@pytest.mark.parametrize("name", MIGRATIONS)
def test_there_is_a_database_of_every_version(name: str) -> None:
    """Who adds a migration writes its database with `python -m stores.schemas.make`."""
    kept = {file.stem for file in FOLDER.glob(f"{name}-*.sql")}
    assert kept == {f"{name}-{version}" for version in versions(name)}


@pytest.mark.parametrize("version", versions("box"))
async def test_a_message_box_of_each_version_is_upgraded(tmp_path: Path, version: int) -> None:
    folder = restore("box", version, tmp_path / "old")
    store = SqliteStore.open(folder, COMPONENT)
    sent = await store.read(lambda unit: unit.box.find(Side.SENT, SENT.message_id))
    received = await store.read(lambda unit: unit.box.find(Side.RECEIVED, RECEIVED.message_id))
    assert sent is not None
    assert received is not None
    assert (sent.metadata, received.metadata) == (SENT.metadata, RECEIVED.metadata)
    assert sent.delivery.state is State.DELIVERING
    content = await store.read(lambda unit: unit.box.content(Side.SENT, SENT.message_id))
    assert content == b"document"
    trace = await store.read(lambda unit: list(unit.box.trace(Side.SENT, SENT.message_id)))
    assert len(trace) == 2
    (row,) = [
        recorded.row
        for recorded in await store.read(lambda unit: list(unit.journal.read(0, 100)))
        if isinstance(recorded.row, AdministrationRow)
    ]
    assert row.action == "written long ago"
    # And it works on: something new beside what is old.
    assert await store.run(lambda unit: put(unit, box_entry(message_id="m-new")))
    assert not await store.run(lambda unit: put(unit, SENT))
    await store.close()
    await STORES["box"](tmp_path / "fresh")
    assert shape(folder) == shape(tmp_path / "fresh")


@pytest.mark.parametrize("version", versions("queues"))
async def test_queues_of_each_version_are_upgraded(tmp_path: Path, version: int) -> None:
    folder = restore("queues", version, tmp_path / "old")
    store = SqliteQueueStore.open(folder, COMPONENT, SetClock(), PLENTY)
    (message,) = await store.read(QUEUE, 0, 10, 1000)
    assert message.message_id == QUEUED.message_id
    assert bytes(message.content or b"") == QUEUED.content
    await store.close()
    await STORES["queues"](tmp_path / "fresh")
    assert shape(folder) == shape(tmp_path / "fresh")


@pytest.mark.parametrize("version", versions("node"))
async def test_a_node_of_each_version_is_upgraded(tmp_path: Path, version: int) -> None:
    folder = restore("node", version, tmp_path / "old")
    store = SqliteNodeStore.open(folder, COMPONENT)
    assert await store.read(lambda unit: unit.note("kept")) == "since then"
    await store.close()
    await STORES["node"](tmp_path / "fresh")
    assert shape(folder) == shape(tmp_path / "fresh")


@pytest.mark.parametrize("version", versions("bus"))
async def test_a_bus_of_each_version_is_upgraded(tmp_path: Path, version: int) -> None:
    folder = restore("bus", version, tmp_path / "old")
    await SqliteBusLedger.open(folder, COMPONENT).close()
    await STORES["bus"](tmp_path / "fresh")
    assert shape(folder) == shape(tmp_path / "fresh")


@pytest.mark.parametrize("version", versions("capacity"))
async def test_a_ledger_of_each_version_is_upgraded(tmp_path: Path, version: int) -> None:
    folder = restore("capacity", version, tmp_path / "old")
    ledger = SqliteCapacityLedger.open(folder, COMPONENT, market(DE_DK), clock)
    # The run that is written down in the file was the first.
    assert await ledger.activate("here", clock()) == 2
    await ledger.close()
    await STORES["capacity"](tmp_path / "fresh")
    assert shape(folder) == shape(tmp_path / "fresh")


@pytest.mark.parametrize("name", MIGRATIONS)
async def test_a_store_of_a_newer_version_is_refused_and_left_alone(
    tmp_path: Path, name: str
) -> None:
    newest = len(MIGRATIONS[name])
    folder = restore(name, newest, tmp_path / "newer")
    with closing(sqlite3.connect(folder / DATABASE)) as connection:
        connection.execute("CREATE TABLE of_tomorrow (x)")
        connection.execute(f"PRAGMA user_version = {newest + 1}")
    before = shape(folder)
    with pytest.raises(Refusal, match=f"versions up to {newest}") as refused:
        await STORES[name](folder)
    assert refused.value.rule is Rule.STORE_TOO_NEW
    assert "start that one, or restore a backup" in refused.value.details
    assert shape(folder) == before
