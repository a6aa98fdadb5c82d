"""Which step of 503 cl. 6.5.4 refuses what."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15

from gridpost.core.certificate import CertificateKind
from gridpost.core.identifiers import ComponentCode, MessageId, MessageType
from gridpost.core.instant import Instant
from gridpost.core.message import (
    SIGNATURE,
    InternalMessage,
    InternalType,
    SealedMessage,
)
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.seal import (
    DEFAULT,
    Profile,
    assemble,
    encrypt,
    manifest,
    prepare_signature,
    seal_message,
    sign,
)
from gridpost.wire.seal.processors import SignatureData, signature_processor
from gridpost.wire.x509 import Validity
from support.messages import CONTENT, message, metadata
from support.pki import NOW, shared_pki
from support.sealing import (
    OLD,
    e1,
    e2,
    e3,
    entry,
    opened,
    refused,
    sealed,
    with_entry,
    with_metadata,
)

ALTERED = {
    "baMessageID": {"ba_message_id": "BA2"},
    "extension": {"extension": "pdf"},
    "generated": {"generated": Instant.parse("2026-03-01T12:00:00.0000Z")},
    "internalType": {"internal_type": InternalType.TRACING_MESSAGE},
    "messageID": {"message_id": MessageId("1a4c1b6e-52cc-4c7a-9a38-0d7b6a1e2f30")},
    "relatedMessageID": {"related_message_id": ""},
    "receiverCode": {"receiver_code": ComponentCode("E3")},
    "senderCode": {"sender_code": ComponentCode("E3")},
    "senderApplication": {"sender_application": "App8"},
    "messageType": {"message_type": MessageType("A02")},
}


@pytest.mark.parametrize("change", ALTERED.values(), ids=ALTERED.keys())
@pytest.mark.parametrize("profile", [DEFAULT, OLD], ids=["GCM", "CBC"])
async def test_each_signed_attribute_is_protected(
    change: dict[str, object], profile: Profile
) -> None:
    altered = with_metadata(await sealed(profile), **change)
    with pytest.raises(Refusal) as caught:
        await opened(altered, profile=profile)
    expected = Rule.SEAL_CONTENT if profile is DEFAULT else Rule.SEAL_FINGERPRINT
    assert caught.value.rule is expected


async def test_the_eleventh_signed_field_is_the_content() -> None:
    signed = await sign(message(), e1().signer)
    forged = encrypt(InternalMessage(signed.metadata, CONTENT + b"!"), e2().encryption)
    await refused(forged, Rule.SEAL_FINGERPRINT)


NEIGHBOURS = [
    ("ba_message_id", "extension"),
    ("extension", "generated"),
    ("generated", "internal_type"),
    ("internal_type", "message_id"),
    ("message_id", "related_message_id"),
    ("related_message_id", "receiver_code"),
    ("receiver_code", "sender_code"),
    ("sender_code", "sender_application"),
    ("sender_application", "message_type"),
]


class _Text(str):
    """Stands for an enumeration or an instant whose text has lost or gained a character."""

    @property
    def text(self) -> str:
        return str(self)

    @property
    def value(self) -> str:
        return str(self)

    at = NOW
    must_be_signed = must_be_encrypted = may_be_encrypted = True


def shifted(what: SealedMessage, left: str, right: str) -> SealedMessage:
    """The last character of one attribute becomes the first of the next."""

    def text(name: str) -> str:
        value = getattr(what.metadata, name)
        return str(getattr(value, "text", getattr(value, "value", value)))

    a, b = text(left), text(right)
    return with_metadata(what, **{left: _Text(a[:-1]), right: _Text(a[-1] + b)})


@pytest.mark.parametrize(("left", "right"), NEIGHBOURS)
async def test_bytes_cannot_move_between_neighbouring_attributes(left: str, right: str) -> None:
    good = await sealed()
    moved = shifted(good, left, right)
    assert manifest(moved.metadata, CONTENT) == manifest(good.metadata, CONTENT)
    await refused(moved, Rule.SEAL_CONTENT)


async def test_bytes_cannot_move_between_content_and_first_attribute() -> None:
    signed = await sign(message(), e1().signer)
    moved = replace(signed.metadata, ba_message_id=chr(CONTENT[-1]) + "BA1")
    assert manifest(moved, CONTENT[:-1]) == manifest(signed.metadata, CONTENT)
    transfer = encrypt(signed, e2().encryption)
    await refused(with_metadata(transfer, ba_message_id=moved.ba_message_id), Rule.SEAL_CONTENT)


async def test_without_associated_data_a_shift_is_not_detectable() -> None:
    """Known and documented: the standard's manifest has no separators."""
    good = await sealed(OLD)
    moved = shifted(good, "sender_application", "message_type")
    arrived = await opened(moved, profile=OLD)
    assert not arrived.attributes_bound


async def test_unsigned_metadata_may_change_on_the_way() -> None:
    changed = with_metadata(await sealed(), expiration_time=Instant.of(NOW), message_mversion=7)
    assert (await opened(changed)).message.content == CONTENT


async def test_the_certificate_of_another_component_is_refused() -> None:
    by_e3 = await seal_message(message(), e3().signer, e2().encryption)
    await refused(by_e3, Rule.SEAL_NOT_SENDERS_CERTIFICATE)
    posing = with_entry(by_e3, SIGNATURE, "Certificate ID", e1().signing.certificate_id)
    await refused(posing, Rule.SEAL_SIGNATURE_VALUE)


async def test_a_certificate_of_the_sender_that_is_not_for_signing_is_refused() -> None:
    key = e1().keys[CertificateKind.AUTHENTICATION]
    prepared = prepare_signature(metadata(), CONTENT)
    value = key.sign(prepared.to_be_signed, PKCS1v15(), hashes.SHA512())
    data = SignatureData(
        prepared.algorithm, e1().authentication.certificate_id, assemble(prepared, value, "E1")
    )
    signed = InternalMessage(metadata(processors=(signature_processor(data),)), CONTENT)
    await refused(encrypt(signed, e2().encryption), Rule.SEAL_NOT_SENDERS_CERTIFICATE)


async def test_a_sender_without_published_certificates_is_refused() -> None:
    await refused(await sealed(), Rule.SEAL_NOT_SENDERS_CERTIFICATE, certificates=[])


async def test_a_published_certificate_that_cannot_be_read_is_refused() -> None:
    broken = replace(e1().signing, der=b"broken")
    await refused(await sealed(), Rule.SEAL_NOT_SENDERS_CERTIFICATE, certificates=[broken])
    unnamed = replace(broken, certificate_id="other")
    await refused(await sealed(), Rule.SEAL_NOT_SENDERS_CERTIFICATE, certificates=[unnamed])


async def test_a_signing_certificate_that_was_not_valid_at_generation_is_refused() -> None:
    for start, end in ((-300, -1), (1, 300)):
        validity = Validity(NOW + timedelta(days=start), NOW + timedelta(days=end))
        other = shared_pki().component("E1", validity=validity)
        transfer = with_entry(
            await sealed(), SIGNATURE, "Certificate ID", other.signing.certificate_id
        )
        await refused(
            transfer, Rule.SEAL_SIGNING_CERTIFICATE_EXPIRED, certificates=other.certificates
        )


async def test_a_foreign_form_of_the_certificate_id_is_recognised() -> None:
    serial = e1().signing.certificate_id.removeprefix("CN=CD-1 INTEGRATED CA")
    for text in (
        f"CN=CD-1 INTEGRATED CA{int(serial):x}",
        f"CN=CD-1 INTEGRATED CA{int(serial):X}",
    ):
        assert await opened(with_entry(await sealed(), SIGNATURE, "Certificate ID", text))


async def test_what_a_directory_published_as_id_is_matched_first() -> None:
    published = replace(e1().signing, certificate_id="opaque 17")
    transfer = with_entry(await sealed(), SIGNATURE, "Certificate ID", "opaque 17")
    assert await opened(transfer, certificates=[published])
    await refused(transfer, Rule.SEAL_NOT_SENDERS_CERTIFICATE)


async def test_a_right_digest_does_not_help_a_wrong_signature_value() -> None:
    good = await sealed()
    text = entry(good, SIGNATURE, "Signature")
    start = text.index("<SignatureValue>") + len("<SignatureValue>")
    other = "A" if text[start] != "A" else "B"
    forged = text[:start] + other + text[start + 1 :]
    await refused(with_entry(good, SIGNATURE, "Signature", forged), Rule.SEAL_SIGNATURE_VALUE)
    for value in ("", "AAAA"):
        end = text.index("</SignatureValue>")
        await refused(
            with_entry(good, SIGNATURE, "Signature", text[:start] + value + text[end:]),
            Rule.SEAL_SIGNATURE_VALUE,
        )


async def test_a_wrapped_signature_is_refused() -> None:
    good = await sealed()
    text = entry(good, SIGNATURE, "Signature")
    bare = text.partition("?>")[2]
    for wrapped in (
        f'<a xmlns="urn:a">{bare}</a>',
        bare.replace("</Signature>", f"<Object>{bare}</Object></Signature>"),
        bare.replace("<SignedInfo>", "<SignedInfo><Object/>", 1),
    ):
        await refused(with_entry(good, SIGNATURE, "Signature", wrapped), Rule.SEAL_SIGNATURE_FORM)


async def test_a_signature_made_over_the_manifest_counts_where_a_profile_says_so() -> None:
    content = manifest(metadata(), CONTENT)
    value = e1().keys[CertificateKind.SIGNING].sign(content, PKCS1v15(), hashes.SHA512())
    prepared = prepare_signature(metadata(), CONTENT)
    data = SignatureData(
        prepared.algorithm, e1().signing.certificate_id, assemble(prepared, value, "E1")
    )
    signed = InternalMessage(metadata(processors=(signature_processor(data),)), CONTENT)
    transfer = encrypt(signed, e2().encryption)
    await refused(transfer, Rule.SEAL_SIGNATURE_VALUE)
    lenient = Profile(accept_signed_manifest=True)
    assert (await opened(transfer, profile=lenient)).message.content == CONTENT
    assert (await opened(await sealed(), profile=lenient)).message.content == CONTENT
    await refused(
        with_entry(transfer, SIGNATURE, "Signature", assemble(prepared, value[::-1], "E1")),
        Rule.SEAL_SIGNATURE_VALUE,
        profile=lenient,
    )
