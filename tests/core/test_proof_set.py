"""What evidence a proof set must hold."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.identifiers import ComponentCode, MessageId, MessageType
from gridpost.core.instant import Instant
from gridpost.core.message import SIGNATURE, InternalMessage, InternalType, Metadata, Processor
from gridpost.core.proof_set import Fact, Part, ProofSet

NOW = datetime(2026, 3, 1, tzinfo=UTC)
CERTIFICATE = Certificate("id", CertificateKind.SIGNING, b"der", NOW, NOW, "E1")
SIGNED = Metadata(
    message_id=MessageId("0a4c1b6e-52cc-4c7a-9a38-0d7b6a1e2f30"),
    receiver_code=ComponentCode("E2"),
    message_type=MessageType("A01"),
    generated=Instant.of(NOW),
    expiration_time=None,
    sender_code=ComponentCode("E1"),
    internal_type=InternalType.STANDARD_MESSAGE,
    processors=(Processor(SIGNATURE),),
)
MESSAGE = InternalMessage(SIGNED, b"document")
ACKNOWLEDGEMENT = InternalMessage(
    replace(SIGNED, internal_type=InternalType.DELIVERY_ACKNOWLEDGEMENT), b"digest"
)
COMPLETE = ProofSet(MESSAGE, CERTIFICATE, ACKNOWLEDGEMENT, CERTIFICATE)


def test_a_complete_set_misses_nothing() -> None:
    assert COMPLETE.missing() == ()
    assert all(COMPLETE.complete(fact) for fact in Fact)


def test_a_recipient_can_prove_origin_without_any_acknowledgement() -> None:
    held = ProofSet(MESSAGE, CERTIFICATE)
    assert held.complete(Fact.ORIGIN)
    assert held.missing(Fact.RECEIPT) == (
        Part.ACKNOWLEDGEMENT,
        Part.ACKNOWLEDGEMENT_SIGNATURE,
        Part.RECIPIENT_CERTIFICATE,
    )


def test_each_part_is_missed_when_it_is_not_there() -> None:
    unsigned = InternalMessage(SIGNED.with_processors(()), b"document")
    other_kind = InternalMessage(
        replace(SIGNED, internal_type=InternalType.RECEIVE_ACKNOWLEDGEMENT), b"x"
    )
    unsigned_acknowledgement = InternalMessage(
        ACKNOWLEDGEMENT.metadata.with_processors(()), b"digest"
    )
    for change, part in (
        ({"message": unsigned}, Part.MESSAGE_SIGNATURE),
        ({"sender_certificate": None}, Part.SENDER_CERTIFICATE),
        ({"acknowledgement": other_kind}, Part.ACKNOWLEDGEMENT),
        ({"acknowledgement": unsigned_acknowledgement}, Part.ACKNOWLEDGEMENT_SIGNATURE),
        ({"recipient_certificate": None}, Part.RECIPIENT_CERTIFICATE),
    ):
        assert replace(COMPLETE, **change).missing() == (part,)


def test_a_doubled_signature_is_as_good_as_none() -> None:
    twice = InternalMessage(SIGNED.with_processors(SIGNED.processors * 2), b"document")
    assert replace(COMPLETE, message=twice).missing() == (Part.MESSAGE_SIGNATURE,)


def test_every_part_says_what_it_contributes_and_to_what() -> None:
    assert all(part.proves and part.facts for part in Part)
    assert {fact for part in Part for fact in part.facts} == set(Fact)
