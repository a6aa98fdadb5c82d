"""What stands in the certificates that Gridpost issues."""

from __future__ import annotations

from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from gridpost.core.certificate import CertificateKind
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.x509 import (
    CaRequest,
    Issuer,
    Validity,
    build_root_ca,
    integrated_ca_name,
    issue,
    issue_installation,
    issue_integrated_ca,
    public_key,
    read_ca_request,
    read_certificate,
    read_public_key,
    write_ca_request,
)
from gridpost.wire.x509.issue import (
    DOCUMENT_ENCRYPTION,
    DOCUMENT_SIGNING,
    INSTALLATION,
    MAX_INSTALLATION,
)
from gridpost.wire.x509.issuer_key import IssuerKey
from support.pki import NOW, YEAR, rsa_key, shared_pki, signs, spki

TLS = {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}
DAY = timedelta(days=1)


def extensions(der: bytes) -> x509.Extensions:
    return x509.load_der_x509_certificate(der).extensions


def purposes(der: bytes) -> set[x509.ObjectIdentifier]:
    return set(extensions(der).get_extension_for_class(x509.ExtendedKeyUsage).value)


def usage(der: bytes) -> x509.KeyUsage:
    return extensions(der).get_extension_for_class(x509.KeyUsage).value


def test_a_root_may_certify_integrated_cas_and_nothing_below_them() -> None:
    basic = extensions(shared_pki().root).get_extension_for_class(x509.BasicConstraints)
    assert basic.critical
    assert (basic.value.ca, basic.value.path_length) == (True, 1)
    assert usage(shared_pki().root).key_cert_sign


def test_an_integrated_ca_may_certify_components_only() -> None:
    basic = extensions(shared_pki().integrated_ca).get_extension_for_class(x509.BasicConstraints)
    assert (basic.value.ca, basic.value.path_length) == (True, 0)
    assert usage(shared_pki().integrated_ca).key_cert_sign
    assert not usage(shared_pki().integrated_ca).digital_signature


def test_the_three_certificates_of_an_endpoint_have_purposes_that_exclude_each_other() -> None:
    endpoint = shared_pki().component("E1")
    assert purposes(endpoint.authentication.der) == TLS
    assert purposes(endpoint.signing.der) == {DOCUMENT_SIGNING}
    assert purposes(endpoint.encryption.der) == {DOCUMENT_ENCRYPTION}
    assert usage(endpoint.signing.der).content_commitment
    assert not usage(endpoint.authentication.der).content_commitment
    assert usage(endpoint.encryption.der).key_encipherment
    assert not usage(endpoint.encryption.der).digital_signature


def test_keys_are_linked_from_leaf_to_issuer() -> None:
    leaf = extensions(shared_pki().component("E1").signing.der)
    above = extensions(shared_pki().integrated_ca)
    authority = leaf.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    assert authority.key_identifier == (
        above.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    )


def test_an_installation_certificate_is_marked_and_short_lived() -> None:
    der = shared_pki().installation("E9")
    assert purposes(der) == {ExtendedKeyUsageOID.CLIENT_AUTH, INSTALLATION}
    certificate = read_certificate(der, CertificateKind.AUTHENTICATION)
    assert certificate.subject_code == "E9"
    assert certificate.not_after - certificate.not_before <= MAX_INSTALLATION


def test_a_certificate_ends_before_that_of_its_issuer() -> None:
    pki = shared_pki()
    wished = Validity(NOW - 100 * YEAR, NOW + 100 * YEAR)
    der = issue(CertificateKind.SIGNING, "E1", spki(rsa_key("E1 SIGNING")), pki.issuer, wished)
    certificate = read_certificate(der, CertificateKind.SIGNING)
    authority = read_certificate(pki.integrated_ca, CertificateKind.INTEGRATED_CA)
    assert certificate.not_before == authority.not_before
    assert certificate.not_after == authority.not_after - timedelta(seconds=1)


def test_an_expired_issuer_issues_nothing() -> None:
    wished = Validity(NOW + 50 * YEAR, NOW + 51 * YEAR)
    with pytest.raises(Refusal) as refused:
        issue(
            CertificateKind.SIGNING,
            "E1",
            spki(rsa_key("E1 SIGNING")),
            shared_pki().issuer,
            wished,
        )
    assert refused.value.rule is Rule.CERTIFICATE_EXPIRED


def test_a_new_certificate_is_valid_for_peers_whose_clock_is_a_little_behind() -> None:
    assert Validity.starting(NOW, DAY) == Validity(NOW - timedelta(minutes=5), NOW + DAY)


@pytest.mark.parametrize("bits", [3072, 4096])
def test_longer_keys_are_allowed(bits: int) -> None:
    key = rsa_key("long", bits)
    der = issue(
        CertificateKind.SIGNING, "E1", spki(key), shared_pki().issuer, shared_pki().validity
    )
    assert public_key(der).key_size == bits


@pytest.mark.parametrize("bits", [1024, 2047, 2304, 4104])
def test_other_key_lengths_are_refused(bits: int) -> None:
    short = spki(rsa_key("odd", bits))
    with pytest.raises(Refusal) as refused:
        issue(CertificateKind.SIGNING, "E1", short, shared_pki().issuer, shared_pki().validity)
    assert refused.value.rule is Rule.BAD_CERTIFICATE
    with pytest.raises(Refusal):
        build_root_ca("R", short, signs(rsa_key("odd", bits)), shared_pki().validity)


def test_only_rsa_keys_are_read() -> None:
    other = ec.generate_private_key(ec.SECP256R1()).public_key()
    encoded = other.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    for data in (encoded, b"", b"0\x03\x02\x01\x00", encoded[:-3]):
        with pytest.raises(Refusal) as refused:
            read_public_key(data)
        assert refused.value.rule is Rule.BAD_CERTIFICATE


def test_a_directory_asks_for_its_ca_without_anyone_showing_a_key() -> None:
    key = rsa_key("request")
    asked = CaRequest(integrated_ca_name("CD-7"), "Grid, Ltd", spki(key))
    der = write_ca_request(asked, signs(key))
    read = read_ca_request(der)
    assert read == asked
    pem = x509.load_der_x509_csr(der).public_bytes(Encoding.PEM)
    assert read_ca_request(pem) == asked
    pki = shared_pki()
    issued = issue_integrated_ca(read, Issuer(pki.root, signs(pki.root_key)), pki.validity)
    name = x509.load_der_x509_certificate(issued).subject.rfc4514_string()
    assert name == "CN=CD-7 INTEGRATED CA,O=Grid\\, Ltd"


def test_a_request_that_is_not_signed_by_its_own_key_is_refused() -> None:
    key = rsa_key("request")
    der = bytearray(write_ca_request(CaRequest("CD-7", "", spki(key)), signs(key)))
    der[-1] ^= 1
    with pytest.raises(Refusal) as refused:
        read_ca_request(bytes(der))
    assert refused.value.rule is Rule.BAD_CERTIFICATE
    for data in (b"", b"nonsense", b"-----BEGIN X", bytes(100_000)):
        with pytest.raises(Refusal):
            read_ca_request(data)


def test_a_request_of_an_unusable_key_or_without_a_name_is_refused() -> None:
    from cryptography.hazmat.primitives import hashes

    empty = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    nameless = empty.sign(rsa_key("request"), hashes.SHA512()).public_bytes(Encoding.DER)
    curve = empty.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA512())
    for der in (nameless, curve.public_bytes(Encoding.DER)):
        with pytest.raises(Refusal) as refused:
            read_ca_request(der)
        assert refused.value.rule is Rule.BAD_CERTIFICATE


def test_a_signing_function_of_another_key_issues_nothing() -> None:
    pki = shared_pki()
    stranger = Issuer(pki.integrated_ca, signs(rsa_key("stranger")))
    with pytest.raises(Refusal) as refused:
        issue(CertificateKind.SIGNING, "E1", spki(rsa_key("E1 SIGNING")), stranger, pki.validity)
    assert refused.value.rule is Rule.BAD_KEY


def test_a_signing_function_does_nothing_but_sign() -> None:
    key = IssuerKey(rsa_key("E1 SIGNING").public_key(), signs(rsa_key("E1 SIGNING")))
    assert isinstance(key, rsa.RSAPrivateKey)
    assert key.key_size == 2048
    assert key.public_key() == rsa_key("E1 SIGNING").public_key()
    import copy

    assert copy.copy(key) is key
    assert copy.deepcopy(key) is key
    for forbidden in (
        lambda: key.decrypt(b"", None),
        key.private_numbers,
        lambda: key.private_bytes(None, None, None),
    ):
        with pytest.raises(TypeError, match="only sign"):
            forbidden()


def test_a_code_that_no_certificate_can_name_is_refused() -> None:
    for code in ("X" * 65, "no spaces", ""):
        with pytest.raises(Refusal) as refused:
            issue(
                CertificateKind.SIGNING,
                code,
                spki(rsa_key("E1 SIGNING")),
                shared_pki().issuer,
                shared_pki().validity,
            )
        assert refused.value.rule is Rule.BAD_COMPONENT_CODE


def test_a_ca_is_never_issued_like_a_component() -> None:
    with pytest.raises(ValueError, match="certification request"):
        issue(
            CertificateKind.INTEGRATED_CA,
            "E1",
            spki(rsa_key("E1 SIGNING")),
            shared_pki().issuer,
            shared_pki().validity,
        )


def test_an_installation_certificate_may_end_sooner_than_the_longest_allowed() -> None:
    validity = Validity(NOW, NOW + DAY)
    der = issue_installation("E9", spki(rsa_key("E9")), shared_pki().issuer, validity)
    assert read_certificate(der, CertificateKind.AUTHENTICATION).not_after == NOW + DAY
