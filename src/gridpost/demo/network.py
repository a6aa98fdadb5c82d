"""The small network of the demonstration: a root, one component-directory, a broker, two endpoints.

The certificates and keys are real and made for this run (or kept in the home folder); only the
registration is skipped, because everybody is in this one process.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gridpost import __version__
from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.component import Component, ComponentType, Contact, Implementation
from gridpost.core.identifiers import ComponentCode, MessageTypePattern
from gridpost.core.instant import Instant
from gridpost.core.message_path import MessagePath, Restriction, Route
from gridpost.core.synchronisation import Directory, Subsystem, content_id
from gridpost.stores.keys.files import FileKeyring
from gridpost.wire.x509 import (
    CaRequest,
    Issuer,
    Validity,
    build_root_ca,
    integrated_ca_name,
    issue,
    issue_integrated_ca,
    read_certificate,
)

DIRECTORY = ComponentCode("DEMO-DIRECTORY")
BROKER = ComponentCode("DEMO-BROKER")
NORTHGRID = ComponentCode("NORTHGRID")
SOUTHPOWER = ComponentCode("SOUTHPOWER")
PARTIES = (NORTHGRID, SOUTHPOWER)

YEAR = timedelta(days=365)
ENDPOINT_KINDS = (
    CertificateKind.AUTHENTICATION,
    CertificateKind.SIGNING,
    CertificateKind.ENCRYPTION,
)


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Network:
    root: bytes
    directory: Directory
    keyrings: dict[ComponentCode, FileKeyring]


def build_network(home: Path, now: datetime) -> Network:
    """A new network under `home`. Private keys are files that only their owner can read."""
    for folder in (home, *(home / code for code in (DIRECTORY, BROKER, *PARTIES))):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    root_keys = FileKeyring(home / "root-ca")
    root_spki = root_keys.create_key()
    root_sign = root_keys.sign_function(root_spki)
    root = build_root_ca(
        "Demo ROOT CA", root_spki, root_sign, Validity.starting(now, 10 * YEAR), "Gridpost demo"
    )
    ca_keys = FileKeyring(home / DIRECTORY / "keys")
    ca_spki = ca_keys.create_key()
    ca = issue_integrated_ca(
        CaRequest(integrated_ca_name(DIRECTORY), "Gridpost demo", ca_spki),
        Issuer(root, root_sign),
        Validity.starting(now, 5 * YEAR),
    )
    issuer = Issuer(ca, ca_keys.sign_function(ca_spki))
    keyrings = {code: FileKeyring(home / code / "keys") for code in (*PARTIES, BROKER)}
    keyrings[DIRECTORY] = ca_keys

    def certified(code: ComponentCode, *kinds: CertificateKind) -> tuple[Certificate, ...]:
        issued = []
        for kind in kinds:
            spki = keyrings[code].create_key()
            der = issue(kind, code, spki, issuer, Validity.starting(now, YEAR))
            certificate = read_certificate(der, kind)
            keyrings[code].install(certificate)
            issued.append(certificate)
        return tuple(issued)

    components = [
        _component(
            DIRECTORY,
            ComponentType.COMPONENT_DIRECTORY,
            (
                *certified(DIRECTORY, CertificateKind.AUTHENTICATION),
                read_certificate(ca, CertificateKind.INTEGRATED_CA),
            ),
            now,
        ),
        _component(
            BROKER, ComponentType.BROKER, certified(BROKER, CertificateKind.AUTHENTICATION), now
        ),
        *(
            _component(code, ComponentType.ENDPOINT, certified(code, *ENDPOINT_KINDS), now)
            for code in PARTIES
        ),
    ]
    subsystem = Subsystem(DIRECTORY, content_id(components), tuple(components))
    return Network(root, Directory.of([subsystem]), keyrings)


def _component(
    code: ComponentCode, type_: ComponentType, certificates: tuple[Certificate, ...], now: datetime
) -> Component:
    created = Instant.of(now)
    path = MessagePath(MessageTypePattern("*"), Route(BROKER), created)
    return Component(
        code,
        type_,
        Contact(code.title(), "Operations", f"operations@{code.lower()}.example", "+00 0 000 000"),
        DIRECTORY,
        Implementation("2", "Gridpost", __version__),
        certificates=certificates,
        created=created,
        modified=created,
        paths=(path,) if type_ is ComponentType.ENDPOINT else (),
        restriction=Restriction() if type_ is ComponentType.BROKER else None,
    )
