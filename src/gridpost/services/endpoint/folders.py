"""File System Shared Folders (503 cl. 11.2): what the three folder duties share, and their health."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import structlog

from gridpost.core.channels import Channel
from gridpost.core.identifiers import MessageTypePattern, matches
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal
from gridpost.core.shared_folders import InFolder

log = structlog.get_logger(__name__)

TAKEN = f"{Channel.FOLDER}.taken"
"""Files whose messages are stored and that are not known to be gone."""
LOGGED = f"{Channel.FOLDER}.log"
"""Lines that wait for their log file."""


@dataclass(frozen=True, slots=True)
class InPlace:
    """Where documents of a message-type go, and what their names end with if their sender did not say."""

    folder: InFolder
    extension: str = ""


@dataclass(frozen=True, slots=True)
class FolderSettings:
    user: str = "folder"
    """Whose rights count for files in OUT."""
    at_once: int = 16
    """Files that are read and accepted at the same time."""
    retry_seconds: float = 15.0
    """What the disk did not do is tried again after this time."""
    types: Mapping[MessageTypePattern, InPlace] = field(default_factory=dict)
    default: InPlace | None = None

    def place(self, message_type: str) -> InPlace | None:
        """503 cl. 11.2.4: the identical message-type, else the longest pattern, else the default."""
        fitting = [p for p in self.types if matches(p, message_type)]
        best = max(fitting, key=lambda p: (p == message_type, len(p)), default=None)
        return self.default if best is None else self.types[best]


@dataclass(slots=True)
class _Problem:
    since: datetime
    reason: str
    hint: str


class FolderHealth:
    """What does not work at the moment: said once in the log, and as long as it lasts in the health."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._problems: dict[str, _Problem] = {}

    def failed(self, what: str, refusal: Refusal) -> None:
        known = self._problems.get(what)
        if known is None or known.reason != refusal.message:
            log.error(
                "shared folder fails",
                what=what,
                reason=refusal.message,
                details=refusal.details,
                id=refusal.id,
            )
            since = self._clock.now() if known is None else known.since
            self._problems[what] = _Problem(since, refusal.message, refusal.details)

    def works(self, what: str) -> None:
        if self._problems.pop(what, None) is not None:
            log.info("shared folder works again", what=what)

    def view(self) -> list[dict[str, Any]]:
        return [
            {
                "what": what,
                "since": problem.since.isoformat(),
                "reason": problem.reason,
                "hint": problem.hint,
            }
            for what, problem in self._problems.items()
        ]


class Alarm:
    """Wakes a duty: when somebody calls, or when it is time to try again what failed."""

    def __init__(self) -> None:
        self._called = asyncio.Event()

    def ring(self) -> None:
        self._called.set()

    async def wait(self, seconds: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._called.wait()
        self._called.clear()
