"""Keys in a token: what is found out at start-up, and what is done when the token forgets us."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15

from gridpost.core.certificate import CertificateKind
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.keys.files import FileKeyring, write_record
from gridpost.stores.keys.pkcs11 import TokenAccess, TokenKeyring
from gridpost.stores.keys.rsa_operations import to_pkcs8
from gridpost.stores.keys.with_token import TokenCabinet
from gridpost.wire.seal.registry import OAEP_SHA256
from gridpost.wire.x509 import public_key
from support.pki import shared_endpoint


def refused(access: TokenAccess, *certificates: object, paddings: tuple[str, ...] = ()) -> str:
    with pytest.raises(Refusal) as caught:
        TokenKeyring(access, certificates, paddings)
    assert caught.value.rule is Rule.KEY_TOKEN
    return caught.value.message


def test_a_padding_that_the_token_cannot_open_is_found_out_at_start_up(token: TokenAccess) -> None:
    message = refused(token, shared_endpoint("E1").encryption, paddings=(OAEP_SHA256,))
    assert OAEP_SHA256 in message


def test_a_token_that_signs_needs_no_padding(token: TokenAccess) -> None:
    ring = TokenKeyring(token, [shared_endpoint("E1").signing])
    assert len(ring.signers()) == 1
    assert ring.openers() == []
    assert len(ring.certificates()) == 1
    ring.close()


def test_a_certificate_without_a_key_in_the_token_is_refused(token: TokenAccess) -> None:
    assert "no private key" in refused(token, shared_endpoint("E3").signing)


def test_a_token_that_cannot_be_reached_is_refused(token: TokenAccess) -> None:
    refused(replace(token, token="another"))
    refused(replace(token, pin="0000"))
    refused(replace(token, module="/nowhere/libnone.so"))


def test_without_the_package_the_refusal_says_what_to_install(
    token: TokenAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pkcs11", None)
    assert "python-pkcs11" in refused(token)


def test_the_pin_is_not_printed(token: TokenAccess) -> None:
    assert token.pin not in repr(token)


async def test_a_token_that_lost_our_session_is_used_again(token: TokenAccess) -> None:
    ring = TokenKeyring(token, [shared_endpoint("E1").signing])
    signer = ring.signers()[0]
    await signer.sign(b"before")
    ring._token._session.close()
    value = await signer.sign(b"after")
    public_key(signer.certificate.der).verify(value, b"after", PKCS1v15(), hashes.SHA512())
    ring.close()


async def test_a_token_that_stays_away_is_reported(
    token: TokenAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pkcs11.exceptions import DeviceError, DeviceRemoved

    ring = TokenKeyring(token, [shared_endpoint("E1").signing])

    for error in (DeviceRemoved, DeviceError):

        def gone(_certificate: object, error: type[Exception] = error) -> None:
            raise error

        monkeypatch.setattr(ring._token, "_key", gone)
        with pytest.raises(Refusal) as caught:
            await ring.signers()[0].sign(b"")
        assert caught.value.rule is Rule.KEY_TOKEN
        assert error.__name__ in caught.value.message
    ring.close()


def test_a_key_that_signs_for_another_certificate_is_noticed(
    token: TokenAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gridpost.stores.keys import pkcs11

    monkeypatch.setattr(pkcs11._Token, "sign", lambda *_: bytes(256))
    assert "does not verify" in refused(token, shared_endpoint("E1").signing)


def test_the_key_of_a_ca_may_be_in_a_token(token: TokenAccess) -> None:
    ring = TokenKeyring(token, [])
    signing = shared_endpoint("E1").signing
    value = ring.sign_function(signing)(b"to be signed")
    public_key(signing.der).verify(value, b"to be signed", PKCS1v15(), hashes.SHA512())
    ring.close()


RAW_ONLY = """
import pathlib, sys
from gridpost.core.certificate import CertificateKind
from gridpost.stores.keys.pkcs11 import TokenAccess, TokenKeyring
from gridpost.wire.x509 import read_certificate
module, label, pin, path = sys.argv[1:]
import pkcs11
offered = pkcs11.lib(module).get_token(token_label=label).slot.get_mechanisms()
assert pkcs11.Mechanism.SHA512_RSA_PKCS not in offered, offered
assert pkcs11.Mechanism.RSA_PKCS in offered
certificate = read_certificate(pathlib.Path(path).read_bytes(), CertificateKind.SIGNING)
# Start-up signs a probe and verifies it with the certificate.
ring = TokenKeyring(TokenAccess(module, label, pin), [certificate])
print(ring.sign_function(certificate)(b"data").hex())
ring.close()
"""


def test_a_token_with_raw_rsa_alone_signs_too(
    token: TokenAccess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library reads its configuration once, so this is a process of its own."""
    original = Path(os.environ["SOFTHSM2_CONF"])
    restricted = tmp_path / "softhsm2.conf"
    restricted.write_text(
        original.read_text() + "slots.mechanisms = CKM_RSA_PKCS,CKM_RSA_PKCS_KEY_PAIR_GEN\n"
    )
    monkeypatch.setenv("SOFTHSM2_CONF", str(restricted))
    signing = shared_endpoint("E1").signing
    (tmp_path / "e1.der").write_bytes(signing.der)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    printed = subprocess.run(
        [
            sys.executable,
            "-c",
            RAW_ONLY,
            token.module,
            token.token,
            token.pin,
            str(tmp_path / "e1.der"),
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    value = bytes.fromhex(printed)
    public_key(signing.der).verify(value, b"data", PKCS1v15(), hashes.SHA512())


async def test_some_keys_are_in_a_token_and_the_others_in_files(
    token: TokenAccess, tmp_path: Path
) -> None:
    one = shared_endpoint("E1")
    files = FileKeyring(tmp_path / "keys")
    for certificate in (one.authentication, one.encryption):
        files.import_key(to_pkcs8(one.keys[certificate.kind]))
    place = tmp_path / "keys" / "token"
    cabinet = TokenCabinet(files, token, [CertificateKind.SIGNING], place)
    for certificate in one.certificates:
        cabinet.install(certificate)
    made = cabinet.create_key(kind=CertificateKind.SIGNING)
    with pytest.raises(Refusal):
        cabinet.export_key(made)
    assert cabinet.export_key(cabinet.create_key(kind=CertificateKind.AUTHENTICATION))
    cabinet.close()
    # Over a restart, and in another process of the same endpoint.
    again = TokenCabinet(FileKeyring(tmp_path / "keys"), token, [CertificateKind.SIGNING], place)
    again.reload()
    assert {c.der for c in again.certificates()} == {c.der for c in one.certificates}
    (signer,) = again.signers()
    value = await signer.sign(b"data")
    public_key(one.signing.der).verify(value, b"data", PKCS1v15(), hashes.SHA512())
    assert [o.certificate for o in again.openers()] == [one.encryption]
    again.close()
    # A certificate whose key the token cannot use is found out at start-up.
    write_record(place / "x.json", one.encryption)
    with pytest.raises(Refusal, match="cannot open session keys"):
        TokenCabinet(FileKeyring(tmp_path / "keys"), token, [CertificateKind.ENCRYPTION], place)
