"""Audit and security events for a SIEM: RFC 5424 lines from the journal, in order, none left out."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Protocol

from gridpost.core.journal import AdministrationRow, Recorded, RefusalRow

KINDS = frozenset({AdministrationRow.KIND, RefusalRow.KIND})

# RFC 5424 6.2.1: facility 13 is the log audit; severities 4 warning, 5 notice, 6 informational.
_AUDIT = 13
_WARNING, _NOTICE, _INFORMATIONAL = 4, 5, 6
# RFC 5424 7.2.2 wants an enterprise number; 32473 is the one reserved for examples and documentation.
_DATA_ID = "gridpost@32473"
_MAX_VALUE = 2048


class LinePort(Protocol):
    """Takes lines to a syslog server; returns when they are handed over."""

    async def send(self, lines: Sequence[bytes]) -> None: ...


class Siem:
    def __init__(self, component: str, instance: str, port: LinePort) -> None:
        self._component = component
        self._instance = instance
        self._port = port
        self._host = _token(socket.gethostname(), 255)

    async def take(self, rows: Sequence[Recorded]) -> None:
        lines = [line for recorded in rows if (line := self._line(recorded)) is not None]
        if lines:
            await self._port.send(lines)

    def _line(self, recorded: Recorded) -> bytes | None:
        row = recorded.row
        values = {"instance": self._instance, "sequence": str(recorded.sequence)}
        if isinstance(row, AdministrationRow):
            severity, name = _NOTICE, "audit"
            values |= {"actor": row.actor, "action": row.action, "target": row.target}
            values |= {"reason": row.reason} if row.reason else {}
            text = f"{row.actor}: {row.action} {row.target}".strip()
        elif isinstance(row, RefusalRow):
            severity = _WARNING if row.security else _INFORMATIONAL
            name = "security" if row.security else "refusal"
            values |= {"rule": row.rule, "peer": row.peer, "id": row.refusal_id}
            values |= {"messageID": row.message_id} if row.message_id else {}
            text = row.message
        else:
            return None
        when = row.at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        data = " ".join(f'{key}="{_quoted(value)}"' for key, value in values.items())
        head = (
            f"<{_AUDIT * 8 + severity}>1 {when} {self._host} {_token(self._component, 48)} - {name}"
        )
        # A byte-order mark says that the text is UTF-8 (6.4).
        return f"{head} [{_DATA_ID} {data}] \ufeff{_one_line(text)}".encode()


def _token(text: str, limit: int) -> str:
    return "".join(c if 33 <= ord(c) <= 126 else "?" for c in text)[:limit] or "-"


def _quoted(text: str) -> str:
    return (
        _one_line(text)[:_MAX_VALUE].replace("\\", "\\\\").replace('"', '\\"').replace("]", "\\]")
    )


def _one_line(text: str) -> str:
    """Nothing that a peer wrote may look like a line of its own."""
    return "".join(c if c.isprintable() else " " for c in text)
