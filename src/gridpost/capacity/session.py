"""One session at the broker: Login first, requests matched by correlation-id, broadcasts passed on.

The law of this file: whoever waits for a response hears of it, of its return, of the loss of the
connection or of the end of its patience; nobody waits for ever, and nothing is sent twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import uuid4

import structlog

from gridpost.capacity.settings import ClientSettings
from gridpost.core.amqp091 import Channel, Incoming, Properties, RabbitConnection
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.cmm import (
    CONTENT_TYPE,
    AllocationReq,
    ErrorResp,
    Login,
    LoginResp,
    decode,
    encode,
    pack,
    unpack,
)
from gridpost.wire.cmm.messages import Message, Request
from gridpost.wire.cmm.names import INQUIRY_KEY, MANAGEMENT_KEY

log = structlog.get_logger(__name__)

_MAX_BYTES = 64 * 1024 * 1024
_FIRST_RETRY, _LONGEST_RETRY = 0.02, 0.5


def new_correlation_id() -> str:
    return uuid4().hex


class Session:
    """From a connection that was just opened until it is lost."""

    def __init__(
        self,
        settings: ClientSettings,
        publishing: RabbitConnection,
        consuming: RabbitConnection,
        take: Callable[[Incoming], None],
        cancelled: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._publishing = publishing
        self._consuming = consuming
        self._take = take
        self._cancelled = cancelled
        self._waiting: dict[str, asyncio.Future[Message]] = {}
        self._publisher: Channel | None = None
        self._broadcasts: tuple[Channel, str] | None = None

    async def open(self) -> None:
        """CMM 5.2.1: Login is the first request; its response says that both queues are there."""
        settings = self._settings
        self._publisher = await self._publishing.channel()
        name = new_correlation_id()
        answered = self._expect(name)
        try:
            async with asyncio.timeout(settings.login_timeout.total_seconds()):
                await self._publish(Login(settings.arguments or None), name)
                await self._consume_when_there(settings.names.response_queue(settings.user))
                response = await answered
        except TimeoutError:
            raise Refusal(
                Rule.UNREACHABLE, "the capacity service did not answer the Login in time"
            ) from None
        finally:
            self._waiting.pop(name, None)
        if isinstance(response, ErrorResp):
            raise Refusal(Rule.REQUEST_REFUSED, f"Login was refused: {response.message}")
        if not isinstance(response, LoginResp) or not response.success:
            reason = response.message if isinstance(response, LoginResp) else "no LoginResp"
            raise Refusal(Rule.REQUEST_REFUSED, f"Login was refused: {reason}")
        await self.subscribe()

    async def subscribe(self) -> None:
        settings = self._settings
        channel = await self._consuming.channel(confirms=False)
        tag = await channel.consume(
            settings.names.broadcast_queue(settings.user),
            self._take,
            no_ack=True,
            cancelled=self._cancelled,
        )
        self._broadcasts = (channel, tag)

    async def unsubscribe(self) -> None:
        """CMM 3.1.2: the broker deletes the queue by itself, after a while."""
        if self._broadcasts is not None:
            channel, tag = self._broadcasts
            self._broadcasts = None
            await channel.cancel(tag)

    async def ask(self, request: Request, correlation_id: str) -> Message:
        answered = self._expect(correlation_id)
        try:
            async with asyncio.timeout(self._settings.response_timeout.total_seconds()):
                await self._publish(request, correlation_id)
                return await answered
        except TimeoutError:
            raise Refusal(
                Rule.OUTCOME_UNKNOWN,
                "no response came in time: the request may have been executed or not",
                f"correlation-id {correlation_id}",
            ) from None
        finally:
            self._waiting.pop(correlation_id, None)

    def lost(self, refusal: Refusal) -> None:
        """CMM 3.2.4: everybody who waits is told at once."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(
                    Refusal(
                        Rule.OUTCOME_UNKNOWN,
                        "the connection was lost before the response came: "
                        "the request may have been executed or not",
                        refusal.message,
                    )
                )

    def _expect(self, correlation_id: str) -> asyncio.Future[Message]:
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        # Whoever waited may be gone when an error comes.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._waiting[correlation_id] = future
        return future

    async def _publish(self, request: Request, correlation_id: str) -> None:
        settings = self._settings
        body, encoding = pack(encode(request), zipped=settings.zipped)
        # What the schema does not allow is refused here, and nothing is sent.
        decode(body if encoding is None else unpack(body, encoding, _MAX_BYTES))
        management = isinstance(request, AllocationReq)
        properties = Properties(
            content_type=CONTENT_TYPE,
            content_encoding=encoding,
            persistent=False,
            correlation_id=correlation_id,
            reply_to=settings.names.response_queue(settings.user),
            expiration=settings.expiration,
        )
        if self._publisher is None:
            raise Refusal(Rule.UNREACHABLE, "there is no session")
        try:
            await self._publisher.publish(
                body,
                properties,
                exchange=settings.names.request(settings.user),
                routing_key=MANAGEMENT_KEY if management else INQUIRY_KEY,
                mandatory=True,
            )
        except Refusal as refusal:
            if refusal.rule is Rule.AMQP091_UNROUTED:
                raise Refusal(
                    Rule.REQUEST_RETURNED,
                    "the capacity service is not listening: the broker returned the request",
                ) from None
            raise

    async def _consume_when_there(self, queue: str) -> None:
        """CMM 3.2.1: the service makes the queue while it handles the Login."""
        wait = _FIRST_RETRY
        while True:
            channel = await self._consuming.channel(confirms=False)
            try:
                await channel.consume(queue, self._answered, no_ack=True, cancelled=self._cancelled)
                return
            except Refusal as refusal:
                if refusal.rule is not Rule.AMQP091_NOT_FOUND:
                    raise
            await asyncio.sleep(wait)
            wait = min(wait * 2, _LONGEST_RETRY)

    def _answered(self, incoming: Incoming) -> None:
        correlation_id = incoming.properties.correlation_id or ""
        future = self._waiting.get(correlation_id)
        if future is None or future.done():
            log.info("a response that nobody waits for", correlation=correlation_id)
            return
        content_type = incoming.properties.content_type
        if content_type != CONTENT_TYPE:
            future.set_exception(
                Refusal(
                    Rule.SCHEMA_INVALID,
                    f"the response has the schema version '{content_type}', "
                    f"this client knows {CONTENT_TYPE}",
                )
            )
            return
        try:
            body = unpack(incoming.body, incoming.properties.content_encoding, _MAX_BYTES)
            future.set_result(decode(body))
        except Refusal as refusal:
            future.set_exception(refusal)
