"""Holds, links between messages and archived papers in SQLite, in the transaction of what they are for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache

from gridpost.core.delivery import Side
from gridpost.core.holds import Hold, HoldKind, Links
from gridpost.stores.sqlite.group import Group
from gridpost.stores.values import from_microseconds, to_microseconds, write_json

CONTROLS = (
    """
    CREATE TABLE hold (
        kind TEXT NOT NULL,
        value TEXT NOT NULL,
        by_whom TEXT NOT NULL,
        at INTEGER NOT NULL,
        reason TEXT NOT NULL,
        PRIMARY KEY (kind, value)
    ) STRICT, WITHOUT ROWID
    """,
    # The old message may go first: its identifier stays with the new one.
    """
    CREATE TABLE resend (
        message INTEGER PRIMARY KEY REFERENCES message (number) ON DELETE CASCADE,
        old TEXT NOT NULL
    ) STRICT
    """,
    "CREATE INDEX resend_by_old ON resend (old)",
    """
    CREATE TABLE paper (
        number INTEGER PRIMARY KEY,
        digest BLOB NOT NULL UNIQUE,
        body BLOB NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE paper_of (
        message INTEGER NOT NULL REFERENCES message (number) ON DELETE CASCADE,
        name TEXT NOT NULL,
        paper INTEGER NOT NULL REFERENCES paper (number),
        PRIMARY KEY (message, name)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX paper_of_by_paper ON paper_of (paper)",
    "CREATE INDEX message_held_back ON message (number) WHERE state = 'HELD_BACK'",
)

_HOLDS = "SELECT kind, value, by_whom, at, reason FROM hold ORDER BY kind, value"
_HOLD = "INSERT OR IGNORE INTO hold (kind, value, by_whom, at, reason) VALUES (?, ?, ?, ?, ?)"
_RELEASE = "DELETE FROM hold WHERE kind = ? AND value = ?"
_LINK = """
    INSERT INTO resend (message, old)
    SELECT number, ? FROM message WHERE message_id = ? AND side = 'sent'
"""
_RESENT_AS = """
    SELECT r.old, m.message_id FROM json_each(?) wanted
    JOIN resend r ON r.old = wanted.value JOIN message m ON m.number = r.message
    ORDER BY r.message
"""
_RESEND_OF = """
    SELECT m.message_id, r.old FROM json_each(?) wanted
    JOIN message m ON m.message_id = wanted.value AND m.side = 'sent'
    JOIN resend r ON r.message = m.number
"""
_HELD_BACK = """
    SELECT message_id FROM message INDEXED BY message_held_back
    WHERE state = 'HELD_BACK' ORDER BY number LIMIT ?
"""
_PAPER = "SELECT number FROM paper WHERE digest = ?"
_NAMED = "SELECT 1 FROM paper_of WHERE message = ? AND name = ?"
_NEW_PAPER = "INSERT INTO paper (digest, body) VALUES (?, ?)"
_KEEP = "INSERT OR IGNORE INTO paper_of (message, name, paper)"
_PAPERS = """
    SELECT o.name, p.body FROM message m JOIN paper_of o ON o.message = m.number
    JOIN paper p ON p.number = o.paper
    WHERE m.message_id = ? AND m.side = ? ORDER BY o.name
"""
_TIDY = """
    DELETE FROM paper WHERE number IN (
        SELECT number FROM paper
        WHERE NOT EXISTS (SELECT 1 FROM paper_of WHERE paper_of.paper = paper.number) LIMIT ?
    )
"""


class SqliteControls:
    """core.holds.Controls."""

    __slots__ = ("_connection", "_group")

    def __init__(self, group: Group) -> None:
        self._group = group
        self._connection = group.connection

    def holds(self) -> Sequence[Hold]:
        return [
            Hold(HoldKind(kind), value, by, from_microseconds(at), reason)
            for kind, value, by, at, reason in self._connection.execute(_HOLDS).fetchall()
        ]

    def hold(self, hold: Hold) -> bool:
        row = (hold.kind.value, hold.value, hold.by, to_microseconds(hold.at), hold.reason)
        return self._connection.execute(_HOLD, row).rowcount > 0

    def release(self, kind: HoldKind, value: str) -> bool:
        return self._connection.execute(_RELEASE, (kind.value, value)).rowcount > 0

    def link(self, old: str, new: str) -> None:
        if not self._connection.execute(_LINK, (old, new)).rowcount:
            raise ValueError(f"no sent message {new} is in the box")

    def links(self, message_ids: Sequence[str]) -> Mapping[str, Links]:
        wanted = (write_json(list(message_ids)),)
        later: dict[str, list[str]] = {}
        for old, new in self._connection.execute(_RESENT_AS, wanted).fetchall():
            later.setdefault(old, []).append(new)
        earlier = dict(self._connection.execute(_RESEND_OF, wanted).fetchall())
        return {
            key: Links(tuple(later.get(key, ())), earlier.get(key, ""))
            for key in later.keys() | earlier.keys()
        }

    def elsewhere(self, message_id: str) -> bool:
        return False

    def held_back(self, limit: int) -> Sequence[str]:
        return [found for (found,) in self._connection.execute(_HELD_BACK, (limit,)).fetchall()]

    def keep_papers(self, side: Side, message_id: str, papers: Mapping[str, bytes]) -> None:
        known = self._group.entries.find((message_id, side.value))
        if known is None:
            raise ValueError(f"no {side} message {message_id} is in the box")
        for name, body in papers.items():
            paper = self._paper(known.number, name, body)
            if paper is not None:
                self._group.add(_KEEP, (known.number, name, paper))

    def _paper(self, message: int, name: str, body: bytes) -> int | None:
        """The number of a paper; None: it is new, and the message has another of that name."""
        digest = _digest(body)
        number = self._group.paper(digest)
        if number is not None:
            return number
        found = self._connection.execute(_PAPER, (digest,)).fetchone()
        if found is None:
            self._group.flush()
            if self._connection.execute(_NAMED, (message, name)).fetchone() is not None:
                return None
            found = (self._connection.execute(_NEW_PAPER, (digest, body)).lastrowid,)
        number = int(found[0])
        self._group.know_paper(digest, number)
        return number

    def papers(self, side: Side, message_id: str) -> Mapping[str, bytes]:
        self._group.flush()
        return dict(self._connection.execute(_PAPERS, (message_id, side.value)).fetchall())

    def tidy_papers(self, limit: int) -> int:
        self._group.flush()
        self._group.forget()
        return self._connection.execute(_TIDY, (limit,)).rowcount


@lru_cache(64)
def _digest(paper: bytes) -> bytes:
    """Thousands of messages in a row have the same two papers."""
    return hashlib.sha256(paper).digest()
