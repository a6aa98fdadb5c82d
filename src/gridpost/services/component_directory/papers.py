"""What passes over the counter of the registry office: what is filed, and what is handed out."""

from __future__ import annotations

from dataclasses import dataclass, field

from gridpost.core.registration import Registration
from gridpost.core.registry_office import Invitation


@dataclass(frozen=True, slots=True)
class Filed:
    """What became of a POST. `repeated`: the same request had been filed before."""

    registration: Registration
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key pair that was made for somebody else; it is handed over and not kept."""

    private_key: bytes = field(repr=False)
    spki: bytes


@dataclass(frozen=True, slots=True)
class InstallationKit:
    """503 cl. 7.6: what an administrator hands over."""

    invitation: Invitation
    key: NewKey
    certificate: bytes
    issuer: bytes
