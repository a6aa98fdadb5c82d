"""What a check of documents is: somebody else's program looks at a document and says yes or no."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from gridpost.core.delivery import Side


class Stage(StrEnum):
    ACCEPTANCE = "acceptance"
    """A document that an application hands in; refused, nothing of it is stored."""
    HAND_OVER = "hand-over"
    """A received document; refused, it is held back until an operator decides."""


class WhenDown(StrEnum):
    """What becomes of a document that could not be checked."""

    REFUSE = "refuse"
    WAIT = "wait"
    PASS = "pass"


@dataclass(frozen=True, slots=True)
class CheckedDocument:
    side: Side
    sender: str
    receiver: str
    message_type: str
    content: bytes
    fields: Mapping[str, str] = field(default_factory=dict)
    """What else is known of it, by the names of 503 Table 29."""


@dataclass(frozen=True, slots=True)
class Finding:
    passed: bool
    reason: str = ""


class DocumentCheck(Protocol):
    async def check(self, document: CheckedDocument) -> Finding:
        """Refuses with CHECK_FAILED when it cannot say; may be cancelled at any moment."""
        ...
