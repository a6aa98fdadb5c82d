"""What a bus sends: to queues and topics with confirmation, to web services until they take it.

What is posted stands in the store until it was taken; what nobody takes ends with the dead letters.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

import structlog

from gridpost.core.amqp091 import Channel, Properties, Publication, short
from gridpost.core.bus import BusLedger, Outgoing, Posted
from gridpost.core.envelope import RequestMessage
from gridpost.core.envelope_exchange import AddressKind, ReplyAddress
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.bus.calling import accepted
from gridpost.services.bus.processing import AnyPost
from gridpost.services.bus.settings import BusSettings
from gridpost.services.bus.subscribers import Claims
from gridpost.services.gathering import Gathering

log = structlog.get_logger(__name__)

CONTENT_TYPE = "application/xml"
CLAIM = "x-claim"
_BATCH = 500
_RETRY_SECONDS = 1.0
_NOWHERE = (Rule.AMQP091_UNROUTED, Rule.ENVELOPE_CONTEXT, Rule.ENVELOPE_REPLY_ADDRESS)
WebCall = Callable[[str, bytes], Awaitable[bytes | None]]
"""Hands an envelope to a web service; its answer, or None: taken without a word."""
Returned = Callable[[Outgoing, bytes | None, str], Awaitable[None]]
"""Told what a web service said to a request, or why nobody took it."""


class Post:
    """The sending side of a bus process."""

    def __init__(
        self, settings: BusSettings, ledger: BusLedger, clock: Clock, web: WebCall | None
    ) -> None:
        self.settings = settings
        self.ledger = ledger
        self.clock = clock
        self.claims: Claims | None = None
        self.channel: Channel | None = None
        """None: there is no broker."""
        self.returned: Returned | None = None
        self._publishing = Gathering(self._publish_all)
        self._web = web
        self._calls: set[asyncio.Task[None]] = set()
        self._take_over = True
        self._sent: asyncio.Queue[int] = asyncio.Queue()
        self._wake = asyncio.Event()
        self._under_way: set[int] = set()
        self._seen: dict[int, float] = {}
        """Since when a post is known to be unsent."""

    def wake(self, *, take_over: bool = False) -> None:
        """Look into the outbox; `take_over`: also at what another process was about to call."""
        self._take_over = self._take_over or take_over
        self._wake.set()

    def stop(self) -> None:
        for call in list(self._calls):
            call.cancel()

    async def publish(self, posts: Iterable[AnyPost]) -> None:
        """Returns when the broker has them; what goes to web services is tried until it is taken."""
        found = []
        calls: dict[str, list[AnyPost]] = {}
        for post in posts:
            address = _outgoing(post).address
            if address.startswith(("http://", "https://")):
                calls.setdefault(address, []).append(post)
            elif address:
                found.append(post)
        for each in calls.values():
            self._call_back(each)
        self._under_way |= {post.sequence for post in found if isinstance(post, Posted)}
        if len(found) == 1:
            await self._send(found[0])
        else:
            # Confirmed together; published in their order.
            await asyncio.gather(*(self._send(post) for post in found))

    async def _send(self, post: AnyPost) -> None:
        try:
            await self._deliver(_outgoing(post))
        except BaseException:
            if isinstance(post, Posted):
                self._under_way.discard(post.sequence)
            raise
        if isinstance(post, Posted):
            self._sent.put_nowait(post.sequence)

    async def _deliver(self, outgoing: Outgoing) -> None:
        try:
            # What leads nowhere must not hold up the rest.
            refusal = await self._publishing.add(self._publication(outgoing))
        except Refusal as lost:
            refusal = lost
        if refusal is None:
            return
        if refusal.rule not in _NOWHERE:
            raise refusal
        await self.bury(outgoing, refusal.message)

    def _publication(self, outgoing: Outgoing) -> Publication:
        properties = Properties(
            content_type=CONTENT_TYPE,
            content_encoding="UTF-8",
            message_id=short(outgoing.message_id),
            correlation_id=short(outgoing.correlation_id),
            timestamp=self.clock.now(),
        )
        address = ReplyAddress.parse(outgoing.address)
        if address.kind is not AddressKind.TOPIC:
            return Publication(outgoing.body, properties, routing_key=address.name)
        return Publication(
            outgoing.body,
            properties,
            self._exchange_of(address.name),
            address.name,
            # An event without listeners is nothing lost; a reply without one is.
            mandatory=outgoing.reply,
        )

    async def _publish_all(self, publications: Sequence[Publication]) -> list[Refusal | None]:
        """A commit makes many replies ready at once: they leave together."""
        return await self._open().publish_all(publications)

    def _call_back(self, posts: Iterable[AnyPost]) -> None:
        """61968-100 cl. 4.6: complete only when the client has replied; until then it stays stored."""
        found = []
        for post in posts:
            if isinstance(post, Posted):
                if post.sequence in self._under_way:
                    continue
                self._under_way.add(post.sequence)
            found.append(post)
        task = asyncio.create_task(self._all_called_back(found))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _all_called_back(self, posts: Iterable[AnyPost]) -> None:
        """One after the other: the last reply of a series must not come first."""
        for post in posts:
            await self._called_back(post)

    async def _called_back(self, post: AnyPost) -> None:
        outgoing = _outgoing(post)
        try:
            answer, reason = await self._try_web(outgoing)
            if reason:
                await self.bury(outgoing, reason)
            if not outgoing.reply and self.returned is not None:
                await self.returned(outgoing, answer, reason)
            if isinstance(post, Posted):
                self._sent.put_nowait(post.sequence)
        except Refusal as refusal:
            # It is stored, and goes out when a broker or a process is back.
            self._take_over = True
            log.warning("a callback waits", address=outgoing.address, reason=refusal.message)
            if isinstance(post, Posted):
                self._under_way.discard(post.sequence)

    async def _try_web(self, outgoing: Outgoing) -> tuple[bytes | None, str]:
        """What was said, and why it was not taken, after every attempt; empty: it was."""
        if self._web is None:
            return None, "no web services are called by this bus"
        for pause in (0.0, *self.settings.retries):
            await asyncio.sleep(pause)
            try:
                answer = await self._web(outgoing.address, outgoing.body)
                if outgoing.reply:
                    # A request may be answered by FAILED; a reply is taken, or it is not.
                    accepted(answer, outgoing.address)
                return answer, ""
            except Refusal as refusal:
                reason = refusal.message
                log.info("a callback failed", address=outgoing.address, reason=reason)
                if not refusal.retryable:
                    return None, reason
        return None, reason

    async def put(self, body: bytes, properties: Properties, queue: str) -> None:
        """To a queue by its name; a large body is left with the claims, where there are any."""
        if self.claims is not None and len(body) > self.claims.above:
            claim = await self.claims.keep(body)
            properties = replace(properties, headers={CLAIM: claim})
            body = b""
        await self._open().publish(body, properties, routing_key=queue)

    async def put_request(self, body: bytes, message: RequestMessage, context: str) -> None:
        """To the queue of its verb and noun, for whoever serves it; nobody there is a Refusal."""
        header = message.header
        sla = self.settings.sla(header.verb, header.noun)
        properties = Properties(
            content_type=CONTENT_TYPE,
            content_encoding="UTF-8",
            message_id=short(header.message_id),
            correlation_id=short(header.correlation_id),
            timestamp=self.clock.now(),
            expiration=sla.within,
        )
        await self.put(body, properties, self.queue_of(message, context))

    def queue_of(self, message: RequestMessage, context: str) -> str:
        header = message.header
        return self.settings.names.destination(context, header.verb, header.noun)

    def _open(self) -> Channel:
        if self.channel is None:
            raise Refusal(Rule.AMQP091_UNREACHABLE, "the bus has no broker")
        return self.channel

    def _exchange_of(self, topic: str) -> str:
        for context in self.settings.contexts:
            if topic == context or topic.startswith(f"{context}."):
                return self.settings.names.exchange(context)
        raise Refusal(Rule.ENVELOPE_CONTEXT, f"the topic '{topic}' is in no context of this bus")

    async def bury(self, outgoing: Outgoing, reason: str) -> None:
        """A reply to nobody: kept with the dead letters, never lost and never tried for ever."""
        log.warning("nobody takes an envelope", address=outgoing.address, reason=reason)
        channel = self._open()
        dead = self.settings.names.dead_letters(sorted(self.settings.contexts)[0])
        properties = Properties(
            headers={"x-undeliverable-to": outgoing.address},
            content_type=CONTENT_TYPE,
            message_id=short(outgoing.message_id),
            correlation_id=short(outgoing.correlation_id),
        )
        await channel.publish(outgoing.body, properties, exchange=dead, mandatory=False)

    # -- the outbox

    async def note_sent(self) -> None:
        while True:
            sequences = [await self._sent.get()]
            while not self._sent.empty() and len(sequences) < _BATCH:
                sequences.append(self._sent.get_nowait())
            try:
                await self.ledger.sent(sequences)
            except Refusal as refusal:
                # They are still unsent in the store, and go out once more.
                log.warning("the outbox could not be noted", reason=refusal.message)
            # Only now: until it is noted, it looks as if it had not been sent.
            self._under_way.difference_update(sequences)

    async def empty_outbox(self) -> None:
        """What another process, or this one before it was stopped, has not sent."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                # Calls of web services take long: they are another process's until it is gone.
                every, self._take_over = self._take_over, False
                waiting = [
                    post
                    for post in self._left_alone(await self.ledger.unsent(_BATCH), every)
                    if every or not post.outgoing.address.startswith("http")
                ]
                await self.publish([p for p in waiting if p.outgoing.address.startswith("http")])
                for post in waiting:
                    if not post.outgoing.address.startswith("http"):
                        await self.publish([post])
            except Refusal as refusal:
                log.warning("the outbox waits", reason=refusal.message)
                await asyncio.sleep(_RETRY_SECONDS)

    def _left_alone(self, unsent: Sequence[Posted], every: bool) -> list[Posted]:
        """What was stored a moment ago is about to be sent by whoever stored it."""
        now, known = time.monotonic(), self._seen
        self._seen = {post.sequence: known.get(post.sequence, now) for post in unsent}
        old = now - self.settings.heartbeat.total_seconds() / 2
        return [
            post
            for post in unsent
            if post.sequence not in self._under_way and (every or self._seen[post.sequence] <= old)
        ]


def _outgoing(post: AnyPost) -> Outgoing:
    return post.outgoing if isinstance(post, Posted) else post
