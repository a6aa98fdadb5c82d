"""Holds, links between messages and archived papers in PostgreSQL, committed with what they are for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from gridpost.core.delivery import Side
from gridpost.core.holds import Hold, HoldKind, Links
from gridpost.stores.postgres.news import News, Topic
from gridpost.stores.postgres.session import Connection
from gridpost.stores.postgres.wishes import CancelWishes
from gridpost.stores.values import from_microseconds, to_microseconds

CONTROLS = (
    """
    CREATE TABLE hold (
        kind text NOT NULL,
        value text NOT NULL,
        by_whom text NOT NULL,
        at bigint NOT NULL,
        reason text NOT NULL,
        PRIMARY KEY (kind, value)
    )
    """,
    # The old message may go first: its identifier stays with the new one.
    """
    CREATE TABLE resend (
        message bigint PRIMARY KEY REFERENCES message (number) ON DELETE CASCADE,
        old text NOT NULL
    )
    """,
    "CREATE INDEX resend_by_old ON resend (old)",
    """
    CREATE TABLE paper (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        digest bytea NOT NULL UNIQUE,
        body bytea NOT NULL
    )
    """,
    """
    CREATE TABLE paper_of (
        message bigint NOT NULL REFERENCES message (number) ON DELETE CASCADE,
        name text NOT NULL,
        paper bigint NOT NULL REFERENCES paper (number),
        PRIMARY KEY (message, name)
    )
    """,
    "CREATE INDEX paper_of_by_paper ON paper_of (paper)",
    "CREATE INDEX message_held_back ON message (number) WHERE state = 'HELD_BACK'",
)

_HOLDS = "SELECT kind, value, by_whom, at, reason FROM hold ORDER BY kind, value"
_HOLD = """
    INSERT INTO hold (kind, value, by_whom, at, reason) VALUES (%s, %s, %s, %s, %s)
    ON CONFLICT DO NOTHING
"""
_RELEASE = "DELETE FROM hold WHERE kind = %s AND value = %s"
_LINK = """
    INSERT INTO resend (message, old)
    SELECT number, %s FROM message WHERE message_id = %s AND side = 'sent'
"""
_RESENT_AS = """
    SELECT r.old, m.message_id FROM resend r JOIN message m ON m.number = r.message
    WHERE r.old = ANY(%s) ORDER BY r.message
"""
_RESEND_OF = """
    SELECT m.message_id, r.old FROM message m JOIN resend r ON r.message = m.number
    WHERE m.message_id = ANY(%s) AND m.side = 'sent'
"""
_ELSEWHERE = "SELECT 1 FROM outgoing WHERE message_id = %s AND owner <> %s"
_HELD_BACK = "SELECT message_id FROM message WHERE state = 'HELD_BACK' ORDER BY number LIMIT %s"
_NUMBER = "SELECT number FROM message WHERE message_id = %s AND side = %s"
_NAMES = "SELECT name FROM paper_of WHERE message = %s"
# Processes may bring the same paper at the same time: whoever is second waits and takes the first one's.
_PAPER = """
    WITH added AS (
        INSERT INTO paper (digest, body) VALUES (%s, %s) ON CONFLICT (digest) DO NOTHING
        RETURNING number
    )
    SELECT number FROM added UNION ALL SELECT number FROM paper WHERE digest = %s LIMIT 1
"""
_KEEP = "INSERT INTO paper_of (message, name, paper) VALUES (%s, %s, %s)"
_PAPERS = """
    SELECT o.name, p.body FROM message m JOIN paper_of o ON o.message = m.number
    JOIN paper p ON p.number = o.paper
    WHERE m.message_id = %s AND m.side = %s ORDER BY o.name
"""
_TIDY = """
    DELETE FROM paper WHERE number IN (
        SELECT number FROM paper p
        WHERE NOT EXISTS (SELECT 1 FROM paper_of o WHERE o.paper = p.number)
        LIMIT %s FOR UPDATE SKIP LOCKED
    )
"""


class PostgresControls:
    """core.holds.Controls. Every process hears of a hold that is set or released."""

    __slots__ = ("_connection", "_me", "_news")

    def __init__(self, connection: Connection, me: int, news: News) -> None:
        self._connection = connection
        self._me = me
        self._news = news

    def holds(self) -> Sequence[Hold]:
        return [
            Hold(HoldKind(kind), value, by, from_microseconds(at), reason)
            for kind, value, by, at, reason in self._connection.execute(_HOLDS).fetchall()
        ]

    def hold(self, hold: Hold) -> bool:
        row = (hold.kind.value, hold.value, hold.by, to_microseconds(hold.at), hold.reason)
        return self._changed(self._connection.execute(_HOLD, row).rowcount)

    def release(self, kind: HoldKind, value: str) -> bool:
        return self._changed(self._connection.execute(_RELEASE, (kind.value, value)).rowcount)

    def link(self, old: str, new: str) -> None:
        if not self._connection.execute(_LINK, (old, new)).rowcount:
            raise ValueError(f"no sent message {new} is in the box")

    def links(self, message_ids: Sequence[str]) -> Mapping[str, Links]:
        wanted = (list(message_ids),)
        later: dict[str, list[str]] = {}
        for old, new in self._connection.execute(_RESENT_AS, wanted).fetchall():
            later.setdefault(old, []).append(new)
        earlier: dict[str, str] = dict(self._connection.execute(_RESEND_OF, wanted).fetchall())
        return {
            key: Links(tuple(later.get(key, ())), earlier.get(key, ""))
            for key in later.keys() | earlier.keys()
        }

    def elsewhere(self, message_id: str) -> bool:
        found = self._connection.execute(_ELSEWHERE, (message_id, self._me)).fetchone()
        return found is not None

    @property
    def wishes(self) -> CancelWishes:
        return CancelWishes(self._connection, self._me, self._news)

    def held_back(self, limit: int) -> Sequence[str]:
        return [found for (found,) in self._connection.execute(_HELD_BACK, (limit,)).fetchall()]

    def keep_papers(self, side: Side, message_id: str, papers: Mapping[str, bytes]) -> None:
        found = self._connection.execute(_NUMBER, (message_id, side.value)).fetchone()
        if found is None:
            raise ValueError(f"no {side} message {message_id} is in the box")
        names = {name for (name,) in self._connection.execute(_NAMES, found).fetchall()}
        for name, body in papers.items():
            if name not in names:
                self._connection.execute(_KEEP, (found[0], name, self._paper(body)))

    def papers(self, side: Side, message_id: str) -> Mapping[str, bytes]:
        return dict(self._connection.execute(_PAPERS, (message_id, side.value)).fetchall())

    def tidy_papers(self, limit: int) -> int:
        return self._connection.execute(_TIDY, (limit,)).rowcount

    def _paper(self, body: bytes) -> int:
        digest = hashlib.sha256(body).digest()
        # Empty only when another process has added it since this statement began.
        while True:
            found = self._connection.execute(_PAPER, (digest, body, digest)).fetchone()
            if found is not None:
                return int(found[0])

    def _changed(self, rows: int) -> bool:
        if rows:
            self._news.tell(Topic.HOLDS)
        return rows > 0
