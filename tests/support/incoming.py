"""Messages as they come in, and what an endpoint answers to each."""

from __future__ import annotations

from typing import Any

from gridpost.core.refusal import Refusal
from support.post import World


class Delivery:
    def __init__(self, message: bytes) -> None:
        self.message = message
        self.context: Any = None
        self.transaction = None
        self.presettled = False
        self.outcome = ""
        self.refusal: Refusal | None = None

    def accept(self) -> None:
        self.outcome = "accepted"

    def reject(self, refusal: Refusal) -> None:
        self.outcome, self.refusal = "rejected", refusal

    def release(self) -> None:
        self.outcome = "released"

    def modify(self, *, failed: bool, undeliverable_here: bool = False) -> None:
        self.outcome = "modified"


async def messages(world: World, count: int, message_type: str = "BP1-A") -> list[bytes]:
    """What E1 would transfer to E2."""
    caught: list[bytes] = []
    world.post.bend = lambda carried: caught.append(carried.data)  # type: ignore[func-returns-value]
    for number in range(count):
        await world["E1"].send("E2", b"%d" % number, message_type)
    await world["E1"].transfer.round()
    return caught
