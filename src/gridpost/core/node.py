"""Values of a MADES 1.1 node: what its directory says of components, and what lies in its message-box."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.component import Contact
from gridpost.core.message import InternalType, Metadata
from gridpost.core.refusal import Refusal, Rule

if TYPE_CHECKING:
    from gridpost.core.message_box import Content

NODE_MVERSION = 1
"""A component built to revision 1.1 of the document complies with version 1 (MADES 1.1 cl. 1.2)."""


class NodeComponentType(StrEnum):
    """Table 59."""

    NODE = "NODE"
    ENDPOINT = "ENDPOINT"


class LocalState(StrEnum):
    """Cl. 3.7, Table 2; what a message is for this component, whatever others think of it."""

    VERIFYING = "VERIFYING"
    ACCEPTED = "ACCEPTED"
    DELIVERING = "DELIVERING"
    DELIVERED = "DELIVERED"
    RECEIVED = "RECEIVED"
    FAILED = "FAILED"

    @property
    def is_final(self) -> bool:
        return self in (LocalState.DELIVERED, LocalState.RECEIVED, LocalState.FAILED)


class PurgeStrategy(StrEnum):
    """Cl. 3.6: what becomes of a message that has reached its final state."""

    CONTENT = "content"
    WHOLE = "whole"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Routing:
    """Table 75."""

    node: str
    primary_url: str
    secondary_url: str = ""
    node_mversion: int | None = None

    @property
    def urls(self) -> tuple[str, ...]:
        return (self.primary_url, self.secondary_url) if self.secondary_url else (self.primary_url,)


@dataclass(frozen=True, slots=True)
class KnownCertificate:
    """Table 56."""

    certificate: Certificate
    revoked: bool = False


@dataclass(frozen=True, slots=True)
class NodeComponent:
    """Tables 57 and 58."""

    code: str
    type: NodeComponentType
    contact: Contact
    routing: Routing
    mversion: int | None = None
    """Unknown until the component was registered with it, or first came."""
    certificates: tuple[KnownCertificate, ...] = ()

    def find(self, kind: CertificateKind, certificate_id: str) -> KnownCertificate | None:
        return next(
            (
                known
                for known in self.certificates
                if known.certificate.kind is kind
                and known.certificate.certificate_id == certificate_id
            ),
            None,
        )

    def revoking(self, certificate_id: str) -> NodeComponent:
        """Cl. 3.16.8: the certificate stays, tagged."""
        if all(k.certificate.certificate_id != certificate_id for k in self.certificates):
            raise Refusal(
                Rule.RESOURCE_UNKNOWN, f"{self.code} has no certificate '{certificate_id}'"
            )
        return replace(
            self,
            certificates=tuple(
                replace(k, revoked=True) if k.certificate.certificate_id == certificate_id else k
                for k in self.certificates
            ),
        )

    def with_certificates(self, added: Iterable[Certificate], at: datetime) -> NodeComponent:
        """Cl. 3.16.7.2: at most two certificates of a kind that can still be used."""
        kept = list(self.certificates)
        for certificate in added:
            if any(k.certificate.certificate_id == certificate.certificate_id for k in kept):
                continue
            usable = [
                k
                for k in kept
                if k.certificate.kind is certificate.kind
                and not k.revoked
                and at <= k.certificate.not_after
            ]
            if len(usable) >= 2:
                raise Refusal(
                    Rule.KEY_ALREADY_CERTIFIED,
                    f"{self.code} has two {certificate.kind} certificates already: "
                    "one of them has to expire or to be revoked first",
                )
            kept.append(KnownCertificate(certificate))
        return replace(self, certificates=tuple(kept))


@dataclass(frozen=True, slots=True)
class NodeMessage:
    """A message or acknowledgement in the message-box of a node (cl. 3.6)."""

    metadata: Metadata
    content: Content
    priority: int = 0


@dataclass(frozen=True, slots=True)
class BoxEntry:
    """What is known of a message without opening it."""

    number: int
    message_id: str
    receiver: str
    sender: str
    business_type: str
    internal_type: InternalType
    state: LocalState
    size: int
    transferred_at: datetime
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class RemoteNode:
    """A node of the node-list file, and how far we are with it (cl. 3.15.2, 3.15.3)."""

    code: str
    urls: tuple[str, ...]
    mversion: int | None = None
    dversion: int | None = None
    last_success: datetime | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Priorities:
    """Cl. 3.13: by business-type; local to this component."""

    default: int = 0
    by_type: Mapping[str, int] = field(default_factory=dict)

    def of(self, business_type: str) -> int:
        return self.by_type.get(business_type, self.default)


@dataclass(frozen=True, slots=True)
class Purging:
    """Cl. 3.6."""

    default: PurgeStrategy = PurgeStrategy.CONTENT
    by_type: Mapping[str, PurgeStrategy] = field(default_factory=dict)

    def of(self, business_type: str) -> PurgeStrategy:
        return self.by_type.get(business_type, self.default)
