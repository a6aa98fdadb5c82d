"""Registration requests and their answers (503 cl. 7.8.2): two documents under one root name."""

from __future__ import annotations

from dataclasses import dataclass

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.component import Contact
from gridpost.core.identifiers import ComponentCode, component_code
from gridpost.core.registration import (
    PublicKey,
    Registration,
    RegistrationRequest,
    RegistrationStatus,
)
from gridpost.wire.directory import document as doc
from gridpost.wire.mades.values import named, read_base64
from gridpost.wire.x509 import public_key_bytes, read_public_key
from gridpost.wire.xml import XmlLimits
from gridpost.wire.xml_text import element, optional

_ROOT = "registrationRequest"

# Three keys and certificates of a few kilobytes each.
_LIMITS = XmlLimits(
    max_bytes=1024 * 1024,
    max_depth=8,
    max_elements=1_000,
    max_attributes=100,
    max_attribute_length=1_024,
)


@dataclass(frozen=True, slots=True)
class RegistrationAnswer:
    """As much of a registration as the component that asked for it gets to see."""

    contact: Contact
    registration_id: str
    code: ComponentCode
    status: RegistrationStatus
    reason: str = ""
    certificates: tuple[Certificate, ...] = ()

    @classmethod
    def of(cls, registration: Registration) -> RegistrationAnswer:
        request = registration.request
        return cls(
            request.contact,
            registration.registration_id,
            request.code,
            registration.status,
            registration.reason,
            registration.issued,
        )


def encode_request(request: RegistrationRequest) -> bytes:
    keys = "".join(
        f"<publicKey><type>{key.kind.value}</type>"
        f"<publicKey>{doc.base64(key.spki)}</publicKey></publicKey>"
        for key in request.public_keys
    )
    return doc.document(
        _ROOT,
        doc.contact(request.contact)
        + element("code", request.code)
        + f"<publicKeys>{keys}</publicKeys>"
        + doc.certificates(request.certificates),
    )


def decode_request(data: bytes) -> RegistrationRequest:
    """Keys come out in their one canonical encoding, so that equal keys are equal bytes."""
    root = doc.read("registration-request", _ROOT, data, _LIMITS)
    return RegistrationRequest(
        doc.read_contact(root),
        named("code", component_code, doc.text(root, "code")),
        tuple(
            PublicKey(
                CertificateKind(doc.text(key, "type")),
                public_key_bytes(
                    read_public_key(read_base64(doc.text(key, "publicKey"), "publicKey"))
                ),
            )
            for key in root.findall("publicKeys/publicKey")
        ),
        doc.read_certificates(root),
    )


def encode_response(answer: RegistrationAnswer | Registration) -> bytes:
    value = RegistrationAnswer.of(answer) if isinstance(answer, Registration) else answer
    return doc.document(
        _ROOT,
        doc.contact(value.contact)
        + element("id", value.registration_id)
        + element("code", value.code)
        + f"<status>{value.status.value}</status>"
        + optional("reason", value.reason)
        + doc.certificates(value.certificates),
    )


def decode_response(data: bytes) -> RegistrationAnswer:
    root = doc.read("registration-response", _ROOT, data, _LIMITS)
    return RegistrationAnswer(
        doc.read_contact(root),
        doc.text(root, "id"),
        named("code", component_code, doc.text(root, "code")),
        RegistrationStatus(doc.text(root, "status")),
        doc.text(root, "reason"),
        doc.read_certificates(root),
    )
