"""The folder of an embedded store: who may read it, who may open it, and what belongs in it."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import threading
from pathlib import Path

import pytest

from gridpost.core.delivery import Event, Side
from gridpost.core.message_box import BoxEntry, Retention, Search
from gridpost.core.ports import UnitOfWork
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.sqlite import Settings, SqliteStore
from gridpost.stores.sqlite.schema import MIGRATIONS, migrate
from support.boxed import DAY, EXPIRY, ROUTE, acknowledgement, box_entry, happen, put
from support.builders import NOW
from support.child import run_python

LARGE = b"L" * 300_000
NOT_AT_ALL = Retention(*[DAY * 0] * 5)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "below" / "store"


def _modes(folder: Path) -> dict[str, int]:
    """Permissions of the folder and of all that is in it, by path below it."""
    paths = {"": folder} | {str(p.relative_to(folder)): p for p in folder.rglob("*")}
    return {name: stat.S_IMODE(path.stat().st_mode) for name, path in paths.items()}


def _contents(folder: Path) -> list[Path]:
    return sorted((folder / "contents").iterdir())


async def test_only_the_owner_can_read_anything(folder: Path) -> None:
    store = SqliteStore.open(folder, "E1")
    await store.run(lambda unit: put(unit, box_entry(), LARGE))
    modes = _modes(folder)
    (content,) = _contents(folder)
    assert modes.pop("contents") == 0o700
    assert modes.pop("") == 0o700
    assert set(modes.values()) == {0o600}
    assert {"gridpost.sqlite3", "gridpost.sqlite3-wal", "lock", f"contents/{content.name}"} <= set(
        modes
    )
    await store.close()


async def test_permissions_that_were_opened_are_closed_again(folder: Path) -> None:
    await SqliteStore.open(folder, "E1").close()
    os.chmod(folder, 0o755)
    os.chmod(folder / "gridpost.sqlite3", 0o644)
    await SqliteStore.open(folder, "E1").close()
    modes = _modes(folder)
    assert (modes[""], modes["gridpost.sqlite3"]) == (0o700, 0o600)


async def test_the_database_is_durable_and_checks_its_references(folder: Path) -> None:
    store = SqliteStore.open(folder, "E1")
    pragmas = ("journal_mode", "synchronous", "foreign_keys", "page_size", "busy_timeout")
    values = await store.run(
        lambda unit: [
            unit.box._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas
        ]
    )
    assert values == ["wal", 2, 1, 8192, 10_000]
    await store.close()


async def test_another_process_is_kept_out(folder: Path) -> None:
    store = SqliteStore.open(folder, "E1")
    code = (
        "import sys; from pathlib import Path\n"
        "from gridpost.core.refusal import Refusal\n"
        "from gridpost.stores.sqlite import SqliteStore\n"
        "try: SqliteStore.open(Path(sys.argv[1]), 'E1')\n"
        "except Refusal as refusal: print(refusal.rule.name, refusal.message)\n"
    )
    result = run_python("-c", code, str(folder))
    assert result.stdout.startswith("STORE_IN_USE another process has the store")
    assert f"(process {os.getpid()})" in result.stdout
    await store.close()
    assert run_python("-c", code, str(folder)).stdout == ""


async def test_a_newer_store_is_refused_and_left_alone(folder: Path) -> None:
    await SqliteStore.open(folder, "E1").close()
    connection = sqlite3.connect(folder / "gridpost.sqlite3")
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    with pytest.raises(Refusal) as refused:
        SqliteStore.open(folder, "E1")
    assert refused.value.rule is Rule.STORE_TOO_NEW
    assert f"version {len(MIGRATIONS) + 1}" in refused.value.message
    # The refused attempt holds no lock.
    connection = sqlite3.connect(folder / "gridpost.sqlite3")
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    connection.close()
    await SqliteStore.open(folder, "E1").close()


def test_migrations_bring_an_old_database_up_step_by_step() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    first = ("CREATE TABLE a (x)", "INSERT INTO a VALUES (1)")
    second = ("ALTER TABLE a ADD COLUMN y", "UPDATE a SET y = x + 1")
    assert migrate(connection, [first]) == 0
    assert migrate(connection, [first, second]) == 1
    assert migrate(connection, [first, second]) == 2
    assert connection.execute("SELECT * FROM a").fetchall() == [(1, 2)]
    connection.close()


async def test_a_box_of_every_earlier_version_is_searched_by_the_text_of_an_error(
    folder: Path,
) -> None:
    for version in range(1, len(MIGRATIONS)):
        place = folder / str(version)
        place.mkdir(parents=True, mode=0o700)
        old = sqlite3.connect(place / "gridpost.sqlite3", isolation_level=None)
        migrate(old, MIGRATIONS[:version])
        old.close()
        store = SqliteStore.open(place, "E1")
        entry = box_entry()

        def work(unit: UnitOfWork, entry: BoxEntry = entry) -> None:
            put(unit, entry)
            happen(unit, entry, Event.ABANDON, detail="the disk is full")

        await store.run(work)
        found = await store.read(lambda unit: unit.box.search(Search(text="disk"), 10))
        assert [one.message_id for one in found.entries] == [entry.message_id]
        await store.close()


def test_a_migration_that_fails_changes_nothing() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    first = ("CREATE TABLE a (x)",)
    broken = ("INSERT INTO a VALUES (1)", "CREATE TABLE b (y)", "UPDATE nothing SET z = 1")
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, [first, broken])
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    assert connection.execute("SELECT * FROM a").fetchall() == []
    assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("a",)]
    assert migrate(connection, [first, ("CREATE TABLE b (y)",)]) == 1
    connection.close()


def test_a_file_that_is_no_database_is_refused(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "gridpost.sqlite3").write_bytes(b"a letter to the editor, " * 1_000)
    with pytest.raises(Refusal) as refused:
        SqliteStore.open(folder, "E1")
    assert refused.value.rule is Rule.STORE_DAMAGED


async def test_a_content_file_that_was_lost_or_cut_is_named(folder: Path) -> None:
    store = SqliteStore.open(folder, "E1")
    entry = box_entry()
    await store.run(lambda unit: put(unit, entry, LARGE))
    (file,) = _contents(folder)
    for damage in (lambda: file.write_bytes(LARGE[:-1]), file.unlink):
        damage()
        with pytest.raises(Refusal, match=file.name) as refused:
            await store.read(lambda unit: unit.box.content(Side.SENT, entry.message_id))
        assert refused.value.rule is Rule.STORE_DAMAGED
    await store.close()


# -- content files


async def test_only_large_contents_are_files(folder: Path) -> None:
    store = SqliteStore.open(folder, "E1", Settings(file_threshold=1_000))
    for size in (0, 999, 1_000):
        await store.run(lambda unit, s=size: put(unit, box_entry(), b"x" * s))
    assert _contents(folder) == []
    await store.run(lambda unit: put(unit, box_entry(), b"x" * 1_001))
    async with store.staged(b"y" * 1_001) as document:
        await store.run(lambda unit: unit.box.put(box_entry(), document))
    sizes = [path.stat().st_size for path in _contents(folder)]
    assert sizes == [1_001, 1_001]
    await store.close()


async def test_files_that_no_row_names_are_swept_at_the_start(folder: Path) -> None:
    store = SqliteStore.open(folder, "E1")
    entry = box_entry()
    message = acknowledgement(entry.metadata, LARGE)
    await store.run(lambda unit: put(unit, entry, LARGE))
    await store.run(lambda unit: unit.box.enqueue(message, ROUTE, EXPIRY))
    kept = _contents(folder)
    assert len(kept) == 2
    await store.close()
    for orphan in ("0" * 32, "1" * 32 + ".part"):
        (folder / "contents" / orphan).write_bytes(b"left by a crash")
    store = SqliteStore.open(folder, "E1")
    assert _contents(folder) == kept
    await store.close()


async def test_a_work_that_raises_leaves_no_file(folder: Path) -> None:
    store = SqliteStore.open(folder, "E1")

    def failing(unit: object) -> None:
        put(unit, box_entry(), LARGE)
        raise KeyError("no")

    with pytest.raises(KeyError):
        await store.run(failing)
    async with store.staged(LARGE) as document:
        with pytest.raises(KeyError):
            await store.run(lambda unit: (unit.box.put(box_entry(), document), {}["no"]))
        assert len(_contents(folder)) == 1
    await store.close()
    assert _contents(folder) == []


async def test_a_duplicate_leaves_no_file(folder: Path) -> None:
    store = SqliteStore.open(folder, "E1")
    entry = box_entry()
    await store.run(lambda unit: put(unit, entry, b"small"))
    async with store.staged(LARGE) as document:
        assert not await store.run(lambda unit: unit.box.put(entry, document))
    assert not await store.run(lambda unit: unit.box.put(entry, LARGE))
    await store.close()
    assert _contents(folder) == []


async def test_a_staged_content_can_be_put_once(folder: Path) -> None:
    store = SqliteStore.open(folder, "E1")
    async with store.staged(LARGE) as document:
        await store.run(lambda unit: unit.box.put(box_entry(), document))
        with pytest.raises(ValueError, match="put once"):
            await store.run(lambda unit: unit.box.put(box_entry(), document))
    with pytest.raises(ValueError, match="put once"):
        await store.run(lambda unit: unit.box.put(box_entry(), document))
    await store.close()
    assert len(_contents(folder)) == 1


async def test_staging_that_is_cancelled_or_outlives_the_store_leaves_no_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore.open(folder, "E1")
    writing, gate = threading.Event(), threading.Event()
    write = store._bodies._write

    def slow(part: Path, content: bytes) -> None:
        writing.set()
        assert gate.wait(30)
        write(part, content)

    monkeypatch.setattr(store._bodies, "_write", slow)

    async def stage() -> None:
        async with store.staged(LARGE):
            pytest.fail("cancelled before")

    task = asyncio.ensure_future(stage())
    await asyncio.to_thread(writing.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.set()
    async with store.staged(LARGE):
        await store.close()
    assert _contents(folder) == []


async def test_a_file_goes_after_the_row_that_named_it(folder: Path) -> None:
    store = SqliteStore.open(folder, "E1")
    entry = box_entry()
    message = acknowledgement(entry.metadata, LARGE)

    def begin(unit: object) -> int:
        put(unit, entry, LARGE)
        happen(unit, entry, Event.ABANDON)
        return unit.box.enqueue(message, ROUTE, EXPIRY)

    number = await store.run(begin)

    def undone(unit: object) -> None:
        assert unit.box.purge(NOT_AT_ALL, NOW, 10).contents == 1
        unit.box.settle(number)
        raise KeyError("no")

    with pytest.raises(KeyError):
        await store.run(undone)
    content = await store.read(lambda unit: unit.box.content(Side.SENT, entry.message_id))
    assert content == LARGE
    assert len(_contents(folder)) == 2
    await store.run(lambda unit: unit.box.settle(number))
    await store.run(lambda unit: unit.box.purge(NOT_AT_ALL, NOW, 10))
    await store.close()
    assert _contents(folder) == []
