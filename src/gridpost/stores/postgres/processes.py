"""The processes that share one endpoint: which are alive, and what becomes of the work of the others.

A process is a number that is locked by the very session that writes: who loses the lock has lost the
way to write, and who gets the lock of a number knows that its process writes no more.
"""

from __future__ import annotations

import os
import socket

from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.postgres.news import News, Topic
from gridpost.stores.postgres.session import Connection

_KEY = "hashtextextended(current_schema() || ' process', %s)"
_REGISTER = "INSERT INTO process (name) VALUES (%s) RETURNING number"
_LOCK = f"SELECT pg_advisory_lock({_KEY})"
_UNLOCK = f"SELECT pg_advisory_unlock({_KEY})"
_TRY = f"SELECT pg_try_advisory_xact_lock({_KEY})"
_KNOWN = "SELECT 1 FROM process WHERE number = %s"
_OTHERS = "SELECT number, name FROM process WHERE number <> %s ORDER BY number"
_TAKE_TRANSFERS = "UPDATE outgoing SET owner = %s WHERE owner = %s"
_TAKE_PAIRS = "UPDATE ordered_pair SET owner = %s WHERE owner = %s"
_LET_GO = (
    "UPDATE message SET holder = NULL WHERE holder = %s",
    "UPDATE notice SET holder = NULL WHERE holder = %s",
    "DELETE FROM content WHERE stager = %s",
    "DELETE FROM process WHERE number = %s",
)


def process_name() -> str:
    """For the operator: machine and process."""
    return f"{socket.gethostname()} {os.getpid()}"


class Process:
    """This process, under the number that it has at the moment."""

    def __init__(self) -> None:
        self._number: int | None = None

    @property
    def number(self) -> int:
        if self._number is None:
            raise RuntimeError("the process is not registered")
        return self._number

    def enter(self, connection: Connection) -> None:
        """With every new writing connection: the old number, unless others have buried it."""
        number = self._number
        if number is not None:
            # Waits for somebody who looks at this moment whether we are dead.
            connection.execute(_LOCK, (number,))
            if connection.execute(_KNOWN, (number,)).fetchone() is not None:
                return
            connection.execute(_UNLOCK, (number,))
        # Locked before anybody can see it.
        with connection.transaction():
            added = connection.execute(_REGISTER, (process_name(),)).fetchone()
            if added is None:
                raise Refusal(Rule.INTERNAL, "the process got no number")
            connection.execute(_LOCK, (added[0],))
        self._number = int(added[0])


def take_over(connection: Connection, me: int, news: News) -> list[str]:
    """The work of processes that are gone becomes ours, what they held is free; their names."""
    gone = []
    for number, name in connection.execute(_OTHERS, (me,)).fetchall():
        if connection.execute(_TRY, (number,)).fetchone() != (True,):
            continue
        if connection.execute(_KNOWN, (number,)).fetchone() is None:
            continue
        connection.execute(_TAKE_TRANSFERS, (me, number))
        connection.execute(_TAKE_PAIRS, (me, number))
        for statement in _LET_GO:
            connection.execute(statement, (number,))
        gone.append(str(name))
    if gone:
        news.tell(Topic.EVERYTHING)
    return gone
