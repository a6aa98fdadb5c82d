"""What operators look for in the box, in the words of SQLite, which is told what index to use."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from gridpost.core.message_box import Search
from gridpost.stores.box_rows import BOX_COLUMNS
from gridpost.stores.box_search import EVERYTHING, FIELDS, TEXT, TROUBLE, BoxSearch

_INDEXES = {
    "message_id": "message_by_id",
    "conversation_id": "message_by_conversation",
    "ba_message_id": "message_by_ba_id",
    "peer": "message_by_peer",
    "status": "message_by_status",
    "message_type": "message_by_type",
}
_RANGE = "number BETWEEN :low AND :high"
# Messages in trouble, and those whose transfer is being repeated.
_IN_TROUBLE = f"""
    SELECT number FROM (
        SELECT number FROM message INDEXED BY message_in_trouble
        WHERE state IN ({TROUBLE}) AND {_RANGE} ORDER BY number DESC LIMIT :look
    )
    UNION
    SELECT number FROM (
        SELECT message AS number FROM outgoing INDEXED BY outgoing_repeated
        WHERE due_at IS NOT NULL AND message IS NOT NULL AND message BETWEEN :low AND :high
        ORDER BY message DESC LIMIT :look
    )
    ORDER BY number DESC LIMIT :look
"""
_TELLS = f"""
    (
        state IN ({TROUBLE}) OR EXISTS (
            SELECT 1 FROM outgoing WHERE outgoing.message = message.number
            AND outgoing.due_at IS NOT NULL
        )
    )
    AND EXISTS (
        SELECT 1 FROM trace WHERE trace.message = message.number
        AND trace.detail LIKE :text ESCAPE '~'
    )
"""


class SqliteSearch(BoxSearch):
    plain = "+"

    def __init__(
        self,
        connection: sqlite3.Connection,
        search: Search,
        limit: int,
        look: int | None = None,
    ) -> None:
        super().__init__(search, limit, look)
        self._connection = connection

    def ask(self, statement: str, values: Mapping[str, object]) -> Sequence[Sequence[Any]]:
        return self._connection.execute(statement, values).fetchall()

    def mark(self, name: str) -> str:
        return f":{name}"

    def numbers(self, lead: str) -> str:
        if lead == TEXT:
            return _IN_TROUBLE
        return f"SELECT number {_led_by(lead)} ORDER BY number DESC LIMIT :look"

    def page_of(self, lead: str, conditions: Sequence[str]) -> str:
        if lead == TEXT:
            source = f"FROM message WHERE number IN ({_IN_TROUBLE})"
        else:
            source = _led_by(lead)
        return (
            f"SELECT {BOX_COLUMNS} {' AND '.join((source, *conditions))} "
            "ORDER BY number DESC LIMIT :limit"
        )

    def tells(self) -> str:
        return _TELLS


def _led_by(lead: str) -> str:
    if lead == EVERYTHING:
        return f"FROM message NOT INDEXED WHERE {_RANGE}"
    return (
        f"FROM message INDEXED BY {_INDEXES[lead]} "
        f"WHERE {lead} = :{lead}{FIELDS[lead]} AND {_RANGE}"
    )
