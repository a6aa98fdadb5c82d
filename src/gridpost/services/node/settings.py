"""What an operator decides about a node."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from gridpost.core.component import Contact
from gridpost.core.node import NODE_MVERSION, Priorities, Purging


@dataclass(frozen=True, slots=True)
class NodeSettings:
    code: str
    contact: Contact
    urls: tuple[str, ...]
    mversion: int = NODE_MVERSION
    token_validity: timedelta = timedelta(hours=1)
    ttl: timedelta = timedelta(minutes=5)
    """Cl. 3.16.5: how long endpoints may answer from their cache."""
    synchronisation_cycle: timedelta = timedelta(minutes=5)
    max_messages: int = 500
    """Cl. 5.3.3.1: in one transfer."""
    max_transfer: int = 32 * 1024 * 1024
    """Bytes of contents in one reply to a download."""
    max_content: int = 64 * 1024 * 1024
    max_envelope: int = 16 * 1024 * 1024
    """Bytes of a request beside its contents."""
    priorities: Priorities = field(default_factory=Priorities)
    purging: Purging = field(default_factory=Purging)
    purge_after: timedelta = timedelta(days=7)
    upkeep_cycle: timedelta = timedelta(seconds=30)
    journal_retention: timedelta = timedelta(days=365)
