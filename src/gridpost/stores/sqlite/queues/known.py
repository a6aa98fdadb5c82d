"""Which ids have arrived in a queue: told exactly, and written down without a page for each.

Ids are random, so each goes to another page of the table `known`; a commit that put them there one by
one would write a page for every message. They are appended to `recent` instead, and stay in memory
until it is the turn of their slice, by the first octet: then all of a slice go to `known` together,
which are neighbours there. Rows of `recent` go from its beginning, once nothing in memory is as old:
so some of them are in `known` as well. What was rolled back is read again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final, NamedTuple

from gridpost.stores.sqlite.statements import insert_rows, select_each

SLICES: Final = 256
TURN: Final = 256
"""After so many new ids one slice is moved: `recent` has about 256 times as many, memory half of them."""

_RECENT: Final = "INSERT INTO recent (number, message_id, queue, expires_at)"
_KNOWN: Final = "INSERT INTO known (number, message_id, queue, expires_at)"
# The youngest row of an id is the last that goes from `recent`: what is moved is never older than
# what `known` has, and after a restart it may be the same.
_AGAIN: Final = (
    "ON CONFLICT DO UPDATE SET number = excluded.number, expires_at = excluded.expires_at "
    "WHERE known.number <> excluded.number"
)
_FIND: Final = "SELECT message_id, queue, expires_at FROM known WHERE message_id"

Key = tuple[bytes, int]
"""Message ID and queue."""


class Arrival(NamedTuple):
    """One row of either table."""

    number: int
    message_id: bytes
    queue: int
    expires_at: int


class KnownIds:
    """Of the one connection that writes; used in transactions that the committer owns."""

    def __init__(self, connection: sqlite3.Connection, turn: int = TURN) -> None:
        self._connection = connection
        self._turn = turn
        self._next = 0
        self._since = 0
        self._dirty = True
        self._recent: list[dict[Key, Arrival]] = []
        """By slice, in the order of their numbers."""
        self.reset()

    def committed(self) -> None:
        self._dirty = False

    def reset(self) -> None:
        """Know again only what the database knows."""
        if not self._dirty:
            return
        self._recent = [{} for _ in range(SLICES)]
        rows = self._connection.execute(
            "SELECT number, message_id, queue, expires_at FROM recent ORDER BY number"
        )
        for arrival in map(Arrival._make, rows):
            self._remember(arrival)
        self._dirty = False

    def take(self, arrivals: Sequence[Arrival], now: int) -> set[int]:
        """Know all of these from now on; the numbers of those whose id was known before.

        An id whose time has passed but which was not forgotten yet counts as new.
        """
        self._dirty = True
        older = self._find(arrivals, now)
        known: set[int] = set()
        for arrival in arrivals:
            key = arrival.message_id, arrival.queue
            recent = self._recent[arrival.message_id[0]].get(key)
            # What is recent is younger than what may be in `known`.
            if (recent.expires_at > now) if recent is not None else (key in older):
                known.add(arrival.number)
            else:
                self._remember(arrival)
        new = (
            [arrival for arrival in arrivals if arrival.number not in known] if known else arrivals
        )
        insert_rows(self._connection, _RECENT, new)
        self._since += len(new)
        while self._since >= self._turn:
            self._since -= self._turn
            self._move(self._next)
            self._next = (self._next + 1) % SLICES
        return known

    def forget(self, portion: int, now: int) -> int:
        """Those of one slice whose time has passed; how many. An index by time would cost more."""
        self._dirty = True
        low, high = bytes([portion]), bytes([portion + 1]) if portion < SLICES - 1 else None
        upper = "" if high is None else "AND message_id < ?"
        values = (low, now) if high is None else (low, now, high)
        forgotten = self._connection.execute(
            f"DELETE FROM known WHERE message_id >= ? AND expires_at <= ? {upper}", values
        ).rowcount
        recent = self._recent[portion]
        passed = [key for key, arrival in recent.items() if arrival.expires_at <= now]
        if passed:
            for key in passed:
                del recent[key]
            self._trim()
        return forgotten + len(passed)

    def _find(self, arrivals: Sequence[Arrival], now: int) -> set[Key]:
        ids = [arrival.message_id for arrival in arrivals]
        found = select_each(self._connection, _FIND, ids)
        return {(key, queue) for key, queue, expires_at in found if expires_at > now}

    def _remember(self, arrival: Arrival) -> None:
        recent = self._recent[arrival.message_id[0]]
        key = arrival.message_id, arrival.queue
        # One that counts as new again is the youngest now.
        recent.pop(key, None)
        recent[key] = arrival

    def _move(self, portion: int) -> None:
        recent = self._recent[portion]
        if recent:
            insert_rows(self._connection, _KNOWN, [recent[key] for key in sorted(recent)], _AGAIN)
            recent.clear()
            self._trim()

    def _trim(self) -> None:
        """What is older than everything in memory was moved or forgotten."""
        oldest = [next(iter(recent.values())).number for recent in self._recent if recent]
        if oldest:
            self._connection.execute("DELETE FROM recent WHERE number < ?", (min(oldest),))
        else:
            self._connection.execute("DELETE FROM recent")
