"""Messages that were put or found lately: what never changes of them is not read and parsed again.

A message comes up in several transactions within a second. Its state is asked of the database each
time; its metadata with their signatures are the same as before.
"""

from __future__ import annotations

from gridpost.core.delivery import Delivery, State
from gridpost.core.message_box import BoxEntry
from gridpost.stores.values import from_microseconds

_REMEMBERED = 1_000

Key = tuple[str, str]
"""Message ID and side."""


class KnownEntries:
    """Of one connection that writes; to be cleared when anything is rolled back."""

    def __init__(self) -> None:
        self._entries: dict[Key, BoxEntry] = {}

    def clear(self) -> None:
        self._entries.clear()

    def forget(self, key: Key) -> None:
        self._entries.pop(key, None)

    def add(self, entry: BoxEntry, number: int) -> None:
        """An entry as it is in the box, under its number there."""
        if len(self._entries) >= _REMEMBERED:
            del self._entries[next(iter(self._entries))]
        delivery = entry.delivery
        known = entry if entry.number == number else _numbered(entry, delivery, number)
        self._entries[entry.message_id, delivery.side.value] = known

    def find(
        self, key: Key, number: int, state: str, expires_at: int, changed_at: int
    ) -> BoxEntry | None:
        """The entry with the state that the database has told, if its other parts are known."""
        known = self._entries.get(key)
        if known is None or known.number != number:
            return None
        delivery = Delivery(
            known.delivery.side,
            known.delivery.message_id,
            State(state),
            from_microseconds(expires_at),
            from_microseconds(changed_at),
        )
        return _numbered(known, delivery, number)


def _numbered(entry: BoxEntry, delivery: Delivery, number: int) -> BoxEntry:
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
