"""Private keys on disk: who may read them, and what happens when something is wrong with them."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from gridpost.core.certificate import CertificateKind
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.keys import owner_only
from gridpost.stores.keys.files import FileKeyring
from gridpost.stores.keys.memory import MemoryKeyring
from gridpost.stores.keys.rsa_operations import to_pkcs8
from gridpost.wire.x509 import (
    CaRequest,
    Issuer,
    build_root_ca,
    issue_integrated_ca,
    read_certificate,
    read_public_key,
    write_ca_request,
)
from support.pki import rsa_key, shared_endpoint, shared_pki, spki

SECRET = b"a passphrase"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "keys"


def refused(home: Path, rule: Rule, passphrase: bytes | None = None) -> str:
    with pytest.raises(Refusal) as caught:
        FileKeyring(home, passphrase)
    assert caught.value.rule is rule
    return caught.value.message


def filled(home: Path, passphrase: bytes | None = None) -> FileKeyring:
    ring = FileKeyring(home, passphrase)
    e1 = shared_endpoint("E1")
    ring.import_key(to_pkcs8(e1.keys[CertificateKind.SIGNING]))
    ring.install(e1.signing)
    return ring


def key_file(home: Path) -> Path:
    (path,) = home.glob("*.key")
    return path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277])
def test_only_the_owner_can_read_whatever_the_umask(home: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        if umask == 0o277:
            home.mkdir(mode=0o700)
            home.chmod(0o700)
        filled(home)
    finally:
        os.umask(before)
    assert mode(home) == 0o700
    for path in home.iterdir():
        assert mode(path) == 0o600
    assert [p for p in home.iterdir() if p.name.startswith(".")] == []


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o660, 0o666])
def test_keys_that_others_can_read_are_not_loaded(home: Path, bits: int) -> None:
    filled(home)
    key_file(home).chmod(bits)
    assert "chmod 600" in refused(home, Rule.KEY_PROTECTION)


@pytest.mark.parametrize("bits", [0o770, 0o707, 0o777])
def test_a_directory_that_others_can_write_is_not_used(home: Path, bits: int) -> None:
    filled(home)
    home.chmod(bits)
    assert "chmod 700" in refused(home, Rule.KEY_PROTECTION)


def test_what_is_not_a_directory_or_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    refused(tmp_path / "file", Rule.KEY_PROTECTION)
    refused(tmp_path / "missing" / "keys", Rule.KEY_PROTECTION)
    odd = tmp_path / "odd"
    odd.mkdir(mode=0o700)
    (odd / "x.key").mkdir()
    refused(odd, Rule.KEY_PROTECTION)


def test_a_passphrase_encrypts_the_key(home: Path) -> None:
    filled(home, SECRET)
    text = key_file(home).read_text()
    assert text.startswith("-----BEGIN ENCRYPTED PRIVATE KEY-----")
    assert FileKeyring(home, SECRET).signers()
    assert "passphrase" in refused(home, Rule.KEY_PROTECTION)
    assert "passphrase" in refused(home, Rule.BAD_KEY, b"wrong")


def test_keys_from_before_the_passphrase_are_still_read(home: Path) -> None:
    filled(home)
    assert FileKeyring(home, SECRET).signers()


@pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl here")
def test_openssl_reads_the_encrypted_key_and_sees_scrypt(home: Path) -> None:
    filled(home, SECRET)
    path = str(key_file(home))
    password = ["-passin", f"pass:{SECRET.decode()}"]
    read = ["openssl", "pkey", "-in", path, "-pubout", "-outform", "DER", *password]
    public = subprocess.run(read, check=True, capture_output=True).stdout
    assert public == spki(shared_endpoint("E1").keys[CertificateKind.SIGNING])
    shown = subprocess.run(
        ["openssl", "asn1parse", "-in", path], check=True, capture_output=True, text=True
    ).stdout
    assert ":scrypt" in shown
    assert ":aes-256-cbc" in shown


def test_keys_and_certificates_are_found_again(home: Path) -> None:
    first = filled(home)
    new = first.create_key()
    again = FileKeyring(home)
    assert again.certificates() == first.certificates() == (shared_endpoint("E1").signing,)
    assert again.export_key(new) == first.export_key(new)
    assert again.key_file(shared_endpoint("E1").signing).is_file()


def test_the_id_that_a_directory_published_is_kept(home: Path) -> None:
    ring = FileKeyring(home)
    e1 = shared_endpoint("E1")
    ring.import_key(to_pkcs8(e1.keys[CertificateKind.SIGNING]))
    ring.install(read_certificate(e1.signing.der, CertificateKind.SIGNING, "opaque \u00e9"))
    assert FileKeyring(home).certificates()[0].certificate_id == "opaque \u00e9"


@pytest.mark.parametrize("ring", ["memory", "files"])
def test_a_certificate_without_its_key_is_not_installed(home: Path, ring: str) -> None:
    store = MemoryKeyring() if ring == "memory" else FileKeyring(home)
    with pytest.raises(Refusal) as caught:
        store.install(shared_endpoint("E1").signing)
    assert caught.value.rule is Rule.BAD_KEY


@pytest.mark.parametrize("ring", ["memory", "files"])
def test_keys_that_are_too_short_or_not_rsa_are_refused(home: Path, ring: str) -> None:
    store = MemoryKeyring() if ring == "memory" else FileKeyring(home)
    curve = ec.generate_private_key(ec.SECP256R1())
    encoded = curve.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    for der in (encoded, b"junk", to_pkcs8(rsa_key("short", 1024))):
        with pytest.raises(Refusal) as caught:
            store.import_key(der)
        assert caught.value.rule is Rule.BAD_KEY
    with pytest.raises(Refusal) as caught:
        store.create_key(1024)
    assert caught.value.rule is Rule.BAD_KEY


def test_new_keys_have_2048_bits_unless_asked_otherwise(home: Path) -> None:
    for store in (MemoryKeyring(), FileKeyring(home)):
        assert read_public_key(store.create_key()).key_size == 2048
        assert read_public_key(store.create_key(3072)).key_size == 3072


@pytest.mark.parametrize("ring", ["memory", "files"])
def test_the_key_of_a_ca_can_issue(home: Path, ring: str) -> None:
    store = MemoryKeyring() if ring == "memory" else FileKeyring(home)
    root_key, ca_key = store.create_key(), store.create_key()
    validity = shared_pki().validity
    root = build_root_ca("ROOT", root_key, store.sign_function(root_key), validity)
    request = CaRequest("CD INTEGRATED CA", "", ca_key)
    assert write_ca_request(request, store.sign_function(ca_key))
    assert issue_integrated_ca(request, Issuer(root, store.sign_function(root_key)), validity)
    signature = store.sign_function(root_key)(b"data")
    read_public_key(root_key).verify(signature, b"data", PKCS1v15(), hashes.SHA512())


def test_files_that_were_exchanged_are_noticed(home: Path) -> None:
    filled(home)
    path = key_file(home)
    path.rename(path.with_stem("0" * 32))
    assert "another key" in refused(home, Rule.BAD_KEY)
    key_file(home).unlink()
    assert "no private key" in refused(home, Rule.BAD_KEY)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"certificate": 1}', "not json"])
def test_a_damaged_certificate_file_is_refused(home: Path, text: str) -> None:
    filled(home)
    (record,) = home.glob("*.json")
    record.write_text(text)
    refused(home, Rule.BAD_KEY)


def test_a_certificate_file_of_unknown_kind_is_refused(home: Path) -> None:
    filled(home)
    (record,) = home.glob("*.json")
    record.write_text(json.dumps(json.loads(record.read_text()) | {"kind": "OTHER"}))
    refused(home, Rule.BAD_KEY)


def test_a_full_disk_leaves_no_half_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = filled(home)
    before = sorted(home.iterdir())

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(owner_only.os, "fsync", full)
    with pytest.raises(Refusal) as caught:
        ring.create_key()
    assert caught.value.rule is Rule.STORE_FULL
    assert sorted(home.iterdir()) == before


def test_a_file_of_another_owner_is_not_believed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(home)
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(key_file(home), 12345, 12345)
    refused(home, Rule.KEY_PROTECTION)


def test_a_huge_file_is_no_key(home: Path) -> None:
    filled(home)
    path = key_file(home)
    with path.open("r+b") as file:
        file.truncate(2 * owner_only.MAX_FILE)
    refused(home, Rule.KEY_PROTECTION)
