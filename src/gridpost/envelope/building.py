"""Messages of one's own: unique ids, the time, and the source, put where the standard wants them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from uuid import uuid4

from gridpost.core.envelope import (
    EventMessage,
    Header,
    Identifier,
    Pair,
    Payload,
    ReplayDetection,
    Reply,
    Request,
    RequestMessage,
    ResponseMessage,
    User,
    Verb,
    Xml,
)
from gridpost.core.envelope_exchange import Stamp, event_of, prevailing, response_to
from gridpost.core.instant import Instant
from gridpost.wire.envelope import Fragment, xml_payload

Content = Payload | Fragment | str | bytes | None


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sends. Every message gets a MessageID of its own, and a nonce when asked for."""

    source: str
    context: str | None = None
    user: User | None = None
    zone: tzinfo = UTC
    replay_detection: bool = True
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))

    def stamp(self) -> Stamp:
        return Stamp(str(uuid4()), prevailing(self.now(), self.zone), self.source)

    def request(
        self,
        verb: Verb | str,
        noun: str,
        content: Content = None,
        *,
        ids: Iterable[Identifier | str] = (),
        start: datetime | None = None,
        end: datetime | None = None,
        options: Iterable[Pair] = (),
        profile: Xml | None = None,
        correlation_id: str | None = None,
        reply_address: str | None = None,
        one_way: bool = False,
        properties: Iterable[Pair] = (),
    ) -> RequestMessage:
        """`profile` is the Get<Noun> element; with a reply address the exchange is asynchronous."""
        given = Request(
            None if start is None else Instant.of(start),
            None if end is None else Instant.of(end),
            tuple(options),
            tuple(i if isinstance(i, Identifier) else Identifier(i) for i in ids),
            () if profile is None else (profile,),
        )
        header = self._header(Verb(verb), noun, correlation_id or str(uuid4()))
        header = replace(
            header,
            properties=tuple(properties),
            async_reply=True if reply_address is not None else None,
            reply_address=reply_address,
            ack_required=False if one_way else None,
        )
        return RequestMessage(header, None if given == Request() else given, _payload(content))

    def response(
        self, request: RequestMessage, reply: Reply, content: Content = None
    ) -> ResponseMessage:
        return response_to(request.header, reply, self.stamp(), _payload(content))

    def event(
        self, verb: Verb | str, noun: str, content: Content, *, correlation_id: str | None = None
    ) -> EventMessage:
        return EventMessage(self._header(Verb(verb), noun, correlation_id), _payload(content))

    def event_of(self, request: RequestMessage) -> EventMessage | None:
        """What follows from a request that succeeded."""
        return event_of(request, self.stamp())

    def _header(self, verb: Verb, noun: str, correlation_id: str | None) -> Header:
        stamp = self.stamp()
        replay = ReplayDetection(str(uuid4()), stamp.timestamp) if self.replay_detection else None
        return Header(
            verb,
            noun,
            revision="1",
            replay_detection=replay,
            context=self.context,
            timestamp=stamp.timestamp,
            source=self.source,
            user=self.user,
            message_id=stamp.message_id,
            correlation_id=correlation_id,
        )


def _payload(content: Content) -> Payload | None:
    if content is None or isinstance(content, Payload):
        return content
    return xml_payload(content)
