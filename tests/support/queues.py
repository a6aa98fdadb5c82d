"""Messages for queues, and a way to wait for a store."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from gridpost.core.delivery import Side
from gridpost.core.journal import TransferRow
from gridpost.core.queues import Operation, Put, Queued, QueueStore
from gridpost.core.refusal import Refusal

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class SetClock:
    """A clock that tests move."""

    def __init__(self, now: datetime = NOW) -> None:
        self.at = now

    def now(self) -> datetime:
        return self.at


def row(message_id: str = "", outcome: str = "accepted") -> TransferRow:
    return TransferRow(NOW, Side.RECEIVED, message_id, "E1", "E2", "A01", "E1", 3, outcome)


def queued(
    content: bytes = b"abc",
    message_id: str | None = None,
    expires: timedelta = timedelta(hours=1),
) -> Queued:
    return Queued(
        0,
        message_id or str(uuid4()),
        "E1",
        "A01",
        NOW,
        NOW + expires,
        len(content),
        content=content,
    )


def put(queue: str = "E2", message: Queued | None = None) -> Put:
    message = message or queued()
    return Put(queue, message, row(message.message_id))


async def commit(store: QueueStore, *operations: Operation) -> None:
    """Until the operations are safe; raises what the store refused."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def report(refusal: Refusal | None) -> None:
        if refusal is None:
            done.set_result(None)
        else:
            done.set_exception(refusal)

    store.submit(operations, report)
    await done
