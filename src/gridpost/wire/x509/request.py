"""Certification requests (PKCS#10): a directory asks the ROOT CA to certify its INTEGRATED CA.

The two never share a key: the request proves that the directory holds the one it asks about.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.x509.issuer_key import IssuerKey
from gridpost.wire.x509.read import (
    MAX_CERTIFICATE_SIZE,
    common_name,
    public_key_bytes,
    read_public_key,
    unreadable,
)

# X.520 upper bound of a common name; other products refuse longer ones.
MAX_COMMON_NAME = 64


@dataclass(frozen=True, slots=True)
class CaRequest:
    """Who asks, and for which key. The extensions of the certificate are the ROOT CA's decision."""

    name: str
    organization: str
    spki: bytes


def write_ca_request(request: CaRequest, sign: Callable[[bytes], bytes]) -> bytes:
    """PKCS#10 in DER. `sign` uses the key that is asked about."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        subject_name(request.name, request.organization)
    )
    key = IssuerKey(read_public_key(request.spki), sign)
    return builder.sign(key, hashes.SHA512()).public_bytes(Encoding.DER)


def read_ca_request(data: bytes) -> CaRequest:
    """DER or PEM, refused unless signed by the key it names."""
    if len(data) > MAX_CERTIFICATE_SIZE:
        raise Refusal(Rule.BAD_CERTIFICATE, "the certification request is larger than any real one")
    with unreadable("the certification request cannot be read"):
        pem = data.lstrip().startswith(b"-----BEGIN")
        load = x509.load_pem_x509_csr if pem else x509.load_der_x509_csr
        request = load(data)
        key = request.public_key()
        proven = request.is_signature_valid
        name = common_name(request.subject)
        organizations = request.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        organization = str(organizations[0].value) if organizations else ""
    if not isinstance(key, rsa.RSAPublicKey) or not proven:
        raise Refusal(
            Rule.BAD_CERTIFICATE, "the certification request is not signed by the key it names"
        )
    if not name:
        raise Refusal(Rule.BAD_CERTIFICATE, "the certification request has no common name")
    spki = public_key_bytes(key)
    read_public_key(spki)
    return CaRequest(name, organization, spki)


def subject_name(name: str, organization: str = "") -> x509.Name:
    if not 1 <= len(name) <= MAX_COMMON_NAME:
        raise Refusal(
            Rule.BAD_COMPONENT_CODE,
            f"a name in a certificate has 1 to {MAX_COMMON_NAME} characters, not {len(name)}",
        )
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if organization:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(attributes)
