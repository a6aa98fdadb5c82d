"""503 cl. 6.5.4 and Table 10: every message is signed, and the signature covers the manifest."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from lxml import etree

from gridpost.core.acknowledgement import compose, fingerprint_content
from gridpost.core.identifiers import ComponentCode, MessageId, new_message_id
from gridpost.core.instant import Instant
from gridpost.core.message import (
    SIGNATURE,
    Entry,
    InternalMessage,
    InternalType,
    Processor,
    SealedMessage,
    ValueType,
)
from gridpost.core.proof_set import ProofSet
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.keys.rsa_operations import KeySigner
from gridpost.wire.mades import metadata as metadata_xml
from gridpost.wire.seal import (
    STANDARD,
    Profile,
    Suite,
    encrypt,
    fingerprint,
    manifest,
    open_sealed,
    seal_message,
    sign,
    verify,
    verify_proof,
)
from gridpost.wire.seal.registry import SHA_512
from gridpost.wire.seal.xml_signature import read
from gridpost.wire.x509 import Validity, public_key
from support.messages import CONTENT, MESSAGE_ID, acknowledgement, message, metadata
from support.pki import NOW, YEAR, shared_pki
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

ALGORITHM = STANDARD.signature(SHA_512)
# 503 cl. 6.5.4, written down a second time and by hand.
VECTOR = (
    CONTENT
    + b"BA1xml2026-03-01T12:00:00.000ZSTANDARD_MESSAGE0a4c1b6e-52cc-4c7a-9a38-0d7b6a1e2f30"
    + b"rel-1E2E1App7A01"
)


def signature_of(what: SealedMessage | InternalMessage) -> str:
    return entry(what, SIGNATURE, "Signature")


@pytest.mark.req("503-6.5.4-a")
@pytest.mark.parametrize("kind", [InternalType.STANDARD_MESSAGE, InternalType.TRACING_MESSAGE])
async def test_every_message_is_signed_or_not_sent(kind: InternalType) -> None:
    transfer = await sealed(internal_type=kind)
    assert (await opened(transfer)).signing_certificate == e1().signing
    with pytest.raises(Refusal) as caught:
        await seal_message(message(internal_type=kind), None, e2().encryption)
    assert caught.value.rule is Rule.NO_SIGNING_CERTIFICATE
    expired = shared_pki().component("E1", validity=Validity(NOW - YEAR, NOW - YEAR / 2))
    with pytest.raises(Refusal) as caught:
        await seal_message(message(internal_type=kind), expired.signer, e2().encryption)
    assert caught.value.rule is Rule.NO_SIGNING_CERTIFICATE


@pytest.mark.req("503-6.5.4-b")
async def test_the_recipient_signs_the_delivery_acknowledgement_itself() -> None:
    original = await opened(await sealed())
    composed = compose(
        InternalType.DELIVERY_ACKNOWLEDGEMENT,
        original.message.metadata,
        fingerprint_content(original.fingerprint),
        message_id=new_message_id(),
        now=NOW,
    )
    signed = await sign(composed, e2().signer)
    verified = verify(signed, e2().certificates)
    assert verified.certificate == e2().signing
    assert (
        verified.fingerprint
        == hashlib.sha512(manifest(composed.metadata, composed.content)).digest()
    )
    other = replace(signed.metadata, related_message_id=new_message_id())
    for altered in (
        InternalMessage(signed.metadata, signed.content + b"="),
        InternalMessage(other, signed.content),
    ):
        with pytest.raises(Refusal) as caught:
            verify(altered, e2().certificates)
        assert caught.value.rule is Rule.SEAL_FINGERPRINT


@pytest.mark.req("503-6.5.4-c")
def test_the_manifest_has_the_order_of_the_standard() -> None:
    assert manifest(metadata(), CONTENT) == VECTOR
    assert fingerprint(metadata(), CONTENT) == hashlib.sha512(VECTOR).digest()
    swapped = metadata(receiver_code=ComponentCode("E1"), sender_code=ComponentCode("E2"))
    assert fingerprint(swapped, CONTENT) != fingerprint(metadata(), CONTENT)


@pytest.mark.req("503-6.5.4-d")
async def test_the_content_is_signed_unencrypted() -> None:
    transfer = await sealed()
    digest = read(signature_of(transfer), ALGORITHM).digest
    assert digest == fingerprint(transfer.metadata, CONTENT)
    assert digest != fingerprint(transfer.metadata, transfer.body)
    assert digest != fingerprint(transfer.metadata, base64.b64encode(CONTENT))
    ack = await sign(acknowledgement(b"digest text"), e2().signer)
    assert read(signature_of(ack), ALGORITHM).digest == fingerprint(ack.metadata, b"digest text")


@pytest.mark.req("503-6.5.4-e")
async def test_parts_are_utf_8_without_separators_and_absent_is_empty() -> None:
    xml = metadata_xml.encode(metadata(ba_message_id=""))
    empty = metadata_xml.decode(xml)
    forms = {fingerprint(empty, CONTENT), fingerprint(metadata(ba_message_id=""), CONTENT)}
    root = etree.fromstring(xml.encode())
    element = root.find("baMessageID")
    if element is not None:
        root.remove(element)
    absent = etree.tostring(root)
    forms.add(fingerprint(metadata_xml.decode(absent), CONTENT))
    nil = etree.SubElement(root, "baMessageID")
    nil.set("{http://www.w3.org/2001/XMLSchema-instance}nil", "true")
    root.insert(root.index(root.find("processingMetadata")), nil)
    forms.add(fingerprint(metadata_xml.decode(etree.tostring(root)), CONTENT))
    assert len(forms) == 1
    foreign = metadata(sender_application="Börse€")
    assert "Börse€A01".encode() in manifest(foreign, b"")


@pytest.mark.req("503-6.5.4-f")
@pytest.mark.parametrize(
    "written", ["2026-03-01T13:00:00+01:00", "2026-03-01T12:00:00.123456Z", "2026-03-01T12:00:00"]
)
async def test_the_received_text_of_generated_is_verified(written: str) -> None:
    peer = message(generated=Instant.parse(written))
    signed = await sign(peer, e1().signer)
    through_xml = metadata_xml.decode(metadata_xml.encode(signed.metadata))
    transfer = encrypt(InternalMessage(through_xml, CONTENT), e2().encryption)
    arrived = await opened(transfer)
    assert arrived.fingerprint == hashlib.sha512(manifest(peer.metadata, CONTENT)).digest()
    assert written.encode() in manifest(arrived.message.metadata, b"")
    assert Instant.of(peer.metadata.generated.at).text.endswith("Z")
    reformatted = with_metadata(transfer, generated=Instant.of(peer.metadata.generated.at))
    with pytest.raises(Refusal):
        await opened(reformatted)


@pytest.mark.req("503-6.5.4-g")
async def test_expiration_version_and_processors_are_not_signed() -> None:
    transfer = await sealed()
    for change in (
        {"expiration_time": Instant.of(NOW + YEAR)},
        {"message_mversion": 3},
        {
            "processors": tuple(
                Processor(p.processor_id, (*p.entries, Entry("New", ValueType.STRING, "x")))
                for p in transfer.metadata.processors
            )
        },
    ):
        assert await opened(with_metadata(transfer, **change))


@pytest.mark.req("503-6.5.4-h")
async def test_one_processor_describes_the_signature() -> None:
    (processor,) = (await sealed()).metadata.processors_named(SIGNATURE)
    assert {e.key: e.type for e in processor.entries} == {
        "Algorithm": ValueType.STRING,
        "Certificate ID": ValueType.STRING,
        "Signature": ValueType.STRING,
    }


@pytest.mark.req("503-6.5.4-i")
@pytest.mark.req("503-9.1-c")
@pytest.mark.req("m11-3.14.3-c", component="endpoint")
async def test_the_fingerprint_is_sha_512_under_the_senders_rsa_key() -> None:
    transfer = await sealed()
    parsed = read(signature_of(transfer), ALGORITHM)
    assert parsed.digest == hashlib.sha512(VECTOR).digest()
    assert len(parsed.digest) == 64
    public_key(e1().signing.der).verify(
        parsed.value, parsed.signed_info, PKCS1v15(), hashes.SHA512()
    )
    assert base64.b64encode(parsed.digest) in parsed.signed_info


@pytest.mark.req("503-T10-a")
async def test_the_algorithm_is_named() -> None:
    transfer = await sealed()
    (processor,) = transfer.metadata.processors_named(SIGNATURE)
    assert Entry("Algorithm", ValueType.STRING, "SHA-512") in processor.entries
    await refused(with_entry(transfer, SIGNATURE, "Algorithm", None), Rule.SEAL_ENTRY_MISSING)


@pytest.mark.req("503-T10-b")
async def test_the_signing_certificate_is_named() -> None:
    transfer = await sealed()
    (processor,) = transfer.metadata.processors_named(SIGNATURE)
    expected = Entry("Certificate ID", ValueType.STRING, e1().signing.certificate_id)
    assert expected in processor.entries
    await refused(with_entry(transfer, SIGNATURE, "Certificate ID", None), Rule.SEAL_ENTRY_MISSING)


@pytest.mark.req("503-T10-c")
async def test_the_signature_is_an_xml_document_in_a_string() -> None:
    transfer = await sealed()
    xml = metadata_xml.encode(transfer.metadata)
    assert "&lt;Signature" in xml
    text = signature_of(replace(transfer, metadata=metadata_xml.decode(xml)))
    assert text == signature_of(transfer)
    schema = Path(__file__).parents[1] / "support" / "xmldsig-core.xsd"
    etree.XMLSchema(etree.parse(schema)).assertValid(etree.fromstring(text.encode()))


@pytest.mark.req("503-T10-d")
async def test_another_algorithm_can_be_installed_and_selected() -> None:
    sha3 = replace(
        ALGORITHM,
        name="SHA3-512",
        new_hash=hashlib.sha3_512,
        rsa_hash=hashes.SHA3_512(),
        method_uris=("http://www.w3.org/2007/05/xmldsig-more#rsa-sha3-512",),
        digest_uris=("http://www.w3.org/2007/05/xmldsig-more#sha3-512",),
    )
    registry = STANDARD.adding(sha3)
    profile = Profile(
        signatures=frozenset({"SHA-512", "SHA3-512"}), send=Suite(signature="SHA3-512")
    )
    from gridpost.core.certificate import CertificateKind

    signer = KeySigner(e1().keys[CertificateKind.SIGNING], e1().signing, registry=registry)
    transfer = await seal_message(message(), signer, e2().encryption, profile, registry)
    arrived = await open_sealed(transfer, [e2().opener], e1().certificates, profile, registry)
    assert arrived.fingerprint == hashlib.sha3_512(VECTOR).digest()
    reason = await refused(transfer, Rule.SEAL_ALGORITHM_UNKNOWN)
    assert "SHA3-512" in reason.message


@pytest.mark.req("503-6.5.4-j")
async def test_what_is_signed_is_verified_and_what_need_not_be_is_not() -> None:
    assert (await opened(await sealed())).signing_certificate == e1().signing
    plain = acknowledgement(b"text", internal_type=InternalType.RECEIVE_ACKNOWLEDGEMENT)
    transfer = SealedMessage(plain.metadata, plain.content)
    arrived = await opened(transfer, openers=[], certificates=[])
    assert arrived.signing_certificate is None


@pytest.mark.req("503-6.5.4-k")
async def test_the_signing_certificate_must_be_the_senders() -> None:
    by_e3 = await seal_message(message(), e3().signer, e2().encryption)
    assert by_e3.metadata.sender_code == "E1"
    await refused(by_e3, Rule.SEAL_NOT_SENDERS_CERTIFICATE)


@pytest.mark.req("503-6.5.4-l", "503-8.3.3-g")
@pytest.mark.req("m11-3.14.3-h", component="endpoint")
async def test_the_signing_certificate_is_judged_at_the_time_of_generation() -> None:
    validity = Validity(NOW - YEAR, NOW - timedelta(hours=1))
    expired_now = shared_pki().component("E1", validity=validity)
    before = message(generated=Instant.of(NOW - YEAR / 2))
    in_time = await seal_message(before, expired_now.signer, e2().encryption)
    assert await opened(in_time, certificates=expired_now.certificates)
    late = with_entry(
        await sealed(), SIGNATURE, "Certificate ID", expired_now.signing.certificate_id
    )
    await refused(
        late, Rule.SEAL_SIGNING_CERTIFICATE_EXPIRED, certificates=expired_now.certificates
    )


@pytest.mark.req("503-6.5.4-m")
async def test_a_message_is_accepted_only_as_it_was_signed() -> None:
    transfer = await sealed(OLD)
    assert (await opened(transfer, profile=OLD)).message.content == CONTENT
    signed = await sign(message(), e1().signer)
    other_content = encrypt(InternalMessage(signed.metadata, CONTENT + b"."), e2().encryption)
    await refused(other_content, Rule.SEAL_FINGERPRINT)
    attribute = with_metadata(transfer, message_id=MessageId(MESSAGE_ID.replace("0a", "0b")))
    await refused(attribute, Rule.SEAL_FINGERPRINT, profile=OLD)
    text = signature_of(transfer)
    at = text.index("<SignatureValue>") + len("<SignatureValue>")
    value = text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]
    # The digest in it is right, and does not help.
    await refused(
        with_entry(transfer, SIGNATURE, "Signature", value),
        Rule.SEAL_SIGNATURE_VALUE,
        profile=OLD,
    )


@pytest.mark.req("503-4.5.4-b")
async def test_proof_of_sending_needs_no_private_key() -> None:
    arrived = await opened(await sealed())
    held = ProofSet(
        arrived.message, arrived.signing_certificate, issuers=(shared_pki().integrated_ca,)
    )
    verdict = verify_proof(held, [shared_pki().root])
    assert verdict.origin.proven
    assert verdict.digest == arrived.fingerprint


@pytest.mark.req("503-4.5.4-c")
async def test_proof_of_receipt_is_message_acknowledgement_and_certificate() -> None:
    original = await sign(message(), e1().signer)
    digest = fingerprint(original.metadata, CONTENT)
    ack = await sign(acknowledgement(fingerprint_content(digest)), e2().signer)
    held = ProofSet(
        original,
        e1().signing,
        ack,
        e2().signing,
        issuers=(shared_pki().integrated_ca,),
    )
    assert verify_proof(held, [shared_pki().root]).receipt.proven
    for altered in (
        replace(held, message=InternalMessage(original.metadata, CONTENT + b".")),
        replace(held, acknowledgement=InternalMessage(ack.metadata, ack.content + b".")),
        replace(held, recipient_certificate=e3().signing),
    ):
        assert not verify_proof(altered, [shared_pki().root]).receipt.proven
