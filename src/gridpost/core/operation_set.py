"""How a set of operations is carried out (61968-100 cl. 6.10): order, all or nothing, and what is told.

The transaction decides nothing here: it only knows how to go back to a mark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gridpost.core.envelope import (
    COMPLETE,
    LAST,
    Error,
    Identifier,
    Level,
    Operation,
    OperationSet,
    Reply,
    Result,
)
from gridpost.core.envelope_exchange import error_of, failed
from gridpost.core.refusal import Refusal, Rule


class Marks(Protocol):
    def mark(self) -> int: ...

    def back(self, mark: int) -> None: ...


Apply = Callable[[Operation], Sequence[Identifier]]
"""Does one operation; the ids of what came of it. A Refusal says that it could not be done."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one operation; without an error it was done and stays done."""

    operation_id: int
    ids: tuple[Identifier, ...] = ()
    error: Error | None = None


def execute(operations: OperationSet, apply: Apply, transaction: Marks) -> tuple[Outcome, ...]:
    """In ascending order of ids when that is asked for, else as presented.

    With integrity one failure undoes what was done before, the latest first, and nothing more is
    tried. Without it every operation stands for itself.
    """
    ordered = list(operations.operations)
    if operations.enforce_sequence:
        ordered.sort(key=lambda operation: operation.operation_id)
    outcomes: list[Outcome] = []
    marks: list[int] = []
    for operation in ordered:
        number = operation.operation_id
        mark = transaction.mark()
        try:
            ids = tuple(apply(operation))
        except Refusal as refusal:
            transaction.back(mark)
            outcomes.append(Outcome(number, error=error_of(refusal, operation_id=number)))
            if operations.enforce_integrity:
                for earlier in reversed(marks):
                    transaction.back(earlier)
                return _undone(ordered, outcomes)
        else:
            marks.append(mark)
            outcomes.append(Outcome(number, ids))
    return tuple(outcomes)


def _undone(ordered: Sequence[Operation], outcomes: Sequence[Outcome]) -> tuple[Outcome, ...]:
    failure = outcomes[-1]
    before = {outcome.operation_id for outcome in outcomes[:-1]}
    told = []
    for operation in ordered:
        number = operation.operation_id
        if number == failure.operation_id:
            told.append(failure)
            continue
        what = "was undone" if number in before else "was not tried"
        error = Error(
            Rule.OPERATION_FAILED.name,
            Level.FATAL,
            f"{what}, because operation {failure.operation_id} failed",
            operation_id=number,
        )
        told.append(Outcome(number, error=error))
    return tuple(told)


def done(outcomes: Sequence[Outcome]) -> frozenset[int]:
    return frozenset(outcome.operation_id for outcome in outcomes if outcome.error is None)


def replies(outcomes: Sequence[Outcome], *, separate: bool) -> list[Reply]:
    """One reply for all operations, or one for each; either way every operationId comes back."""
    if separate:
        return [_single(outcome) for outcome in outcomes]
    errors = [
        outcome.error or Error(COMPLETE, Level.INFORM, operation_id=outcome.operation_id)
        for outcome in outcomes
    ]
    ids = tuple(i for outcome in outcomes for i in outcome.ids)
    good = done(outcomes)
    if not good:
        return [failed(*errors)]
    if len(good) == len(outcomes):
        return [Reply(Result.OK, tuple(errors), ids)]
    return [Reply(Result.PARTIAL, (Error(LAST, Level.INFORM), *errors), ids)]


def _single(outcome: Outcome) -> Reply:
    if outcome.error is not None:
        return Reply(Result.FAILED, (outcome.error,), operation_id=outcome.operation_id)
    return Reply(
        Result.OK,
        (Error(COMPLETE, Level.INFORM),),
        outcome.ids,
        operation_id=outcome.operation_id,
    )
