"""What an application hands to the client and gets from it. Times are UTC, quantities kW."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from gridpost.wire.cmm import (
    AlcResult,
    AllocationData,
    AllocationDataList,
    AllocationReq,
    AtcDataList,
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Capacity that an application wants in one period and direction."""

    out_area: str
    in_area: str
    period_start: datetime
    period_end: datetime
    quantity: int
    balancing_group: str = ""
    client_id: str = ""
    """Empty: the client makes a unique one."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a request for allocations.

    `known` is False when no answer came in time: the allocation may have been made or not, and
    `resolve` asks for its outcome by the same correlation-id.
    """

    correlation_id: str
    request: AllocationReq
    known: bool
    items: tuple[AlcResult, ...] = ()
    repeated: bool = False
    """The outcome is that of an earlier request with this correlation-id."""
    reason: str = ""

    @property
    def confirmed(self) -> int:
        return sum(item.confirmed or 0 for item in self.items if item.success)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    sent: datetime
    period: timedelta
    latency: timedelta


@dataclass(frozen=True, slots=True)
class ServiceDown:
    """No heartbeat for some periods, while the connection to the broker stands."""

    last: datetime | None


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    reason: str


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """After each connect and reconnect; broadcasts in between are lost."""

    again: bool


@dataclass(frozen=True, slots=True)
class AtcChanged:
    headers: Mapping[str, str]
    lists: tuple[AtcDataList, ...]


@dataclass(frozen=True, slots=True)
class AllocationsChanged:
    headers: Mapping[str, str]
    lists: tuple[AllocationDataList, ...]


@dataclass(frozen=True, slots=True)
class AllocationsRecovered:
    """After a gap in the sequence: allocations that no broadcast had told of."""

    group: str
    allocations: tuple[AllocationData, ...]
    lists: tuple[AllocationDataList, ...]


Event = (
    Heartbeat
    | ServiceDown
    | ConnectionLost
    | LoggedIn
    | AtcChanged
    | AllocationsChanged
    | AllocationsRecovered
)
