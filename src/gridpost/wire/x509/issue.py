"""Certificates that Gridpost issues: ROOT CA, INTEGRATED CA and those of components (503 cl. 8.3).

Only this file decides what stands in a certificate of ours. A private key is never seen here: an
issuer is its certificate and a function that signs.

What a certificate may be used for stands in its extended key usage, because TLS libraries obey it
and take a certificate without one for anything:

- AUTHENTICATION: clientAuth and serverAuth, as one certificate serves both roles (503 cl. 8.3.2).
- SIGNING: documentSigning (RFC 9336). ENCRYPTION: the "document encryption" purpose registered by
  Microsoft, the only registered one with this meaning. Neither opens a TLS connection.
- installation: clientAuth, as it must reach the registration service, and a purpose of our own
  by which we refuse it everywhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from gridpost.core.certificate import CertificateKind
from gridpost.core.identifiers import component_code
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.x509.issuer_key import IssuerKey
from gridpost.wire.x509.read import load, public_key, read_public_key, unreadable
from gridpost.wire.x509.request import CaRequest, subject_name

Sign = Callable[[bytes], bytes]
"""RSASSA-PKCS1-v1_5 with SHA-512, the operation of `core.ports.Signer`, in the calling thread."""

DOCUMENT_SIGNING = x509.ObjectIdentifier("1.3.6.1.5.5.7.3.36")
DOCUMENT_ENCRYPTION = x509.ObjectIdentifier("1.3.6.1.4.1.311.80.1")
# An arc made from a random UUID (ITU-T X.667) needs no registration and clashes with nobody's.
INSTALLATION = x509.ObjectIdentifier("2.25.225228769266491872058377308142398202125")

KEY_BITS = (2048, 3072, 4096)

# An installation certificate is handed over by a person and used once.
MAX_INSTALLATION = timedelta(days=30)

_PURPOSES: dict[CertificateKind, list[x509.ObjectIdentifier]] = {
    CertificateKind.AUTHENTICATION: [
        ExtendedKeyUsageOID.CLIENT_AUTH,
        ExtendedKeyUsageOID.SERVER_AUTH,
    ],
    CertificateKind.SIGNING: [DOCUMENT_SIGNING],
    CertificateKind.ENCRYPTION: [DOCUMENT_ENCRYPTION],
}


@dataclass(frozen=True, slots=True)
class Issuer:
    """A CA: its certificate and the use of its private key."""

    certificate: bytes
    sign: Sign


@dataclass(frozen=True, slots=True)
class Validity:
    """Wished for; a certificate never outlives its issuer's."""

    not_before: datetime
    not_after: datetime

    @classmethod
    def starting(cls, at: datetime, lasting: timedelta) -> Validity:
        """Clocks of peers differ: a new certificate is valid for those a few minutes behind."""
        return cls(at - timedelta(minutes=5), at + lasting)


def integrated_ca_name(directory_code: str) -> str:
    """Not the bare code: with it the directory's own certificate would look self-issued."""
    return f"{component_code(directory_code)} INTEGRATED CA"


def build_root_ca(
    name: str, spki: bytes, sign: Sign, validity: Validity, organization: str = ""
) -> bytes:
    """503 cl. 8.3.2: self-signed, may certify INTEGRATED CAs and nothing below them."""
    key = _issuable(read_public_key(spki))
    subject = subject_name(name, organization)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
    )
    builder = _as_ca(_during(builder, validity), key, path_length=1)
    return _signed(builder, key, sign)


def issue_integrated_ca(request: CaRequest, root: Issuer, validity: Validity) -> bytes:
    """From a certification request: the directory never has the root's key, nor the root its."""
    key = _issuable(read_public_key(request.spki))
    builder = _issued_by(root, key, subject_name(request.name, request.organization), validity)
    return _signed(_as_ca(builder, key, path_length=0), public_key(root.certificate), root.sign)


def issue(
    kind: CertificateKind, code: str, spki: bytes, issuer: Issuer, validity: Validity
) -> bytes:
    """A certificate of a component by the INTEGRATED CA of its home directory."""
    if kind not in _PURPOSES:
        raise ValueError(f"{kind} is issued from a certification request")
    return _issue_leaf(code, spki, issuer, validity, _usage(kind), _PURPOSES[kind])


def issue_installation(code: str, spki: bytes, issuer: Issuer, validity: Validity) -> bytes:
    """503 cl. 7.6: what an administrator hands over so that a component can register, once."""
    end = min(validity.not_after, validity.not_before + MAX_INSTALLATION)
    return _issue_leaf(
        code,
        spki,
        issuer,
        Validity(validity.not_before, end),
        _usage(CertificateKind.AUTHENTICATION),
        [ExtendedKeyUsageOID.CLIENT_AUTH, INSTALLATION],
    )


def issue_tls(
    name: str,
    spki: bytes,
    issuer: Issuer,
    validity: Validity,
    server_names: tuple[str, ...] = (),
) -> bytes:
    """For parties of other systems: a client by its common name, or a server by its host names."""
    key = _issuable(read_public_key(spki))
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if server_names else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = (
        _issued_by(issuer, key, subject_name(name), validity)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(CertificateKind.AUTHENTICATION), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    )
    if server_names:
        names = [_general_name(text) for text in server_names]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return _signed(builder, public_key(issuer.certificate), issuer.sign)


def _general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _issue_leaf(
    code: str,
    spki: bytes,
    issuer: Issuer,
    validity: Validity,
    usage: x509.KeyUsage,
    purposes: list[x509.ObjectIdentifier],
) -> bytes:
    key = _issuable(read_public_key(spki))
    builder = (
        _issued_by(issuer, key, subject_name(component_code(code)), validity)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    )
    return _signed(builder, public_key(issuer.certificate), issuer.sign)


def _issued_by(
    issuer: Issuer, key: rsa.RSAPublicKey, subject: x509.Name, wished: Validity
) -> x509.CertificateBuilder:
    authority = load(issuer.certificate)
    with unreadable("the issuer's certificate cannot be used"):
        # 503 cl. 8.1: a certificate expires sooner than that of its issuer.
        validity = Validity(
            max(wished.not_before, authority.not_valid_before_utc),
            min(wished.not_after, authority.not_valid_after_utc - timedelta(seconds=1)),
        )
        identifier = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(authority.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
            critical=False,
        )
    )
    return _during(builder, validity)


def _as_ca(
    builder: x509.CertificateBuilder, key: rsa.RSAPublicKey, path_length: int
) -> x509.CertificateBuilder:
    builder = builder.add_extension(
        x509.BasicConstraints(ca=True, path_length=path_length), critical=True
    ).add_extension(_key_usage(key_cert_sign=True, crl_sign=True), critical=True)
    if path_length:
        builder = builder.add_extension(
            x509.SubjectKeyIdentifier.from_public_key(key), critical=False
        )
    return builder


def _during(builder: x509.CertificateBuilder, validity: Validity) -> x509.CertificateBuilder:
    start = validity.not_before.astimezone(UTC).replace(microsecond=0)
    end = validity.not_after.astimezone(UTC).replace(microsecond=0)
    if start >= end:
        raise Refusal(
            Rule.CERTIFICATE_EXPIRED,
            f"no time is left between {start:%Y-%m-%d %H:%M:%S} and {end:%Y-%m-%d %H:%M:%S} UTC: "
            "renew the issuer's certificate first",
        )
    return builder.not_valid_before(start).not_valid_after(end)


def _signed(builder: x509.CertificateBuilder, key: rsa.RSAPublicKey, sign: Sign) -> bytes:
    return builder.sign(IssuerKey(key, sign), hashes.SHA512()).public_bytes(Encoding.DER)


def _issuable(key: rsa.RSAPublicKey) -> rsa.RSAPublicKey:
    if key.key_size not in KEY_BITS:
        raise Refusal(
            Rule.BAD_CERTIFICATE,
            f"certificates are issued for RSA keys of {', '.join(map(str, KEY_BITS))} bits, "
            f"not of {key.key_size}",
        )
    return key


def _usage(kind: CertificateKind) -> x509.KeyUsage:
    if kind is CertificateKind.ENCRYPTION:
        return _key_usage(key_encipherment=True)
    return _key_usage(digital_signature=True, content_commitment=kind is CertificateKind.SIGNING)


def _key_usage(
    *,
    digital_signature: bool = False,
    content_commitment: bool = False,
    key_encipherment: bool = False,
    key_cert_sign: bool = False,
    crl_sign: bool = False,
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=content_commitment,
        key_encipherment=key_encipherment,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )
