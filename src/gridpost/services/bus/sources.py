"""Adapters that feed the bus: files and rows of other systems become requests and events.

A file or row is removed when the bus has it. What the bus refuses is set aside, with the reason in
the log and the journal. The same content taken twice is one message: its id follows from its bytes.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol
from uuid import NAMESPACE_URL, uuid5

import structlog

from gridpost.core.envelope import (
    EVENT_VERBS,
    EventMessage,
    Header,
    Payload,
    RequestMessage,
    ResponseMessage,
    Result,
    Verb,
    specific,
)
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.bus.door import Given, WebDoor
from gridpost.wire.envelope import Fragment, decode, encode
from gridpost.wire.envelope.transform import Xslt

log = structlog.get_logger(__name__)


class Mailbox(Protocol):
    async def names(self) -> list[str]: ...

    async def get(self, name: str) -> bytes: ...

    async def remove(self, name: str) -> None: ...

    async def set_aside(self, name: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Source:
    """Without verb and noun the files are envelopes; with them they are payloads."""

    name: str
    box: Mailbox
    context: str
    every: float = 5.0
    verb: str = ""
    noun: str = ""
    xslt: Xslt | None = None


class SourceReader:
    def __init__(self, source: Source, door: WebDoor) -> None:
        self._source = source
        self._door = door

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(self._source.every)

    async def look(self) -> int:
        """How many were taken."""
        taken, box = 0, self._source.box
        try:
            for name in await box.names():
                try:
                    await self._take(await box.get(name), name)
                except Refusal as refusal:
                    if refusal.retryable:
                        raise
                    log.warning(
                        "set aside", source=self._source.name, file=name, reason=refusal.message
                    )
                    await box.set_aside(name)
                else:
                    await box.remove(name)
                    taken += 1
        except Refusal as refusal:
            log.warning("a source waits", source=self._source.name, reason=refusal.message)
        return taken

    async def _take(self, data: bytes, name: str) -> None:
        source = self._source
        envelope = self._wrapped(data) if source.noun else data
        if source.xslt is not None:
            envelope = source.xslt(envelope)
        message = specific(decode(envelope))
        place, own = f"{source.name}/{name}", bool(source.noun)
        if isinstance(message, EventMessage):
            given = await self._door.event(envelope, source.context, place, own=own)
        else:
            given = await self._door.request(envelope, source.context, place, own=own)
        _accepted(given)

    def _wrapped(self, data: bytes) -> bytes:
        source = self._source
        identity = str(uuid5(NAMESPACE_URL, f"{source.name}/{sha256(data).hexdigest()}"))
        header = Header(
            Verb(source.verb),
            source.noun,
            context=source.context,
            source=source.name,
            message_id=identity,
            correlation_id=identity,
        )
        payload = Payload((Fragment.parse(data),))
        if source.verb in EVENT_VERBS:
            return encode(EventMessage(header, payload))
        return encode(RequestMessage(header, None, payload))


def _accepted(given: Given) -> None:
    if given.body is None:
        return
    message = specific(decode(given.body))
    if isinstance(message, ResponseMessage) and message.reply.result is not Result.FAILED:
        return
    reason = (
        message.reply.errors[0].reason
        if not isinstance(message, EventMessage | RequestMessage)
        else ""
    )
    raise Refusal(Rule.WEB_REFUSED, reason or "the bus refused it")
