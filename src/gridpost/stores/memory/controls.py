"""Holds, links and papers in memory, rule by rule as the port says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from gridpost.core.delivery import Side
from gridpost.core.delivery import State as MessageState
from gridpost.core.holds import Hold, HoldKind, Links
from gridpost.stores.memory.state import State


class MemoryControls:
    """core.holds.Controls."""

    def __init__(self, tables: State) -> None:
        self._tables = tables

    def holds(self) -> Sequence[Hold]:
        return [hold for _, hold in sorted(self._tables.holds.items())]

    def hold(self, hold: Hold) -> bool:
        key = (hold.kind.value, hold.value)
        if key in self._tables.holds:
            return False
        self._tables.holds[key] = hold
        return True

    def release(self, kind: HoldKind, value: str) -> bool:
        return self._tables.holds.pop((kind.value, value), None) is not None

    def link(self, old: str, new: str) -> None:
        self._tables.resends[self._number(Side.SENT, new)] = old

    def links(self, message_ids: Sequence[str]) -> Mapping[str, Links]:
        ids = {n: m.entry.message_id for n, m in self._tables.messages.items()}
        pairs = [(old, ids[n]) for n, old in sorted(self._tables.resends.items()) if n in ids]
        found: dict[str, Links] = {}
        for key in message_ids:
            later = tuple(new for old, new in pairs if old == key)
            earlier = next((old for old, new in pairs if new == key), "")
            if later or earlier:
                found[key] = Links(later, earlier)
        return found

    def elsewhere(self, message_id: str) -> bool:
        return False

    def held_back(self, limit: int) -> Sequence[str]:
        held = (
            m.entry.message_id
            for m in self._tables.messages.values()
            if m.entry.delivery.state is MessageState.HELD_BACK
        )
        return list(islice(held, limit))

    def keep_papers(self, side: Side, message_id: str, papers: Mapping[str, bytes]) -> None:
        number = self._number(side, message_id)
        self._tables.papers[number] = {**papers, **self._tables.papers.get(number, {})}

    def papers(self, side: Side, message_id: str) -> Mapping[str, bytes]:
        number = self._tables.numbers.get((side, message_id), 0)
        kept = self._tables.papers.get(number, {}) if number in self._tables.messages else {}
        return dict(sorted(kept.items()))

    def tidy_papers(self, limit: int) -> int:
        gone = [n for n in self._tables.papers if n not in self._tables.messages][:limit]
        for number in gone:
            del self._tables.papers[number]
        return len(gone)

    def _number(self, side: Side, message_id: str) -> int:
        number = self._tables.numbers.get((side, message_id))
        if number is None or number not in self._tables.messages:
            raise ValueError(f"no {side} message {message_id} is in the box")
        return number
