"""A document from an application becomes a message: checked, composed, signed and stored (503 cl. 5.5).

An application that repeats a conversation gets the message it already has; nothing is sent twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from gridpost.core.checks import CheckedDocument
from gridpost.core.delivery import Occurrence, Side, begin, decide
from gridpost.core.identifiers import (
    MessageId,
    application_id,
    component_code,
    message_type,
    new_message_id,
)
from gridpost.core.instant import Instant
from gridpost.core.message import InternalMessage, InternalType, Metadata
from gridpost.core.message_box import BoxEntry, Content
from gridpost.core.ports import UnitOfWork
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.tracking import is_signed, message_row, record
from gridpost.services.endpoint.ways import Way, Ways
from gridpost.wire.mades11.compression import compress, is_compressed
from gridpost.wire.seal.manifest import fingerprint
from gridpost.wire.seal.signing import sign_once

# 503 cl. 5.12: without meaning, but never empty.
TRACING_CONTENT = b"Gridpost connectivity test"

MAX_CONVERSATION_ID = 1024


Also = Callable[[UnitOfWork, MessageId], None]
"""What a channel commits together with a new message, before its first event."""


@dataclass(frozen=True, slots=True)
class Document:
    """What an application hands in (503 Table 29)."""

    receiver_code: str
    message_type: str
    content: bytes
    ba_message_id: str = ""
    sender_application: str = ""
    extension: str = ""
    conversation_id: str = ""


class Submission:
    """The counter at which documents are handed in."""

    def __init__(self, context: EndpointContext) -> None:
        self._context = context
        self.ways = Ways(context)

    async def send(
        self, application: str, document: Document, also: Also | None = None, detail: str = ""
    ) -> MessageId:
        """The ID of the accepted message; it is safely stored when this returns.

        `detail` is what its trace begins with.
        """
        if not document.content:
            raise Refusal(Rule.EMPTY_CONTENT, "the document is empty")
        limit = self._context.settings.max_content
        if len(document.content) > limit:
            raise Refusal(
                Rule.CONTENT_TOO_LARGE,
                f"the document has {len(document.content)} bytes; this endpoint accepts {limit}",
            )
        if len(document.conversation_id) > MAX_CONVERSATION_ID:
            raise Refusal(
                Rule.BAD_APPLICATION_ID,
                f"a conversationID has at most {MAX_CONVERSATION_ID} characters",
            )
        return await self._answer(
            application, document, InternalType.STANDARD_MESSAGE, also, detail
        )

    async def test_connectivity(
        self,
        application: str,
        receiver_code: str,
        message_type: str,
        conversation_id: str = "",
        also: Also | None = None,
    ) -> MessageId:
        """503 cl. 5.12: a tracing-message takes the route of its message-type like any other."""
        document = Document(
            receiver_code, message_type, TRACING_CONTENT, conversation_id=conversation_id
        )
        return await self._answer(application, document, InternalType.TRACING_MESSAGE, also)

    async def _answer(
        self,
        application: str,
        document: Document,
        kind: InternalType,
        also: Also | None,
        detail: str = "",
    ) -> MessageId:
        """What was accepted once is answered alike, also when it would be refused by now.

        Nearly every document is new: a repeated one is found by the transaction that stores it, so
        that no other has to be looked for first.
        """
        try:
            return await self._accept(application, document, kind, also, detail)
        except Refusal:
            if not document.conversation_id:
                raise
            known = await self._context.store.read(
                lambda work: work.box.find_conversation(application, document.conversation_id)
            )
            if known is None:
                raise
            return _same_conversation(known, document)

    async def _accept(
        self,
        application: str,
        document: Document,
        kind: InternalType,
        also: Also | None,
        detail: str,
    ) -> MessageId:
        context = self._context
        context.holding.refuse_new()
        strict = context.settings.strict_patterns
        now = context.clock.now()
        receiver = component_code(document.receiver_code)
        type_ = message_type(document.message_type, strict=strict)
        ba_message_id = application_id(document.ba_message_id, "baMessageID", strict=strict)
        sender_application = application_id(
            document.sender_application, "senderApplication", strict=strict
        )
        way = await self.ways.choose(receiver, type_, now)
        if kind is InternalType.STANDARD_MESSAGE:
            notes = await context.checking.outgoing(
                CheckedDocument(
                    Side.SENT,
                    context.code,
                    receiver,
                    type_,
                    document.content,
                    {
                        "BA_MESSAGE_ID": ba_message_id,
                        "SENDER_APPLICATION": sender_application,
                        "APPLICATION": application,
                    },
                )
            )
            detail = "; ".join(filter(None, (detail, notes)))
        expires = Instant.of(context.settings.durations.expiration(type_, now))
        unsigned = InternalMessage(
            Metadata(
                message_id=new_message_id(),
                receiver_code=receiver,
                message_type=type_,
                generated=Instant.of(now),
                expiration_time=expires,
                sender_code=context.code,
                internal_type=kind,
                extension=document.extension,
                sender_application=sender_application,
                ba_message_id=ba_message_id,
                message_mversion=way.version,
            ),
            document.content,
        )
        message, digest, way = await self._signed(way, way.composed(unsigned), now)
        detail = "; ".join(filter(None, (detail, way.detail, way.verifying)))
        begun = begin(Side.SENT, message.metadata.message_id, expires.at, now)
        decision = decide(begun, Occurrence(way.first_event(kind), detail), now)
        entry = BoxEntry(
            # Put as it is after its first event: what changes at once need not be written twice.
            decision.delivery,
            message.metadata,
            way.route,
            digest,
            len(message.content),
            application,
            document.conversation_id,
        )
        journalled = context.settings.journals_content(type_)
        priority = context.settings.priority(type_)

        def store(work: UnitOfWork, content: Content) -> MessageId:
            if document.conversation_id:
                # Another call of the same conversation may have come in since we looked.
                known = work.box.find_conversation(application, document.conversation_id)
                if known is not None:
                    return _same_conversation(known, document)
            if not work.box.put(entry, content):
                raise Refusal(Rule.INTERNAL, f"the message ID {entry.message_id} is not new")
            if also is not None:
                also(work, entry.message_id)
            if is_signed(message.metadata):
                work.journal.append(
                    message_row(
                        entry,
                        now,
                        encryption_certificate_id="",
                        content=message.content if journalled else None,
                    )
                )
            record(work, entry, decision)
            work.box.enqueue(message, entry.route, entry.delivery.expires_at, priority)
            return entry.message_id

        async with context.store.staged(message.content) as content:
            stored = await context.store.run(lambda work: store(work, content))
        if stored == entry.message_id:
            context.signals.decided(entry, decision)
            context.signals.enqueued(entry.route, receiver)
        return stored

    async def _signed(
        self, way: Way, message: InternalMessage, now: datetime
    ) -> tuple[InternalMessage, bytes, Way]:
        """With its fingerprint. MADES 1.1 cl. 3.10.3: it may have to wait for the signing device."""
        metadata = message.metadata
        try:
            signed, digest = await sign_once(
                message, way.signer(now), self._context.settings.profile(metadata.receiver_code)
            )
        except Refusal as refusal:
            if refusal.rule is not Rule.KEY_TOKEN or not way.awaits_device:
                raise
            digest = await asyncio.to_thread(fingerprint, metadata, message.content)
            waits = f"waits for the signing device: {refusal.message}"
            verifying = "; ".join(filter(None, (way.verifying, waits)))
            return message, digest, replace(way, verifying=verifying)
        return signed, digest, way


def _same_conversation(known: BoxEntry, document: Document) -> MessageId:
    """503 cl. 11.1.2: the same request again is answered alike; another document is refused."""
    first = known.metadata
    same = (
        first.receiver_code == document.receiver_code
        and first.message_type == document.message_type
        and first.ba_message_id == document.ba_message_id
        and first.sender_application == document.sender_application
        and first.extension == document.extension
        # Covers the content, and works after retention has removed it.
        and fingerprint(first, _signed_content(first, document.content)) == known.fingerprint
    )
    if not same:
        raise Refusal(
            Rule.CONVERSATION_REUSED,
            f"the conversation {document.conversation_id} belongs to message {known.message_id}, "
            "which carries another document",
        )
    return known.message_id


def _signed_content(metadata: Metadata, content: bytes) -> bytes:
    """What was signed of a document: the packed one where MADES 1.1 packed it."""
    message = InternalMessage(metadata, content)
    return compress(message).content if is_compressed(message) else content
