"""503 cl. 8.2: the form of keys and certificates, for every kind of component."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography import x509

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.component import CERTIFICATE_KINDS, ComponentType
from gridpost.core.message import ENCRYPTION, SIGNATURE
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.keys.memory import MemoryKeyring
from gridpost.wire.x509 import (
    certificate_id,
    issue,
    public_key,
    read_certificate,
    to_pem,
)
from support.pki import NOW, rsa_key, shared_pki, spki
from support.sealing import e1, e2, entry, sealed

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
