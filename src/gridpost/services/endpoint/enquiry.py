"""What became of a message: its status for applications, its trace for operators (503 cl. 5.6.1)."""

from __future__ import annotations

from collections.abc import Sequence

from gridpost.core.delivery import Side, Status, TraceEntry
from gridpost.core.message_box import BoxEntry
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.context import EndpointContext


class Enquiry:
    def __init__(self, context: EndpointContext) -> None:
        self._context = context

    async def status(self, message_id: str) -> Status:
        status = (await self.entry(Side.SENT, message_id)).delivery.status
        if status is None:
            raise Refusal(Rule.MESSAGE_UNKNOWN, f"no message {message_id} was sent from here")
        return status

    async def entry(self, side: Side, message_id: str) -> BoxEntry:
        found = await self._context.store.read(lambda work: work.box.find(side, message_id))
        if found is None:
            raise Refusal(Rule.MESSAGE_UNKNOWN, f"no message {message_id} was {side} here")
        return found

    async def trace(self, side: Side, message_id: str) -> Sequence[TraceEntry]:
        return await self._context.store.read(lambda work: work.box.trace(side, message_id))
