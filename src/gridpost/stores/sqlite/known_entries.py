"""Messages that were put, found or moved lately: they are not read and parsed again.

A message comes up in several transactions within a second. Only one connection writes, so that what it
has read or written stays true until something is rolled back or removed; then everything is forgotten.
"""

from __future__ import annotations

import sqlite3

from gridpost.core.delivery import Delivery
from gridpost.core.message_box import BoxEntry
from gridpost.stores.box_rows import BOX_COLUMNS, BoxRow, StateRow

_REMEMBERED = 2_000

Key = tuple[str, str]
"""Message ID and side."""

Subscribed = tuple[str, str, int]
"""Channel, reference, and whether it wants every line."""

_FIND = f"SELECT {BOX_COLUMNS} FROM message WHERE message_id = ? AND side = ?"
_LINES = "SELECT coalesce(max(line), 0) FROM trace WHERE message = ?"
_ACKNOWLEDGEMENTS = "SELECT coalesce(max(line), 0) FROM acknowledgement WHERE message = ?"
_SUBSCRIPTION = "SELECT channel, reference, every FROM subscription WHERE message = ?"


class Known:
    """A message as the transaction has it, rows that wait in its group included."""

    __slots__ = ("_connection", "_subscription", "acknowledged", "entry", "lines", "state")

    def __init__(
        self, connection: sqlite3.Connection, entry: BoxEntry, state: StateRow, *, new: bool
    ) -> None:
        self._connection = connection
        self.entry = entry
        self.state = state
        # None: the database was not asked yet.
        self.lines: int | None = 0 if new else None
        self.acknowledged: int | None = 0 if new else None
        self._subscription: tuple[Subscribed | None] | None = (None,) if new else None

    @property
    def number(self) -> int:
        return self.entry.number

    def moved(self, delivery: Delivery, state: StateRow) -> None:
        self.state = state
        self.entry = numbered(self.entry, delivery, self.entry.number)

    def next_line(self) -> int:
        """The number of one more line of its trace."""
        if self.lines is None:
            (self.lines,) = self._connection.execute(_LINES, (self.number,)).fetchone()
        self.lines = line = int(self.lines) + 1
        return line

    def next_acknowledgement(self) -> int:
        if self.acknowledged is None:
            found = self._connection.execute(_ACKNOWLEDGEMENTS, (self.number,))
            (self.acknowledged,) = found.fetchone()
        self.acknowledged = line = int(self.acknowledged) + 1
        return line

    @property
    def subscription(self) -> Subscribed | None:
        if self._subscription is None:
            found = self._connection.execute(_SUBSCRIPTION, (self.number,)).fetchone()
            self._subscription = (found,)
        return self._subscription[0]

    @subscription.setter
    def subscription(self, subscription: Subscribed) -> None:
        self._subscription = (subscription,)


class KnownEntries:
    """Of one connection."""

    __slots__ = ("_connection", "_known")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._known: dict[Key, Known] = {}

    def clear(self) -> None:
        self._known.clear()

    def forget(self, key: Key) -> None:
        self._known.pop(key, None)

    def put(self, entry: BoxEntry, state: StateRow, number: int) -> None:
        """It has just come into the box, under this number."""
        entry = numbered(entry, entry.delivery, number)
        self._remember(Known(self._connection, entry, state, new=True))

    def find(self, key: Key) -> Known | None:
        known = self._known.get(key)
        if known is not None:
            return known
        found = self._connection.execute(_FIND, key).fetchone()
        if found is None:
            return None
        row = BoxRow.read(found)
        return self._remember(Known(self._connection, row.to_entry(), row.state, new=False))

    def _remember(self, known: Known) -> Known:
        if len(self._known) >= _REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[known.entry.message_id, known.entry.delivery.side.value] = known
        return known


def numbered(entry: BoxEntry, delivery: Delivery, number: int) -> BoxEntry:
    return BoxEntry(
        delivery,
        entry.metadata,
        entry.route,
        entry.fingerprint,
        entry.size,
        entry.application,
        entry.conversation_id,
        number,
    )
