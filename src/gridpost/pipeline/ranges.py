"""Which journal rows the lake holds: sets of numbers per component instance, kept as ranges.

A segment holds all of its range and nothing else, so that ranges answer exactly what is a repeat,
where a gap is, and up to where a journal is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True, order=True)
class Range:
    component: str
    instance: str
    first: int
    last: int
    newest: int = 0
    """Microseconds since 1970 of the newest row in it."""
    oldest: int = 0
    """And of the oldest one; 0: an older version did not write it down."""

    @property
    def key(self) -> tuple[str, str]:
        return self.component, self.instance

    def overlaps(self, other: Range) -> bool:
        return self.key == other.key and self.first <= other.last and other.first <= self.last


def merged(ranges: Iterable[Range]) -> list[Range]:
    """The same numbers in as few ranges as possible."""
    found: list[Range] = []
    for item in sorted(ranges):
        last = found[-1] if found else None
        if last is not None and last.key == item.key and item.first <= last.last + 1:
            newest = max(last.newest, item.newest)
            end = max(last.last, item.last)
            found[-1] = Range(*last.key, last.first, end, newest, last.oldest)
        else:
            found.append(item)
    return found


def overlapping(known: Iterable[Range], new: Iterable[Range]) -> list[Range]:
    """Those of `known` that share numbers with one of `new`."""
    candidates = list(new)
    return [one for one in known if any(one.overlaps(other) for other in candidates)]


def among_themselves(ranges: Iterable[Range]) -> bool:
    ordered = sorted(ranges)
    return any(a.overlaps(b) for a, b in pairwise(ordered))


def gaps(ranges: Iterable[Range]) -> Iterator[Range]:
    """Numbers below and between ranges: rows that existed and are not here (yet)."""
    before: Range | None = None
    for item in merged(ranges):
        first = before.last + 1 if before is not None and before.key == item.key else 1
        if item.first > first:
            yield Range(*item.key, first, item.first - 1)
        before = item


@dataclass(frozen=True, slots=True)
class Mark:
    """High-water mark of a component: up to where its journals are in the lake without a hole."""

    component: str
    sequence: int
    time: int
    instances: int
    missing: int
    """Numbers that later rows prove to exist."""
    since: int = 0
    """The first rows are not here: nothing is known of what was before. 0: they are."""


def marks(ranges: Iterable[Range]) -> dict[str, Mark]:
    """A component whose store was made anew has several instances; a hole in any of them counts."""
    known = merged(ranges)
    found: dict[str, Mark] = {}
    for component in sorted({item.component for item in known}):
        journals: dict[str, list[Range]] = {}
        for item in known:
            if item.component == component:
                journals.setdefault(item.instance, []).append(item)
        broken = [parts[0] for parts in journals.values() if len(parts) > 1]
        whole = [parts[0] for parts in journals.values() if len(parts) == 1]
        at = min(broken, key=lambda r: r.newest) if broken else max(whole, key=lambda r: r.newest)
        missing = sum(
            later.first - earlier.last - 1
            for parts in journals.values()
            for earlier, later in pairwise(parts)
        )
        since = max(parts[0].oldest if parts[0].first > 1 else 0 for parts in journals.values())
        found[component] = Mark(component, at.last, at.newest, len(journals), missing, since)
    return found
