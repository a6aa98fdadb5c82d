"""The audit judges evidence as it was journalled, that of a MADES 1.1 network too. No Spark here."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from gridpost.bench._journals import START
from gridpost.bench._market_parties import World, found_market, sign
from gridpost.core.acknowledgement import fingerprint_content
from gridpost.core.delivery import Side
from gridpost.core.identifiers import ComponentCode, MessageId, MessageType
from gridpost.core.instant import Instant
from gridpost.core.journal import AcknowledgementRow, CertificateRow
from gridpost.core.message import InternalMessage, InternalType, Metadata
from gridpost.core.message_path import Route
from gridpost.pipeline.proofs import Auditor, KnownCertificate
from gridpost.services.endpoint.tracking import acknowledgement_row

DOCUMENT = b"<Document/>"
ORGANISATION = "Grid of Examplia"


@pytest.fixture(scope="module")
def market() -> World:
    return found_market(Random(3), START)


@pytest.fixture(scope="module")
def auditor(market: World) -> Auditor:
    rows = [row for lines in market.rows.values() for _, _, row in lines]
    known = {row.der: row for row in rows if isinstance(row, CertificateRow)}
    return Auditor(
        [
            KnownCertificate(row.owner, row.certificate_kind, row.certificate_id, row.der)
            for row in known.values()
        ],
        market.roots,
    )


def evidence(market: World, description: str) -> dict[str, Any]:
    """A row of silver.proofs: a message of E1 to E2 and the word of E2, both signed."""
    sent = Metadata(
        MessageId("m1"),
        ComponentCode("E2"),
        MessageType("A01"),
        Instant.of(START),
        Instant.of(START + timedelta(days=1)),
        ComponentCode("E1"),
        InternalType.STANDARD_MESSAGE,
        sender_description=description,
    )
    fingerprint, signature = sign(market.parties["E1"], sent, DOCUMENT)
    word = replace(
        sent,
        message_id=MessageId("a1"),
        sender_code=sent.receiver_code,
        receiver_code=sent.sender_code,
        internal_type=InternalType.DELIVERY_ACKNOWLEDGEMENT,
        related_message_id=sent.message_id,
    )
    content = fingerprint_content(fingerprint)
    _, word_signature = sign(market.parties["E2"], word, content)
    told: AcknowledgementRow = acknowledgement_row(
        Side.RECEIVED, InternalMessage(word, content), Route.parse("INDIRECT:B1"), START
    )
    told = replace(
        told,
        signature=word_signature,
        signing_certificate_id=market.parties["E2"].signing.certificate_id,
    )
    names = ("message_type", "generated", "generated_text", "extension", "content", "signature")
    more = ("signature_algorithm", "signing_certificate_id", "sender_description")
    values = asdict(told)
    return {
        "day": START.date(),
        "message_id": "m1",
        "sender_code": "E1",
        "receiver_code": "E2",
        "message_type": "A01",
        "generated": START,
        "generated_text": sent.generated.text,
        "extension": "",
        "related_message_id": "",
        "ba_message_id": "",
        "sender_application": "",
        "internal_type": "STANDARD_MESSAGE",
        "sender_description": description,
        "fingerprint": fingerprint,
        "signature": signature,
        "signature_algorithm": "SHA-512",
        "signing_certificate_id": market.parties["E1"].signing.certificate_id,
        "ack_acknowledgement_id": "a1",
        "ack_sender_code": "E2",
        "ack_receiver_code": "E1",
        **{f"ack_{name}": values[name] for name in (*names, *more)},
        "content": DOCUMENT,
    }


@pytest.mark.parametrize("description", ["", ORGANISATION])
def test_the_word_of_a_recipient_of_either_standard_is_proven(market, auditor, description):
    """MADES 1.1 cl. 3.14.3 signs the sender's description too: the journal has to keep it."""
    row = evidence(market, description)
    assert row["ack_sender_description"] == description
    found = auditor.judge(row)
    assert (found["verdict"], found["origin_reason"], found["receipt_reason"]) == ("proven", "", "")


def test_what_was_changed_after_it_was_signed_is_not_proven(market, auditor):
    row = evidence(market, ORGANISATION)
    other = auditor.judge({**row, "content": DOCUMENT + b"\n"})
    assert other["origin_reason"] == "the document is not the one of the fingerprint"
    other = auditor.judge({**row, "ack_sender_description": "Grid of Elsewhere"})
    assert (other["origin"], other["receipt"]) == ("proven", "not proven")
    # An erased document leaves the evidence as it was.
    assert auditor.judge({**row, "content": None})["verdict"] == "proven"
