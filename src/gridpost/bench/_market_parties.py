"""The parties of a made-up market: their keys and certificates, and what each has told its journal."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.journal import CertificateRow, EntryRow, JournalRow, Standing
from gridpost.core.message import Metadata
from gridpost.wire.seal.signing import assemble, prepare_signature
from gridpost.wire.x509 import (
    CaRequest,
    Issuer,
    Sign,
    Validity,
    build_root_ca,
    integrated_ca_name,
    issue,
    issue_integrated_ca,
    public_key_bytes,
    read_certificate,
)

ENDPOINTS = ("E1", "E2", "E3", "E4")
FOREIGN = "F1"
BROKER = "B1"
DIRECTORY = "CD-1"


@dataclass(slots=True)
class Party:
    code: str
    key: rsa.RSAPrivateKey
    signing: Certificate


@dataclass(slots=True)
class World:
    random: random.Random
    parties: dict[str, Party]
    ca: Certificate
    roots: tuple[bytes, ...]
    rows: dict[str, list[tuple[datetime, int, JournalRow]]] = field(default_factory=dict)

    def tell(self, code: str, row: JournalRow) -> None:
        lines = self.rows.setdefault(code, [])
        lines.append((row.at, len(lines), row))

    def uuid(self) -> str:
        return str(UUID(int=self.random.getrandbits(128), version=4))

    def delay(self, seconds: float) -> timedelta:
        """Most are quick, some take long."""
        return timedelta(microseconds=round(self.random.lognormvariate(0, 1) * seconds * 1e6))


def sign(party: Party, metadata: Metadata, content: bytes) -> tuple[bytes, str]:
    prepared = prepare_signature(metadata, content)
    value = party.key.sign(prepared.to_be_signed, PKCS1v15(), hashes.SHA512())
    return prepared.fingerprint, assemble(prepared, value, party.code)


def found_market(draw: random.Random, start: datetime) -> World:
    wide = Validity(start - timedelta(days=800), start + timedelta(days=1600))
    root_key, ca_key = _key(), _key()
    root = build_root_ca("ROOT", _spki(root_key), _signs(root_key), wide)
    request = CaRequest(integrated_ca_name(DIRECTORY), "", _spki(ca_key))
    ca_der = issue_integrated_ca(
        request,
        Issuer(root, _signs(root_key)),
        Validity(start - timedelta(days=700), start + timedelta(days=1500)),
    )
    ca = read_certificate(ca_der, CertificateKind.INTEGRATED_CA)
    issuer = Issuer(ca_der, _signs(ca_key))
    year = Validity(start - timedelta(days=365), start + timedelta(days=365))
    parties = {}
    for code in (*ENDPOINTS, FOREIGN):
        key = _key()
        der = issue(CertificateKind.SIGNING, code, _spki(key), issuer, year)
        parties[code] = Party(code, key, read_certificate(der, CertificateKind.SIGNING))
    world = World(draw, parties, ca, (root,))
    early = start - timedelta(hours=1)
    for code in ENDPOINTS:
        for owner, certificate in (
            (DIRECTORY, ca),
            *((p.code, p.signing) for p in parties.values()),
        ):
            kind = "COMPONENT_DIRECTORY" if owner == DIRECTORY else "ENDPOINT"
            world.tell(code, EntryRow(early, owner, kind, DIRECTORY, Standing.PUBLISHED, "TSO"))
            world.tell(code, _published(early, owner, certificate))
    return world


def _published(at: datetime, owner: str, certificate: Certificate) -> CertificateRow:
    return CertificateRow(
        at,
        owner,
        certificate.kind.value,
        certificate.certificate_id,
        Standing.PUBLISHED,
        certificate.der,
        certificate.not_before,
        certificate.not_after,
        certificate.subject_code,
        DIRECTORY,
    )


def _key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def _spki(key: rsa.RSAPrivateKey) -> bytes:
    return public_key_bytes(key.public_key())


def _signs(key: rsa.RSAPrivateKey) -> Sign:
    return lambda data: key.sign(data, PKCS1v15(), hashes.SHA512())
