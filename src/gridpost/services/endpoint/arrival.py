"""An internal message arrives by AMQP: read, opened, stored and answered (503 cl. 5.6, 5.7, 6.5).

`arrive` returns when everything it leads to is safely stored; only then may the transfer be
accepted. It refuses what cannot be answered because even its AMQP fields are unreadable.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from gridpost.core.acknowledgement import Original, compose, fingerprint_content, judge
from gridpost.core.checks import CheckedDocument
from gridpost.core.delivery import Decision, Effect, Event, Occurrence, Side, begin, decide
from gridpost.core.identifiers import new_message_id
from gridpost.core.journal import refusal_row
from gridpost.core.links import Octets
from gridpost.core.message import InternalMessage, InternalType, Metadata, SealedMessage
from gridpost.core.message_box import BoxEntry, Content
from gridpost.core.message_path import Route
from gridpost.core.ports import UnitOfWork
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.version import INSTALLED, check_message, understands
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.evidence import Archive
from gridpost.services.endpoint.tracking import (
    acknowledgement_row,
    happen,
    is_signed,
    message_row,
    record,
    tracking_row,
)
from gridpost.wire.amqp.sections import split
from gridpost.wire.mades.amqp_message import (
    MESSAGE_ROOM,
    Fields,
    MessageLimits,
    decode,
    read_fields,
)
from gridpost.wire.seal.opening import Opened, open_sealed, public_reason
from gridpost.wire.seal.processors import read_seals
from gridpost.wire.seal.registry import STANDARD
from gridpost.wire.seal.signing import sign, verify

TRACED_CONTENT = b"traced"


class Arrival:
    def __init__(self, context: EndpointContext) -> None:
        self._context = context
        self._archive = Archive(context)

    async def arrive(self, data: Octets, came_by: Route) -> None:
        now = self._context.clock.now()
        sections = split(data)
        fields = read_fields(sections)
        if fields.receiver_code != self._context.code:
            raise Refusal(
                Rule.RECEIVER_NOT_QUEUE,
                f"this is {self._context.code}; the message is for {fields.receiver_code}",
            )
        # 503 cl. 5.7: accepted and then ignored, without an answer.
        if fields.expires_at <= now:
            return await self._note(
                Refusal(
                    Rule.MESSAGE_EXPIRED,
                    f"{fields.internal_type} {fields.message_id} arrived after its expiration time",
                ),
                fields,
                now,
            )
        try:
            check_message(INSTALLED, fields.mversion)
            largest = MessageLimits(self._context.settings.max_content + MESSAGE_ROOM)
            received = decode(data, largest, head=(sections, fields))
        except Refusal as refusal:
            if fields.internal_type.is_acknowledgement:
                return await self._note(refusal, fields, now, security=True)
            return await self._refuse(_metadata(fields), refusal, came_by, now)
        if fields.internal_type.is_acknowledgement:
            return await self._acknowledged(received.message, came_by, now)
        return await self._message(received.message, came_by, now)

    # ------------------------------------------------------------ messages

    async def _message(self, sealed: SealedMessage, came_by: Route, now: datetime) -> None:
        metadata = sealed.metadata
        sender = metadata.sender_code
        context = self._context
        try:
            if context.directory().find(sender, now) is None:
                # 503 cl. 8.6 and 7.7.1: revoked, never known, or known from lapsed data only.
                raise Refusal(Rule.PEER_UNKNOWN, f"the sender {sender} is not in the directory")
            opened = await self._open(sealed, now)
        except Refusal as refusal:
            return await self._refuse(metadata, refusal, came_by, now)
        event, detail = await self._judged(opened)
        acknowledgement = await self._answer(opened, now)
        entry = _entry(
            opened.message.metadata, opened.fingerprint, opened.message.content, came_by, now
        )
        decision = decide(entry.delivery, Occurrence(event, detail), now)
        # Put as it is after its first event: what changes at once need not be written twice.
        entry = replace(entry, delivery=decision.delivery)
        encryption = opened.encryption_certificate
        journalled = context.settings.journals_content(metadata.message_type)
        priority = context.settings.priority(metadata.message_type)

        papers = (
            {}
            if event is Event.VERIFIED_TRACING
            else self._archive.papers(sender, metadata.receiver_code)
        )

        def store(work: UnitOfWork, content: Content) -> bool:
            if not work.box.put(entry, content):
                _arrived_again(work, entry, now, priority)
                return False
            if papers:
                work.controls.keep_papers(Side.RECEIVED, entry.message_id, papers)
            work.journal.append(
                message_row(
                    entry,
                    now,
                    encryption_certificate_id=encryption.certificate_id if encryption else "",
                    content=opened.message.content if journalled else None,
                )
            )
            record(work, entry, decision)
            _send(work, acknowledgement, entry, now, priority)
            return True

        async with context.store.staged(opened.message.content) as content:
            new = await context.store.run(lambda work: store(work, content))
        context.signals.enqueued(came_by, sender)
        if new and Effect.OFFER in decision.effects:
            context.signals.offered(entry)

    async def _open(self, sealed: SealedMessage, now: datetime) -> Opened:
        sender = sealed.metadata.sender_code
        return await open_sealed(
            sealed,
            self._context.keyring.openers(),
            self._context.signing_certificates(sender, now),
            self._context.settings.profile(sender),
        )

    def _document(self, message: InternalMessage) -> bytes:
        """What applications get of it."""
        return message.content

    def _compose(
        self, kind: InternalType, original: Metadata, content: bytes, now: datetime
    ) -> InternalMessage:
        return compose(kind, original, content, message_id=new_message_id(), now=now)

    async def _judged(self, opened: Opened) -> tuple[Event, str]:
        """Whether it may be offered; refuses where it has to wait at its sender for that."""
        metadata = opened.message.metadata
        if metadata.internal_type is InternalType.TRACING_MESSAGE:
            return Event.VERIFIED_TRACING, ""
        held, notes = await self._context.checking.incoming(
            CheckedDocument(
                Side.RECEIVED,
                metadata.sender_code,
                metadata.receiver_code,
                metadata.message_type,
                self._document(opened.message),
                {
                    "MESSAGE_ID": metadata.message_id,
                    "BA_MESSAGE_ID": metadata.ba_message_id,
                    "SENDER_APPLICATION": metadata.sender_application,
                },
            )
        )
        return (Event.HOLD_BACK, held) if held else (Event.VERIFIED, notes)

    async def _answer(self, opened: Opened, now: datetime) -> InternalMessage:
        """503 Table 1 event 2, or the tracing acknowledgement of 5.12."""
        original = opened.message.metadata
        if original.internal_type is InternalType.TRACING_MESSAGE:
            return self._compose(
                InternalType.TRACING_ACKNOWLEDGEMENT, original, TRACED_CONTENT, now
            )
        unsigned = self._compose(
            InternalType.DELIVERY_ACKNOWLEDGEMENT,
            original,
            fingerprint_content(opened.fingerprint),
            now,
        )
        profile = self._context.settings.profile(original.sender_code)
        return await sign(unsigned, self._context.signer(now), profile)

    async def _refuse(
        self, metadata: Metadata, refusal: Refusal, came_by: Route, now: datetime
    ) -> None:
        """503 Table 1 event 5: the sender learns that it failed; the log learns why."""
        told = public_reason(refusal)
        acknowledgement = compose(
            InternalType.FAILURE_ACKNOWLEDGEMENT,
            metadata,
            f"{told.code}: {told.text} (reference {refusal.id})".encode(),
            message_id=new_message_id(),
            now=now,
        )
        entry = _entry(metadata, b"", b"", came_by, now)
        why = f"{refusal.rule.name}: {refusal.message}"
        priority = self._context.settings.priority(metadata.message_type)
        decision = decide(entry.delivery, Occurrence(Event.REFUSE, why), now)

        def store(work: UnitOfWork) -> None:
            # Only the journal: whoever knows the ID of somebody else's message must not be able
            # to occupy its place in the box with one that does not verify.
            work.journal.append(
                refusal_row(
                    refusal,
                    now,
                    peer=metadata.sender_code,
                    message_id=metadata.message_id,
                    security=True,
                )
            )
            work.journal.append(tracking_row(entry, decision))
            _send(work, acknowledgement, entry, now, priority)

        await self._context.store.run(store)
        self._context.signals.enqueued(came_by, metadata.sender_code)

    # ------------------------------------------------------------ acknowledgements

    async def _acknowledged(self, sealed: SealedMessage, came_by: Route, now: datetime) -> None:
        metadata = sealed.metadata
        message = InternalMessage(metadata, bytes(sealed.body))
        unverified: Refusal | None = None
        profile = self._context.settings.profile(metadata.sender_code)
        try:
            read_seals(metadata, profile, STANDARD)
            if metadata.internal_type.must_be_signed:
                certificates = self._context.signing_certificates(metadata.sender_code, now)
                verify(message, certificates, profile)
        except Refusal as refusal:
            unverified = refusal

        # 503 cl. 4.5.4: what proves the receipt is archived with it, whatever the directory forgets.
        papers = (
            self._archive.papers(metadata.receiver_code, metadata.sender_code)
            if unverified is None
            and metadata.internal_type is InternalType.DELIVERY_ACKNOWLEDGEMENT
            else {}
        )

        def store(work: UnitOfWork) -> tuple[BoxEntry, Decision] | None:
            work.journal.append(acknowledgement_row(Side.RECEIVED, message, came_by, now))
            entry = work.box.find(Side.SENT, metadata.related_message_id)
            if entry is None:
                unknown = Refusal(
                    Rule.MESSAGE_UNKNOWN,
                    f"{metadata.internal_type} {metadata.message_id} names the message "
                    f"{metadata.related_message_id}, which was not sent from here",
                )
                work.journal.append(
                    refusal_row(
                        unknown,
                        now,
                        peer=metadata.sender_code,
                        message_id=metadata.message_id,
                        security=True,
                    )
                )
                return None
            occurrence = judge(
                message,
                Original(entry.metadata, entry.route, entry.fingerprint),
                came_by=came_by,
                unverified=unverified,
                now=now,
            )
            decision = happen(work, entry, occurrence, now)
            if decision.entry.moved:
                work.box.keep_acknowledgement(message)
                if papers:
                    work.controls.keep_papers(Side.SENT, entry.message_id, papers)
            if Effect.SECURITY_EVENT in decision.effects:
                suspicious = unverified or Refusal(
                    Rule.ACKNOWLEDGEMENT_FORM,
                    occurrence.detail or f"{occurrence.event} does not fit {entry.delivery.state}",
                )
                work.journal.append(
                    refusal_row(
                        suspicious,
                        now,
                        peer=metadata.sender_code,
                        message_id=metadata.message_id,
                        security=True,
                    )
                )
            return entry, decision

        judged = await self._context.store.run(store)
        if judged is not None:
            self._context.signals.decided(*judged)

    async def _note(
        self, refusal: Refusal, fields: Fields, now: datetime, *, security: bool = False
    ) -> None:
        row = refusal_row(
            refusal, now, peer=fields.sender_code, message_id=fields.message_id, security=security
        )
        await self._context.store.run(lambda work: work.journal.append(row))


def _send(
    work: UnitOfWork, message: InternalMessage, original: BoxEntry, now: datetime, priority: int
) -> None:
    """503 cl. 5.6.2: an acknowledgement takes the reverse of the route its original came by.

    One that waits for its signature is journalled with it (`old_network.uploading`).
    """
    work.box.enqueue(message, original.route, original.delivery.expires_at, priority)
    if is_signed(message.metadata) or not message.metadata.internal_type.must_be_signed:
        work.journal.append(acknowledgement_row(Side.SENT, message, original.route, now))


def _arrived_again(work: UnitOfWork, entry: BoxEntry, now: datetime, priority: int) -> None:
    """503 cl. 5.8.3: duplicates stop here. The identifier may outlive the message itself."""
    known = work.box.find(Side.RECEIVED, entry.message_id)
    if known is None:
        return
    if known.metadata.sender_code != entry.metadata.sender_code:
        # Two verified senders with one UUID: no duplicate, and nothing may be lost silently.
        failure = compose(
            InternalType.FAILURE_ACKNOWLEDGEMENT,
            entry.metadata,
            b"VALIDATION_ERROR: another sender has used this message ID",
            message_id=new_message_id(),
            now=now,
        )
        _send(work, failure, entry, now, priority)
    else:
        happen(work, known, Occurrence(Event.ARRIVED_AGAIN), now)


def _entry(
    metadata: Metadata, fingerprint: bytes, content: bytes, came_by: Route, now: datetime
) -> BoxEntry:
    expires = metadata.expiration_time
    return BoxEntry(
        begin(Side.RECEIVED, metadata.message_id, expires.at if expires else now, now),
        metadata,
        came_by,
        fingerprint,
        len(content),
    )


def _metadata(fields: Fields) -> Metadata:
    """Enough of a message whose body cannot be read to answer it."""
    return Metadata(
        message_id=fields.message_id,
        receiver_code=fields.receiver_code,
        message_type=fields.subject,
        generated=fields.generated,
        expiration_time=fields.absolute_expiry,
        sender_code=fields.sender_code,
        internal_type=fields.internal_type,
        # 503 cl. 9.2: nobody can answer in a version that it does not know.
        message_mversion=fields.mversion if understands(INSTALLED, fields.mversion) else INSTALLED,
    )
