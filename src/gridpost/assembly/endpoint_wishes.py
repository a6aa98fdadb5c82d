"""Cancelling a message that another process of the endpoint is to transfer: asked for and answered.

Exactly one wins: the owner's own begin of the transfer, or the commit in which it answers the wish.
"""

from __future__ import annotations

import asyncio

import structlog

from gridpost.core.ports import UnitOfWork
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.operating import Operating
from gridpost.stores.postgres.controls import PostgresControls
from gridpost.stores.postgres.endpoint import PostgresEndpointStore
from gridpost.stores.postgres.wishes import CancelWishes, Wish

log = structlog.get_logger(__name__)

PATIENCE = 10.0
"""Seconds until a wish is withdrawn: a process that is gone is buried sooner."""
_LOOK = 0.05


class Wishes:
    def __init__(self, store: PostgresEndpointStore, operating: Operating) -> None:
        self._store = store
        self._operating = operating
        self.patience = PATIENCE

    async def ask(self, message_id: str, by: str, reason: str) -> None:
        """Returns when the owner has cancelled it; refuses with what the owner says otherwise."""
        number = await self._store.run(
            lambda unit: unit.controls.wishes.ask(message_id, by, reason)
        )
        end = asyncio.get_running_loop().time() + self.patience
        while await self._store.read(lambda unit: unit.controls.wishes.waits(number)):
            if asyncio.get_running_loop().time() >= end:
                break
            await asyncio.sleep(_LOOK)
            # It may be ours by now.
            await self.answer()
        answer = await self._store.run(lambda unit: unit.controls.wishes.end(number))
        if answer is None:
            raise Refusal(
                Rule.UNDER_WAY,
                f"another process of this endpoint transfers message {message_id}, and says nothing",
                "try again: when that process is gone, another takes over what it had",
            )
        if answer:
            rule, _, message = answer.partition(" ")
            raise Refusal(Rule[rule], message)

    async def answer(self) -> None:
        """Whatever others wish of this process."""
        for wish in await self._store.read(lambda unit: unit.controls.wishes.ours()):
            try:
                await self._fulfil(wish)
            except Refusal as refusal:
                await self._refuse(wish.number, refusal)

    async def _refuse(self, number: int, refusal: Refusal) -> None:
        text = f"{refusal.rule.name} {refusal.message}"
        await self._store.run(lambda unit: unit.controls.wishes.answer(number, text))

    async def _fulfil(self, wish: Wish) -> None:
        def also(work: UnitOfWork) -> None:
            if not _wishes(work).answer(wish.number, ""):
                raise _Withdrawn

        try:
            await self._operating.cancel_here(wish.message_id, wish.by, wish.reason, also)
        except _Withdrawn:
            log.info("a wish to cancel was withdrawn", message_id=wish.message_id)


class _Withdrawn(Exception):
    """Nothing is done: whoever wished it has been told so."""


def _wishes(work: UnitOfWork) -> CancelWishes:
    assert isinstance(work.controls, PostgresControls)
    return work.controls.wishes
