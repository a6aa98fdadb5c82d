"""What applications still have to be told, kept until they were: replies, status changes, log lines.

A notice is written in the commit of the fact it tells, and removed when its channel has handed it
over. So a stop at any moment loses none; one may be told twice.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from gridpost.core.delivery import TraceEntry


@dataclass(frozen=True, slots=True)
class Subscription:
    """Where the delivery of a sent message is told, and how much of it."""

    message_id: str
    channel: str
    """Where its notices wait; a name that the channel gives."""
    reference: str = ""
    """The channel's own, given back with each notice; nobody else looks at it."""
    every: bool = False
    """Each line of the trace; otherwise only what changes the status (503 cl. 5.6.1)."""


@dataclass(frozen=True, slots=True)
class Notice:
    channel: str
    message_id: str
    reference: str
    at: datetime
    line: TraceEntry | None = None
    """What happened to the message; None: the reference says it all."""
    number: int = field(default=0, compare=False)
    """Given by the store, in the order of commits."""


class Notices(Protocol):
    """Notices of one endpoint, inside a transaction."""

    def subscribe(self, subscription: Subscription) -> None:
        """For a message that was put in this transaction; goes when the message does."""
        ...

    def tell(self, message_id: str, line: TraceEntry, *, status: bool) -> None:
        """Add a notice where somebody has subscribed to this sent message; often nobody has."""
        ...

    def append(self, notice: Notice) -> int:
        """A notice that the channel itself composed; its number."""
        ...

    def read(self, channel: str, after: int, limit: int) -> Sequence[Notice]:
        """In order, from the first number above `after`."""
        ...

    def hold(self, channel: str, after: int, limit: int) -> Sequence[Notice]:
        """As `read`, where processes share the store: what is given is held by this one."""
        ...

    def let_go(self, channel: str) -> None:
        """Other processes may have what this one held."""
        ...

    def remove(self, numbers: Collection[int]) -> None:
        """They were handed over."""
        ...

    def prune(self, channel: str, before: datetime, limit: int) -> int:
        """Remove what has waited since `before`; how many went."""
        ...
