"""What operators look for in the box, in the words of PostgreSQL.

Its planner goes by estimates, and a wrong one reads the whole box: where rows are ordered by a key
and its numbers, only the index of that key has them in this order; where they are joined row by row
(LATERAL, OFFSET 0), nothing else can be done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gridpost.core.message_box import Found, Search
from gridpost.stores.box_rows import BOX_COLUMNS
from gridpost.stores.box_search import EVERYTHING, FIELDS, TEXT, TROUBLE, BoxSearch
from gridpost.stores.postgres.session import Connection
from gridpost.stores.postgres.text import storable

_RANGE = "number BETWEEN %(low)s AND %(high)s"
# A value of these has a few messages at most; their indexes are not in the order of numbers.
_RARE = ("message_id", "conversation_id")
# Messages in trouble, and those whose transfer is being repeated.
_IN_TROUBLE = f"""
    (
        SELECT number FROM message WHERE state IN ({TROUBLE}) AND {_RANGE}
        ORDER BY number DESC LIMIT %(look)s
    )
    UNION
    (
        SELECT message AS number FROM outgoing
        WHERE due_at IS NOT NULL AND message IS NOT NULL AND message BETWEEN %(low)s AND %(high)s
        ORDER BY message DESC LIMIT %(look)s
    )
    ORDER BY number DESC LIMIT %(look)s
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
        AND trace.detail ILIKE %(text)s ESCAPE '~'
    )
"""


class PostgresSearch(BoxSearch):
    def __init__(
        self, connection: Connection, search: Search, limit: int, look: int | None = None
    ) -> None:
        super().__init__(search, limit, look)
        self._connection = connection

    def page(self, before: int | None) -> Found:
        if not all(storable(value) for value in self.values.values() if isinstance(value, str)):
            return Found()
        return super().page(before)

    def ask(self, statement: str, values: Mapping[str, object]) -> Sequence[Sequence[Any]]:
        return self._connection.execute(statement, values).fetchall()

    def mark(self, name: str) -> str:
        return f"%({name})s"

    def numbers(self, lead: str) -> str:
        if lead == TEXT:
            return _IN_TROUBLE
        if lead == EVERYTHING:
            return f"SELECT number FROM message WHERE {_RANGE} ORDER BY number DESC LIMIT %(look)s"
        if lead in _RARE:
            return f"""
                SELECT number FROM (
                    SELECT number FROM message WHERE {lead} = %({lead})s{FIELDS[lead]} OFFSET 0
                ) AS few WHERE {_RANGE} ORDER BY number DESC LIMIT %(look)s
            """
        return f"""
            SELECT {lead}, number FROM message
            WHERE ({lead}, number) >= (%({lead})s, %(low)s)
                AND ({lead}, number) <= (%({lead})s, %(high)s){FIELDS[lead]}
            ORDER BY {lead} DESC, number DESC LIMIT %(look)s
        """

    def page_of(self, lead: str, conditions: Sequence[str]) -> str:
        keyed = lead in FIELDS and lead not in _RARE
        order = f"newest.{lead} DESC, newest.number DESC" if keyed else "newest.number DESC"
        each = " AND ".join(("message.number = newest.number", *conditions))
        return f"""
            SELECT found.* FROM ({self.numbers(lead)}) AS newest CROSS JOIN LATERAL (
                SELECT {BOX_COLUMNS} FROM message WHERE {each} OFFSET 0
            ) AS found
            ORDER BY {order} LIMIT %(limit)s
        """

    def tells(self) -> str:
        return _TELLS
