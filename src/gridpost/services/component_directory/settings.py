"""What the administrator of a component-directory decides, as values; where they come from is assembly's."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from gridpost.core.component import Contact
from gridpost.core.identifiers import ComponentCode


class Extensions(StrEnum):
    """503 cl. 7.6: which extensions of a registration are approved without an administrator."""

    MANUAL = "manual"
    ISSUED_HERE = "issued-here"
    """Those for which this directory issues all certificates."""
    AUTOMATIC = "automatic"


@dataclass(frozen=True, slots=True)
class Peer:
    """503 cl. 7.7.3: a component-directory to synchronise with."""

    code: ComponentCode
    urls: tuple[str, ...]
    integrated_ca: bytes | None = None
    """Its INTEGRATED CA certificate, where it is known from elsewhere before the first contact."""


@dataclass(frozen=True, slots=True)
class DirectorySettings:
    """Governance rules of one subsystem (503 cl. 7.6, 7.7.3, 8.5, 10)."""

    code: ComponentCode
    contact: Contact
    urls: tuple[str, ...]
    ttl: timedelta = timedelta(hours=24)
    cycle: timedelta = timedelta(minutes=2)
    certificate_validity: timedelta = timedelta(days=730)
    installation_validity: timedelta = timedelta(days=7)
    published_after_expiry: timedelta = timedelta(hours=48)
    expiry_warning: timedelta = timedelta(days=30)
    extensions: Extensions = Extensions.ISSUED_HERE
    max_body: int = 2 * 1024 * 1024
    journal_retention: timedelta = timedelta(days=365)
    peers: tuple[Peer, ...] = field(default=())
