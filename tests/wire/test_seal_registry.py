"""New algorithms: installed first, received next, sent last (503 cl. 9.3)."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, OAEP, PKCS1v15
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from gridpost.core.certificate import CertificateKind
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.keys.rsa_operations import KeyOpener, KeySigner
from gridpost.wire.seal import (
    DEFAULT,
    STANDARD,
    ContentCipher,
    KeyPadding,
    Profile,
    Registry,
    SignatureAlgorithm,
    Suite,
    open_sealed,
    seal_message,
)
from gridpost.wire.seal.ciphers import MAX_CONTENT, decrypt_gcm, encrypt_cbc, encrypt_gcm
from gridpost.wire.seal.registry import CBC, GCM, OAEP_SHA256
from support.messages import CONTENT, message
from support.sealing import e1, e2


def chacha_encrypt(key: bytes, content: bytes, associated: bytes) -> bytes:
    return ChaCha20Poly1305(key).encrypt(bytes(12), content, associated)


def chacha_decrypt(key: bytes, body: bytes, associated: bytes) -> tuple[bytes, bool]:
    try:
        return ChaCha20Poly1305(key).decrypt(bytes(12), body, associated), True
    except Exception:
        return bytes(len(body)), False


NEW = STANDARD.adding(
    SignatureAlgorithm(
        "SHA3-512",
        hashlib.sha3_512,
        hashes.SHA3_512(),
        PKCS1v15(),
        ("http://www.w3.org/2007/05/xmldsig-more#rsa-sha3-512",),
        ("http://www.w3.org/2007/05/xmldsig-more#sha3-512",),
        64,
    ),
    ContentCipher("CHACHA20", "POLY1305", 32, chacha_encrypt, chacha_decrypt),
    KeyPadding("OAEP-SHA512-MGF1-SHA512", OAEP(MGF1(hashes.SHA512()), hashes.SHA512(), None)),
)
RECEIVES_NEW = Profile(
    signatures=DEFAULT.signatures | {"SHA3-512"},
    ciphers=DEFAULT.ciphers | {"CHACHA20"},
    modes=DEFAULT.modes | {"POLY1305"},
    paddings=DEFAULT.paddings | {"OAEP-SHA512-MGF1-SHA512"},
)
SENDS_NEW = replace(
    RECEIVES_NEW,
    send=Suite("SHA3-512", "CHACHA20", "POLY1305", "OAEP-SHA512-MGF1-SHA512"),
)


async def exchange(
    sends: Profile, receives: Profile, installed: Registry = NEW
) -> tuple[bytes, set[str]]:
    signer = KeySigner(e1().keys[CertificateKind.SIGNING], e1().signing, registry=NEW)
    opener = KeyOpener(e2().keys[CertificateKind.ENCRYPTION], e2().encryption, registry=NEW)
    sealed = await seal_message(message(), signer, e2().encryption, sends, NEW)
    arrived = await open_sealed(sealed, [opener], e1().certificates, receives, installed)
    used = {e.value for p in sealed.metadata.processors for e in p.entries}
    return arrived.message.content, used


async def test_a_new_set_is_received_beside_the_old_one_while_the_old_one_is_sent() -> None:
    content, used = await exchange(RECEIVES_NEW, RECEIVES_NEW)
    assert content == CONTENT
    assert {"SHA-512", "AES-256", GCM} <= used
    content, used = await exchange(SENDS_NEW, RECEIVES_NEW)
    assert content == CONTENT
    assert {"SHA3-512", "CHACHA20", "POLY1305", "OAEP-SHA512-MGF1-SHA512"} <= used


async def test_installed_is_not_yet_received() -> None:
    with pytest.raises(Refusal) as caught:
        await exchange(SENDS_NEW, DEFAULT)
    assert caught.value.rule is Rule.SEAL_PROFILE_NOT_ALLOWED


async def test_not_installed_is_unknown() -> None:
    with pytest.raises(Refusal) as caught:
        await exchange(SENDS_NEW, RECEIVES_NEW, STANDARD)
    assert caught.value.rule is Rule.SEAL_ALGORITHM_UNKNOWN


def test_adding_does_not_change_the_standard_registry() -> None:
    assert set(STANDARD.signatures) == {"SHA-512"}
    assert set(STANDARD.ciphers) == {("AES-256", GCM), ("AES-256", CBC)}
    with pytest.raises(TypeError):
        STANDARD.signatures["x"] = None  # type: ignore[index]


def test_what_is_assumed_of_a_peer_must_be_received_from_it() -> None:
    for wrong in ({"default_mode": CBC}, {"default_padding": "PKCS1-v1_5"}):
        with pytest.raises(Refusal) as caught:
            replace(DEFAULT, **wrong)
        assert caught.value.rule is Rule.INCONSISTENT_CONFIGURATION


def test_unknown_names_are_refused_where_they_are_used_for_sending() -> None:
    for look_up in (
        lambda: STANDARD.signature("MD5"),
        lambda: STANDARD.cipher("DES", GCM),
        lambda: STANDARD.cipher("AES-256", "ECB"),
        lambda: STANDARD.padding("none"),
    ):
        with pytest.raises(Refusal) as caught:
            look_up()
        assert caught.value.rule is Rule.SEAL_ALGORITHM_UNKNOWN


class Enormous(bytes):
    """Says it is larger than any memory here."""

    def __len__(self) -> int:
        return MAX_CONTENT + 1


def test_contents_beyond_what_the_library_takes_are_refused() -> None:
    for encrypt in (encrypt_gcm, encrypt_cbc):
        with pytest.raises(Refusal) as caught:
            encrypt(bytes(32), Enormous(), b"")
        assert caught.value.rule is Rule.CONTENT_TOO_LARGE
    for cipher in STANDARD.ciphers.values():
        assert cipher.decrypt(bytes(32), b"", b"") == (b"", False)


def test_the_gcm_layout_is_nonce_ciphertext_tag() -> None:
    """McGrew and Viega, test case 16 of the GCM specification: AES-256 with associated data."""
    key = bytes.fromhex("feffe9928665731c6d6a8f9467308308" * 2)
    nonce = bytes.fromhex("cafebabefacedbaddecaf888")
    clear = bytes.fromhex(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
        "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"
    )
    associated = bytes.fromhex("feedfacedeadbeeffeedfacedeadbeefabaddad2")
    cipher = bytes.fromhex(
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
        "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662"
    )
    tag = bytes.fromhex("76fc6ece0f4e1768cddf8853bb2d551b")
    assert decrypt_gcm(key, nonce + cipher + tag, associated) == (clear, True)
    assert OAEP_SHA256 == "OAEP-SHA256-MGF1-SHA256"
