"""Joining a subsystem (503 cl. 7.6): what a component asks for, and what may be decided about it.

A registration request asks for certificates; its approval creates or extends the component's entry.
The standard does not say what kind of component asks: the keys it brings do (see divergences).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.component import ComponentType, Contact
from gridpost.core.identifiers import ComponentCode
from gridpost.core.refusal import Refusal, Rule


class RegistrationStatus(StrEnum):
    """503 cl. 7.8.2."""

    PENDING = "PENDING"
    APPROVED = "APPROVED"
    REJECTED = "REJECTED"


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A generated key for which the component-directory shall issue a certificate (SPKI, DER)."""

    kind: CertificateKind
    spki: bytes


@dataclass(frozen=True, slots=True)
class RegistrationRequest:
    """503 cl. 7.8.2, request: keys to be certified, and certificates of EXTERNAL CAs instead."""

    contact: Contact
    code: ComponentCode
    public_keys: tuple[PublicKey, ...]
    certificates: tuple[Certificate, ...] = ()


@dataclass(frozen=True, slots=True)
class Registration:
    """A request in the books of the component-directory (503 cl. 7.8.2, response)."""

    registration_id: str
    request: RegistrationRequest
    status: RegistrationStatus
    submitted_at: datetime
    submitted_by: bytes
    """SHA-256 of the DER certificate that opened the connection: only it may ask for the outcome."""
    extension: bool = False
    reason: str = ""
    decided_at: datetime | None = None
    decided_by: str = ""
    issued: tuple[Certificate, ...] = ()


def component_type(request: RegistrationRequest) -> ComponentType:
    """Which kind of component registers; refuses a set of keys that fits none (503 Table 18)."""
    kinds = [k.kind for k in request.public_keys] + [c.kind for c in request.certificates]
    for kind in set(kinds):
        if kinds.count(kind) > 1:
            raise Refusal(
                Rule.REGISTRATION_KEYS, f"the request brings more than one key for {kind}"
            )
    keys = {k.kind for k in request.public_keys}
    external = {c.kind for c in request.certificates}
    # 503 cl. 8.3.2: authentication certificates come from the home component-directory alone.
    if CertificateKind.AUTHENTICATION not in keys:
        raise Refusal(Rule.REGISTRATION_KEYS, "the request brings no AUTHENTICATION public key")
    if external - {CertificateKind.SIGNING, CertificateKind.ENCRYPTION}:
        raise Refusal(
            Rule.REGISTRATION_KEYS, "only SIGNING and ENCRYPTION certificates may be external"
        )
    every = keys | external
    if every == {CertificateKind.AUTHENTICATION}:
        return ComponentType.BROKER
    if every == {
        CertificateKind.AUTHENTICATION,
        CertificateKind.SIGNING,
        CertificateKind.ENCRYPTION,
    }:
        return ComponentType.ENDPOINT
    raise Refusal(
        Rule.REGISTRATION_KEYS,
        "an endpoint brings AUTHENTICATION, SIGNING and ENCRYPTION, a broker AUTHENTICATION only; "
        f"this request brings {', '.join(sorted(every))}",
    )
