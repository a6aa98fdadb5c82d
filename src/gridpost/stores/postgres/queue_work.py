"""What is done to queues in one transaction: many submissions at once, claims, and upkeep.

The law of this file: an edge writes only while its row in `edge` is there, locked against removal
until the transaction ends. So what an edge has claimed stays its own until it lets go or is dead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from gridpost.core.journal import JournalRow
from gridpost.core.queues import (
    CountFailure,
    Done,
    Hold,
    Operation,
    Put,
    Queued,
    Remove,
)
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.postgres.session import Connection
from gridpost.stores.postgres.transaction import Transaction
from gridpost.stores.values import from_microseconds, to_microseconds

_FENCE = "SELECT 1 FROM edge WHERE number = %s FOR KEY SHARE"
_LOCK_QUEUE = (
    "SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' queue ' || %s, 0))"
)
_ALIVE = "hashtextextended(current_schema() || ' edge', number)"

# Ids in one order, so that edges which get the same ones wait for each other and never crosswise.
_KNOW = """
    INSERT INTO known_message AS known (queue, message_id, expires_at)
    SELECT * FROM unnest(%s::text[], %s::text[], %s::bigint[])
    ON CONFLICT (queue, message_id) DO UPDATE SET expires_at = excluded.expires_at
    WHERE known.expires_at <= %s
    RETURNING queue, message_id
"""
_NUMBERS = "SELECT nextval('message_number') FROM generate_series(1, %s)"
_PUT = """
    INSERT INTO message (number, queue, message_id, sender, message_type, stored_at, expires_at,
                         size, priority, deliveries, content)
    SELECT * FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[],
                         %s::bigint[], %s::bigint[], %s::integer[], %s::integer[], %s::bytea[])
"""
_REMOVE = "DELETE FROM message WHERE number = ANY(%s) AND (edge IS NULL OR edge = %s)"
_COUNT_FAILURE = """
    UPDATE message SET deliveries = failed.deliveries
    FROM unnest(%s::bigint[], %s::integer[]) AS failed (number, deliveries)
    WHERE message.number = failed.number AND (edge IS NULL OR edge = %s)
"""
_HOLD = """
    UPDATE message SET held = refused.reason, edge = NULL
    FROM unnest(%s::bigint[], %s::text[]) AS refused (number, reason)
    WHERE message.number = refused.number AND (edge IS NULL OR edge = %s)
"""
_NOTIFY = "SELECT pg_notify(%s, told) FROM unnest(%s::text[]) AS told"

# Rows that others are about to claim are left to them. What does not fit is unlocked again.
_CLAIM = """
    WITH candidate AS (
        SELECT number, size FROM message
        WHERE queue = %s AND edge IS NULL AND held IS NULL
        ORDER BY number LIMIT %s FOR UPDATE SKIP LOCKED
    ), fitting AS (
        SELECT number, sum(size) OVER (ORDER BY number) - size AS before,
               count(*) OVER () AS candidates
        FROM candidate
    )
    UPDATE message SET edge = %s FROM fitting
    WHERE message.number = fitting.number AND (before < %s OR before = 0)
    RETURNING message.number, message_id, sender, message_type, stored_at, expires_at, size, priority,
              deliveries, content, candidates
"""
_GIVE_BACK = "UPDATE message SET edge = NULL WHERE edge = %s AND queue = %s"
_DEAD = f"SELECT number FROM edge WHERE number <> %s AND pg_try_advisory_xact_lock({_ALIVE})"
_FREE = """
    WITH freed AS (
        UPDATE message SET edge = NULL, deliveries = deliveries + %s WHERE edge = ANY(%s)
        RETURNING queue
    ) SELECT queue, count(*) FROM freed GROUP BY queue
"""


@dataclass(slots=True)
class Submission:
    operations: Sequence[Operation]
    done: Done


@dataclass(slots=True)
class Claim:
    """Take messages of a queue for this edge."""

    queue: str
    limit: int
    room: int
    """In octets; one message is taken whatever its size."""
    by: object = None
    """Who asked: what is claimed for somebody that has let go since is back already."""


@dataclass(slots=True)
class GiveBack:
    queue: str


Step: TypeAlias = Submission | Claim | GiveBack


@dataclass(slots=True)
class Answer:
    """What came of the steps of one transaction; it counts when the transaction is committed."""

    pid: int
    numbers: dict[int, int] = field(default_factory=dict)
    """id(put) -> its number; of those that are new."""
    joined: set[str] = field(default_factory=set)
    claimed: dict[int, tuple[list[Queued], bool]] = field(default_factory=dict)
    """id(claim) -> its messages, and whether there may be more."""
    refused: dict[int, Refusal] = field(default_factory=dict)
    """id(submission) -> why nothing of it happened."""


class Work:
    """The steps of one transaction, in their order."""

    def __init__(self, transaction: Transaction, edge: int, channel: str, now: datetime) -> None:
        self._transaction = transaction
        self._connection = transaction.connection
        self._edge = edge
        self._channel = channel
        self._now = to_microseconds(now)
        self._told: set[str] = set()
        self.answer = Answer(self._connection.info.backend_pid)
        require_edge(self._connection, edge)

    def run(self, steps: Iterable[Step], used: Collection[str]) -> Answer:
        together: list[Submission] = []
        for step in steps:
            if isinstance(step, Submission):
                together.append(step)
                continue
            self._commit(together, used)
            together = []
            if isinstance(step, Claim):
                self._claim(step)
            elif self._connection.execute(_GIVE_BACK, (self._edge, step.queue)).rowcount:
                self._told.add(step.queue)
        self._commit(together, used)
        notify(self._connection, self._channel, self._told)
        return self.answer

    def _commit(self, submissions: Sequence[Submission], used: Collection[str]) -> None:
        for queue in sorted(_queues(submissions) - set(used) - self.answer.joined):
            self._join(queue, submissions)
        operations = [
            operation
            for submission in submissions
            if id(submission) not in self.answer.refused
            for operation in submission.operations
        ]
        if not operations:
            return
        new = self._put([o for o in operations if isinstance(o, Put)])
        self._take_out(operations)
        rows = [_row(operation, new) for operation in operations]
        self._transaction.journal.append_all([row for row in rows if row is not None])

    def _join(self, queue: str, submissions: Iterable[Submission]) -> None:
        try:
            join(self._connection, queue, self._edge)
        except Refusal as refusal:
            for submission in submissions:
                if queue in _queues((submission,)):
                    self.answer.refused[id(submission)] = refusal
        else:
            self.answer.joined.add(queue)

    def _put(self, puts: Sequence[Put]) -> set[int]:
        """The ids of the objects that are new; of the same message id the first."""
        first: dict[tuple[str, str], Put] = {}
        for put in puts:
            first.setdefault((put.queue, put.message.message_id.lower()), put)
        if not first:
            return set()
        keys = sorted(first)
        known = self._connection.execute(
            _KNOW,
            (
                [queue for queue, _ in keys],
                [name for _, name in keys],
                [to_microseconds(first[key].message.expires_at) for key in keys],
                self._now,
            ),
        ).fetchall()
        added = {id(first[queue, name]) for queue, name in known}
        new = [put for put in puts if id(put) in added]
        if new:
            self._insert(new)
        return added

    def _insert(self, puts: Sequence[Put]) -> None:
        numbers = sorted(n for (n,) in self._connection.execute(_NUMBERS, (len(puts),)).fetchall())
        messages = [put.message for put in puts]
        self._connection.execute(
            _PUT,
            (
                numbers,
                [put.queue for put in puts],
                [m.message_id for m in messages],
                [m.sender for m in messages],
                [m.message_type for m in messages],
                [to_microseconds(m.stored_at) for m in messages],
                [to_microseconds(m.expires_at) for m in messages],
                [m.size for m in messages],
                [m.priority for m in messages],
                [m.deliveries for m in messages],
                [bytes(m.content or b"") for m in messages],
            ),
        )
        self.answer.numbers.update((id(p), n) for p, n in zip(puts, numbers, strict=True))
        self._told.update(put.queue for put in puts)

    def _take_out(self, operations: Iterable[Operation]) -> None:
        removed, failed, held = [], [], []
        for operation in operations:
            if isinstance(operation, Remove):
                removed.append(operation.message.number)
            elif isinstance(operation, CountFailure):
                failed.append(operation.message)
            elif isinstance(operation, Hold):
                held.append((operation.message.number, operation.reason.replace("\0", "")))
        edge = self._edge
        if removed:
            self._connection.execute(_REMOVE, (sorted(removed), edge))
        if failed:
            # The last word on each of them.
            counts = {message.number: message.deliveries for message in failed}
            self._connection.execute(_COUNT_FAILURE, (list(counts), list(counts.values()), edge))
        if held:
            reasons = dict(held)
            self._connection.execute(_HOLD, (list(reasons), list(reasons.values()), edge))

    def _claim(self, claim: Claim) -> None:
        rows = self._connection.execute(
            _CLAIM, (claim.queue, claim.limit, self._edge, claim.room), binary=True
        ).fetchall()
        found = sorted((_queued(row) for row in rows), key=lambda message: message.number)
        left_out = bool(rows) and rows[0][-1] > len(rows)
        if left_out:
            # Others that looked at this moment found the rows locked.
            self._told.add(claim.queue)
        self.answer.claimed[id(claim)] = found, left_out or len(rows) >= claim.limit


def require_edge(connection: Connection, edge: int) -> None:
    if connection.execute(_FENCE, (edge,)).fetchone() is None:
        raise Refusal(
            Rule.LEASE_LOST, "other edges took this one for dead; nothing was stored", str(edge)
        )


def notify(connection: Connection, channel: str, told: Collection[str]) -> None:
    if told:
        connection.execute(_NOTIFY, (channel, sorted(told)))


# ---------------------------------------------------------------- queues


def join(connection: Connection, queue: str, edge: int) -> None:
    """A link of this edge may lead to the queue, which comes into being if need be."""
    connection.execute(_LOCK_QUEUE, (queue,))
    connection.execute("INSERT INTO queue (code) VALUES (%s) ON CONFLICT DO NOTHING", (queue,))
    locked = connection.execute(
        "SELECT 1 FROM queue WHERE code = %s AND locked_by IS NOT NULL", (queue,)
    ).fetchone()
    if locked is not None:
        raise Refusal(Rule.QUEUE_IN_USE, f"the queue {queue} is being removed")
    connection.execute(
        "INSERT INTO queue_link (queue, edge) VALUES (%s, %s) ON CONFLICT DO NOTHING",
        (queue, edge),
    )


def leave(connection: Connection, queue: str, edge: int) -> None:
    connection.execute("DELETE FROM queue_link WHERE queue = %s AND edge = %s", (queue, edge))


def lock_out(connection: Connection, queue: str, edge: int) -> bool:
    """Nobody joins the queue until it is unlocked, or this edge is dead. False: there is none."""
    connection.execute(_LOCK_QUEUE, (queue,))
    found = connection.execute(
        "SELECT locked_by FROM queue WHERE code = %s FOR UPDATE", (queue,)
    ).fetchone()
    if found is None:
        return False
    if found[0] not in (None, edge):
        raise Refusal(Rule.QUEUE_IN_USE, f"the queue {queue} is being removed by another edge")
    connection.execute("UPDATE queue SET locked_by = %s WHERE code = %s", (edge, queue))
    return True


def unlock(connection: Connection, queue: str, edge: int) -> None:
    connection.execute(
        "UPDATE queue SET locked_by = NULL WHERE code = %s AND locked_by = %s", (queue, edge)
    )


def linked_elsewhere(connection: Connection, queue: str, edge: int) -> bool:
    found = connection.execute(
        "SELECT 1 FROM queue_link WHERE queue = %s AND edge <> %s LIMIT 1", (queue, edge)
    ).fetchone()
    return found is not None


def remove_queue(connection: Connection, queue: str, edge: int) -> bool:
    """Only if nothing is in it, not even on hold, and no link of another edge leads to it."""
    connection.execute(_LOCK_QUEUE, (queue,))
    if linked_elsewhere(connection, queue, edge):
        return False
    full = connection.execute("SELECT 1 FROM message WHERE queue = %s LIMIT 1", (queue,)).fetchone()
    if full is not None:
        return False
    leave(connection, queue, edge)
    return bool(connection.execute("DELETE FROM queue WHERE code = %s", (queue,)).rowcount)


# ---------------------------------------------------------------- dead edges


def dead_edges(connection: Connection, edge: int) -> list[int]:
    """Whose lock is free. The locks that this takes end with the transaction."""
    return [number for (number,) in connection.execute(_DEAD, (edge,)).fetchall()]


def bury(connection: Connection, channel: str, edge: int) -> dict[str, int]:
    """Free what dead edges had: each message may have been delivered. Messages by queue."""
    dead = dead_edges(connection, edge)
    return free(connection, channel, dead, failed=1) if dead else {}


def free(
    connection: Connection, channel: str, edges: Sequence[int], *, failed: int
) -> dict[str, int]:
    # Waits for what they have under way; afterwards nothing of theirs is committed any more.
    connection.execute("DELETE FROM edge WHERE number = ANY(%s)", (list(edges),))
    freed: dict[str, int] = dict(connection.execute(_FREE, (failed, list(edges))).fetchall())
    notify(connection, channel, freed.keys())
    return freed


# ---------------------------------------------------------------- rows


def _row(operation: Operation, new: Collection[int]) -> JournalRow | None:
    if isinstance(operation, Put):
        operation.duplicate = id(operation) not in new
        return operation.written()
    return operation.row


def _queues(submissions: Iterable[Submission]) -> set[str]:
    return {o.queue for s in submissions for o in s.operations if isinstance(o, Put)}


def _queued(row: Sequence[Any]) -> Queued:
    number, name, sender, type_, stored_at, expires_at, size, priority, deliveries, content, _ = row
    return Queued(
        number,
        name,
        sender,
        type_,
        from_microseconds(stored_at),
        from_microseconds(expires_at),
        size,
        priority,
        deliveries,
        content,
    )
