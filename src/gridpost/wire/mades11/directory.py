"""Directory data of MADES 1.1 in XML (Tables 54 to 59 and 75), for queries and for synchronisation."""

from __future__ import annotations

import binascii
from datetime import datetime

from lxml import etree

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.component import Contact
from gridpost.core.identifiers import component_code
from gridpost.core.instant import Instant
from gridpost.core.node import KnownCertificate, NodeComponent, NodeComponentType, Routing
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.mades11.forms import boolean, number, text
from gridpost.wire.x509 import read_certificate
from gridpost.wire.xml_text import element, optional

KINDS = (CertificateKind.AUTHENTICATION, CertificateKind.ENCRYPTION, CertificateKind.SIGNING)


def _optional_number(name: str, value: int | None) -> str:
    return "" if value is None else element(name, str(value))


def _milliseconds(at: datetime) -> str:
    return str(Instant.of(at).milliseconds)


def certificate(found: Certificate, expiration: datetime | None = None) -> str:
    """Table 54; `expiration` is that of a cache, and only in answers to queries."""
    return (
        "<certificate>"
        + element("certificateID", found.certificate_id)
        + element("certificate", binascii.b2a_base64(found.der, newline=False).decode("ascii"))
        + ("" if expiration is None else element("expiration", _milliseconds(expiration)))
        + "</certificate>"
    )


def information(name: str, component: NodeComponent, expiration: datetime | None = None) -> str:
    """Table 58, in an element of this name."""
    contact, routing = component.contact, component.routing
    return (
        f"<{name}>"
        + element("code", component.code)
        + element("type", component.type)
        + element("organization", contact.organization)
        + element("person", contact.person)
        + element("email", contact.email)
        + element("phone", contact.phone)
        + "<routing>"
        + element("node", routing.node)
        + element("primaryURL", routing.primary_url)
        + optional("secondaryURL", routing.secondary_url)
        + _optional_number("nodeMversion", routing.node_mversion)
        + "</routing>"
        + ("" if expiration is None else element("expiration", _milliseconds(expiration)))
        + _optional_number("codeMversion", component.mversion)
        + f"</{name}>"
    )


def description(component: NodeComponent) -> str:
    """Table 57."""
    certificates = "".join(
        "<certificates>"
        + certificate(known.certificate)
        + element("revoked", "true" if known.revoked else "false")
        + element("type", known.certificate.kind)
        + "</certificates>"
        for known in component.certificates
    )
    return f"<components>{information('information', component)}{certificates}</components>"


def read_information(
    found: etree._Element, certificates: tuple[KnownCertificate, ...] = ()
) -> NodeComponent:
    return NodeComponent(
        code=component_code(text(found, "code").strip()),
        type=NodeComponentType(text(found, "type").strip()),
        contact=Contact(
            text(found, "organization"),
            text(found, "person"),
            text(found, "email"),
            text(found, "phone"),
        ),
        routing=Routing(
            component_code(text(found, "routing/node").strip()),
            text(found, "routing/primaryURL").strip(),
            text(found, "routing/secondaryURL").strip(),
            number(found, "routing/nodeMversion"),
        ),
        mversion=number(found, "codeMversion"),
        certificates=certificates,
    )


def read_descriptions(body: etree._Element) -> tuple[NodeComponent, ...]:
    """The `components` of a GetAllDirectoryData answer."""
    return tuple(_description(item) for item in body.iterfind("components"))


def read_certificate_answer(
    body: etree._Element, kind: CertificateKind
) -> tuple[Certificate, Instant] | None:
    """Tables 44 and 54: the certificate, and until when a cache may answer with it."""
    found = body.find("certificate")
    if found is None or len(found) == 0:
        return None
    expiration = number(found, "expiration") or 0
    return _certificate(found, kind), Instant.of_milliseconds(expiration)


def _description(item: etree._Element) -> NodeComponent:
    information_ = item.find("information")
    if information_ is None:
        raise Refusal(Rule.FIELD_MISSING, "a component without information")
    known = tuple(
        KnownCertificate(
            _certificate_in(entry, CertificateKind(text(entry, "type").strip())),
            boolean(entry, "revoked"),
        )
        for entry in item.iterfind("certificates")
    )
    return read_information(information_, known)


def _certificate_in(entry: etree._Element, kind: CertificateKind) -> Certificate:
    found = entry.find("certificate")
    if found is None:
        raise Refusal(Rule.FIELD_MISSING, "an entry without its certificate")
    return _certificate(found, kind)


def _certificate(found: etree._Element, kind: CertificateKind) -> Certificate:
    try:
        der = binascii.a2b_base64("".join(text(found, "certificate").split()), strict_mode=True)
    except ValueError:
        raise Refusal(Rule.BAD_CERTIFICATE, "a certificate is not base64") from None
    return read_certificate(der, kind, text(found, "certificateID"))
