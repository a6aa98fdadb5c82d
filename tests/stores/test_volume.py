"""A box with a million messages answers as quickly as one with some thousands.

Counted in what the database does, not in seconds: steps of SQLite's machine, pages of PostgreSQL.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from gridpost.core.delivery import Event
from gridpost.core.message_box import Retention
from gridpost.core.ports import UnitOfWork
from gridpost.stores.postgres.endpoint import PostgresEndpointStore
from gridpost.stores.postgres.search import PostgresSearch
from gridpost.stores.sqlite.bodies import Bodies, WorkFiles
from gridpost.stores.sqlite.group import Group
from gridpost.stores.sqlite.schema import migrate
from gridpost.stores.sqlite.unit import SqliteUnit
from support.boxed import DAY, EXPIRY, ROUTE, box_entry, happen, internal, put
from support.builders import NOW
from support.full_box import MINUTE, SEARCHES, growing, plant
from support.postgres import PostgresServer
from support.soak import Soak

MESSAGES = 1_000_000
WAITING_TRANSFERS = 200_000
SOME = 20_000
LOOK = 300
"""Messages that a page looks at in these tests, so that a small box has more than one page too."""
PAGE = 50
FULL_PAGE = 100 * PAGE
"""Steps that the rows of a full page cost by themselves (some 80 each); a small box may have only a few."""

QUESTIONS: dict[str, Callable[[UnitOfWork], object]] = {
    "waiting": lambda unit: unit.box.waiting("A", NOW - DAY, 50),
    "expired": lambda unit: unit.box.expired(NOW + 40 * DAY, 50),
    "outgoing": lambda unit: unit.box.outgoing(NOW, 50),
    "outgoing after a long silence": lambda unit: unit.box.outgoing(NOW + 51 * MINUTE, 50),
    "next_due": lambda unit: unit.box.next_due(NOW),
    "recent": lambda unit: unit.box.recent(NOW - 30 * DAY, LOOK),
    "latest actions": lambda unit: unit.journal.latest("administration", 50),
    "purge nothing": lambda unit: unit.box.purge(
        Retention(40 * DAY, 40 * DAY, 40 * DAY, 40 * DAY, 40 * DAY), NOW, 100
    ),
    "put, transfer and settle": lambda unit: _exchange(unit),
    **{
        f"search {name}": lambda unit, search=search: unit.box.search(search, PAGE)
        for name, search in SEARCHES.items()
    },
}


def _exchange(unit: UnitOfWork) -> None:
    entry = box_entry()
    put(unit, entry)
    unit.box.settle(unit.box.enqueue(internal(entry), ROUTE, EXPIRY))
    happen(unit, entry, Event.TRANSFERRED)


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gridpost.stores.box_search.LOOKED_AT", LOOK)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("failing", ["few", "all"])
def test_a_full_box_answers_quickly(tmp_path: Path, soak: Soak, failing: str) -> None:
    messages, transfers = soak.scale(MESSAGES), soak.scale(WAITING_TRANSFERS)
    some, _ = _sqlite(tmp_path / "some", SOME, SOME // 5, failing)
    full, took = _sqlite(tmp_path / "full", messages, transfers, failing)
    soak.report(messages=messages, **{f"{name} (ms)": each for name, each in took.items()})
    assert not _grown(some, full)


def _sqlite(
    folder: Path, messages: int, transfers: int, failing: str
) -> tuple[dict[str, int], dict[str, float]]:
    """Steps and milliseconds of each question."""
    folder.mkdir()
    connection = sqlite3.connect(folder / "box", isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    migrate(connection)
    group = Group(connection)
    unit = SqliteUnit(group, WorkFiles(Bodies(folder, 1_000)))
    connection.execute("BEGIN")
    plant(unit)
    group.flush()
    for statement in growing(messages, transfers, failing):
        connection.execute(statement)
    connection.execute(
        "INSERT INTO content SELECT number, 1, X'00', NULL FROM message WHERE conversation_id <> ''"
    )
    connection.execute("COMMIT")
    steps, took = {}, {}
    for name, question in QUESTIONS.items():
        ticks: list[None] = []
        group.forget()
        group.begin()
        connection.execute("BEGIN")
        connection.set_progress_handler(lambda ticks=ticks: ticks.append(None), 10)  # type: ignore[misc]
        start = time.perf_counter()
        question(unit)
        group.flush()
        took[name] = round((time.perf_counter() - start) * 1_000, 2)
        connection.set_progress_handler(None, 0)
        connection.execute("ROLLBACK")
        steps[name] = len(ticks) * 10
    connection.close()
    return steps, took


class _CountedSearch(PostgresSearch):
    """Adds up the pages that its statements touch."""

    pages = 0

    def ask(self, statement, values):  # type: ignore[no-untyped-def]
        ((plan,),) = self._connection.execute(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}",  # type: ignore[arg-type]
            values,
        ).fetchall()
        top = plan[0]["Plan"]
        self.pages += top["Shared Hit Blocks"] + top["Shared Read Blocks"]
        return super().ask(statement, values)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("failing", ["few", "all"])
async def test_a_full_box_in_postgresql_is_searched_quickly(
    postgres_server: PostgresServer, soak: Soak, failing: str
) -> None:
    messages, transfers = soak.scale(MESSAGES), soak.scale(WAITING_TRANSFERS)
    some, _ = await _postgres(postgres_server, SOME, SOME // 5, failing)
    full, took = await _postgres(postgres_server, messages, transfers, failing)
    soak.report(messages=messages, **{f"{name} (ms)": each for name, each in took.items()})
    assert not _grown(some, full)


async def _postgres(
    server: PostgresServer, messages: int, transfers: int, failing: str
) -> tuple[dict[str, int], dict[str, float]]:
    """Pages and milliseconds of each search."""
    database = server.create_database()
    store = PostgresEndpointStore.open(database.settings(), "E1")
    await store.run(plant)
    with psycopg.connect(
        database.dsn, autocommit=True, cursor_factory=psycopg.ClientCursor
    ) as connection:
        connection.execute("SET search_path TO gridpost")
        connection.execute("SET synchronous_commit TO off")
        for statement in growing(messages, transfers, failing, owned=True):
            connection.execute(statement)  # type: ignore[arg-type]
        connection.execute("VACUUM ANALYZE")
        pages, took = {}, {}
        for name, search in SEARCHES.items():
            counted = _CountedSearch(connection, search, PAGE)
            counted.page(None)
            pages[name] = counted.pages
            start = time.perf_counter()
            PostgresSearch(connection, search, PAGE).page(None)
            took[name] = round((time.perf_counter() - start) * 1_000, 2)
    await store.close()
    server.drop_database(database)
    return pages, took


def _grown(some: dict[str, int], full: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Questions that a full box costs more than twice what a small one does."""
    return {
        name: (few, full[name]) for name, few in some.items() if full[name] > 2 * few + FULL_PAGE
    }
