"""Small things that a component must remember over a restart, each in a file that is replaced whole."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from gridpost.core.alerts import AlertBook, AlertKind, Condition, OpenAlert, Severity
from gridpost.stores.keys import owner_only


class AlertFile:
    """`services.operations.alerting.AlertMemory`. What cannot be read is forgotten, not fatal."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> AlertBook:
        try:
            kept = json.loads(self._path.read_bytes())
            return AlertBook({key: _read(form) for key, form in kept.items()})
        except (OSError, ValueError, KeyError, TypeError):
            return AlertBook()

    def save(self, book: AlertBook) -> None:
        # What is over and not told is found to be over once more after a restart.
        data = {key: _form(alert) for key, alert in {**book.over, **book.open}.items()}
        owner_only.write(self._path, json.dumps(data).encode())


def _form(alert: OpenAlert) -> dict[str, Any]:
    condition = alert.condition
    return {
        "kind": condition.kind.value,
        "subject": condition.subject,
        "text": condition.text,
        "severity": condition.severity.value,
        "since": alert.since.isoformat(),
        "told_at": None if alert.told_at is None else alert.told_at.isoformat(),
    }


def _read(form: dict[str, Any]) -> OpenAlert:
    told = form["told_at"]
    return OpenAlert(
        Condition(
            AlertKind(form["kind"]), form["subject"], form["text"], Severity(form["severity"])
        ),
        datetime.fromisoformat(form["since"]),
        None if told is None else datetime.fromisoformat(told),
    )


class CursorFile:
    """`services.operations.journal_follow.Cursor`, for one instance of a journal."""

    def __init__(self, path: Path, instance: str) -> None:
        self._path = path
        self._instance = instance

    def load(self) -> int | None:
        try:
            kept = json.loads(self._path.read_bytes())
            return int(kept["sequence"]) if kept["instance"] == self._instance else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def save(self, sequence: int) -> None:
        owner_only.write(
            self._path, json.dumps({"instance": self._instance, "sequence": sequence}).encode()
        )
