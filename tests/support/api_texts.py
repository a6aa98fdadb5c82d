"""Documents of the directory services as texts, the way a client of the first version writes them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable

from gridpost.core.certificate import CertificateKind
from support.pki import TestComponent, rsa_key, spki

XMLNS = 'xmlns:d="http://mades.entsoe.eu/componentDirectory"'
CONTACT = "<organization>O</organization><person>P</person><email>e@x</email><phone>1</phone>"
PATH = (
    "<path><senderComponent><component>E2</component></senderComponent>"
    "<messageType>A01</messageType><path>INDIRECT:B1</path>"
    "<validFrom>2026-01-01T00:00:00Z</validFrom></path>"
)


def registration(code: str, kinds: Iterable[CertificateKind]) -> bytes:
    keys = "".join(
        f"<publicKey><type>{kind.value}</type>"
        f"<publicKey>{b64encode(spki(rsa_key(f'{code} {kind}'))).decode()}</publicKey></publicKey>"
        for kind in kinds
    )
    return (
        f"<d:registrationRequest {XMLNS}>{CONTACT}<code>{code}</code>"
        f"<publicKeys>{keys}</publicKeys></d:registrationRequest>"
    ).encode()


def query(inner: str = "") -> bytes:
    return f"<d:componentsQuery {XMLNS}>{inner}</d:componentsQuery>".encode()


def entry(
    component: TestComponent,
    inner: str,
    *,
    root: str = "endpoint",
    type_: str = "ENDPOINT",
    contact: str = CONTACT,
    implementation: str = '<madesImplementation madesVersion="2"/>',
) -> bytes:
    """`inner` is what only this kind of component has: paths or restriction."""
    certificates = "".join(
        f"<certificate><certificateID>{c.certificate_id}</certificateID><type>{c.kind.value}</type>"
        f"<certificate>{b64encode(c.der).decode()}</certificate></certificate>"
        for c in component.certificates
    )
    return (
        f"<d:{root} {XMLNS}>{contact}<code>{component.code}</code><type>{type_}</type>"
        f"<certificates>{certificates}</certificates>{implementation}{inner}</d:{root}>"
    ).encode()


def broker_entry(component: TestComponent, inner: str) -> bytes:
    return entry(component, inner, root="broker", type_="BROKER")
