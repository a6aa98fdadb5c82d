"""503 cl. 8 and 9.3: certificates, who may issue and use them, and how algorithms change.

What needs a connection between two components is proven where connections are made.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from gridpost.core.certificate import Certificate, CertificateKind, select
from gridpost.core.component import CERTIFICATE_KINDS, ComponentType
from gridpost.core.instant import Instant
from gridpost.core.message import ENCRYPTION, SIGNATURE
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.keys.memory import MemoryKeyring
from gridpost.stores.keys.rsa_operations import KeyOpener, KeySigner
from gridpost.wire.seal import (
    DEFAULT,
    STANDARD,
    ContentCipher,
    Profile,
    Suite,
    encrypt,
    open_sealed,
    seal_message,
    sign,
    verify,
)
from gridpost.wire.seal.registry import GCM
from gridpost.wire.x509 import (
    Validity,
    certificate_id,
    issue,
    public_key,
    read_certificate,
    to_pem,
)
from support.messages import CONTENT, message
from support.pki import NOW, YEAR, TestPki, rsa_key, shared_pki, spki
from support.sealing import e1, e2, e3, entry, opened, refused, sealed, with_entry

DAY = timedelta(days=1)
KINDS = {
    "endpoint": CERTIFICATE_KINDS[ComponentType.ENDPOINT],
    "broker": CERTIFICATE_KINDS[ComponentType.BROKER],
    "component-directory": CERTIFICATE_KINDS[ComponentType.COMPONENT_DIRECTORY],
}
EACH = [
    pytest.param(name, id=name, marks=pytest.mark.req("503-8.2-a", component=name))
    for name in KINDS
]


def certificates_of(component: str) -> list[Certificate]:
    """One certificate of each kind that such a component has (503 Table 18)."""
    kinds = sorted(KINDS[component] - {CertificateKind.INTEGRATED_CA})
    own = list(shared_pki().component("X-1", kinds).certificates)
    if CertificateKind.INTEGRATED_CA in KINDS[component]:
        own.append(read_certificate(shared_pki().integrated_ca, CertificateKind.INTEGRATED_CA))
    return own


@pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl here")
@pytest.mark.parametrize("component", EACH)
def test_certificates_are_x_509_for_an_independent_tool(component: str, tmp_path: Path) -> None:
    (tmp_path / "root.pem").write_bytes(to_pem(shared_pki().root))
    (tmp_path / "ca.pem").write_bytes(to_pem(shared_pki().integrated_ca))
    for number, certificate in enumerate(certificates_of(component)):
        path = tmp_path / f"{number}.pem"
        path.write_bytes(to_pem(certificate.der))
        command = ["openssl", "verify", "-x509_strict", "-attime", str(int(NOW.timestamp()))]
        command += ["-CAfile", str(tmp_path / "root.pem")]
        command += ["-untrusted", str(tmp_path / "ca.pem"), str(path)]
        assert b": OK" in subprocess.run(command, check=True, capture_output=True).stdout


@pytest.mark.parametrize(
    "component",
    [
        pytest.param(name, id=name, marks=pytest.mark.req("503-8.2-b", component=name))
        for name in KINDS
    ],
)
def test_keys_have_2048_bits_and_shorter_ones_are_refused(component: str) -> None:
    ring = MemoryKeyring()
    own = ring.create_key()
    pki = shared_pki()
    for kind in KINDS[component] - {CertificateKind.INTEGRATED_CA}:
        der = issue(kind, "X-1", own, pki.issuer, pki.validity)
        assert public_key(der).key_size == 2048
        with pytest.raises(Refusal) as caught:
            issue(kind, "X-1", spki(rsa_key("short", 1024)), pki.issuer, pki.validity)
        assert caught.value.rule is Rule.BAD_CERTIFICATE
    assert all(public_key(c.der).key_size == 2048 for c in certificates_of(component))


@pytest.mark.parametrize(
    "component",
    [
        pytest.param(name, id=name, marks=pytest.mark.req("503-8.2-c", component=name))
        for name in KINDS
    ],
)
async def test_the_certificate_id_is_issuer_and_serial_number(component: str) -> None:
    for certificate in certificates_of(component):
        parsed = x509.load_der_x509_certificate(certificate.der)
        issuer = "CN=CD-1 INTEGRATED CA"
        if certificate.kind is CertificateKind.INTEGRATED_CA:
            issuer = "CN=ROOT"
        assert certificate.certificate_id == f"{issuer}{parsed.serial_number}"
        assert certificate_id(certificate.der) == certificate.certificate_id
    if component == "endpoint":
        transfer = await sealed()
        assert entry(transfer, SIGNATURE, "Certificate ID") == e1().signing.certificate_id
        assert entry(transfer, ENCRYPTION, "Certificate ID") == e2().encryption.certificate_id


@pytest.mark.req("503-8.3.3-a", component="endpoint")
async def test_a_message_opens_with_the_encryption_key_of_its_recipient_alone() -> None:
    transfer = await sealed()
    assert (await opened(transfer)).message.content == CONTENT
    for kind, key in e2().keys.items():
        if kind is not CertificateKind.ENCRYPTION:
            await refused(
                transfer, Rule.SEAL_SESSION_KEY, openers=[KeyOpener(key, e2().encryption)]
            )


@pytest.mark.req("503-8.3.3-b", component="endpoint")
async def test_a_signature_verifies_with_the_published_certificate_alone() -> None:
    signed = await sign(message(), e1().signer)
    assert verify(signed, e1().certificates).certificate == e1().signing
    other = replace(e3().signing, certificate_id=e1().signing.certificate_id)
    with pytest.raises(Refusal) as caught:
        verify(signed, [other])
    assert caught.value.rule is Rule.SEAL_SIGNATURE_VALUE


@pytest.mark.req("503-8.3.3-c", component="endpoint")
@pytest.mark.req("503-8.4.2-a")
async def test_certificates_of_an_external_ca_work_once_the_directory_has_them() -> None:
    """No root of the external CA is configured anywhere: the directory's word is enough."""
    external = TestPki(root="EXTERNAL", directory="EXT").component("E1", key_name="external")
    to_internal = await seal_message(message(), external.signer, e2().encryption)
    assert (
        await opened(to_internal, certificates=external.certificates)
    ).message.content == CONTENT
    to_external = await seal_message(message(), e1().signer, external.encryption)
    assert (await opened(to_external, openers=[external.opener])).message.content == CONTENT


@pytest.mark.req("503-8.3.3-d")
async def test_an_expired_certificate_encrypts_nothing() -> None:
    signed = await sign(message(), e1().signer)
    expired = shared_pki().component("E2", validity=Validity(NOW - YEAR, NOW - DAY))
    assert select(expired.certificates, CertificateKind.ENCRYPTION, NOW) is None
    with pytest.raises(Refusal) as caught:
        encrypt(signed, expired.encryption)
    assert caught.value.rule is Rule.NO_ENCRYPTION_CERTIFICATE
    # It expired while the message waited for its transfer.
    with pytest.raises(Refusal):
        encrypt(signed, e2().encryption, at=e2().encryption.not_after + DAY)


@pytest.mark.req("503-8.3.3-e")
async def test_an_expired_certificate_signs_nothing() -> None:
    used: list[bytes] = []

    class Watched(KeySigner):
        async def sign(self, data: bytes, algorithm: str = "SHA-512") -> bytes:
            used.append(data)
            return await super().sign(data, algorithm)

    expired = shared_pki().component("E1", validity=Validity(NOW - YEAR, NOW - DAY))
    signer = Watched(expired.keys[CertificateKind.SIGNING], expired.signing)
    with pytest.raises(Refusal) as caught:
        await seal_message(message(), signer, e2().encryption)
    assert caught.value.rule is Rule.NO_SIGNING_CERTIFICATE
    assert used == []


@pytest.mark.req("503-8.5-e")
async def test_of_two_signing_certificates_the_one_that_expires_first_signs() -> None:
    first = shared_pki().component("E1", validity=Validity(NOW - YEAR, NOW + DAY))
    second = shared_pki().component("E1", key_name="E1 renewed")
    ring = [second.signer, first.signer]
    for moment, expected in ((NOW, first), (NOW + 2 * DAY, second)):
        chosen = select([s.certificate for s in ring], CertificateKind.SIGNING, moment)
        signer = next(s for s in ring if s.certificate == chosen)
        signed = await sign(message(generated=Instant.of(moment)), signer)
        assert entry(signed, SIGNATURE, "Certificate ID") == expected.signing.certificate_id


@pytest.mark.req("503-8.5-f")
async def test_of_two_encryption_certificates_the_one_that_expires_first_encrypts() -> None:
    pki = shared_pki()
    ended = pki.component("E2", validity=Validity(NOW - YEAR, NOW - DAY), key_name="E2 old")
    first = pki.component("E2", validity=Validity(NOW - YEAR, NOW + DAY))
    second = pki.component("E2", key_name="E2 renewed")
    published = [*second.certificates, *ended.certificates, *first.certificates]
    chosen = select(published, CertificateKind.ENCRYPTION, NOW)
    assert chosen is not None
    transfer = await seal_message(message(), e1().signer, chosen)
    assert entry(transfer, ENCRYPTION, "Certificate ID") == first.encryption.certificate_id
    assert await opened(transfer, openers=[second.opener, ended.opener, first.opener])


# -- 503 cl. 9.3

_GCM = STANDARD.cipher("AES-256", GCM)
_SHA3 = replace(
    STANDARD.signature("SHA-512"),
    name="SHA3-512",
    new_hash=hashlib.sha3_512,
    rsa_hash=hashes.SHA3_512(),
    method_uris=("http://www.w3.org/2007/05/xmldsig-more#rsa-sha3-512",),
    digest_uris=("http://www.w3.org/2007/05/xmldsig-more#sha3-512",),
)
NEW = STANDARD.adding(
    _SHA3, ContentCipher("AES-256-NEXT", GCM, 32, _GCM.encrypt, _GCM.decrypt, True)
)
INSTALLED = Profile(
    signatures=DEFAULT.signatures | {"SHA3-512"}, ciphers=DEFAULT.ciphers | {"AES-256-NEXT"}
)
SWITCHED_ON = replace(INSTALLED, send=Suite(signature="SHA3-512", cipher="AES-256-NEXT"))


async def exchange(sender: Profile, recipient: Profile) -> tuple[str, str]:
    """The algorithms that the message names, once its recipient has read it."""
    signer = KeySigner(e1().keys[CertificateKind.SIGNING], e1().signing, registry=NEW)
    transfer = await seal_message(message(), signer, e2().encryption, sender, NEW)
    arrived = await open_sealed(transfer, [e2().opener], e1().certificates, recipient, NEW)
    assert arrived.message.content == CONTENT
    return entry(transfer, SIGNATURE, "Algorithm"), entry(transfer, ENCRYPTION, "Cipher")


@pytest.mark.req("503-9.3-a")
async def test_the_metadata_says_by_which_algorithms_a_message_is_read() -> None:
    assert await exchange(INSTALLED, INSTALLED) == ("SHA-512", "AES-256")
    assert await exchange(SWITCHED_ON, INSTALLED) == ("SHA3-512", "AES-256-NEXT")
    unknown = with_entry(await sealed(), SIGNATURE, "Algorithm", "SHA-1024")
    await refused(unknown, Rule.SEAL_ALGORITHM_UNKNOWN)


@pytest.mark.req("503-9.3-b")
async def test_a_new_algorithm_is_received_before_it_is_sent() -> None:
    assert await exchange(SWITCHED_ON, INSTALLED) == ("SHA3-512", "AES-256-NEXT")
    # The one that received it still sends with the old ones.
    assert await exchange(INSTALLED, SWITCHED_ON) == ("SHA-512", "AES-256")


@pytest.mark.req("503-9.3-c")
async def test_sending_is_switched_on_endpoint_by_endpoint() -> None:
    outcomes = {
        name: await exchange(profile, INSTALLED)
        for name, profile in {"E1": SWITCHED_ON, "E2": INSTALLED, "E3": INSTALLED}.items()
    }
    assert outcomes == {
        "E1": ("SHA3-512", "AES-256-NEXT"),
        "E2": ("SHA-512", "AES-256"),
        "E3": ("SHA-512", "AES-256"),
    }
