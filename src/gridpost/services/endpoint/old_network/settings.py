"""What the administrator of an endpoint decides about its MADES 1.1 network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from gridpost.core.identifiers import MessageTypePattern, matches
from gridpost.core.version import MADES_1


@dataclass(frozen=True, slots=True)
class OldSettings:
    node: str
    """The home node."""
    urls: tuple[str, ...]
    """Its primary URL, and the secondary one if there is one."""
    organization: str
    """`senderDescription` of everything that is sent."""
    mversion: int = MADES_1
    compressed: tuple[MessageTypePattern, ...] = ()
    minimum_versions: Mapping[MessageTypePattern, int] = field(default_factory=dict)
    """Cl. 4.1.5: the lowest Mversion that carries a business-type."""
    poll: timedelta = timedelta(seconds=5)
    max_messages: int = 100
    max_bytes: int = 16 * 1024 * 1024
    """Of contents in one upload, unless a single message is larger."""

    def compresses(self, business_type: str) -> bool:
        return any(matches(pattern, business_type) for pattern in self.compressed)

    def minimum(self, business_type: str) -> int:
        """The identical business-type, else the longest pattern."""
        fitting = [p for p in self.minimum_versions if matches(p, business_type)]
        best = max(fitting, key=lambda p: (p == business_type, len(p)), default=None)
        return MADES_1 if best is None else self.minimum_versions[best]
