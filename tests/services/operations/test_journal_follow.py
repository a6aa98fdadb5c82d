"""Followers of a journal that has one stream or many, which come and go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gridpost.core.journal import AdministrationRow, Recorded
from gridpost.services.operations.journal_follow import JournalFollower, ReadJournal, Take
from support.pki import NOW


class Cursor:
    def __init__(self) -> None:
        self.at: int | None = None

    def load(self) -> int | None:
        return self.at

    def save(self, sequence: int) -> None:
        self.at = sequence


class Journals:
    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.cursors: dict[str, Cursor] = {}
        self.taken: list[tuple[str, int]] = []

    async def streams(self) -> Mapping[str, ReadJournal]:
        return {instance: self.reader(instance) for instance in self.rows}

    def reader(self, instance: str) -> ReadJournal:
        async def read(after: int, limit: int) -> Sequence[Recorded]:
            row = AdministrationRow(NOW, actor="a", action="b")
            return [Recorded(n, row) for n in range(after + 1, self.rows[instance] + 1)][:limit]

        return read

    def cursor(self, instance: str) -> Cursor:
        return self.cursors.setdefault(instance, Cursor())

    def take(self, instance: str) -> Take:
        async def take(rows: Sequence[Recorded]) -> None:
            self.taken += [(instance, row.sequence) for row in rows]

        return take


async def test_a_stream_that_begins_later_is_followed_too_and_each_row_is_passed_on_once() -> None:
    world = Journals()
    follower = JournalFollower(world.streams, world.cursor, world.take)
    world.rows = {"one": 2}
    await follower.round()
    world.rows = {"one": 3, "two": 1}
    await follower.round()
    await follower.round()
    assert world.taken == [("one", 1), ("one", 2), ("one", 3), ("two", 1)]


async def test_whoever_gets_a_stream_back_goes_on_where_others_left_it() -> None:
    world = Journals()
    follower = JournalFollower(world.streams, world.cursor, world.take)
    world.rows = {"one": 2}
    await follower.round()
    world.rows = {}
    await follower.round()
    world.cursors["one"].at = 5
    world.rows = {"one": 6}
    await follower.round()
    assert world.taken == [("one", 1), ("one", 2), ("one", 6)]
