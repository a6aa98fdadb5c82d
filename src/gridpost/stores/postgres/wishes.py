"""What the operator of one process wishes of another: to cancel a message whose transfer that one owns.

Only the owner knows whether a transfer has begun, and no claim is written for each (ADR 26). So the wish
is a row: the owner answers it in the commit that cancels, and whoever wished may withdraw it until then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gridpost.stores.postgres.news import News, Topic
from gridpost.stores.postgres.session import Connection

WISHES = (
    """
    CREATE TABLE cancel_wish (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        message_id text NOT NULL,
        by_whom text NOT NULL,
        reason text NOT NULL,
        asked_at timestamptz NOT NULL DEFAULT now(),
        answer text
    )
    """,
)

_ASK = "INSERT INTO cancel_wish (message_id, by_whom, reason) VALUES (%s, %s, %s) RETURNING number"
# Of processes that died before they read the answer.
_TIDY = "DELETE FROM cancel_wish WHERE asked_at < now() - interval '1 hour'"
# Also what nobody is to transfer any more: anybody can say so.
_OURS = """
    SELECT number, message_id, by_whom, reason FROM cancel_wish w
    WHERE answer IS NULL AND NOT EXISTS (
        SELECT 1 FROM outgoing o WHERE o.message_id = w.message_id AND o.owner <> %s
    )
    ORDER BY number
"""
_ANSWER = "UPDATE cancel_wish SET answer = %s WHERE number = %s AND answer IS NULL"
_LOOK = "SELECT answer FROM cancel_wish WHERE number = %s"
_END = "DELETE FROM cancel_wish WHERE number = %s RETURNING answer"


@dataclass(frozen=True, slots=True)
class Wish:
    number: int
    message_id: str
    by: str
    reason: str


class CancelWishes:
    """In one transaction, seen by the process `me`."""

    __slots__ = ("_connection", "_me", "_news")

    def __init__(self, connection: Connection, me: int, news: News) -> None:
        self._connection = connection
        self._me = me
        self._news = news

    def ask(self, message_id: str, by: str, reason: str) -> int:
        self._connection.execute(_TIDY)
        added = self._connection.execute(_ASK, (message_id, by, reason)).fetchone()
        if added is None:
            raise ValueError("the wish got no number")
        # A topic that processes of an older version know, too.
        self._news.tell(Topic.HOLDS)
        return int(added[0])

    def ours(self) -> Sequence[Wish]:
        """Those that wait for our answer."""
        return [Wish(*row) for row in self._connection.execute(_OURS, (self._me,)).fetchall()]

    def answer(self, number: int, answer: str) -> bool:
        """Empty: it is fulfilled, in this very commit. False: withdrawn, or answered already."""
        return self._connection.execute(_ANSWER, (answer, number)).rowcount == 1

    def waits(self, number: int) -> bool:
        return self._connection.execute(_LOOK, (number,)).fetchone() == (None,)

    def end(self, number: int) -> str | None:
        """The answer; None: there was none, and there will be none."""
        found = self._connection.execute(_END, (number,)).fetchone()
        return None if found is None else found[0]
