"""What a broker needs of the place that keeps its queues: values, operations and the store's port.

The law of every store behind this port: an operation is reported only when it is safe; a message is
in its queue at most once, however often its id arrives before it expires; what was not reported may
have happened or not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol, TypeAlias, TypeVar

from gridpost.core.delivery import Side
from gridpost.core.journal import Identity, JournalRow, TransferRow
from gridpost.core.ports import Journal
from gridpost.core.refusal import Refusal

T = TypeVar("T")
Octets: TypeAlias = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Where stores differ; everything else is the same for all of them."""

    transactions: bool = True
    """Several operations can be committed all or none (AMQP part 4)."""
    stops_duplicates: bool = True
    """False: a repeated id may pass; the recipient stops it (503 cl. 5.8.3)."""
    drops_expired: bool = True
    """False: expired messages stay until they are read, and the broker drops them then."""
    removes_queues: bool = True
    """False: only an administrator removes queues."""
    shared: bool = False
    """True: several brokers serve the same queues; see `SharedQueueStore`."""
    measures_queues: bool = True
    """False: of messages that wait only their number is known, not their octets and age."""


@dataclass(slots=True)
class Queued:
    """One message of a queue. `number` grows in the order of arrival and is never given twice."""

    number: int
    message_id: str
    sender: str
    message_type: str
    stored_at: datetime
    expires_at: datetime
    size: int
    """Of the bare message."""
    priority: int | None = None
    deliveries: int = 0
    """AMQP 3.2.1: attempts to deliver that failed."""
    content: Octets | None = None
    """Everything behind the header, as it came; None: ask the store for it (`load`)."""
    failures: int = 0
    """How often its consumer gave it back as failed since it was read; kept in memory only."""
    correlation_id: str = ""
    """503 Table 6: the message that an acknowledgement speaks of; kept in memory only."""


# ---------------------------------------------------------------- operations
# Made for every message, so they are plain and mutable: the store fills in what came of them.


@dataclass(slots=True)
class Put:
    """Add a message to a queue; the queue comes into being with its first message."""

    queue: str
    message: Queued
    row: TransferRow
    """Written with the outcome `duplicate` when the id is or was in this queue."""
    duplicate: bool = False
    followed: bool = False
    """Its producer sends on without waiting: a store may let it wait a moment for company."""

    def written(self) -> TransferRow:
        return replace(self.row, outcome="duplicate") if self.duplicate else self.row


@dataclass(slots=True)
class Remove:
    """A consumer has the message, or it expired: it leaves its queue."""

    queue: str
    message: Queued
    row: JournalRow
    awaited: bool = True
    """False: nobody waits to hear of it, and a store may let it wait a moment for company."""


@dataclass(slots=True)
class CountFailure:
    """A delivery failed: the message stays, and its next delivery says so."""

    queue: str
    message: Queued
    row: JournalRow | None
    """None: one of many, which nobody needs to read of."""


@dataclass(slots=True)
class Hold:
    """A consumer refused the message: kept for the operator, not delivered, until it expires."""

    queue: str
    message: Queued
    reason: str
    row: JournalRow


@dataclass(slots=True)
class Record:
    """Write something down and nothing else."""

    row: JournalRow


Operation: TypeAlias = Put | Remove | CountFailure | Hold | Record
Done: TypeAlias = Callable[[Refusal | None], None]
"""Called in the event loop: None when all operations are safe, otherwise none of them happened."""


def expired_row(queue: str, message: Queued, at: datetime) -> TransferRow:
    """503 cl. 5.7 and 10: what every store writes down of a message that expired in its queue."""
    return TransferRow(
        at,
        Side.SENT,
        message.message_id,
        message.sender,
        queue,
        message.message_type,
        queue,
        message.size,
        "expired",
    )


def within(messages: Iterable[Queued], max_octets: int) -> list[Queued]:
    """The first ones that have no more octets together; one in any case."""
    fitting: list[Queued] = []
    octets = 0
    for message in messages:
        octets += message.size
        if octets > max_octets and fitting:
            break
        fitting.append(message)
    return fitting


# ---------------------------------------------------------------- what can be asked


@dataclass(frozen=True, slots=True)
class QueueState:
    """A queue as the store sees it."""

    code: str
    depth: int
    octets: int
    held: int
    last_number: int
    oldest_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Dropped:
    """Messages that expired in a queue and left it."""

    queue: str
    sizes: Mapping[int, int]
    """By number; in octets."""
    held: int = 0
    """How many more were on hold, which a broker does not count among the messages of a queue."""

    @property
    def numbers(self) -> frozenset[int]:
        return frozenset(self.sizes)


@dataclass(frozen=True, slots=True)
class Released:
    """Messages that came off hold."""

    messages: int = 0
    octets: int = 0
    """0 where the store does not measure queues."""


@dataclass(frozen=True, slots=True)
class Space:
    """How much room there is. `refusing`: too little for new messages, enough to go on delivering."""

    free: int
    used: int
    refusing: bool
    reason: str = ""


class QueueStore(Protocol):
    """Durable queues of one broker."""

    @property
    def identity(self) -> Identity: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def space(self) -> Space:
        """As last looked at; never blocks."""
        ...

    @property
    def trouble(self) -> Refusal | None:
        """Why nothing can be stored or read at the moment; None when it can."""
        ...

    def set_marks(self, *, min_free: int, max_used: int) -> None:
        """In octets: from where on new messages are refused; 0: no such mark."""
        ...

    def submit(self, operations: Sequence[Operation], done: Done) -> None:
        """Commit all or none. Submissions take effect in their order, many to a flush.

        Refuses with STORE_FULL a submission that puts something while `space.refusing`.
        """
        ...

    def handed_out(self, queue: str, number: int) -> None:
        """Messages up to this one were given to consumers; soon durable, and told to nobody.

        Those of them that are still here after a crash may have been delivered: each counts one
        failed delivery more when the store is opened again.
        """
        ...

    async def queues(self) -> Sequence[QueueState]:
        """All queues that exist, with what is in them."""
        ...

    async def create(self, queue: str) -> None:
        """Does nothing when it exists."""
        ...

    async def remove(self, queue: str) -> bool:
        """Remove an empty queue; False: something is in it, or it does not exist."""
        ...

    async def read(self, queue: str, after: int, limit: int, max_octets: int) -> Sequence[Queued]:
        """Messages in order from behind `after`, without those on hold.

        Contents come along until `max_octets` are reached; the rest are left out of the answer,
        and a large content has to be loaded by itself.
        """
        ...

    async def load(self, queue: str, number: int) -> Octets | None:
        """The content of one message; None when it is no longer there."""
        ...

    async def release(self, queue: str) -> Released:
        """Take all messages of a queue off hold."""
        ...

    async def drop_expired(self, now: datetime, limit: int) -> Sequence[Dropped]:
        """Remove at most `limit` expired messages, each with a row in the journal."""
        ...

    async def forget(self, now: datetime) -> int:
        """Forget a portion of the ids whose time has passed; how many were forgotten."""
        ...

    async def journal(self, work: Callable[[Journal], T]) -> T:
        """Run `work` on the journal in a transaction of its own."""
        ...

    async def prune(self, now: datetime, retention: timedelta) -> int:
        """Remove a portion of the rows whose time has passed, wherever the store writes them."""
        ...

    async def probe(self) -> timedelta:
        """Write something for good; how long that took. Refuses when the disk does not keep it."""
        ...

    async def close(self) -> None:
        """Finish what was submitted, then let go of everything."""
        ...


class SharedQueueStore(QueueStore, Protocol):
    """Queues that several brokers, the edges, serve together under one code.

    What an edge has read or was handed is its own until it removes it or lets go of the queue; of
    an edge that dies, everything goes to the others. Numbers are those of one edge: they grow in
    the order in which messages came to it. When the store is out of reach everything that was not
    reported stays unreported, and `lost` is told once: what was handed out is void.
    """

    def serve(
        self, lost: Callable[[Refusal], None], lock_out: Callable[[str], None]
    ) -> Awaitable[None]:
        """Begin to work, if need be before the store can be reached.

        `lock_out`: another edge removes this queue; end the links that lead to it and `leave`.
        """
        ...

    def subscribe(self, queue: str, credit: int, deliver: Callable[[Queued], None]) -> None:
        """Hand over messages in order as they come, at most `credit` that are not removed.

        Called again it changes the credit.
        """
        ...

    def unsubscribe(self, queue: str) -> None:
        """Everything of the queue that is not removed goes back to its place, for whoever is next.

        What is submitted already is finished before.
        """
        ...

    async def waiting(self, queue: str) -> int:
        """How many messages no edge has; those on their way to us were handed over before."""
        ...

    async def remove_idle(self, queue: str) -> bool:
        """As `remove`, but where a link of another edge leads to the queue it stays."""
        ...

    async def leave(self, queue: str) -> None:
        """No link of this edge leads to the queue any more: others may remove it.

        The opposite of `create`, which refuses with QUEUE_IN_USE while somebody removes the queue.
        """
        ...
