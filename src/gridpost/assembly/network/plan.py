"""Who takes part in a new network, on which ports, and over which ways they reach each other."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from gridpost.assembly.configuration import duration
from gridpost.core.identifiers import component_code
from gridpost.core.refusal import Refusal, Rule

FIRST_PORT = 9400
"""`gridpost init` counts up from here; the standard's 5671 fits one component per address only."""

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Party:
    """One endpoint. Messages to a `direct` party come from other endpoints without a broker."""

    code: str
    organization: str
    direct: bool = False
    folder_types: tuple[str, ...] = ()
    """Message-types whose received documents become files; all others wait to be pulled."""
    amqp_types: tuple[str, ...] = ()
    """Message-types whose received documents go to the AMQP channel."""


Ports = Callable[[], int]
"""Gives the next port that the network may use."""


@dataclass(frozen=True, slots=True)
class NetworkPlan:
    parties: tuple[Party, ...]
    directory: str = "DIRECTORY"
    broker: str = "BROKER"
    host: str = "127.0.0.1"
    ports: Ports = field(default_factory=lambda: count(FIRST_PORT).__next__)
    synchronisation: str = "2m"
    """How often components ask the directory for news."""

    @property
    def endpoints_listen(self) -> bool:
        """503 cl. 5.3: who sends directly must take connections too, for the acknowledgements."""
        return any(party.direct for party in self.parties)

    def __post_init__(self) -> None:
        codes = [self.directory, self.broker, *(party.code for party in self.parties)]
        for code in codes:
            component_code(code)
        # Folders and unit names come from codes; file systems may not tell case apart.
        if len({code.lower() for code in codes}) != len(codes):
            raise Refusal(Rule.USAGE, f"each component needs a code of its own: {', '.join(codes)}")
        if not self.parties:
            raise Refusal(Rule.USAGE, "a network needs at least one endpoint")
        duration(self.synchronisation)
        if _HOST.fullmatch(self.host) is None:
            raise Refusal(Rule.USAGE, f"'{self.host}' is not a host name or an IPv4 address")


def ports_from(first: int) -> Ports:
    if not 1 <= first <= 65_000:
        raise Refusal(Rule.USAGE, f"{first} leaves no room for the ports of a network")
    return count(first).__next__
