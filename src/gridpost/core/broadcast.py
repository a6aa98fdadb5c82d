"""Broadcasts of capacity: what they tell, the headers they carry, and the filters of a Login.

Headers are strings (CMM 3.1.1.2.1, 3.1.1.3.1); see divergences, headers of broadcasts. A filter
becomes bindings of a headers exchange, one for each combination of its values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from itertools import product
from math import prod

from gridpost.core.capacity import Trigger
from gridpost.core.identifiers import clip
from gridpost.core.market_time import Period
from gridpost.core.refusal import Refusal, Rule

X_BORDER, X_OUT_AREA, X_IN_AREA = "X_Border", "X_OutArea", "X_InArea"
X_DAY, X_EVENT, X_BG, X_SEQUENCE_ID = "X_Day", "X_Event", "X_BG", "X_Sequence_Id"
X_PERIOD = "X_Period"
FILTER_HEADERS = (X_BORDER, X_OUT_AREA, X_IN_AREA, X_DAY, X_EVENT, X_BG, X_SEQUENCE_ID)
X_MATCH = "x-match"
MATCHES = ("all", "any")


@dataclass(frozen=True, slots=True)
class AtcNotice:
    """Values of one interconnector, direction and day."""

    border: str
    out_area: str
    in_area: str
    day: date
    day_start: datetime
    event: Trigger
    values: tuple[tuple[Period, int], ...]

    def headers(self) -> dict[str, str]:
        return {
            X_BORDER: self.border,
            X_OUT_AREA: self.out_area,
            X_IN_AREA: self.in_area,
            X_DAY: self.day.isoformat(),
            X_EVENT: self.event.value,
        }


@dataclass(frozen=True, slots=True)
class Allocation:
    """An allocation as the ledger has it."""

    allocation_id: int
    at: datetime
    user: str
    group: str
    client_id: str
    out_area: str
    in_area: str
    period: Period
    quantity: int
    event: Trigger
    correlation_id: str = ""

    @property
    def activity(self) -> str:
        return "ON_BEHALF" if self.event is Trigger.ON_BEHALF else "ALLOCATION"


@dataclass(frozen=True, slots=True)
class AllocationNotice:
    """Allocations of one balancing group in one direction, made by one request."""

    group: str
    out_area: str
    in_area: str
    event: Trigger
    sequence_id: int
    allocations: tuple[Allocation, ...]

    def headers(self) -> dict[str, str]:
        return {
            X_BG: self.group,
            X_OUT_AREA: self.out_area,
            X_IN_AREA: self.in_area,
            X_EVENT: self.event.value,
            X_SEQUENCE_ID: str(self.sequence_id),
        }


Notice = AtcNotice | AllocationNotice


@dataclass(frozen=True, slots=True)
class LoginFilter:
    """CMM 3.1.2.1. Without headers nothing is restricted."""

    headers: tuple[tuple[str, tuple[str, ...]], ...] = ()
    match: str = "all"

    @property
    def restricts_allocations(self) -> bool:
        """Can a broadcast of the own group be left out? Then a gap proves no loss."""
        return bool(self.headers)

    def bindings(self) -> list[dict[str, str]]:
        """Arguments of the bindings that together let through what the filter asks for."""
        names = [name for name, _ in self.headers]
        return [
            {**dict(zip(names, values, strict=True)), X_MATCH: self.match}
            for values in product(*(values for _, values in self.headers))
        ]

    def admits(self, headers: Mapping[str, str]) -> bool:
        """What the bindings do, for readers without a broker."""
        hits = [headers.get(name) in values for name, values in self.headers]
        return not hits or (any(hits) if self.match == "any" else all(hits))


def login_filter(arguments: str, max_bindings: int) -> LoginFilter:
    """`X_Border:DE-FR|AT-DE, X_Event:ALLOCATION, x-match:any`; empty restricts nothing."""
    if not arguments.strip():
        return LoginFilter()
    headers: dict[str, tuple[str, ...]] = {}
    match = "all"
    for pair in arguments.split(","):
        name, colon, text = (part.strip() for part in pair.partition(":"))
        values = tuple(dict.fromkeys(value.strip() for value in text.split("|")))
        if not colon or not name or "" in values:
            raise Refusal(
                Rule.LOGIN_FILTER,
                f"'{clip(pair.strip())}' is not a filter: write header:value or header:value|value",
            )
        if name == X_MATCH:
            if text not in MATCHES:
                raise Refusal(Rule.LOGIN_FILTER, f"x-match is 'any' or 'all', not '{clip(text)}'")
            match = text
        elif name not in FILTER_HEADERS:
            raise Refusal(
                Rule.LOGIN_FILTER,
                f"no broadcast has a header '{clip(name)}'; there is {', '.join(FILTER_HEADERS)}",
            )
        elif name in headers:
            raise Refusal(Rule.LOGIN_FILTER, f"{name} stands twice: join its values with '|'")
        else:
            headers[name] = values
    wanted = prod(len(values) for values in headers.values())
    if wanted > max_bindings:
        raise Refusal(
            Rule.LOGIN_FILTER,
            f"the filter has {wanted} combinations of values; at most {max_bindings} are allowed",
        )
    return LoginFilter(tuple(headers.items()), match)
