"""What the documents of the component-directory API share: the frame, contacts, certificates, limits."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from functools import lru_cache

from lxml import etree

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.component import Contact
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.mades.values import read_base64
from gridpost.wire.x509 import read_certificate
from gridpost.wire.xml import XmlLimits, load_schema
from gridpost.wire.xml_text import element

NAMESPACE = "http://mades.entsoe.eu/componentDirectory"
_PREFIX = f"{{{NAMESPACE}}}"

# One entry: a few certificates of at most some kilobytes, and up to a few thousand message-paths.
ENTRY_LIMITS = XmlLimits(
    max_bytes=4 * 1024 * 1024,
    max_depth=16,
    max_elements=100_000,
    max_attributes=1_000,
    max_attribute_length=4_096,
)

_BLANKS = " \t\r\n"

# Two full contents of a system of a thousand endpoints; one entry is about two kilobytes.
_CACHED_CERTIFICATES = 8_192


def document(root: str, content: str) -> bytes:
    """Only the root has a namespace (see divergences, unqualified elements), so it is not the default."""
    return (
        "<?xml version='1.0' encoding='UTF-8'?>\n"
        f'<cd:{root} xmlns:cd="{NAMESPACE}">{content}</cd:{root}>'
    ).encode()


def read(schema: str, root: str, data: bytes, limits: XmlLimits = ENTRY_LIMITS) -> etree._Element:
    """The root of a valid document; one schema knows several roots, and each place expects one."""
    found = load_schema(f"directory/{schema}.xsd").read(data, limits)
    if found.tag != _PREFIX + root:
        raise Refusal(Rule.SCHEMA_INVALID, f"the document must be a '{root}' of {NAMESPACE}")
    return found


def contact(value: Contact) -> str:
    return (
        element("organization", value.organization)
        + element("person", value.person)
        + element("email", value.email)
        + element("phone", value.phone)
    )


def read_contact(parent: etree._Element) -> Contact:
    return Contact(
        text(parent, "organization"),
        text(parent, "person"),
        text(parent, "email"),
        text(parent, "phone"),
    )


def certificates(values: Iterable[Certificate]) -> str:
    """Without a certificate there is no element: the schema knows no empty one."""
    inner = "".join(
        [
            f"<certificate>{element('certificateID', c.certificate_id)}<type>{c.kind.value}</type>"
            f"<certificate>{base64(c.der)}</certificate></certificate>"
            for c in values
        ]
    )
    return f"<certificates>{inner}</certificates>" if inner else ""


def read_certificates(parent: etree._Element) -> tuple[Certificate, ...]:
    """Every certificate under `parent`, or a refusal of the first one that cannot be read."""
    return tuple(one_certificate(e) for e in certificate_elements(parent))


def certificate_elements(parent: etree._Element) -> list[etree._Element]:
    return parent.findall("certificates/certificate")


def one_certificate(entry: etree._Element) -> Certificate:
    der = read_base64(text(entry, "certificate"), "certificate")
    return _published(der, CertificateKind(text(entry, "type")), text(entry, "certificateID"))


@lru_cache(maxsize=_CACHED_CERTIFICATES)
def _published(der: bytes, kind: CertificateKind, certificate_id: str) -> Certificate:
    """Parsing is most of the cost of a synchronisation, and nearly all certificates come again."""
    return read_certificate(der, kind, certificate_id)


def base64(octets: bytes) -> str:
    return b64encode(octets).decode("ascii")


def text(parent: etree._Element, name: str) -> str:
    """The text of a child; empty when the child is empty or absent."""
    return parent.findtext(name) or ""


def token(parent: etree._Element, name: str) -> str:
    """The same for types other than xsd:string, around which blanks mean nothing."""
    return text(parent, name).strip(_BLANKS)
