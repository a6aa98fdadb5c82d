"""A table of the bus's own database as a place for documents: other systems read and write its rows.

Columns: `name` (text, the key), `content` (text), `state` (text: new, or error once it was set aside).
"""

from __future__ import annotations

import re

from gridpost.core.bus import BusLedger, BusUnit
from gridpost.core.refusal import Refusal, Rule

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,60}")


class TableBox:
    """transports.mailboxes.Mailbox, in the store of the bus."""

    def __init__(self, ledger: BusLedger, table: str) -> None:
        if not _NAME.fullmatch(table):
            raise Refusal(Rule.USAGE, f"'{table}' is no name for a table")
        self._ledger = ledger
        self._table = f"adapter_{table}"

    async def _run(self, statement: str, *parameters: object) -> list[tuple[object, ...]]:
        def work(unit: BusUnit) -> list[tuple[object, ...]]:
            unit.execute(
                f"CREATE TABLE IF NOT EXISTS {self._table} (name TEXT PRIMARY KEY, "
                "content TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'new')"
            )
            return list(unit.execute(statement.format(self._table), parameters))

        return await self._ledger.run(work)

    async def put(self, name: str, data: bytes) -> None:
        await self._run(
            "INSERT INTO {} (name, content) VALUES (?, ?) ON CONFLICT (name) DO NOTHING",
            name,
            data.decode(),
        )

    async def names(self) -> list[str]:
        rows = await self._run("SELECT name FROM {} WHERE state = 'new' ORDER BY name")
        return [str(name) for (name,) in rows]

    async def get(self, name: str) -> bytes:
        rows = await self._run("SELECT content FROM {} WHERE name = ?", name)
        if not rows:
            raise Refusal(Rule.ADAPTER, f"the row {name} is gone")
        return str(rows[0][0]).encode()

    async def remove(self, name: str) -> None:
        await self._run("DELETE FROM {} WHERE name = ?", name)

    async def set_aside(self, name: str) -> None:
        await self._run("UPDATE {} SET state = 'error' WHERE name = ?", name)
