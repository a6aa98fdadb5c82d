"""Certificates of people who sign SOAP bodies."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from gridpost.wire.soap.security import BodySigner

NOW = datetime.now(UTC)
PEM = serialization.Encoding.PEM


@dataclass
class Paper:
    key: rsa.RSAPrivateKey
    certificate: x509.Certificate

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)

    def signer(self, at: datetime | None = None) -> BodySigner:
        return BodySigner(self.der, self.key, lambda: at or datetime.now(UTC))

    def write(self, folder: Path, name: str) -> None:
        (folder / f"{name}.pem").write_bytes(self.certificate.public_bytes(PEM))
        (folder / f"{name}.key").write_bytes(
            self.key.private_bytes(
                PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )


def paper(name: str, issuer: Paper | None = None) -> Paper:
    key = rsa.generate_private_key(65537, 2048)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - timedelta(hours=1))
        .not_valid_after(NOW + timedelta(days=1))
        .add_extension(x509.BasicConstraints(issuer is None, None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(
                (key if issuer is None else issuer.key).public_key()
            ),
            False,
        )
        .add_extension(
            x509.KeyUsage(
                issuer is not None, False, False, False, False, issuer is None, issuer is None,
                False, False,
            ),
            critical=True,
        )
    )  # fmt: skip
    signing = key if issuer is None else issuer.key
    return Paper(key, builder.sign(signing, hashes.SHA256()))
