"""Ids that arrived in a queue: what is told of them is exact, wherever they are, and costs few pages."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from gridpost.stores.sqlite.queues.known import SLICES, Arrival, KnownIds
from gridpost.stores.sqlite.queues.schema import MIGRATIONS
from gridpost.stores.sqlite.schema import migrate

FAR = 1_000_000


def opened(file: str | Path = ":memory:") -> sqlite3.Connection:
    connection = sqlite3.connect(file, isolation_level=None)
    migrate(connection, MIGRATIONS)
    return connection


def arrivals(first: int, count: int, expires_at: int = FAR) -> list[Arrival]:
    return [Arrival(first + at, uuid4().bytes, 1, expires_at) for at in range(count)]


def count(connection: sqlite3.Connection, table: str) -> int:
    (found,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(found)


# Few ids in few slices, so that the same come again in every state.
IDS = [bytes([octet]) * 15 + bytes([at]) for octet in (0, 255) for at in range(3)]
ARRIVED = st.tuples(st.sampled_from(IDS), st.sampled_from((1, 2)), st.integers(1, 20))


class AsOneDictionaryWouldSay(RuleBasedStateMachine):
    """Ids are moved, rolled back, read again by another process, forgotten, and known again."""

    @initialize()
    def open(self) -> None:
        self.connection = opened()
        self.ids = KnownIds(self.connection, turn=1)
        self.now = 0
        self.number = 0
        self.model: dict[tuple[bytes, int], int] = {}

    @rule(
        group=st.lists(ARRIVED, max_size=6),
        others=st.sampled_from((0, 0, SLICES // 2, SLICES)),
        safe=st.booleans(),
    )
    def take(self, group: list[tuple[bytes, int, int]], others: int, safe: bool) -> None:
        """Each that arrives moves the next slice."""
        before, first = dict(self.model), self.number + 1
        rows = []
        expected = set()
        for message_id, queue, lasts in group:
            self.number += 1
            rows.append(Arrival(self.number, message_id, queue, self.now + lasts))
            if self.model.get((message_id, queue), 0) > self.now:
                expected.add(self.number)
            else:
                self.model[message_id, queue] = self.now + lasts
        rows += arrivals(self.number + 1, others)
        self.number += others
        self.connection.execute("BEGIN")
        assert self.ids.take(rows, self.now) == expected
        self._end(safe)
        if not safe:
            self.model, self.number = before, first - 1

    @rule(portion=st.sampled_from((0, 255)), safe=st.booleans())
    def forget(self, portion: int, safe: bool) -> None:
        self.connection.execute("BEGIN")
        self.ids.forget(portion, self.now)
        self._end(safe)

    def _end(self, safe: bool) -> None:
        if safe:
            self.connection.execute("COMMIT")
            self.ids.committed()
        else:
            self.connection.execute("ROLLBACK")
        self.ids.reset()

    @rule()
    def open_again(self) -> None:
        self.ids = KnownIds(self.connection, turn=1)

    @rule(ticks=st.integers(1, 15))
    def wait(self, ticks: int) -> None:
        self.now += ticks

    def teardown(self) -> None:
        self.connection.close()


TestAsOneDictionaryWouldSay = AsOneDictionaryWouldSay.TestCase
TestAsOneDictionaryWouldSay.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None
)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(opened(tmp_path / "known.sqlite3")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA synchronous = OFF")
        yield connection


def test_a_commit_writes_few_pages_however_many_ids_are_known(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    ids = KnownIds(database)
    number, group, log = 1, 64, tmp_path / "known.sqlite3-wal"
    written = []
    for _ in range(3):
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        for _ in range(400):
            database.execute("BEGIN")
            ids.take(arrivals(number, group), 0)
            database.execute("COMMIT")
            number += group
        # A frame of the log is a page and its header.
        written.append(log.stat().st_size / (4096 + 24) / 400)
    assert count(database, "known") > 10_000
    # Put one by one, these ids are on as many pages.
    assert max(written) < group / 4


def test_ids_are_recent_for_one_round_of_all_slices(database: sqlite3.Connection) -> None:
    ids = KnownIds(database, turn=4)
    for first in range(1, 20_000, 100):
        assert not ids.take(arrivals(first, 100), 0)
    assert count(database, "recent") <= 4 * (SLICES + 1) + 100
    assert count(database, "known") >= 20_000 - 4 * (SLICES + 1) - 100


def test_ids_that_passed_leave_both_tables(database: sqlite3.Connection) -> None:
    ids = KnownIds(database, turn=16)
    short, long = arrivals(1, 1_000, expires_at=10), arrivals(1_001, 1_000)
    ids.take([row for pair in zip(short, long, strict=True) for row in pair], 0)
    assert count(database, "known")
    assert sum(ids.forget(portion, 10) for portion in range(SLICES)) == 1_000
    assert ids.take([row._replace(number=row.number + 5_000) for row in long], 10) == {
        row.number + 5_000 for row in long
    }
    assert sum(ids.forget(portion, FAR) for portion in range(SLICES)) == 1_000
    assert (count(database, "known"), count(database, "recent")) == (0, 0)


def test_what_is_known_needs_no_room_to_be_forgotten(database: sqlite3.Connection) -> None:
    ids = KnownIds(database)
    ids.take(arrivals(1, 20_000, expires_at=10), 0)
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    database.execute(f"PRAGMA max_page_count = {pages}")
    assert sum(ids.forget(portion, 10) for portion in range(SLICES)) == 20_000


def test_an_id_that_is_new_again_does_not_hide_how_old_its_neighbours_are(
    database: sqlite3.Connection,
) -> None:
    ids = KnownIds(database, turn=4)
    short, long = Arrival(1, b"\xff" * 16, 1, 10), Arrival(2, b"\xff" * 15 + b"\0", 1, FAR)
    ids.take([short, long], 0)
    ids.take([short._replace(number=3, expires_at=FAR)], 10)
    # The fourth id moves the first slice, and what is older than the rest is trimmed.
    ids.take([Arrival(4, b"\0" * 16, 1, FAR)], 10)
    assert KnownIds(database).take([long._replace(number=5)], 10) == {5}
