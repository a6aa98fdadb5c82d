"""503 cl. 6.5.3 and Table 9: the content is readable for its recipient alone."""

from __future__ import annotations

import base64
import os
from dataclasses import replace
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gridpost.core.certificate import CertificateKind
from gridpost.core.instant import Instant
from gridpost.core.message import (
    ENCRYPTION,
    SIGNATURE,
    Entry,
    InternalType,
    Processor,
    SealedMessage,
    ValueType,
)
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.keys.rsa_operations import KeyOpener
from gridpost.wire.mades import metadata as metadata_xml
from gridpost.wire.seal import (
    DEFAULT,
    STANDARD,
    ContentCipher,
    Profile,
    Suite,
    associated_data,
    encrypt,
    open_sealed,
    public_reason,
    seal_message,
    sign,
)
from gridpost.wire.seal.registry import CBC, GCM, OAEP_SHA256, PKCS1_V1_5
from gridpost.wire.x509 import Validity
from support.messages import CONTENT, acknowledgement, message
from support.pki import NOW, YEAR, shared_pki
from support.sealing import OLD, e1, e2, e3, entry, opened, refused, sealed, with_entry

OAEP = STANDARD.padding(OAEP_SHA256).rsa


def session_key(transfer: SealedMessage) -> bytes:
    wrapped = base64.b64decode(entry(transfer, ENCRYPTION, "Session key"), validate=True)
    assert len(wrapped) == 256
    return e2().keys[CertificateKind.ENCRYPTION].decrypt(wrapped, OAEP)


def processor(transfer: SealedMessage) -> Processor:
    (only,) = transfer.metadata.processors_named(ENCRYPTION)
    return only


@pytest.mark.req("503-6.5.3-a")
@pytest.mark.req("m11-3.14.4-b", component="endpoint")
async def test_only_the_recipient_reads_the_content_and_anyone_reads_the_metadata() -> None:
    transfer = await sealed()
    assert CONTENT not in transfer.body
    assert metadata_xml.decode(metadata_xml.encode(transfer.metadata)) == transfer.metadata
    assert (await opened(transfer)).message.content == CONTENT
    for kind, key in e2().keys.items():
        if kind is not CertificateKind.ENCRYPTION:
            other = KeyOpener(key, e2().encryption)
            await refused(transfer, Rule.SEAL_SESSION_KEY, openers=[other])
    for clear in (
        seal_message(message(), e1().signer, None),
        seal_message(message(), e1().signer, None, OLD),
    ):
        with pytest.raises(Refusal) as caught:
            await clear
        assert caught.value.rule is Rule.NO_ENCRYPTION_CERTIFICATE


@pytest.mark.req("503-6.5.3-b")
async def test_one_processor_describes_the_encryption() -> None:
    entries = {e.key: e.type for e in processor(await sealed()).entries}
    assert entries == {
        "Cipher": ValueType.STRING,
        "Certificate ID": ValueType.STRING,
        "Session key": ValueType.BYTE_ARRAY,
        "Mode": ValueType.STRING,
        "Padding": ValueType.STRING,
    }


@pytest.mark.req("503-6.5.3-c")
@pytest.mark.req("m11-3.14.4-c", component="endpoint")
@pytest.mark.req("m11-3.14.4-d", component="endpoint")
async def test_each_transfer_has_a_new_256_bit_key(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = os.urandom

    def urandom(count: int) -> bytes:
        asked.append(count)
        return real(count)

    monkeypatch.setattr(os, "urandom", urandom)
    first, second = await sealed(), await sealed()
    keys = {session_key(first), session_key(second)}
    assert {len(key) for key in keys} == {32}
    assert len(keys) == 2
    assert first.body != second.body
    # Key and nonce come from the generator of the operating system.
    assert asked.count(32) == 2
    assert asked.count(12) == 2


@pytest.mark.req("503-6.5.3-d")
@pytest.mark.req("503-9.1-d")
async def test_the_body_is_nonce_ciphertext_and_tag_of_aes_256_gcm() -> None:
    transfer = await sealed()
    assert len(transfer.body) == 12 + len(CONTENT) + 16
    clear = AESGCM(session_key(transfer)).decrypt(
        transfer.body[:12], transfer.body[12:], associated_data(transfer.metadata)
    )
    assert clear == CONTENT
    for at in (0, 11, 12, 20, len(transfer.body) - 17, len(transfer.body) - 1):
        altered = bytearray(transfer.body)
        altered[at] ^= 0x80
        await refused(replace(transfer, body=bytes(altered)), Rule.SEAL_CONTENT)


@pytest.mark.req("503-6.5.3-e")
@pytest.mark.parametrize("mode", [GCM, CBC])
@pytest.mark.parametrize("padding", [OAEP_SHA256, PKCS1_V1_5])
@pytest.mark.req("m11-3.14.4-d", component="endpoint")
async def test_other_modes_and_paddings_can_be_selected(mode: str, padding: str) -> None:
    """That openssl and Java read them too is shown in tests/wire/test_seal_independent.py."""
    chosen = Profile(
        modes=frozenset({mode}),
        paddings=frozenset({padding}),
        default_mode=mode,
        default_padding=padding,
        send=Suite(mode=mode, padding=padding),
    )
    transfer = await sealed(chosen)
    assert (await opened(transfer, profile=chosen)).message.content == CONTENT
    if mode == CBC:
        assert len(transfer.body) == 16 + (len(CONTENT) // 16 + 1) * 16
        # The last block decides the padding: another one breaks it, or else the signature.
        spoiled = transfer.body[:-16] + bytes(16)
        with pytest.raises(Refusal):
            await opened(replace(transfer, body=spoiled), profile=chosen)


@pytest.mark.req("503-6.5.3-f")
async def test_mode_and_padding_are_stated_or_else_those_of_the_peers_profile() -> None:
    silent = await sealed(OLD)
    assert not {"Mode", "Padding"} & {e.key for e in processor(silent).entries}
    assert (await opened(silent, profile=OLD)).message.content == CONTENT
    both = Profile(
        modes=frozenset({GCM, CBC}),
        paddings=DEFAULT.paddings | {PKCS1_V1_5},
        default_mode=CBC,
        default_padding=PKCS1_V1_5,
    )
    assert (await opened(silent, profile=both)).message.content == CONTENT
    stated = await sealed()
    assert entry(stated, ENCRYPTION, "Mode") == "GCM"
    assert entry(stated, ENCRYPTION, "Padding") == "OAEP-SHA256-MGF1-SHA256"
    assert (await opened(stated, profile=both)).message.content == CONTENT


@pytest.mark.req("503-6.5.3-g")
async def test_the_session_key_is_wrapped_with_the_recipients_public_key() -> None:
    transfer = await sealed()
    assert len(session_key(transfer)) == 32
    wrapped = base64.b64decode(entry(transfer, ENCRYPTION, "Session key"))
    stranger = KeyOpener(e3().keys[CertificateKind.ENCRYPTION], e3().encryption)
    assert await stranger.open(wrapped, OAEP_SHA256) is None


@pytest.mark.req("503-T9-a")
async def test_the_cipher_is_named() -> None:
    transfer = await sealed()
    assert Entry("Cipher", ValueType.STRING, "AES-256") in processor(transfer).entries
    await refused(with_entry(transfer, ENCRYPTION, "Cipher", None), Rule.SEAL_ENTRY_MISSING)


@pytest.mark.req("503-T9-b")
async def test_the_certificate_of_the_recipient_is_named() -> None:
    transfer = await sealed()
    expected = Entry("Certificate ID", ValueType.STRING, e2().encryption.certificate_id)
    assert expected in processor(transfer).entries
    await refused(with_entry(transfer, ENCRYPTION, "Certificate ID", None), Rule.SEAL_ENTRY_MISSING)


@pytest.mark.req("503-T9-c")
async def test_the_session_key_is_a_byte_array_in_base64() -> None:
    transfer = await sealed()
    (found,) = processor(transfer).all("Session key")
    assert found.type is ValueType.BYTE_ARRAY
    assert len(base64.b64decode(found.value, validate=True)) == 256
    await refused(
        with_entry(transfer, ENCRYPTION, "Session key", "*" + found.value[1:]),
        Rule.SEAL_SESSION_KEY,
    )
    await refused(with_entry(transfer, ENCRYPTION, "Session key", None), Rule.SEAL_ENTRY_MISSING)


@pytest.mark.req("503-T9-d")
async def test_another_cipher_can_be_installed_and_selected() -> None:
    gcm = STANDARD.cipher("AES-256", GCM)
    other = STANDARD.adding(ContentCipher("AES-256-B", GCM, 32, gcm.encrypt, gcm.decrypt))
    profile = Profile(ciphers=frozenset({"AES-256", "AES-256-B"}), send=Suite(cipher="AES-256-B"))
    transfer = await seal_message(message(), e1().signer, e2().encryption, profile, other)
    assert entry(transfer, ENCRYPTION, "Cipher") == "AES-256-B"
    arrived = await open_sealed(transfer, [e2().opener], e1().certificates, profile, other)
    assert arrived.message.content == CONTENT
    reason = await refused(transfer, Rule.SEAL_ALGORITHM_UNKNOWN)
    assert "AES-256-B" in public_reason(reason).text


@pytest.mark.req("503-6.5.3-h")
async def test_only_what_has_an_encryption_processor_is_decrypted() -> None:
    assert (await opened(await sealed())).message.content == CONTENT
    plain = await seal_message(
        acknowledgement(b"text", internal_type=InternalType.RECEIVE_ACKNOWLEDGEMENT), None, None
    )
    arrived = await opened(plain, openers=[], certificates=[])
    assert arrived.message.content == b"text"
    assert arrived.encryption_certificate is None


@pytest.mark.req("503-6.5.3-i")
async def test_the_named_certificate_must_be_an_own_encryption_certificate() -> None:
    transfer = await sealed()
    for name in ("unknown", e3().encryption.certificate_id, e2().signing.certificate_id):
        await refused(
            with_entry(transfer, ENCRYPTION, "Certificate ID", name),
            Rule.SEAL_NOT_OUR_CERTIFICATE,
        )
    newer = shared_pki().component("E2", key_name="E2 renewed")
    assert await opened(transfer, openers=[newer.opener, e2().opener])


@pytest.mark.req("503-6.5.3-j", "503-8.3.3-f")
@pytest.mark.req("m11-3.14.4-f", component="endpoint")
async def test_the_encryption_certificate_is_judged_at_the_time_of_generation() -> None:
    """Tests happen at NOW; what counts is when the message was generated."""
    validity = Validity(NOW - YEAR, NOW - timedelta(hours=1))
    expired_now = shared_pki().component("E2", validity=validity)
    before = message(generated=Instant.of(NOW - YEAR / 2))
    in_time = encrypt(await sign(before, e1().signer), expired_now.encryption)
    assert await opened(in_time, openers=[expired_now.opener])
    late = encrypt(await sign(message(), e1().signer), expired_now.encryption, at=NOW - YEAR / 2)
    await refused(late, Rule.SEAL_ENCRYPTION_CERTIFICATE_EXPIRED, openers=[expired_now.opener])


@pytest.mark.req("503-6.5.3-k")
async def test_session_key_then_content_are_decrypted_or_nothing_is_given() -> None:
    transfer = await sealed()
    assert (await opened(transfer)).message.content == CONTENT
    wrong = KeyOpener(e3().keys[CertificateKind.ENCRYPTION], e2().encryption)
    await refused(transfer, Rule.SEAL_SESSION_KEY, openers=[wrong])
    await refused(replace(transfer, body=transfer.body[:-1]), Rule.SEAL_CONTENT)
    text = entry(transfer, ENCRYPTION, "Session key")
    flipped = text[:20] + ("A" if text[20] != "A" else "B") + text[21:]
    await refused(with_entry(transfer, ENCRYPTION, "Session key", flipped), Rule.SEAL_SESSION_KEY)


@pytest.mark.req("503-4.5.1-c")
async def test_signing_comes_before_encryption() -> None:
    transfer = await sealed()
    assert [p.processor_id for p in transfer.metadata.processors] == [SIGNATURE, ENCRYPTION]
    clear = AESGCM(session_key(transfer)).decrypt(
        transfer.body[:12], transfer.body[12:], associated_data(transfer.metadata)
    )
    signed = await sign(message(), e1().signer)
    assert clear == signed.content == CONTENT
    assert entry(transfer, SIGNATURE, "Signature") == entry(signed, SIGNATURE, "Signature")
