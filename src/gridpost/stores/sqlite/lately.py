"""Transfers that were enqueued lately: whoever looks for what is due need not read and parse them again.

Nearly every transfer is looked for a few milliseconds after its commit and is still as it was enqueued.
The thread that writes fills this and takes out whatever it changes; threads that read ask by the number
of a row that they see in the database, so that nothing is found here before its commit. Numbers are
given once (AUTOINCREMENT).
"""

from __future__ import annotations

from gridpost.core.message_box import Outgoing

_REMEMBERED = 512
_LARGEST = 16 * 1024
"""Octets of a content; larger ones are read when their turn comes."""


class LatelyEnqueued:
    """Of one store. Only `find` may be called by other threads than the one that writes."""

    __slots__ = ("_known", "_uncommitted")

    def __init__(self) -> None:
        self._known: dict[int, Outgoing] = {}
        self._uncommitted: dict[int, Outgoing] = {}

    def add(self, outgoing: Outgoing) -> None:
        """In a transaction; found by others after `committed`."""
        if len(outgoing.message.content) <= _LARGEST:
            self._uncommitted[outgoing.number] = outgoing

    def committed(self) -> None:
        for number, outgoing in self._uncommitted.items():
            if len(self._known) >= _REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[number] = outgoing
        self._uncommitted = {}

    def find(self, number: int) -> Outgoing | None:
        return self._known.get(number)

    def forget(self, number: int) -> None:
        """It has ended, or waits for another attempt."""
        self._known.pop(number, None)
        self._uncommitted.pop(number, None)

    def clear(self) -> None:
        """Something was rolled back, or changed in a way that is not followed here."""
        self._known.clear()
        self._uncommitted.clear()
