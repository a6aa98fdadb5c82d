"""Acknowledgements and tracing messages, and what a peer is told of a failure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridpost.core.message import (
    ENCRYPTION,
    SIGNATURE,
    InternalType,
    SealedMessage,
)
from gridpost.core.refusal import Code, Refusal, Rule
from gridpost.wire.seal import (
    PEER_TEXT,
    fingerprint,
    public_reason,
    seal_message,
    sign,
    verify,
)
from gridpost.wire.seal.registry import (
    CBC,
    GCM,
    STANDARD,
)
from support.messages import acknowledgement, message
from support.sealing import (
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


async def test_a_delivery_acknowledgement_is_signed_and_readable_by_anyone() -> None:
    ack = acknowledgement(b"fingerprint")
    transfer = await seal_message(ack, e2().signer, None)
    assert transfer.body == b"fingerprint"
    arrived = await opened(transfer, openers=[], certificates=e2().certificates)
    assert arrived.signing_certificate == e2().signing
    assert not arrived.attributes_bound
    assert verify(arrived.message, e2().certificates).certificate == e2().signing
    await refused(
        transfer, Rule.SEAL_NOT_SENDERS_CERTIFICATE, openers=[], certificates=e3().certificates
    )


async def test_a_delivery_acknowledgement_without_signature_is_refused() -> None:
    bare = acknowledgement(b"fingerprint")
    await refused(
        SealedMessage(bare.metadata, bare.content), Rule.SEAL_SIGNATURE_MISSING, openers=[]
    )
    with pytest.raises(Refusal) as caught:
        verify(bare, e2().certificates)
    assert caught.value.rule is Rule.SEAL_SIGNATURE_MISSING


async def test_an_encrypted_acknowledgement_is_refused() -> None:
    good = await sealed()
    posing = with_metadata(good, internal_type=InternalType.DELIVERY_ACKNOWLEDGEMENT)
    await refused(posing, Rule.SEAL_PROCESSOR_NOT_ALLOWED)


@pytest.mark.parametrize(
    "kind",
    [
        InternalType.RECEIVE_ACKNOWLEDGEMENT,
        InternalType.FAILURE_ACKNOWLEDGEMENT,
        InternalType.TRACING_ACKNOWLEDGEMENT,
    ],
)
async def test_other_acknowledgements_need_no_signature_but_a_bad_one_is_refused(
    kind: InternalType,
) -> None:
    ack = acknowledgement(b"text", internal_type=kind)
    plain = await seal_message(ack, None, None)
    arrived = await opened(plain, openers=[], certificates=[])
    assert (arrived.message, arrived.signing_certificate) == (ack, None)
    assert arrived.fingerprint == fingerprint(ack.metadata, b"text")
    signed = await seal_message(ack, e2().signer, None)
    assert await opened(signed, openers=[], certificates=e2().certificates)
    await refused(
        replace(signed, body=b"other"),
        Rule.SEAL_FINGERPRINT,
        openers=[],
        certificates=e2().certificates,
    )


async def test_a_tracing_message_of_a_peer_may_be_plain_but_not_unsigned() -> None:
    signed = await sign(message(internal_type=InternalType.TRACING_MESSAGE), e1().signer)
    assert await opened(SealedMessage(signed.metadata, signed.content))
    bare = signed.metadata.with_processors(())
    await refused(SealedMessage(bare, signed.content), Rule.SEAL_SIGNATURE_MISSING)


async def test_every_failure_from_session_key_to_signature_sounds_the_same() -> None:
    good = await sealed()
    text = entry(good, SIGNATURE, "Signature")
    failures = {
        Rule.SEAL_SESSION_KEY: with_entry(good, ENCRYPTION, "Session key", "AAAA"),
        Rule.SEAL_CONTENT: replace(good, body=good.body[:-1]),
        Rule.SEAL_NOT_SENDERS_CERTIFICATE: with_entry(good, SIGNATURE, "Certificate ID", "x"),
        Rule.SEAL_SIGNATURE_FORM: with_entry(good, SIGNATURE, "Signature", "<a/>"),
        Rule.SEAL_SIGNATURE_VALUE: with_entry(
            good, SIGNATURE, "Signature", text.replace("<SignatureValue>", "<SignatureValue>AAAA")
        ),
    }
    reasons = {public_reason(await refused(bad, rule)) for rule, bad in failures.items()}
    assert {(r.code, r.text) for r in reasons} == {(Code.VALIDATION_ERROR, PEER_TEXT)}


class Counting:
    """An opener that counts, to see that nothing is left out."""

    def __init__(self, answer: bytes | None) -> None:
        self.certificate = e2().encryption
        self.calls = 0
        self._answer = answer

    async def open(self, wrapped: bytes, padding: str) -> bytes | None:
        self.calls += 1
        return self._answer


async def test_every_step_is_taken_whatever_failed_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from gridpost.wire.seal import opening, signing

    taken: list[str] = []

    def noted(name: str, function: object) -> object:
        def run(*args: object, **kwargs: object) -> object:
            taken.append(name)
            return function(*args, **kwargs)  # type: ignore[operator]

        return run

    monkeypatch.setattr(opening, "fingerprint", noted("hash", fingerprint))
    monkeypatch.setattr(signing, "_value_matches", noted("rsa", signing._value_matches))
    monkeypatch.setattr(signing.xml_signature, "read", noted("xml", signing.xml_signature.read))
    good = await sealed()
    for bad, opener in (
        (good, Counting(None)),
        (good, Counting(b"k" * 32)),
        (with_entry(good, SIGNATURE, "Signature", "<a/>"), Counting(None)),
        (with_entry(good, SIGNATURE, "Certificate ID", "x"), Counting(None)),
        (with_entry(good, ENCRYPTION, "Session key", "!"), Counting(None)),
    ):
        taken.clear()
        with pytest.raises(Refusal) as caught:
            await opened(bad, openers=[opener])
        assert caught.value.rule in (Rule.SEAL_SESSION_KEY, Rule.SEAL_CONTENT)
        assert opener.calls == 1
        assert taken == ["hash", "xml", "rsa"]


async def test_a_failed_content_costs_as_much_to_hash_as_a_good_one() -> None:
    for mode in (GCM, CBC):
        cipher = STANDARD.cipher("AES-256", mode)
        body = cipher.encrypt(b"k" * 32, b"x" * 1000, b"")
        content, good = cipher.decrypt(b"l" * 32, body, b"")
        if not good:
            assert abs(len(content) - 1000) <= 16
