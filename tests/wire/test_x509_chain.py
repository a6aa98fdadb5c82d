"""Which chains of certificates are trusted, and for what."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gridpost.core.certificate import CertificateKind
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.x509 import (
    Purpose,
    Validity,
    build_root_ca,
    issue,
    to_pem,
    trusted_path,
    verify_chain,
)
from support.pki import (
    NOW,
    YEAR,
    TestComponent,
    TestPki,
    rsa_key,
    shared_endpoint,
    shared_pki,
    signs,
    spki,
)

AUTHENTICATION = CertificateKind.AUTHENTICATION


def refused(
    chain: list[bytes],
    rule: Rule = Rule.CHAIN_NOT_TRUSTED,
    roots: list[bytes] | None = None,
    at: object = NOW,
    purpose: Purpose = Purpose.CLIENT,
) -> str:
    with pytest.raises(Refusal) as caught:
        verify_chain(chain, [shared_pki().root] if roots is None else roots, at, purpose)
    assert caught.value.rule is rule
    return caught.value.message


def crafted(
    subject: str,
    issuer: bytes,
    issuer_key: rsa.RSAPrivateKey,
    *extensions: x509.ExtensionType,
    key: rsa.RSAPrivateKey | None = None,
    critical: bool = True,
) -> bytes:
    """A certificate that Gridpost would not issue."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.load_der_x509_certificate(issuer).subject)
        .public_key((key or rsa_key("crafted")).public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - YEAR)
        .not_valid_after(NOW + YEAR)
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(issuer_key, hashes.SHA256()).public_bytes(Encoding.DER)


def usage(*names: str) -> x509.KeyUsage:
    every = [
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    ]
    return x509.KeyUsage(**{name: name in names for name in every})


def test_a_chain_of_the_system_is_trusted_in_both_roles() -> None:
    endpoint = shared_endpoint("E1")
    for purpose in (Purpose.CLIENT, Purpose.SERVER):
        verified = verify_chain(endpoint.chain, [shared_pki().root], NOW, purpose)
        assert verified.leaf == endpoint.authentication
        assert verified.issuer == shared_pki().integrated_ca
        assert verified.root == shared_pki().root


def test_the_moment_may_be_given_in_any_time_zone() -> None:
    at = NOW.astimezone(timezone(timedelta(hours=5)))
    assert verify_chain(shared_endpoint("E1").chain, [shared_pki().root], at)


def test_a_component_of_a_subsystem_never_seen_is_trusted_by_the_root_alone() -> None:
    other = TestPki(directory="CD-9")
    assert other.root_key is shared_pki().root_key
    assert verify_chain(other.component("X1").chain, [shared_pki().root], NOW)


def test_two_roots_are_trusted_at_once() -> None:
    old, new = shared_pki(), TestPki(root="ROOT renewed")
    roots = [old.root, new.root]
    assert verify_chain(shared_endpoint("E1").chain, roots, NOW).root == old.root
    assert verify_chain(new.component("E2").chain, roots, NOW).root == new.root
    refused(new.component("E2").chain, roots=[old.root])


def test_two_roots_with_the_same_name_are_told_apart() -> None:
    key = rsa_key("second root")
    second = build_root_ca("ROOT", spki(key), signs(key), Validity(NOW - YEAR, NOW + 4 * YEAR))
    chain = shared_endpoint("E1").chain
    assert verify_chain(chain, [second, shared_pki().root], NOW).root == shared_pki().root
    refused(chain, roots=[second])


def test_expired_and_not_yet_valid_certificates_are_refused() -> None:
    short = shared_pki().component("E1", validity=Validity(NOW - YEAR / 2, NOW + YEAR / 2))
    for moment in (NOW - YEAR * 0.6, NOW + YEAR * 0.6):
        refused(short.chain, Rule.CERTIFICATE_EXPIRED, at=moment)
    assert verify_chain(short.chain, [shared_pki().root], short.authentication.not_after)


def test_an_expired_integrated_ca_or_root_ends_everything_below() -> None:
    pki = shared_pki()
    long = crafted("E1", pki.integrated_ca, pki.ca_key)
    refused([long, pki.integrated_ca], Rule.CERTIFICATE_EXPIRED, at=NOW + 3 * YEAR)
    root_key = rsa_key("short root")
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "short")])
    root = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(root_key.public_key())
        .serial_number(1)
        .not_valid_before(NOW - YEAR)
        .not_valid_after(NOW - timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=1), critical=True)
        .sign(root_key, hashes.SHA256())
        .public_bytes(Encoding.DER)
    )
    authority = crafted(
        "CA", root, root_key, x509.BasicConstraints(ca=True, path_length=0), key=pki.ca_key
    )
    leaf = crafted("E1", authority, pki.ca_key)
    refused([leaf, authority], roots=[root])


def test_the_chain_must_be_leaf_then_integrated_ca() -> None:
    pki, (leaf, authority) = shared_pki(), shared_endpoint("E1").chain
    for chain in (
        [],
        [leaf],
        [authority, leaf],
        [leaf, authority, pki.root],
        [leaf, pki.root],
        [leaf, leaf],
        [authority, pki.root],
        [leaf, TestPki(directory="CD-9").integrated_ca],
    ):
        refused(chain)


def test_a_leaf_directly_below_the_root_is_refused() -> None:
    pki = shared_pki()
    direct = crafted("E1", pki.root, pki.root_key)
    message = refused([direct, pki.integrated_ca])
    assert "not issued by" in message


def test_without_a_root_nothing_is_trusted() -> None:
    refused(shared_endpoint("E1").chain, roots=[])


def test_a_tampered_certificate_is_refused() -> None:
    leaf, authority = shared_endpoint("E1").chain
    at = leaf.index(b"E1")
    refused([leaf[:at] + b"E2" + leaf[at + 2 :], authority])


def test_an_issuer_that_is_no_ca_is_refused() -> None:
    pki = shared_pki()
    basic = x509.BasicConstraints
    for extensions in (
        [],
        [basic(ca=False, path_length=None)],
        [basic(ca=True, path_length=0), usage("digital_signature")],
    ):
        authority = crafted("CA", pki.root, pki.root_key, *extensions, key=pki.ca_key)
        refused([crafted("E1", authority, pki.ca_key), authority])


def test_an_integrated_ca_cannot_appoint_another_ca() -> None:
    pki = shared_pki()
    sub_key = rsa_key("sub ca")
    sub = crafted(
        "SUB",
        pki.integrated_ca,
        pki.ca_key,
        x509.BasicConstraints(ca=True, path_length=None),
        key=sub_key,
    )
    leaf = crafted("E1", sub, sub_key)
    refused([leaf, sub])
    refused([leaf, sub], roots=[pki.integrated_ca])


def test_a_ca_does_not_open_connections_itself() -> None:
    pki = shared_pki()
    leaf = crafted(
        "E1", pki.integrated_ca, pki.ca_key, x509.BasicConstraints(ca=True, path_length=None)
    )
    assert "certification authority" in refused([leaf, pki.integrated_ca])


def test_an_unknown_critical_extension_is_refused() -> None:
    pki = shared_pki()
    unknown = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00")
    refused([crafted("E1", pki.integrated_ca, pki.ca_key, unknown), pki.integrated_ca])


def test_extensions_that_cannot_be_read_are_refused() -> None:
    pki = shared_pki()
    broken = x509.UnrecognizedExtension(x509.ObjectIdentifier("2.5.29.37"), b"\xff\xff")
    refused(
        [crafted("E1", pki.integrated_ca, pki.ca_key, broken), pki.integrated_ca],
        Rule.BAD_CERTIFICATE,
    )


def test_signing_encryption_and_installation_certificates_open_no_connection() -> None:
    pki, endpoint = shared_pki(), shared_endpoint("E1")
    for der in (endpoint.signing.der, endpoint.encryption.der, pki.installation("E1")):
        for purpose in (Purpose.CLIENT, Purpose.SERVER):
            refused([der, pki.integrated_ca], purpose=purpose)


def test_an_installation_certificate_registers_and_nothing_else_does() -> None:
    pki, endpoint = shared_pki(), shared_endpoint("E1")
    chain = [pki.installation("E9"), pki.integrated_ca]
    verified = verify_chain(chain, [pki.root], NOW, Purpose.INSTALLATION)
    assert verified.leaf.subject_code == "E9"
    for certificate in endpoint.certificates:
        refused([certificate.der, pki.integrated_ca], purpose=Purpose.INSTALLATION)


def test_foreign_leaves_without_purposes_are_taken_for_what_they_do() -> None:
    pki = shared_pki()
    any_purpose = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE])
    for extensions in ([], [usage("digital_signature", "key_encipherment")], [any_purpose]):
        leaf = crafted("E1", pki.integrated_ca, pki.ca_key, *extensions)
        assert verify_chain([leaf, pki.integrated_ca], [pki.root], NOW)


def test_a_leaf_for_clients_only_does_not_serve() -> None:
    pki = shared_pki()
    client = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
    chain = [crafted("E1", pki.integrated_ca, pki.ca_key, client), pki.integrated_ca]
    assert verify_chain(chain, [pki.root], NOW, Purpose.CLIENT)
    refused(chain, purpose=Purpose.SERVER)


def test_a_path_of_an_external_ca_may_be_longer() -> None:
    root = shared_pki().root
    keys = [rsa_key(f"external {n}") for n in range(2)]
    top_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "EXTERNAL")])
    top_key = rsa_key("external root")
    top = (
        x509.CertificateBuilder()
        .subject_name(top_name)
        .issuer_name(top_name)
        .public_key(top_key.public_key())
        .serial_number(1)
        .not_valid_before(NOW - YEAR)
        .not_valid_after(NOW + YEAR)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(top_key, hashes.SHA256())
        .public_bytes(Encoding.DER)
    )
    basic = x509.BasicConstraints(ca=True, path_length=None)
    first = crafted("EXT 1", top, top_key, basic, key=keys[0])
    second = crafted("EXT 2", first, keys[0], basic, key=keys[1])
    leaf = crafted("Company", second, keys[1], usage("content_commitment"))
    offered = [second, first, second]
    assert trusted_path(leaf, offered, [root, top], NOW) == (leaf, second, first, top)
    with pytest.raises(Refusal):
        trusted_path(leaf, offered, [root], NOW)
    with pytest.raises(Refusal):
        trusted_path(leaf, [bytes([n]) for n in range(20)], [top], NOW)
    encrypts = crafted("Company", second, keys[1], usage("key_encipherment"))
    with pytest.raises(Refusal):
        trusted_path(encrypts, offered, [top], NOW)


# -- the same rules, kept by a TLS library that knows nothing of Gridpost


def handshake(
    tmp_path: Path, client: tuple[bytes, rsa.RSAPrivateKey], server: TestComponent
) -> None:
    """A full handshake without a socket; raises ssl.SSLError when a side refuses the other."""
    pki = shared_pki()
    (tmp_path / "root.pem").write_bytes(to_pem(pki.root))
    contexts = []
    sides = [
        (ssl.PROTOCOL_TLS_CLIENT, client),
        (ssl.PROTOCOL_TLS_SERVER, (server.authentication.der, server.keys[AUTHENTICATION])),
    ]
    for number, (protocol, (der, key)) in enumerate(sides):
        path = tmp_path / f"{number}.pem"
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path.write_bytes(to_pem(der, pki.integrated_ca) + pem)
        context = ssl.SSLContext(protocol)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(tmp_path / "root.pem")
        context.load_cert_chain(path)
        contexts.append(context)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_side = contexts[0].wrap_bio(down, up, server_side=False)
    server_side = contexts[1].wrap_bio(up, down, server_side=True)
    for _ in range(10):
        for side in (client_side, server_side):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    server_side.write(b"done")
    assert client_side.read(4) == b"done"


@pytest.fixture
def live_pki(monkeypatch: pytest.MonkeyPatch) -> TestPki:
    """TLS libraries look at the real clock."""
    pki = TestPki(now=datetime.now(UTC))
    monkeypatch.setattr(f"{__name__}.shared_pki", lambda: pki)
    return pki


def test_a_tls_library_accepts_authentication_certificates(
    tmp_path: Path, live_pki: TestPki
) -> None:
    client, server = live_pki.component("E1"), live_pki.component("E2")
    handshake(tmp_path, (client.authentication.der, client.keys[AUTHENTICATION]), server)


@pytest.mark.parametrize("kind", [CertificateKind.SIGNING, CertificateKind.ENCRYPTION])
def test_a_tls_library_refuses_the_other_certificates(
    tmp_path: Path, live_pki: TestPki, kind: CertificateKind
) -> None:
    client, server = live_pki.component("E1"), live_pki.component("E2")
    with pytest.raises(ssl.SSLError):
        handshake(tmp_path, (client.certificate(kind).der, client.keys[kind]), server)


def test_issuing_needs_no_more_than_a_public_key() -> None:
    der = issue(
        AUTHENTICATION, "E1", spki(rsa_key("crafted")), shared_pki().issuer, shared_pki().validity
    )
    assert verify_chain([der, shared_pki().integrated_ca], [shared_pki().root], NOW)
