"""The memory twin of a bus transaction: every change knows how it is undone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime

from gridpost.core.bus import ObjectState, Reading, StoredObject, named
from gridpost.core.envelope import Identifier


class MemoryTransaction:
    """core.bus.Transaction."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str], StoredObject] = {}
        self._history: list[StoredObject] = []
        self._readings: dict[tuple[str, str, datetime], Reading] = {}
        self._undo: list[Callable[[], object]] = []

    def mark(self) -> int:
        return len(self._undo)

    def back(self, mark: int) -> None:
        while len(self._undo) > mark:
            self._undo.pop()()

    def find(self, noun: str, identifier: Identifier) -> StoredObject | None:
        return next((s for s in self.all(noun) if named(s, identifier)), None)

    def all(self, noun: str) -> Iterator[StoredObject]:
        for key in sorted(self._objects):
            stored = self._objects[key]
            if stored.noun == noun and stored.state is not ObjectState.DELETED:
                yield stored

    def put(self, stored: StoredObject, at: datetime) -> None:
        key = (stored.noun, stored.mrid)
        before = self._objects.get(key)
        self._objects[key] = stored
        self._history.append(stored)

        def undo() -> None:
            self._history.pop()
            if before is None:
                del self._objects[key]
            else:
                self._objects[key] = before

        self._undo.append(undo)

    def history(self, noun: str, mrid: str) -> Sequence[StoredObject]:
        return [s for s in self._history if (s.noun, s.mrid) == (noun, mrid)]

    def add_readings(self, readings: Iterable[Reading]) -> None:
        before = dict(self._readings)
        for reading in readings:
            self._readings[reading.meter, reading.reading_type, reading.at] = reading

        def undo() -> None:
            self._readings = before

        self._undo.append(undo)

    def readings(
        self, meters: Sequence[str], start: datetime | None, end: datetime | None
    ) -> Iterator[Reading]:
        for key in sorted(self._readings):
            reading = self._readings[key]
            if (
                (not meters or reading.meter in meters)
                and (start is None or reading.at >= start)
                and (end is None or reading.at < end)
            ):
                yield reading
