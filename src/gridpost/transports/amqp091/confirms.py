"""What RabbitMQ says of messages that were published in one write: one future for all of them.

The library would make one for each, and keep books of each in three places.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from gridpost.core.refusal import Refusal
from gridpost.transports.amqp091.faults import refusal_of, refusing


class _Confirm:
    """In place of the future of one publication: as much of one as the library asks for."""

    __slots__ = ("_all", "_place", "_told")

    def __init__(self, together: Confirms, place: int) -> None:
        self._all, self._place, self._told = together, place, False

    def done(self) -> bool:
        return self._told

    def cancelled(self) -> bool:
        return False

    def set_result(self, _: Any) -> None:
        self._told = True
        self._all.tell(self._place, None)

    def set_exception(self, error: BaseException) -> None:
        self._told = True
        self._all.tell(self._place, error)


class Confirms:
    """Of publications with numbers that follow each other on one channel."""

    def __init__(self, under: Any, first: int, ids: Sequence[str]) -> None:
        self._under, self._first, self._ids = under, first, ids
        self._errors: dict[int, BaseException] = {}
        self._waiting = set(range(len(ids)))
        # The library ends it with an error when the channel is lost.
        self._told: asyncio.Future[None] = under.create_future()
        for place, message_id in enumerate(ids):
            under.confirmations[first + place] = _Confirm(self, place)
            under.message_id_delivery_tag[message_id] = first + place
        if not ids:
            self._told.set_result(None)

    def tell(self, place: int, error: BaseException | None) -> None:
        self._under.message_id_delivery_tag.pop(self._ids[place], None)
        self._waiting.discard(place)
        if error is not None:
            self._errors[place] = error
        if not self._waiting and not self._told.done():
            self._told.set_result(None)

    def forget(self) -> None:
        for place, message_id in enumerate(self._ids):
            self._under.confirmations.pop(self._first + place, None)
            self._under.message_id_delivery_tag.pop(message_id, None)
        self._told.cancel()

    async def told(self, names: Sequence[str]) -> list[Refusal | None]:
        """What was said against each; `names` say in a refusal what it is about."""
        lost: Refusal | None = None
        try:
            with refusing("publishing"):
                await self._told
        except Refusal as refusal:
            lost = refusal
        found: list[Refusal | None] = []
        for place, name in enumerate(names):
            error = self._errors.get(place)
            if error is not None:
                found.append(refusal_of(error, name))
            else:
                found.append(lost if place in self._waiting else None)
        return found
