"""Transfers to the home nodes of recipients (MADES 1.1 cl. 3.8): one upload at a time to each node.

What waits while an upload is under way goes together in the next one. Of one business-type to one
recipient the dispatcher has one message under way (cl. 3.13), because a node may refuse the first of
two in one upload and keep the second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import structlog

from gridpost.core.certificate import Certificate
from gridpost.core.delivery import Side
from gridpost.core.message import Metadata, SealedMessage
from gridpost.core.message_box import Outgoing
from gridpost.core.node import NodeComponent
from gridpost.core.ports import UnitOfWork
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.directory_client.node_session import NodeSession, Refused
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.old_network.settings import OldSettings
from gridpost.services.endpoint.tracking import acknowledgement_row, is_signed, message_row
from gridpost.services.endpoint.transfer import Attempt
from gridpost.wire.seal.closing import seal_message
from gridpost.wire.seal.signing import sign

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Item:
    outgoing: Outgoing
    sealed: SealedMessage
    done: asyncio.Future[Refused | Refusal | None] = field(compare=False)

    @property
    def order(self) -> tuple[int, int]:
        return -self.outgoing.priority, self.outgoing.number


class _NodeQueue:
    def __init__(self) -> None:
        self.items: list[_Item] = []
        self.task: asyncio.Task[None] | None = None
        self.problem = ""


@dataclass(frozen=True, slots=True)
class NodeView:
    node: str
    waiting: int
    problem: str


class Recipients(Protocol):
    """Acceptance by the sender's endpoint (Table 3), done anew for each transfer."""

    async def recipient(self, code: str) -> NodeComponent: ...

    async def check(self, code: str, business_type: str) -> tuple[NodeComponent, Certificate]: ...


class Uploading:
    def __init__(
        self,
        context: EndpointContext,
        settings: Callable[[], OldSettings],
        session: Callable[[NodeComponent], NodeSession],
        recipients: Recipients,
    ) -> None:
        self._context = context
        self._settings = settings
        self._session = session
        self._recipients = recipients
        self._queues: dict[str, _NodeQueue] = {}
        self.unsigned: dict[tuple[Side, str], str] = {}
        """Why the signing device could not be used, as last heard: for a message that was sent, or for
        the acknowledgement of one that was received."""

    def views(self) -> list[NodeView]:
        return [NodeView(n, len(q.items), q.problem) for n, q in self._queues.items()]

    def not_signed(self, side: Side, message_id: str, refusal: Refusal) -> None:
        if len(self.unsigned) >= _MOST_UNSIGNED:
            del self.unsigned[next(iter(self.unsigned))]
        self.unsigned[side, message_id] = refusal.message

    async def attempt(self, outgoing: Outgoing) -> Attempt:
        """services.endpoint.transfer.SecondCourier."""
        accepted, where, awaited = False, "", _awaits_signature(outgoing.message.metadata)
        try:
            component, certificate = await self._route(outgoing)
            outgoing = await self._signed(outgoing)
            accepted, where = True, component.routing.node
            sealed = await self._seal(outgoing, certificate)
            outcome = await self._put(component, outgoing, sealed)
        except Refusal as refusal:
            return self._failed(outgoing, refusal, accepted)
        if outcome is None:
            if awaited and outgoing.message.metadata.internal_type.is_acknowledgement:
                await self._journal(outgoing)
            return Attempt(
                outgoing, self._context.clock.now(), len(sealed.body), accepted=True, where=where
            )
        if isinstance(outcome, Refusal):
            return self._failed(outgoing, outcome, accepted)
        told = Refusal(
            Rule.REFUSED_BY_DIRECTORY,
            f"node {where} refuses it: {outcome.code}: {outcome.message} ({outcome.error_id})",
        )
        # Table 73: `fatal` tells whether another attempt could ever succeed.
        return Attempt(
            outgoing, self._context.clock.now(), 0, told, accepted=True, fatal=outcome.fatal
        )

    def _failed(self, outgoing: Outgoing, refusal: Refusal, accepted: bool) -> Attempt:
        fatal = refusal.rule in _FINAL
        now = self._context.clock.now()
        return Attempt(outgoing, now, 0, refusal, accepted=accepted and not fatal, fatal=fatal)

    async def _route(self, outgoing: Outgoing) -> tuple[NodeComponent, Certificate | None]:
        metadata = outgoing.message.metadata
        if not metadata.internal_type.may_be_encrypted:
            return await self._recipients.recipient(metadata.receiver_code), None
        return await self._recipients.check(metadata.receiver_code, metadata.message_type)

    async def _signed(self, outgoing: Outgoing) -> Outgoing:
        """Cl. 3.10.3: what was accepted while the signing device was away is signed now, once."""
        context, message = self._context, outgoing.message
        metadata = message.metadata
        if not _awaits_signature(metadata):
            return outgoing
        now = context.clock.now()
        profile = context.settings.profile(metadata.receiver_code)
        concerned = _concerned(metadata)
        try:
            signed = await sign(message, context.signer(now), profile)
        except Refusal as refusal:
            if refusal.rule is Rule.KEY_TOKEN:
                self.not_signed(*concerned, refusal)
            raise
        self.unsigned.pop(concerned, None)
        journalled = context.settings.journals_content(metadata.message_type)

        def store(work: UnitOfWork) -> None:
            entry = work.box.find(Side.SENT, metadata.message_id)
            if entry is None:
                return
            work.box.sign(signed.metadata)
            content = signed.content if journalled else None
            row = message_row(
                replace(entry, metadata=signed.metadata), now, encryption_certificate_id="",
                content=content,
            )  # fmt: skip
            work.journal.append(row)

        await context.store.run(store)
        return replace(outgoing, message=signed)

    async def _journal(self, outgoing: Outgoing) -> None:
        """An acknowledgement that had to wait; what was not written down yet is sent again."""
        now = self._context.clock.now()
        row = acknowledgement_row(Side.SENT, outgoing.message, outgoing.route, now)
        await self._context.store.run(lambda work: work.journal.append(row))

    async def _seal(self, outgoing: Outgoing, certificate: Certificate | None) -> SealedMessage:
        message, now = outgoing.message, self._context.clock.now()
        metadata = message.metadata
        if not metadata.sender_description and not metadata.internal_type.must_be_signed:
            # Table 61 wants it always; nothing is signed that it could disagree with.
            described = replace(metadata, sender_description=self._settings().organization)
            message = replace(message, metadata=described)
        profile = self._context.settings.profile(metadata.receiver_code)
        return await seal_message(message, None, certificate, profile, at=now)

    # ------------------------------------------------------------ uploads

    def _put(
        self, component: NodeComponent, outgoing: Outgoing, sealed: SealedMessage
    ) -> asyncio.Future[Refused | Refusal | None]:
        node = component.routing.node
        queue = self._queues.setdefault(node, _NodeQueue())
        done: asyncio.Future[Refused | Refusal | None] = asyncio.get_running_loop().create_future()
        queue.items.append(_Item(outgoing, sealed, done))
        if queue.task is None:
            session = self._session(component)
            queue.task = asyncio.create_task(self._drain(queue, session), name=f"uploads to {node}")
        return done

    async def _drain(self, queue: _NodeQueue, session: NodeSession) -> None:
        try:
            # What was made due together goes together.
            await asyncio.sleep(0)
            while batch := self._batch(queue):
                await self._upload(batch, queue, session)
        finally:
            queue.task = None
            for item in queue.items:
                item.done.cancel()
            queue.items.clear()

    def _batch(self, queue: _NodeQueue) -> list[_Item]:
        """The next ones in order, within the limits of one transfer."""
        settings = self._settings()
        queue.items = [item for item in queue.items if not item.done.done()]
        batch: list[_Item] = []
        size = 0
        for item in sorted(queue.items, key=lambda item: item.order):
            size += len(item.sealed.body)
            if batch and (len(batch) >= settings.max_messages or size > settings.max_bytes):
                break
            batch.append(item)
        taken = set(map(id, batch))
        queue.items = [i for i in queue.items if id(i) not in taken and not i.done.done()]
        return batch

    async def _upload(self, batch: list[_Item], queue: _NodeQueue, session: NodeSession) -> None:
        messages = [(item.sealed.metadata, bytes(item.sealed.body)) for item in batch]
        try:
            answer = await session.upload(messages)
        except Refusal as refusal:
            queue.problem = refusal.message
            for item in batch:
                self._tell(item, refusal)
            return
        except asyncio.CancelledError:
            for item in batch:
                item.done.cancel()
            raise
        except Exception as error:
            # Our own bug: each transfer of the batch ends with it, the queue goes on.
            for item in batch:
                if not item.done.done():
                    item.done.set_exception(error)
            return
        queue.problem = ""
        refused = {item.message_id: item for item in answer.refused}
        for item in batch:
            message_id = item.sealed.metadata.message_id
            if message_id in answer.uploaded:
                self._tell(item, None)
            elif message_id in refused:
                self._tell(item, refused[message_id])
            else:
                self._tell(item, Refusal(Rule.UNREACHABLE, "the node did not mention this message"))

    def _tell(self, item: _Item, outcome: Refused | Refusal | None) -> None:
        if not item.done.done():
            item.done.set_result(outcome)


def _awaits_signature(metadata: Metadata) -> bool:
    return metadata.internal_type.must_be_signed and not is_signed(metadata)


def _concerned(metadata: Metadata) -> tuple[Side, str]:
    """Whose explanation names what this waits for."""
    if metadata.internal_type.is_acknowledgement:
        return Side.RECEIVED, metadata.related_message_id
    return Side.SENT, metadata.message_id


_MOST_UNSIGNED = 10_000
"""Reasons kept for explanations; what waits itself is in the store."""

_FINAL = frozenset(
    {
        Rule.RECIPIENT_UNKNOWN,
        Rule.RECIPIENT_NOT_ENDPOINT,
        Rule.VERSIONS_TOO_FAR_APART,
        Rule.RECIPIENT_NODE_VERSION,
        Rule.SENDER_NODE_VERSION,
        Rule.BUSINESS_TYPE_VERSION,
    }
)
"""Table 3 row sender, and Table 13: the message is rejected, not tried again."""
