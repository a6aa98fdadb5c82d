"""Journals of a made-up market from a seed, with the answers that a pipeline must find in them.

What happens to a message is drawn from `STORIES`; each story says itself what its outcome is, so
that the answers do not come from the code that is tested with them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

from gridpost.bench._market_parties import (
    BROKER,
    ENDPOINTS,
    FOREIGN,
    World,
    found_market,
    sign,
)
from gridpost.core.acknowledgement import fingerprint_content
from gridpost.core.delivery import Event, Side, State
from gridpost.core.identifiers import ComponentCode, MessageId, MessageType
from gridpost.core.instant import Instant
from gridpost.core.journal import (
    AcknowledgementRow,
    AdministrationRow,
    Identity,
    JournalRow,
    MessageRow,
    RefusalRow,
    TrackingRow,
    TransferRow,
)
from gridpost.core.message import InternalType, Metadata
from gridpost.core.segment import Manifest, SegmentName
from gridpost.pipeline.files import Place
from gridpost.stores import journal_rows
from gridpost.stores.segments.columns import to_table
from gridpost.stores.segments.landing import Landing

START = datetime(2026, 3, 28, 6, 0, tzinfo=UTC)
"""The day before the clocks change."""
TYPES = ("A44-PRICES", "A01-SCHEDULE", "A61-CAPACITY")
HORIZON = timedelta(days=40)
LIFETIME = timedelta(days=7)
# The journal of this one ends early: what it has not said yet is not yet known. For that a market
# must be shorter than the lifetime of its messages.
BEHIND = "E4"
SKEW = {"E3": timedelta(seconds=-5)}
"""Clocks that are wrong; messages to E3 arrive before they were sent."""

STORIES = {
    "normal": 66,
    "delivered": 8,
    "lost_acknowledgement": 5,
    "expired": 5,
    "refused": 4,
    "again": 4,
    "forged": 3,
    "altered": 2,
    "foreign": 3,
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What must come out for one message."""

    story: str
    sender: str
    receiver: str
    message_type: str
    status: str
    recipient_state: str | None
    verdict: str
    proof: str
    accepted_at: datetime
    delivered_at: datetime | None
    received_at: datetime | None


@dataclass(slots=True)
class Journals:
    rows: dict[Identity, list[JournalRow]]
    answers: dict[str, Answer]
    roots: tuple[bytes, ...]

    def land(
        self,
        landing: Place,
        *,
        segment_rows: int = 500,
        wanted: Callable[[SegmentName], bool] = lambda name: True,
    ) -> list[Manifest]:
        """Write segments as an exporter would."""
        folder = Landing(landing)
        written = []
        for identity, rows in self.rows.items():
            numbered = [
                (number, *journal_rows.write(row)) for number, row in enumerate(rows, start=1)
            ]
            for at in range(0, len(numbered), segment_rows):
                part = numbered[at : at + segment_rows]
                name = SegmentName(identity.component, identity.instance, part[0][0], part[-1][0])
                if wanted(name):
                    newest = max(at for _, at, *_ in part)
                    written.append(folder.put(name, to_table(identity, part), newest))
        return written


def generate(
    seed: int,
    messages: int,
    *,
    days: int = 4,
    start: datetime = START,
    documents: Callable[[random.Random, str, datetime], bytes | None] = lambda r, t, a: None,
) -> Journals:
    """`documents` gives the content that the sender's endpoint journals, where it does."""
    if timedelta(days=days) >= LIFETIME:
        raise ValueError("the market must end before its first message expires")
    world = found_market(random.Random(seed), start)
    answers: dict[str, Answer] = {}
    names, weights = list(STORIES), list(STORIES.values())
    for number in range(messages):
        story = world.random.choices(names, weights)[0]
        at = start + timedelta(microseconds=world.random.randrange(round(days * 86_400_000_000)))
        message_id = world.uuid()
        answers[message_id] = _tell(world, story, message_id, at, number, documents)
    end = start + timedelta(days=days)
    for code in (*ENDPOINTS, BROKER):
        last = end + (timedelta(hours=1) if code == BEHIND else HORIZON)
        world.tell(code, AdministrationRow(last, "operator.of." + code, "settings looked at"))
    rows = {}
    for code, told in world.rows.items():
        cut = end + timedelta(hours=1)
        lines = [line for line in told if code != BEHIND or line[0] <= cut]
        lines.sort(key=lambda line: line[:2])
        digest = sha256(f"{seed}/{code}".encode()).digest()
        identity = Identity(code, str(UUID(bytes=digest[:16], version=4)))
        rows[identity] = [row for _, _, row in lines]
    return Journals(rows, answers, world.roots)


def _tell(
    world: World,
    story: str,
    message_id: str,
    at: datetime,
    number: int,
    documents: Callable[[random.Random, str, datetime], bytes | None],
) -> Answer:
    draw = world.random
    sender = draw.choice(ENDPOINTS)
    receiver = draw.choice([code for code in ENDPOINTS if code != sender])
    if story == "foreign":
        receiver = FOREIGN
    type_ = draw.choice(TYPES)
    journalled = documents(draw, type_, at)
    content = journalled or draw.randbytes(draw.randrange(200, 4000))
    metadata = Metadata(
        MessageId(message_id),
        ComponentCode(receiver),
        MessageType(type_),
        Instant.of(at),
        Instant.of(at + LIFETIME),
        ComponentCode(sender),
        InternalType.STANDARD_MESSAGE,
        extension="xml",
        sender_application="App",
        ba_message_id=f"BA-{number}",
    )
    fingerprint, signature = sign(world.parties[sender], metadata, content)
    if story == "forged":
        # The signature of another document: a hash alone would not show it.
        _, signature = sign(world.parties[sender], metadata, content + b"!")
    view: dict[str, Any] = {
        "message_id": message_id,
        "internal_type": InternalType.STANDARD_MESSAGE.value,
        "sender_code": sender,
        "receiver_code": receiver,
        "message_type": type_,
        "generated": metadata.generated.at,
        "expiration_time": at + LIFETIME,
        "route": f"BROKER:{BROKER}",
        "size": len(content),
        "ba_message_id": f"BA-{number}",
        "sender_application": "App",
        "signing_certificate_id": world.parties[sender].signing.certificate_id,
        "encryption_certificate_id": f"{receiver}-encryption",
        "signature": signature,
        "generated_text": metadata.generated.text,
        "extension": "xml",
        "signature_algorithm": "SHA-512",
    }
    world.tell(
        sender,
        MessageRow(at, Side.SENT, fingerprint=fingerprint, content=journalled, **view),
    )
    _track(world, sender, Side.SENT, message_id, at, Event.ACCEPT, State.ACCEPTED)
    behind = BEHIND in (sender, receiver)
    open_verdict = "not yet known" if behind else "mismatch"
    given_up = "ACCEPTED" if sender == BEHIND else "FAILED"
    agreed_failure = "not yet known" if behind else "matched"

    def answer(
        status: str,
        state: str | None,
        verdict: str,
        proof: str = "proven",
        delivered: datetime | None = None,
        received: datetime | None = None,
    ) -> Answer:
        return Answer(
            story, sender, receiver, type_, status, state, verdict, proof, at, delivered, received
        )

    if story == "expired":
        for attempt in range(3):
            moment = at + timedelta(hours=attempt)
            _track(
                world,
                sender,
                Side.SENT,
                message_id,
                moment,
                Event.TRANSFER_FAILED,
                State.ACCEPTED,
                moved=False,
                detail="no connection",
            )
        _track(
            world,
            sender,
            Side.SENT,
            message_id,
            at + LIFETIME,
            Event.EXPIRE,
            State.FAILED,
            detail="expired before it was delivered",
        )
        return answer(given_up, None, agreed_failure, "incomplete")

    sent_at = at + world.delay(0.05)
    _track(world, sender, Side.SENT, message_id, sent_at, Event.TRANSFERRED, State.DELIVERING)
    world.tell(
        sender,
        TransferRow(
            sent_at,
            Side.SENT,
            message_id,
            sender,
            receiver,
            type_,
            BROKER,
            len(content),
            "transferred",
        ),
    )
    world.tell(
        BROKER,
        TransferRow(
            sent_at,
            Side.RECEIVED,
            message_id,
            sender,
            receiver,
            type_,
            sender,
            len(content),
            "stored",
        ),
    )
    came = sent_at + world.delay(0.2)
    local = came + SKEW.get(receiver, timedelta())
    back = came + world.delay(0.2)

    if story == "refused":
        refusal = RefusalRow(
            local,
            world.uuid(),
            "SEAL_SIGNATURE_VALUE",
            "VALIDATION_ERROR",
            "the signature value does not belong to the signing certificate",
            peer=sender,
            message_id=message_id,
            security=True,
        )
        world.tell(receiver, refusal)
        _track(
            world,
            sender,
            Side.SENT,
            message_id,
            back,
            Event.FAILURE_ACKNOWLEDGED,
            State.FAILED,
            detail="the signature is not valid",
        )
        return answer("FAILED", None, agreed_failure, "incomplete")

    seen = draw.randbytes(64) if story == "altered" else fingerprint
    if receiver != FOREIGN:
        world.tell(receiver, MessageRow(local, Side.RECEIVED, fingerprint=seen, **view))
        _track(world, receiver, Side.RECEIVED, message_id, local, Event.VERIFIED, State.WAITING)
        if story == "again":
            _track(
                world,
                receiver,
                Side.RECEIVED,
                message_id,
                local + timedelta(seconds=30),
                Event.ARRIVED_AGAIN,
                State.WAITING,
                moved=False,
            )
    word = _acknowledge(world, metadata, seen, local)
    if receiver != FOREIGN:
        world.tell(receiver, word(local, Side.SENT))
    if story == "lost_acknowledgement":
        _track(
            world,
            receiver,
            Side.RECEIVED,
            message_id,
            local + world.delay(20),
            Event.CONFIRM,
            State.CONFIRMED,
        )
        _track(
            world,
            sender,
            Side.SENT,
            message_id,
            at + LIFETIME,
            Event.EXPIRE,
            State.FAILED,
            detail="expired before it was delivered",
        )
        return answer(given_up, "CONFIRMED", open_verdict, "incomplete")
    world.tell(sender, word(back, Side.RECEIVED))
    if story == "altered":
        _track(
            world,
            sender,
            Side.SENT,
            message_id,
            back,
            Event.FINGERPRINT_DIFFERS,
            State.FAILED,
            detail="the recipient acknowledged another document",
        )
        return answer("FAILED", "WAITING", open_verdict, "not proven")
    _track(world, sender, Side.SENT, message_id, back, Event.DELIVERY_ACKNOWLEDGED, State.DELIVERED)
    proof = "not proven" if story == "forged" else "proven"
    if story == "foreign":
        return answer("DELIVERED", None, "no view", proof, back)
    if story == "delivered":
        return answer("DELIVERED", "WAITING", "matched", proof, back)
    confirmed = local + (timedelta(minutes=1) if story == "again" else world.delay(20))
    _track(world, receiver, Side.RECEIVED, message_id, confirmed, Event.CONFIRM, State.CONFIRMED)
    final = max(back, confirmed - SKEW.get(receiver, timedelta())) + world.delay(0.2)
    _track(world, sender, Side.SENT, message_id, final, Event.RECEIVE_ACKNOWLEDGED, State.RECEIVED)
    return answer("RECEIVED", "CONFIRMED", "matched", proof, back, final)


def _track(
    world: World,
    code: str,
    side: Side,
    message_id: str,
    at: datetime,
    event: Event,
    state: State,
    *,
    moved: bool = True,
    detail: str = "",
) -> None:
    world.tell(code, TrackingRow(at, side, message_id, event, state, moved, detail))


def _acknowledge(
    world: World, original: Metadata, fingerprint: bytes, at: datetime
) -> Callable[[datetime, Side], AcknowledgementRow]:
    content = fingerprint_content(fingerprint)
    metadata = Metadata(
        MessageId(world.uuid()),
        original.sender_code,
        original.message_type,
        Instant.of(at),
        original.expiration_time,
        original.receiver_code,
        InternalType.DELIVERY_ACKNOWLEDGEMENT,
        related_message_id=original.message_id,
    )
    signer = world.parties[original.receiver_code]
    _, signature = sign(signer, metadata, content)

    def row(moment: datetime, side: Side) -> AcknowledgementRow:
        return AcknowledgementRow(
            moment,
            side,
            metadata.message_id,
            original.message_id,
            metadata.internal_type.value,
            metadata.sender_code,
            metadata.receiver_code,
            metadata.generated.at,
            f"BROKER:{BROKER}",
            content,
            signature,
            signer.signing.certificate_id,
            original.message_type,
            metadata.generated.text,
            "",
            "SHA-512",
        )

    return row
