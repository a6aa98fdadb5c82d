"""Acknowledgements: how they are composed, what their content must be, and what one may change.

An acknowledgement notifies an event of its original message (503 cl. 5.6.2, Table 1) and takes the
reverse of its route.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from dataclasses import dataclass
from datetime import datetime

from gridpost.core.delivery import Event, Occurrence
from gridpost.core.identifiers import MessageId
from gridpost.core.instant import Instant
from gridpost.core.message import InternalMessage, InternalType, Metadata
from gridpost.core.message_path import Route
from gridpost.core.refusal import Refusal, Rule

FINGERPRINT_LENGTH = 64  # SHA-512

# 503 Table 12: which kind may acknowledge which message.
ORIGINALS: dict[InternalType, frozenset[InternalType]] = {
    InternalType.DELIVERY_ACKNOWLEDGEMENT: frozenset({InternalType.STANDARD_MESSAGE}),
    InternalType.RECEIVE_ACKNOWLEDGEMENT: frozenset({InternalType.STANDARD_MESSAGE}),
    InternalType.TRACING_ACKNOWLEDGEMENT: frozenset({InternalType.TRACING_MESSAGE}),
    InternalType.FAILURE_ACKNOWLEDGEMENT: frozenset(
        {InternalType.STANDARD_MESSAGE, InternalType.TRACING_MESSAGE}
    ),
}


def compose(
    kind: InternalType,
    original: Metadata,
    content: bytes,
    *,
    message_id: MessageId,
    now: datetime,
) -> InternalMessage:
    """An acknowledgement of `original`, ready to be signed where Table 1 says so."""
    if original.internal_type not in ORIGINALS[kind]:
        raise ValueError(f"a {kind} never answers a {original.internal_type}")
    if not content:
        raise ValueError("503 Table 1: the content of an acknowledgement is never empty")
    return InternalMessage(
        Metadata(
            message_id=message_id,
            receiver_code=original.sender_code,
            message_type=original.message_type,
            generated=Instant.of(now),
            # 503 cl. 5.7: it expires when its original does, to the character.
            expiration_time=original.expiration_time,
            sender_code=original.receiver_code,
            internal_type=kind,
            related_message_id=original.message_id,
            # MADES 1.1 cl. 4.1.4: in the version of the original.
            message_mversion=original.message_mversion,
        ),
        content,
    )


def fingerprint_content(fingerprint: bytes) -> bytes:
    """503 Table 1 event 2: the fingerprint of the original in clear, as base64 text."""
    return base64.b64encode(fingerprint)


def acknowledged_fingerprint(content: bytes) -> bytes | None:
    """The fingerprint in a DELIVERY_ACKNOWLEDGEMENT: base64, hex or the 64 bytes themselves."""
    if len(content) == FINGERPRINT_LENGTH:
        return content
    text = b"".join(content.split())
    try:
        if len(text) == 2 * FINGERPRINT_LENGTH:
            return binascii.unhexlify(text)
        digest = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return digest if len(digest) == FINGERPRINT_LENGTH else None


@dataclass(frozen=True, slots=True)
class Original:
    """What the sender endpoint remembers of a message when an acknowledgement of it comes in."""

    metadata: Metadata
    route: Route
    fingerprint: bytes


def judge(
    acknowledgement: InternalMessage,
    original: Original,
    *,
    came_by: Route,
    unverified: Refusal | None,
    now: datetime,
) -> Occurrence:
    """Which event this acknowledgement is for its original.

    `unverified` is why the signature of a DELIVERY_ACKNOWLEDGEMENT did not verify (503 cl. 4.5.4
    check 2), None when it did. An acknowledgement that must not count becomes
    ACKNOWLEDGEMENT_REFUSED: it is traced and reported, and it never moves a status.
    """
    metadata = acknowledgement.metadata
    expected = original.metadata
    kind = metadata.internal_type

    def occurrence(event: Event, detail: str = "") -> Occurrence:
        return Occurrence(event, detail, metadata.message_id)

    def refused(rule: Rule, why: str) -> Occurrence:
        return occurrence(Event.ACKNOWLEDGEMENT_REFUSED, f"{rule.name}: {why}")

    # Only the recipient of the original, by the way the original went, can acknowledge it.
    if metadata.sender_code != expected.receiver_code:
        return refused(
            Rule.ACKNOWLEDGEMENT_WRONG_PARTY,
            f"{metadata.sender_code} acknowledged a message to {expected.receiver_code}",
        )
    if metadata.receiver_code != expected.sender_code:
        return refused(
            Rule.ACKNOWLEDGEMENT_WRONG_PARTY, f"it is addressed to {metadata.receiver_code}"
        )
    if came_by != original.route:
        return refused(
            Rule.ACKNOWLEDGEMENT_WRONG_ROUTE,
            f"it came by {came_by}, the message went by {original.route}",
        )
    if metadata.message_type != expected.message_type:
        return refused(
            Rule.ACKNOWLEDGEMENT_FORM,
            f"its message-type is {metadata.message_type}, not {expected.message_type}",
        )
    if expected.internal_type not in ORIGINALS[kind]:
        return refused(Rule.ACKNOWLEDGEMENT_FORM, f"a {kind} for a {expected.internal_type}")
    # 503 cl. 5.7: what arrives expired is accepted and ignored. The expiry of the original
    # decides, not what the acknowledgement claims of itself.
    if expected.expiration_time is not None and expected.expiration_time.at <= now:
        return occurrence(Event.ACKNOWLEDGEMENT_EXPIRED, f"{kind} came after the expiration time")

    if kind is InternalType.FAILURE_ACKNOWLEDGEMENT:
        reason = acknowledgement.content.decode("utf-8", "replace").strip()
        return occurrence(Event.FAILURE_ACKNOWLEDGED, reason or "the recipient gave no reason")
    if not acknowledgement.content:
        return refused(Rule.ACKNOWLEDGEMENT_FORM, f"the content of the {kind} is empty")
    if kind is InternalType.RECEIVE_ACKNOWLEDGEMENT:
        return occurrence(Event.RECEIVE_ACKNOWLEDGED)
    if kind is InternalType.TRACING_ACKNOWLEDGEMENT:
        return occurrence(Event.TRACING_ACKNOWLEDGED)
    if unverified is not None:
        return refused(Rule.ACKNOWLEDGEMENT_UNVERIFIED, unverified.message)
    # 503 cl. 4.5.4 check 3.
    fingerprint = acknowledged_fingerprint(acknowledgement.content)
    if fingerprint is None or not hmac.compare_digest(fingerprint, original.fingerprint):
        return occurrence(
            Event.FINGERPRINT_DIFFERS,
            "the recipient acknowledged a document other than the one that was sent",
        )
    return occurrence(Event.DELIVERY_ACKNOWLEDGED)
