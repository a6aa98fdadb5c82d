"""What the administrator of a broker decides, as values; where they come from is assembly's."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from gridpost.core.identifiers import ComponentCode
from gridpost.core.message_path import Restriction

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Everything here may change while the broker runs (503 cl. 10)."""

    code: ComponentCode
    restriction: Restriction = field(default_factory=Restriction)
    queue_idle: timedelta = timedelta(hours=1)
    """503 cl. 6.3: an empty queue to which no link led for so long is removed."""
    upkeep: timedelta = timedelta(seconds=5)
    """How often expired messages, idle queues and connections are looked after."""
    journal_retention: timedelta = timedelta(days=365)
    refused_connections: int = 100
    """How many of peers that were not let in are written down a minute; more are counted."""
    window_messages: int = 1_000
    """Messages of one queue that are in memory, ready to be sent."""
    window_octets: int = 16 * MIB
    memory_octets: int = 128 * MIB
    """Of all queues together."""
    open_transactions: int = 16
    """Of one connection."""
    transaction_messages: int = 1_000
    transaction_octets: int = 64 * MIB
    redeliver_after: timedelta = timedelta(milliseconds=200)
    """A message that a consumer gave back as failed is tried again at once, then after this time…"""
    redeliver_at_most: timedelta = timedelta(minutes=1)
    """…which doubles with each failure up to this."""
    retry: timedelta = timedelta(seconds=1)
    """Between attempts to write down what a full disk did not take."""
    log_messages: bool = False
    """A log line for each message that comes in or goes out: it costs as much as a good part of it."""
