"""What a MADES 1.1 node decides: whom it trusts, what it accepts, and which certificate it hands out."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.identifiers import clip
from gridpost.core.message import ENCRYPTION, SIGNATURE, InternalType, Metadata
from gridpost.core.node import NODE_MVERSION, NodeComponent, NodeComponentType
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.version import node_accepts_endpoint, understands

CERTIFICATE_ID = "Certificate ID"


def choose_certificate(
    component: NodeComponent | None,
    kind: CertificateKind,
    certificate_id: str,
    at: datetime,
) -> Certificate | None:
    """Table 45, all six of its cells. None is the empty answer; a refusal is its request error."""
    if not certificate_id and kind is not CertificateKind.ENCRYPTION:
        raise Refusal(
            Rule.FIELD_MISSING,
            f"a certificate of type {kind} is asked for by its certificateID only",
        )
    if component is None:
        return None
    if certificate_id:
        found = component.find(kind, certificate_id)
        if found is None:
            return None
        if kind is CertificateKind.AUTHENTICATION and (
            found.revoked or not found.certificate.valid_at(at)
        ):
            return None
        return found.certificate
    usable = [
        known.certificate
        for known in component.certificates
        if known.certificate.kind is kind and not known.revoked and known.certificate.valid_at(at)
    ]
    # Cl. 3.16.7.2: the new one is not handed out until the old one has expired.
    return min(usable, key=lambda c: (c.not_after, c.certificate_id), default=None)


def authentication_certificate(
    component: NodeComponent | None, code: str, certificate_id: str, at: datetime
) -> Certificate:
    """Cl. 3.5.3: the certificate that signed is a valid one of the client, and not revoked."""
    if component is None:
        raise Refusal(Rule.PEER_UNKNOWN, f"{clip(code)} is not in the directory of this node")
    found = component.find(CertificateKind.AUTHENTICATION, certificate_id)
    if found is None:
        raise Refusal(
            Rule.CERTIFICATE_NOT_OF_COMPONENT,
            f"'{clip(certificate_id)}' is no authentication certificate of {component.code}",
        )
    if found.revoked:
        raise Refusal(
            Rule.CERTIFICATE_REVOKED,
            f"the authentication certificate '{clip(certificate_id)}' of {component.code} "
            "is revoked",
        )
    if not found.certificate.valid_at(at):
        raise Refusal(
            Rule.CERTIFICATE_EXPIRED,
            f"the authentication certificate '{clip(certificate_id)}' of {component.code} "
            "is not valid now",
        )
    return found.certificate


def check_registered(component: NodeComponent | None, code: str, own_code: str) -> NodeComponent:
    """Cl. 3.5.4: downloads and directory requests are for endpoints that registered here."""
    if (
        component is None
        or component.type is not NodeComponentType.ENDPOINT
        or component.routing.node != own_code
    ):
        raise Refusal(
            Rule.ACCESS_DENIED, f"{clip(code)} is not an endpoint registered with this node"
        )
    return component


def check_version_accepted(own: int, endpoint: int) -> None:
    """Cl. 4.2.1, 4.2.2."""
    if not node_accepts_endpoint(own, endpoint):
        raise Refusal(
            Rule.VERSIONS_TOO_FAR_APART,
            f"this node has MADES version {own} and accepts endpoints of {max(own - 1, 1)} "
            f"to {own}, not of {endpoint}",
        )


def check_accepted(
    metadata: Metadata,
    components: Mapping[str, NodeComponent],
    own_code: str,
    at: datetime,
    *,
    mversion: int = NODE_MVERSION,
) -> None:
    """Table 3, row node. What is refused here is refused for good (Table 73, `fatal`)."""
    if not understands(mversion, metadata.message_mversion):
        raise Refusal(
            Rule.MESSAGE_VERSION_UNSUPPORTED,
            f"the message complies with MADES version {metadata.message_mversion}, "
            f"this node with {mversion}",
        )
    if metadata.internal_type.is_acknowledgement and not metadata.related_message_id:
        raise Refusal(
            Rule.ACKNOWLEDGEMENT_FORM, "an acknowledgement without the message that it is about"
        )
    receiver = components.get(metadata.receiver_code)
    if (
        receiver is None
        or receiver.type is not NodeComponentType.ENDPOINT
        or receiver.routing.node != own_code
    ):
        raise Refusal(
            Rule.RECIPIENT_UNKNOWN,
            f"{clip(metadata.receiver_code)} is not an endpoint registered with this node",
        )
    sender = components.get(metadata.sender_code)
    if sender is None:
        raise Refusal(
            Rule.PEER_UNKNOWN, f"the sender {clip(metadata.sender_code)} is not in the directory"
        )
    if metadata.expiration_time is not None and metadata.expiration_time.at <= at:
        raise Refusal(
            Rule.MESSAGE_EXPIRED, f"the message expired at {metadata.expiration_time.text}"
        )
    _check_seal(metadata, SIGNATURE, CertificateKind.SIGNING, sender)
    _check_seal(metadata, ENCRYPTION, CertificateKind.ENCRYPTION, receiver)


def _check_seal(
    metadata: Metadata, processor_id: str, kind: CertificateKind, owner: NodeComponent
) -> None:
    named = metadata.processors_named(processor_id)
    needed = (
        metadata.internal_type.must_be_signed
        if processor_id == SIGNATURE
        else metadata.internal_type is InternalType.STANDARD_MESSAGE
    )
    if not named:
        if needed:
            rule = (
                Rule.SEAL_SIGNATURE_MISSING
                if processor_id == SIGNATURE
                else Rule.SEAL_ENCRYPTION_MISSING
            )
            raise Refusal(rule, f"a {metadata.internal_type} needs the processor '{processor_id}'")
        return
    if len(named) > 1:
        raise Refusal(Rule.SEAL_PROCESSOR_REPEATED, f"there are two processors '{processor_id}'")
    entries = named[0].all(CERTIFICATE_ID)
    certificate_id = entries[0].value if len(entries) == 1 else ""
    found = owner.find(kind, certificate_id)
    if found is None:
        raise Refusal(
            Rule.CERTIFICATE_NOT_OF_COMPONENT,
            f"'{clip(certificate_id)}' is no {kind} certificate of {owner.code}",
        )
    if found.revoked:
        raise Refusal(
            Rule.CERTIFICATE_REVOKED,
            f"the {kind} certificate '{clip(certificate_id)}' of {owner.code} is revoked",
        )
