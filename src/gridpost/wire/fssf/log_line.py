"""One line of a log file in OUT_LOG: a MessageTraceItem (503 Table 42), its parts joined by tabs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gridpost.core.instant import Instant


@dataclass(frozen=True, slots=True)
class LogLine:
    at: datetime
    state: str
    """503 Table 43."""
    component: str
    description: str
    details: str


def encode(line: LogLine) -> bytes:
    parts = (
        Instant.of(line.at).text,
        line.state,
        line.component,
        line.description,
        line.details,
    )
    return ("\t".join(_flat(part) for part in parts) + "\n").encode()


def decode(octets: bytes) -> LogLine:
    text = octets.decode().removesuffix("\n")
    at, state, component, description, details = text.split("\t")
    return LogLine(Instant.parse(at).at, state, component, description, details)


def _flat(text: str) -> str:
    """A part holds no tab and no line end: the number of parts never varies."""
    return " ".join(text.split()) if not text.isprintable() else text
