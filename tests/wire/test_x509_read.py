"""Reading certificates, their IDs in all forms, and files that carry them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from gridpost.core.certificate import CertificateKind
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.keys.rsa_operations import to_pkcs8
from gridpost.wire.x509 import (
    KeyBundle,
    certificate_id,
    certificate_id_candidates,
    from_pem,
    public_key,
    read_certificate,
    read_pkcs12,
    to_pem,
    write_pkcs12,
)
from support.pki import NOW, YEAR, rsa_key, shared_endpoint, shared_pki

A = x509.NameAttribute
AWKWARD = [
    [A(NameOID.COUNTRY_NAME, "BE")],
    [A(NameOID.ORGANIZATION_NAME, 'Grid, "Co" + Sons; a=b#c <x> \\ y')],
    [A(NameOID.EMAIL_ADDRESS, "a@b.eu")],
    [A(NameOID.COMMON_NAME, "#root  two \u00e9")],
]
EVERYTHING = [
    [A(NameOID.COMMON_NAME, " lead trail "), A(NameOID.ORGANIZATIONAL_UNIT_NAME, "ou")],
    *(
        [A(oid, value)]
        for oid, value in [
            (NameOID.SERIAL_NUMBER, "12"),
            (NameOID.DN_QUALIFIER, "q"),
            (NameOID.STATE_OR_PROVINCE_NAME, "st"),
            (NameOID.STREET_ADDRESS, "str"),
            (NameOID.DOMAIN_COMPONENT, "dc"),
            (NameOID.USER_ID, "uid"),
            (NameOID.TITLE, "t"),
            (NameOID.SURNAME, "sn"),
            (NameOID.GIVEN_NAME, "gn"),
            (NameOID.INITIALS, "i"),
            (NameOID.GENERATION_QUALIFIER, "gq"),
            (NameOID.LOCALITY_NAME, "l"),
            (NameOID.BUSINESS_CATEGORY, "bc"),
            (NameOID.ORGANIZATION_IDENTIFIER, "oid"),
        ]
    ),
]
WIDE = [
    [A(NameOID.COMMON_NAME, "b\u00e9", _type=_ASN1Type.BMPString)],
    [A(NameOID.ORGANIZATION_NAME, "u\u00e9", _type=_ASN1Type.UniversalString)],
    [A(NameOID.LOCALITY_NAME, "t", _type=_ASN1Type.T61String)],
    [A(NameOID.X500_UNIQUE_IDENTIFIER, b"\x01\x02", _type=_ASN1Type.BitString)],
]
SERIAL = 0x0ABCDEF012345


def issued_by(rdns: list[list[x509.NameAttribute]], serial: int = SERIAL) -> bytes:
    name = x509.Name([x509.RelativeDistinguishedName(rdn) for rdn in rdns])
    key = rsa_key("names")
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(NOW - YEAR)
        .not_valid_after(NOW + YEAR)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(Encoding.DER)


def test_the_id_is_the_rfc_4514_issuer_directly_followed_by_the_decimal_serial() -> None:
    assert certificate_id(issued_by([[A(NameOID.COMMON_NAME, "Root, one")]])) == (
        f"CN=Root\\, one{SERIAL}"
    )
    assert certificate_id(issued_by(AWKWARD)) == (
        "CN=\\#root  two \u00e9,1.2.840.113549.1.9.1=#16066140622e6575,"
        f'O=Grid\\, \\"Co\\" \\+ Sons\\; a=b#c \\<x\\> \\\\ y,C=BE{SERIAL}'
    )
    assert certificate_id(issued_by([[A(NameOID.COMMON_NAME, " a ")]])) == f"CN=\\ a\\ {SERIAL}"
    assert certificate_id(issued_by([[A(NameOID.COMMON_NAME, " ")]])) == f"CN=\\ {SERIAL}"
    assert certificate_id(issued_by([[A(NameOID.COMMON_NAME, "a\0b")]])) == f"CN=a\\00b{SERIAL}"


def test_names_in_old_encodings_have_an_id() -> None:
    assert certificate_id(issued_by(WIDE)) == (
        f"2.5.4.45=#03020102,L=t,O=u\u00e9,CN=b\u00e9{SERIAL}"
    )
    assert f"OID.2.5.4.45=#03020102, L=t, O=u\u00e9, CN=b\u00e9{SERIAL}" in (
        certificate_id_candidates(issued_by(WIDE))
    )


def test_a_foreign_id_is_recognised_in_decimal_and_in_hexadecimal() -> None:
    name = "CN=Root, O=Grid"
    der = issued_by([[A(NameOID.ORGANIZATION_NAME, "Grid")], [A(NameOID.COMMON_NAME, "Root")]])
    candidates = certificate_id_candidates(der)
    for issuer in (name, name.replace(" ", "")):
        for serial in (str(SERIAL), "abcdef012345", "ABCDEF012345"):
            assert issuer + serial in candidates
    odd = certificate_id_candidates(issued_by([[A(NameOID.COMMON_NAME, "R")]], serial=0xABC))
    assert {"CN=Rabc", "CN=R0abc", "CN=R0ABC"} <= odd


JAVA = """
import java.io.*; import java.security.cert.*;
class Names { public static void main(String[] files) throws Exception {
  var out = new PrintStream(System.out, true, "UTF-8");
  for (String file : files) {
    var c = (X509Certificate) CertificateFactory.getInstance("X.509")
        .generateCertificate(new FileInputStream(file));
    var p = c.getIssuerX500Principal();
    out.println(p + c.getSerialNumber().toString());
    out.println(p + c.getSerialNumber().toString(16));
    out.println(p.getName("RFC2253") + c.getSerialNumber());
  } } }
"""


@pytest.mark.skipif(not shutil.which("javac"), reason="no Java here")
def test_the_forms_that_java_prints_are_recognised(tmp_path: Path) -> None:
    ders = [issued_by(AWKWARD), issued_by(EVERYTHING), shared_endpoint("E1").signing.der]
    files = []
    for number, der in enumerate(ders):
        files.append(tmp_path / f"{number}.der")
        files[-1].write_bytes(der)
    (tmp_path / "Names.java").write_text(JAVA)
    java = ["java", str(tmp_path / "Names.java"), *map(str, files)]
    printed = subprocess.run(java, check=True, capture_output=True, encoding="utf-8").stdout
    for number, line in enumerate(printed.splitlines()):
        assert line in certificate_id_candidates(ders[number // 3])


def test_a_certificate_is_read_into_the_facts_that_rules_need() -> None:
    certificate = shared_endpoint("E1").signing
    assert certificate.subject_code == "E1"
    assert certificate.kind is CertificateKind.SIGNING
    assert certificate.not_before == NOW - YEAR
    assert certificate.certificate_id == certificate_id(certificate.der)


def test_the_id_that_a_directory_published_is_kept_as_it_is() -> None:
    der = shared_endpoint("E1").signing.der
    assert read_certificate(der, CertificateKind.SIGNING, "any text").certificate_id == "any text"


def test_a_subject_with_no_or_several_common_names_has_no_code() -> None:
    several = [[A(NameOID.COMMON_NAME, "E1")], [A(NameOID.COMMON_NAME, "E2")]]
    for rdns in (several, [[A(NameOID.ORGANIZATION_NAME, "O")]]):
        assert read_certificate(issued_by(rdns), CertificateKind.SIGNING).subject_code == ""


def test_public_keys_are_parsed_once() -> None:
    der = shared_endpoint("E1").signing.der
    assert public_key(der) is public_key(bytes(bytearray(der)))


@given(st.binary(max_size=200), st.integers(0, 700))
def test_damaged_certificates_are_refused_and_nothing_else(noise: bytes, at: int) -> None:
    der = shared_endpoint("E1").signing.der
    for data in (noise, der[:at], der[:at] + noise + der[at:], b"\0" * 70_000):
        try:
            read_certificate(data, CertificateKind.SIGNING)
            certificate_id_candidates(data)
        except Refusal as refusal:
            assert refusal.rule is Rule.BAD_CERTIFICATE


def test_a_certificate_with_another_kind_of_key_is_refused() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([A(NameOID.COMMON_NAME, "E1")])
    der = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW - YEAR)
        .not_valid_after(NOW + YEAR)
        .sign(key, hashes.SHA256())
        .public_bytes(Encoding.DER)
    )
    with pytest.raises(Refusal) as refused:
        read_certificate(der, CertificateKind.SIGNING)
    assert refused.value.rule is Rule.BAD_CERTIFICATE


def test_a_chain_survives_pem() -> None:
    chain = (shared_endpoint("E1").authentication.der, shared_pki().integrated_ca)
    assert from_pem(to_pem(*chain)) == chain
    with pytest.raises(Refusal):
        from_pem(b"nothing")


def bundle(name: str = "E1") -> KeyBundle:
    endpoint = shared_endpoint("E1")
    key = to_pkcs8(endpoint.keys[CertificateKind.SIGNING])
    return KeyBundle(key, endpoint.signing.der, (shared_pki().integrated_ca,), name)


def test_pkcs12_gives_back_what_was_written() -> None:
    for written in (bundle(), KeyBundle(bundle().private_key, bundle().certificate)):
        assert read_pkcs12(write_pkcs12(written, "secret"), "secret") == written


def test_a_private_key_is_not_printed_with_its_bundle() -> None:
    assert bundle().private_key.hex()[:40] not in repr(bundle())
    assert "private_key" not in repr(bundle())


@pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl here")
def test_openssl_reads_our_pkcs12(tmp_path: Path) -> None:
    path = tmp_path / "e1.p12"
    path.write_bytes(write_pkcs12(bundle(), "secret"))
    command = ["openssl", "pkcs12", "-in", str(path), "-passin", "pass:secret", "-nodes"]
    shown = subprocess.run(command, check=True, capture_output=True).stdout
    assert shown.count(b"BEGIN CERTIFICATE") == 2
    assert b"BEGIN PRIVATE KEY" in shown


def refused_by(rule: Rule, data: bytes, password: str = "secret") -> None:
    with pytest.raises(Refusal) as refused:
        read_pkcs12(data, password)
    assert refused.value.rule is rule


def test_pkcs12_files_that_cannot_be_used_are_refused() -> None:
    good = write_pkcs12(bundle(), "secret")
    refused_by(Rule.BAD_KEY, good, "wrong")
    refused_by(Rule.BAD_KEY, good[:-10])
    refused_by(Rule.BAD_KEY, b"\0" * 2_000_000)
    signing = x509.load_der_x509_certificate(bundle().certificate)
    no_key = pkcs12.serialize_key_and_certificates(b"x", None, signing, None, NoEncryption())
    refused_by(Rule.BAD_KEY, no_key, "")
    curve = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([A(NameOID.COMMON_NAME, "E1")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(curve.public_key())
        .serial_number(1)
        .not_valid_before(NOW - YEAR)
        .not_valid_after(NOW + YEAR)
        .sign(curve, hashes.SHA256())
    )
    other = pkcs12.serialize_key_and_certificates(b"x", curve, certificate, None, NoEncryption())
    refused_by(Rule.BAD_KEY, other, "")


def test_pkcs12_is_not_written_without_password_or_with_the_wrong_key() -> None:
    other = to_pkcs8(rsa_key("stranger"))
    curve = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        Encoding.DER, PrivateFormat.PKCS8, NoEncryption()
    )
    cases = [
        (bundle(), "", Rule.KEY_PROTECTION),
        (KeyBundle(other, bundle().certificate), "secret", Rule.BAD_KEY),
        (KeyBundle(b"junk", bundle().certificate), "secret", Rule.BAD_KEY),
        (KeyBundle(curve, bundle().certificate), "secret", Rule.BAD_KEY),
    ]
    for written, password, rule in cases:
        with pytest.raises(Refusal) as refused:
            write_pkcs12(written, password)
        assert refused.value.rule is rule
