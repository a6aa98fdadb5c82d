"""The log of a broker's store is given back, unless somebody reads it, and what it owes is no room."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from gridpost.stores.sqlite import database
from gridpost.stores.sqlite.queues import QueueSettings, SqliteQueueStore
from gridpost.stores.sqlite.queues import space as space_module
from gridpost.stores.sqlite.queues.files import Files
from gridpost.stores.sqlite.queues.space import shrink_log
from support.queues import SetClock, commit, put, queued

MIB = 1024 * 1024


@pytest.fixture
def connection(tmp_path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(tmp_path / database.DATABASE, isolation_level=None, timeout=10)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t (body BLOB)")
    return connection


def test_whoever_reads_the_log_delays_its_end_and_nothing_else(
    connection: sqlite3.Connection, tmp_path: Path
) -> None:
    log = tmp_path / f"{database.DATABASE}-wal"
    reader = database.connect_reader(tmp_path)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM t").fetchall()
    connection.execute("INSERT INTO t VALUES (zeroblob(100000))")
    assert not shrink_log(connection)
    assert log.stat().st_size
    # Writers wait for each other as long as before.
    assert connection.execute("PRAGMA busy_timeout").fetchone() == (10_000,)
    connection.execute("INSERT INTO t VALUES (zeroblob(100000))")
    reader.execute("ROLLBACK")
    assert shrink_log(connection)
    assert not log.stat().st_size
    for one in (reader, connection):
        one.close()


def test_files_count_from_when_they_are_written_until_their_last_body_has_left(
    tmp_path: Path,
) -> None:
    files = Files(tmp_path)
    first, second = files.write([b"a" * 100])[0], files.write([b"b" * 50, b"b" * 50])[0]
    assert files.octets == 200
    files.decide([first])
    assert files.spare([first.name]) == []
    assert files.octets == 100
    # Written over: it counts as long as it is.
    (again,) = files.write([b"c" * 30])
    assert (again.name, files.octets) == (first.name, 200)
    files.remove([second.name, "unknown"])
    assert files.octets == 100
    files.sweep({again.name})
    assert files.octets == 100
    files.sweep(())
    assert files.octets == 0
    files.close()


async def test_what_is_in_the_log_only_and_what_is_on_its_way_is_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space_module.SpaceWatch, "_free", lambda self: 1000 * MIB)
    monkeypatch.setattr(space_module, "_LOOK_SECONDS", 0)
    store = SqliteQueueStore.open(tmp_path, "B1", SetClock(), QueueSettings(min_free=MIB))
    before = store.space.free
    for _ in range(20):
        await commit(store, put(message=queued(b"x" * 200_000)))
    # The database is as long as before: all of it is in the log.
    assert store.space.free < before - 20 * 200_000
    store._watch.taking(5 * MIB)
    assert store.space.free < before - 20 * 200_000 - 5 * MIB
    store._watch.taken(5 * MIB)
    await store.execute(lambda connection: None)
    owing = store.space.free
    with sqlite3.connect(tmp_path / database.DATABASE) as other:
        assert shrink_log(other)
    other.close()
    await store.execute(lambda connection: None)
    assert store.space.free > owing + 20 * 200_000
    await store.close()


async def test_near_the_mark_the_log_is_given_back_before_a_message_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / f"{database.DATABASE}-wal"
    monkeypatch.setattr(space_module.SpaceWatch, "_free", lambda self: 1000 * MIB)
    store = SqliteQueueStore.open(tmp_path, "B1", SetClock(), QueueSettings(min_free=16 * MIB))
    for _ in range(20):
        await commit(store, put(message=queued(b"x" * 200_000)))
    assert log.stat().st_size > 20 * 200_000
    monkeypatch.setattr(space_module.SpaceWatch, "_free", lambda self: 21 * MIB)
    for _ in range(20):
        await commit(store, put(message=queued(b"x" * 200_000)))
    assert log.stat().st_size < 3 * MIB
    assert not store.space.refusing
    await store.close()
