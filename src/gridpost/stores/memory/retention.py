"""What the box in memory forgets, and when (503 cl. 5.9)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from gridpost.core.delivery import Side
from gridpost.core.message_box import BoxEntry, Purged, Retention
from gridpost.stores.memory.state import Key, Remnant, State


class _Dated(Protocol):
    @property
    def key(self) -> Key: ...

    @property
    def final_at(self) -> datetime | None: ...


def purge(tables: State, retention: Retention, now: datetime, limit: int) -> Purged:
    # A message that is still to be transferred keeps its metadata and its content.
    needed = {transfer.message for transfer in tables.transfers.values()}

    contents = entries = 0
    for side in Side:
        for table in (tables.messages, tables.remnants):
            due = (
                number
                for number in _due(table.items(), side, retention.content(side), now)
                if number in tables.contents
                and number not in needed
                and not _is_one_of(tables, number, retention.content_stays)
            )
            for number in _first(due, limit - contents):
                del tables.contents[number]
                contents += 1
    for side in Side:
        due = (
            number
            for number in _due(tables.messages.items(), side, retention.metadata(side), now)
            if number not in needed and not _is_one_of(tables, number, retention.metadata_stays)
        )
        for number in _first(due, limit - entries):
            _forget_metadata(tables, number)
            entries += 1
    # Our own identifiers need not be remembered: nobody else makes them.
    for number in [n for n, r in tables.remnants.items() if r.side is Side.SENT]:
        if number not in tables.contents:
            _forget(tables, number)
    identifiers = _first(
        (
            number
            for number in _due(tables.remnants.items(), Side.RECEIVED, retention.received_ids, now)
            if number not in tables.contents
        ),
        limit,
    )
    for number in identifiers:
        _forget(tables, number)
    return Purged(contents, entries, len(identifiers))


def finished(tables: State, before: datetime, limit: int) -> list[BoxEntry]:
    needed = {transfer.message for transfer in tables.transfers.values()}
    due = (
        number
        for side in Side
        for number in _due(tables.messages.items(), side, timedelta(0), before)
        if number not in needed
    )
    return [tables.messages[number].entry for number in _first(due, limit)]


def discard(tables: State, side: Side, message_ids: Sequence[str]) -> int:
    needed = {transfer.message for transfer in tables.transfers.values()}
    numbers = [tables.numbers.get((side, message_id), 0) for message_id in message_ids]
    gone = [
        number
        for number in numbers
        if number in tables.messages
        and number not in needed
        and tables.messages[number].final_at is not None
    ]
    for number in gone:
        tables.contents.pop(number, None)
        _forget_metadata(tables, number)
        if side is Side.SENT:
            _forget(tables, number)
    return len(gone)


def _is_one_of(tables: State, number: int, types: Sequence[str]) -> bool:
    message = tables.messages.get(number)
    return message is not None and message.entry.metadata.message_type in types


def _due(
    rows: Iterable[tuple[int, _Dated]], side: Side, kept_for: timedelta, now: datetime
) -> Iterator[int]:
    """Numbers whose time is over, the earliest first."""
    final = [
        (row.final_at, number)
        for number, row in rows
        if row.key[0] is side and row.final_at is not None and row.final_at <= now - kept_for
    ]
    return (number for _, number in sorted(final))


def _first(numbers: Iterator[int], limit: int) -> list[int]:
    return [number for _, number in zip(range(limit), numbers, strict=False)]


def _forget_metadata(tables: State, number: int) -> None:
    message = tables.messages.pop(number)
    side, message_id = message.key
    if message.final_at is None:
        raise ValueError(f"{message_id} is not final")
    tables.remnants[number] = Remnant(side, message_id, message.final_at)
    if side is Side.SENT:
        tables.conversations.pop((message.entry.application, message.entry.conversation_id), None)


def _forget(tables: State, number: int) -> None:
    del tables.numbers[tables.remnants.pop(number).key]
