"""The messages of CMM section 5, as values. Times are UTC, quantities kW."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gridpost.core.allocation import AllocationType


@dataclass(frozen=True, slots=True)
class Login:
    arguments: str | None = None


@dataclass(frozen=True, slots=True)
class Alc:
    """A wanted allocation for a single period."""

    client_id: str
    period_start: datetime
    period_end: datetime
    quantity: int
    bm_code: str = ""


@dataclass(frozen=True, slots=True)
class Allocations:
    in_area: str
    out_area: str
    items: tuple[Alc, ...]


@dataclass(frozen=True, slots=True)
class AllocationReq:
    type: AllocationType
    allocations: tuple[Allocations, ...]


@dataclass(frozen=True, slots=True)
class AtcDataReq:
    date: datetime
    area1: str
    area2: str


@dataclass(frozen=True, slots=True)
class AllocationDataReq:
    balancing_group: str
    start: datetime
    end: datetime
    area1: str
    area2: str


@dataclass(frozen=True, slots=True)
class LoginResp:
    success: bool
    message: str = ""


@dataclass(frozen=True, slots=True)
class AlcResult:
    client_id: str
    success: bool
    message: str = ""
    allocation_id: str | None = None
    confirmed: int | None = None


@dataclass(frozen=True, slots=True)
class AllocationResp:
    items: tuple[AlcResult, ...]


@dataclass(frozen=True, slots=True)
class AtcData:
    period_start: datetime
    period_end: datetime
    quantity: int


@dataclass(frozen=True, slots=True)
class AtcDataList:
    border: str
    date: datetime
    in_area: str
    out_area: str
    items: tuple[AtcData, ...]


@dataclass(frozen=True, slots=True)
class AtcDataResp:
    success: bool
    message: str = ""
    lists: tuple[AtcDataList, ...] = ()


@dataclass(frozen=True, slots=True)
class AllocationData:
    activity_type: str
    allocation_id: str
    period_start: datetime
    period_end: datetime
    quantity: int
    time: datetime


@dataclass(frozen=True, slots=True)
class AllocationDataList:
    balancing_group: str
    in_area: str
    out_area: str
    items: tuple[AllocationData, ...]


@dataclass(frozen=True, slots=True)
class AllocationDataResp:
    success: bool
    message: str = ""
    lists: tuple[AllocationDataList, ...] = ()


@dataclass(frozen=True, slots=True)
class ErrorResp:
    message: str


@dataclass(frozen=True, slots=True)
class AtcDataNtf:
    lists: tuple[AtcDataList, ...]


@dataclass(frozen=True, slots=True)
class AllocationDataNtf:
    lists: tuple[AllocationDataList, ...]


Request = Login | AllocationReq | AtcDataReq | AllocationDataReq
Response = LoginResp | AllocationResp | AtcDataResp | AllocationDataResp | ErrorResp
Broadcast = AtcDataNtf | AllocationDataNtf
Message = Request | Response | Broadcast

REQUESTS = (Login, AllocationReq, AtcDataReq, AllocationDataReq)
