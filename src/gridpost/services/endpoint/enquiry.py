"""What became of a message: its status for applications, its trace for operators (503 cl. 5.6.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gridpost.core.delivery import Side, Status, TraceEntry
from gridpost.core.holds import Links
from gridpost.core.message_box import BoxEntry, Found, Search
from gridpost.core.ports import UnitOfWork
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.context import EndpointContext

_PAGES = 5


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

    async def links(self, *entries: BoxEntry) -> Mapping[str, Links]:
        """How sent messages belong to others that were sent again."""
        ids = [entry.message_id for entry in entries if entry.delivery.side is Side.SENT]
        if not ids:
            return {}
        return await self._context.store.read(lambda work: work.controls.links(ids))

    async def search(
        self,
        search: Search,
        limit: int,
        before: int | None,
        visible: Callable[[BoxEntry], bool] = lambda entry: True,
    ) -> tuple[list[BoxEntry], int | None]:
        """Newest first, and where the next page begins; None when there is nothing older.

        Looks through a few pages of the box at most: the answer may be short or empty and the next
        one not.
        """
        found: list[BoxEntry] = []
        for _ in range(_PAGES):

            def page(work: UnitOfWork, before: int | None = before) -> Found:
                return work.box.search(search, limit, before)

            seen = await self._context.store.read(page)
            for entry in seen.entries:
                if visible(entry):
                    found.append(entry)
                    if len(found) == limit:
                        return found, entry.number
            before = seen.more
            if before is None:
                break
        return found, before
