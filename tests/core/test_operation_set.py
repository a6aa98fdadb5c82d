"""Sets of operations: order, all or nothing, and what their replies say (61968-100 cl. 6.10)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gridpost.core.bus import ObjectState, StoredObject, Transaction
from gridpost.core.envelope import Identifier, Operation, OperationSet, Result
from gridpost.core.operation_set import done, execute, replies
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.memory.bus import MemoryTransaction
from gridpost.stores.sqlite.bus.schema import MIGRATIONS
from gridpost.stores.sqlite.bus.unit import SqliteBusUnit
from gridpost.stores.sqlite.schema import migrate

NOW = datetime(2026, 11, 16, tzinfo=UTC)


class Recording:
    """A transaction that remembers to which marks it went back."""

    def __init__(self, inner: Transaction) -> None:
        self.inner = inner
        self.backs: list[int] = []

    def mark(self) -> int:
        return self.inner.mark()

    def back(self, mark: int) -> None:
        self.backs.append(mark)
        self.inner.back(mark)


@contextmanager
def memory() -> Iterator[Transaction]:
    yield MemoryTransaction()


@contextmanager
def sql() -> Iterator[Transaction]:
    import sqlite3

    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection, MIGRATIONS)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield SqliteBusUnit(connection)
    finally:
        connection.close()


TWINS = pytest.mark.parametrize("open_transaction", [memory, sql])


def contents(transaction: Transaction) -> dict[str, str]:
    return {stored.mrid: stored.content for stored in transaction.all("Meters")}


def apply_to(transaction: Transaction, failing: frozenset[int], ran: list[int]) -> Any:
    def apply(operation: Operation) -> Sequence[Identifier]:
        number = operation.operation_id
        ran.append(number)
        mrid = f"m{number % 4}"
        before = transaction.find("Meters", Identifier(mrid))
        if operation.verb == "create":
            transaction.put(StoredObject("Meters", mrid, f"<created-{number}/>"), NOW)
        elif before is not None and operation.verb == "change":
            transaction.put(StoredObject("Meters", mrid, before.content + f"<{number}/>"), NOW)
        elif before is not None:
            deleted = StoredObject("Meters", mrid, before.content, ObjectState.DELETED)
            transaction.put(deleted, NOW)
        # Whoever fails has changed something already.
        if number in failing:
            raise Refusal(Rule.OBJECT_UNKNOWN, f"{mrid} is not there")
        return [Identifier(mrid)]

    return apply


SETS = st.lists(
    st.tuples(st.integers(0, 50), st.sampled_from(["create", "change", "delete"])),
    min_size=1,
    max_size=8,
    unique_by=lambda pair: pair[0],
)


@TWINS
@given(SETS, st.sets(st.integers(0, 50)), st.booleans(), st.booleans())
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@pytest.mark.req("100-6.10.1-g")
@pytest.mark.req("100-6.10.1-h")
@pytest.mark.req("100-6.10.1-i")
def test_a_set_is_done_in_order_and_wholly_or_not_at_all(
    open_transaction: Any,
    pairs: list[tuple[int, str]],
    failures: set[int],
    sequence: bool,
    integrity: bool,
) -> None:
    operations = tuple(Operation(number, "Meters", verb) for number, verb in pairs)
    asked = OperationSet(operations, sequence or None, integrity or None)
    failing = frozenset(failures)
    with open_transaction() as transaction:
        transaction.put(StoredObject("Meters", "m1", "<before/>"), NOW)
        before = contents(transaction)
        ran: list[int] = []
        recording = Recording(transaction)
        outcomes = execute(asked, apply_to(transaction, failing, ran), recording)
        presented = [operation.operation_id for operation in operations]
        expected = sorted(presented) if sequence else presented
        fails = [number for number in expected if number in failing]
        assert [outcome.operation_id for outcome in outcomes] == expected
        if integrity and fails:
            # Up to the first failure, then everything is as before, undone from the latest.
            assert ran == expected[: expected.index(fails[0]) + 1]
            assert contents(transaction) == before
            assert recording.backs == sorted(recording.backs, reverse=True)
            assert not done(outcomes)
            return
        assert ran == expected
        assert done(outcomes) == set(expected) - failing
    with open_transaction() as other:
        # What is left is what those that succeeded do alone.
        other.put(StoredObject("Meters", "m1", "<before/>"), NOW)
        again = apply_to(other, frozenset(), [])
        for number in expected:
            if number not in failing:
                again(next(o for o in operations if o.operation_id == number))
        left = contents(other)
    with open_transaction() as transaction:
        transaction.put(StoredObject("Meters", "m1", "<before/>"), NOW)
        execute(asked, apply_to(transaction, failing, []), transaction)
        assert contents(transaction) == left


@pytest.mark.req("100-6.10.3-d")
@pytest.mark.req("100-6.10.3-c")
@pytest.mark.req("100-A-ab")
def test_every_operation_is_answered_in_one_reply_or_in_several() -> None:
    operations = OperationSet(tuple(Operation(n, "Meters", "create") for n in (1, 2, 3)))
    transaction = MemoryTransaction()
    outcomes = execute(operations, apply_to(transaction, frozenset({2}), []), transaction)
    (one,) = replies(outcomes, separate=False)
    assert one.result is Result.PARTIAL
    assert {error.operation_id for error in one.errors} == {None, 1, 2, 3}
    (error,) = [e for e in one.real_errors if e.operation_id is not None]
    assert (error.operation_id, error.code) == (2, "OBJECT_UNKNOWN")
    several = replies(outcomes, separate=True)
    assert [reply.operation_id for reply in several] == [1, 2, 3]
    assert [reply.result for reply in several] == [Result.OK, Result.FAILED, Result.OK]
    assert several[1].errors[0].operation_id == 2
    strict = OperationSet(operations.operations, None, True)
    transaction = MemoryTransaction()
    outcomes = execute(strict, apply_to(transaction, frozenset({2}), []), transaction)
    (none,) = replies(outcomes, separate=False)
    assert none.result is Result.FAILED
    assert [(e.operation_id, e.code) for e in none.errors] == [
        (1, "OPERATION_FAILED"),
        (2, "OBJECT_UNKNOWN"),
        (3, "OPERATION_FAILED"),
    ]
    good = execute(strict, apply_to(transaction, frozenset(), []), transaction)
    (all_of_it,) = replies(good, separate=False)
    assert all_of_it.result is Result.OK
    assert {error.operation_id for error in all_of_it.errors} == {1, 2, 3}
