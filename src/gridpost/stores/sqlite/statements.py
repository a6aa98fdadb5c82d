"""Statements over many rows at once.

Python hands its lock to another thread at every step of SQLite. A group of a hundred messages would
do so hundreds of times and wait for the event loop each time; as one statement it does so once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

# Rows of one statement. Fewer go by powers of two: each size is a statement of its own, and preparing
# one costs more than executing it. Sizes that come all the time are worth theirs.
MAX_ROWS = 64
USUAL_ROWS = 16


def insert_rows(
    connection: sqlite3.Connection, head: str, rows: Sequence[Sequence[Any]], tail: str = ""
) -> int:
    """`head` names table and columns; how many rows were inserted or changed."""
    changed = 0
    for chunk in _chunks(rows):
        width = len(chunk[0])
        values = [value for row in chunk for value in row]
        statement = _values(head, width, len(chunk), tail)
        changed += connection.execute(statement, values).rowcount
    return changed


def for_each(connection: sqlite3.Connection, head: str, keys: Sequence[Any]) -> int:
    """Execute `head IN (…)` for all keys; how many rows were changed."""
    changed = 0
    for chunk in _chunks(keys):
        changed += connection.execute(_in(head, len(chunk)), chunk).rowcount
    return changed


def select_each(
    connection: sqlite3.Connection, head: str, keys: Sequence[Any]
) -> list[tuple[Any, ...]]:
    """The rows of `head IN (…)` for all keys."""
    return [
        row
        for chunk in _chunks(keys)
        for row in connection.execute(_in(head, len(chunk)), chunk).fetchall()
    ]


def select_pairs(
    connection: sqlite3.Connection, head: str, keys: Sequence[tuple[Any, Any]], tail: str
) -> list[tuple[Any, ...]]:
    """The rows of `head FROM (…) AS asked tail`, where `asked` has each key as column1 and column2."""
    return [
        row
        for chunk in _chunks(keys)
        for row in connection.execute(
            _values(f"{head} FROM (", 2, len(chunk), f") AS asked {tail}"),
            [value for key in chunk for value in key],
        ).fetchall()
    ]


@cache
def _values(head: str, width: int, count: int, tail: str) -> str:
    row = "(" + ",".join("?" * width) + ")"
    return f"{head} VALUES {','.join([row] * count)} {tail}"


@cache
def _in(head: str, count: int) -> str:
    return f"{head} IN ({','.join('?' * count)})"


def _chunks(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    at, left = 0, len(rows)
    while left:
        if left <= USUAL_ROWS:
            size = left
        else:
            size = MAX_ROWS if left >= MAX_ROWS else 1 << left.bit_length() - 1
        yield rows if size == len(rows) else rows[at : at + size]
        at += size
        left -= size
