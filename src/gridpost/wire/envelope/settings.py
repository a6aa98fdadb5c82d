"""How envelopes are read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo

from gridpost.wire.xml import DEFAULT_LIMITS, XmlLimits


@dataclass(frozen=True, slots=True)
class Reading:
    """How envelopes are read; `zone` is that of a peer whose times may lack their offset."""

    limits: XmlLimits = DEFAULT_LIMITS
    zone: tzinfo | None = None
