"""A certificate authority per run, and a clock that a test can move."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gridpost.transports.amqp10 import TlsCredentials
from support.strict_certificate import identified


@dataclass(frozen=True)
class Issued:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _make(
    name: str, issuer: Issued | None, *, ca: bool, days: float = 1, begin: float = -1
) -> Issued:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=begin))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    if not ca:
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    by = issuer.key if issuer else key
    builder = identified(builder, key.public_key(), by.public_key(), ca=ca)
    return Issued(builder.sign(by, hashes.SHA256()), key)


class Authority:
    """A root, an INTEGRATED CA below it, and certificates of components."""

    def __init__(self, name: str = "test") -> None:
        self.root = _make(f"{name} root", None, ca=True)
        self.integrated = _make(f"{name} integrated", self.root, ca=True)

    def issue(self, code: str, *, days: float = 1, begin: float = -1) -> Issued:
        return _make(code, self.integrated, ca=False, days=days, begin=begin)

    def credentials(self, code: str, **validity: float) -> TlsCredentials:
        issued = self.issue(code, **validity)
        return TlsCredentials(
            chain_pem=issued.pem + self.integrated.pem,
            key_pem=issued.key_pem,
            roots_pem=self.root.pem,
        )


class Clock:
    """The real time, moved by a test."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead
