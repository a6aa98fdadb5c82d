"""What an operator may set of the capacity service, with defaults that suit one market."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from gridpost.core.allocation import Party
from gridpost.core.capacity import Market
from gridpost.wire.cmm import Names


@dataclass(frozen=True, slots=True)
class CapacitySettings:
    market: Market
    parties: Mapping[str, Party] = field(default_factory=dict)
    groups: Mapping[str, int] = field(default_factory=dict)
    """Balancing group -> delivery days for which allocation data may be asked at once."""
    names: Names = field(default_factory=Names)
    heartbeat: timedelta = timedelta(seconds=5)
    heartbeats_always: bool = True
    """Heartbeats reach every client, whatever its filter says."""
    request_ttl: timedelta = timedelta(seconds=10)
    queue_expires: timedelta = timedelta(seconds=30)
    message_ttl: timedelta = timedelta(seconds=60)
    queue_bytes: int = 64 * 1024 * 1024
    prefetch: int = 250
    max_items: int = 1000
    max_bytes: int = 4 * 1024 * 1024
    max_bindings: int = 200
    max_allocations: int = 50_000
    """In one AllocationDataResp."""
    rate_limit: int = 600
    rate_period: timedelta = timedelta(minutes=1)
    duplicate_window: timedelta = timedelta(hours=24)
    zipped: frozenset[str] = frozenset()
    """Responses that are always compressed; broadcasts always are (CMM 3.1.1.2.1)."""
    journal_retention: timedelta = timedelta(days=365)
    journal_exported: timedelta = timedelta(days=30)
    """After which rows go that were exported."""
