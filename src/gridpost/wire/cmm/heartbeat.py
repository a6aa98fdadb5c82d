"""The heartbeat's body (CMM 5.4.1): nothing but the moment it was sent."""

from __future__ import annotations

import re
from datetime import datetime

from gridpost.core.instant import Instant
from gridpost.core.refusal import Refusal, Rule

HEARTBEAT_TYPE = "text/plain"
_SHORT_ZONE = re.compile(r"([+-]\d\d)(\d\d)$")


def write_heartbeat(at: datetime) -> bytes:
    return Instant.of(at).text.encode("ascii")


def read_heartbeat(body: bytes) -> datetime:
    """Also with a zone as +0000, which the printed pattern allows."""
    try:
        text = body.decode("ascii").strip()
    except UnicodeDecodeError:
        raise Refusal(Rule.BAD_DATE_TIME, "the heartbeat is not a time") from None
    return Instant.parse(_SHORT_ZONE.sub(r"\1:\2", text)).at
