"""The counter: what each kind of request is answered with, and who may ask it (CMM 2.3, 5.2, 5.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from gridpost.core.allocation import Order, Outcome, Party, Role
from gridpost.core.broadcast import Allocation, Notice
from gridpost.core.capacity import Book, Trigger
from gridpost.core.capacity_ledger import Request as AllocationRequest
from gridpost.core.market_time import Period
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.capacity import desk
from gridpost.wire.cmm import (
    AlcResult,
    AllocationData,
    AllocationDataList,
    AllocationDataReq,
    AllocationDataResp,
    AllocationReq,
    AllocationResp,
    AtcData,
    AtcDataList,
    AtcDataReq,
    AtcDataResp,
    ErrorResp,
)
from gridpost.wire.cmm.messages import Request, Response

if TYPE_CHECKING:
    from gridpost.services.capacity.service import CapacityService


log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Question:
    """A request of somebody who is logged in."""

    user: str
    request: Request
    correlation_id: str


class Counter:
    def __init__(self, service: CapacityService) -> None:
        self._service = service

    async def answer(
        self, questions: Sequence[Question]
    ) -> tuple[list[Response], tuple[Notice, ...]]:
        """In their order; all allocations of them are one work on the ledger."""
        responses: dict[int, Response] = {}
        asked: dict[int, desk.Asked] = {}
        for number, question in enumerate(questions):
            request = question.request
            try:
                party = self._service.settings.parties[question.user]
                if isinstance(request, AllocationReq):
                    asked[number] = self._asked(party, request, question.correlation_id)
                    continue
                if isinstance(request, AtcDataReq):
                    responses[number] = self._atc(party, request)
                elif isinstance(request, AllocationDataReq):
                    responses[number] = await self._allocations(party, request)
                else:
                    kind = type(request).__name__
                    raise Refusal(Rule.SCHEMA_INVALID, f"{kind} is not a request")
            except Exception as error:
                responses[number] = self._failed(question, error)
            else:
                self._count(type(request), "answered")
        notices: tuple[Notice, ...] = ()
        if asked:
            told, notices = await self._allocate(list(asked.values()))
            answered = 0
            for number, outcomes in zip(asked, told, strict=True):
                question = questions[number]
                if isinstance(outcomes, Exception):
                    responses[number] = self._failed(question, outcomes)
                else:
                    responses[number] = AllocationResp(tuple(map(_result, outcomes)))
                    answered += 1
            if answered:
                self._count(AllocationReq, "answered", answered)
        return [responses[number] for number in range(len(questions))], notices

    def _count(self, kind: type[Request], outcome: str, number: int = 1) -> None:
        self._service.metrics.requests.labels(kind.__name__, outcome).inc(number)

    def _failed(self, question: Question, error: Exception) -> Response:
        if not isinstance(error, Refusal):
            return self.error(question.user, error)
        self._count(type(question.request), "refused")
        if error.rule is Rule.TOO_MANY_ITEMS:
            return ErrorResp(error.message)
        return self.refused(question.request, error.message)

    def error(self, user: str, error: Exception) -> ErrorResp:
        if isinstance(error, Refusal):
            return ErrorResp(error.message)
        # Our own bug must not leave the client without an answer, nor end the service.
        log.error("a request failed", user=user, error=repr(error), exc_info=error)
        return ErrorResp("The request failed for an internal reason.")

    def refused(self, request: Request, message: str) -> Response:
        """The negative response of a kind: nothing of the request was done."""
        if isinstance(request, AllocationReq):
            return AllocationResp(
                tuple(
                    AlcResult(alc.client_id, False, message)
                    for part in request.allocations
                    for alc in part.items
                )
            )
        if isinstance(request, AtcDataReq):
            return AtcDataResp(False, message)
        if isinstance(request, AllocationDataReq):
            return AllocationDataResp(False, message)
        return ErrorResp(message)

    def _asked(self, party: Party, request: AllocationReq, correlation_id: str) -> desk.Asked:
        most = self._service.settings.max_items
        items = sum(len(part.items) for part in request.allocations)
        if items > most:
            raise Refusal(
                Rule.TOO_MANY_ITEMS,
                f"The request has {items} items; the limit is {most} items.",
            )
        _require(party, Role.EXPLICIT_PARTICIPANT)
        orders = [
            Order(
                alc.client_id, alc.bm_code, part.out_area, part.in_area,
                Period(alc.period_start, alc.period_end), alc.quantity, number,
            )
            for number, part in enumerate(request.allocations)
            for alc in part.items
        ]  # fmt: skip
        told = AllocationRequest(
            party.name, correlation_id, Trigger.ALLOCATION_PMI, request.type.value
        )
        return desk.Asked(told, orders, party)

    async def _allocate(
        self, asked: Sequence[desk.Asked]
    ) -> tuple[Sequence[tuple[Outcome, ...] | Exception], tuple[Notice, ...]]:
        service, settings = self._service, self._service.settings
        now, names, window = service.clock.now(), settings.names, settings.duplicate_window
        try:
            answer = await service.ledger.run(
                lambda unit: desk.allocate(unit, names, asked, now, window)
            )
        except desk.Undone:
            # Whichever it was, the others shall not suffer for it.
            told: list[tuple[Outcome, ...] | Exception] = []
            notices: tuple[Notice, ...] = ()
            for each in asked:
                [outcomes], more = await self._allocate([each])
                told.append(outcomes)
                notices += more
            return told, notices
        except Exception as error:
            return [error] * len(asked), ()
        return answer.outcomes, answer.notices

    def _atc(self, party: Party, request: AtcDataReq) -> AtcDataResp:
        _require(party, Role.EXPLICIT_PARTICIPANT)
        return self._service.ledger.look(lambda book: _atc_lists(book, party, request))

    async def _allocations(self, party: Party, request: AllocationDataReq) -> AllocationDataResp:
        service = self._service
        settings = service.settings
        group = request.balancing_group
        if group not in party.groups:
            raise Refusal(
                Rule.GROUP_NOT_OWN, f"The balancing group {group} is not one of {party.name}."
            )
        if settings.market.place(request.area1, request.area2) is None:
            raise _unknown(request.area1, request.area2)
        if request.end <= request.start:
            raise Refusal(Rule.BAD_VALUE, "The attribute to is not after from.")
        clock = settings.market.clock
        # `to` is not part of the interval: one that is a midnight asks for nothing of its day.
        last = clock.day_of(request.end)
        days = (last - clock.day_of(request.start)).days + (request.end > clock.start_of(last))
        limit = settings.groups.get(group, 1)
        if days > limit:
            raise Refusal(
                Rule.TOO_MANY_DAYS,
                f"The request asks for {days} delivery days; the limit of {group} is {limit} days.",
            )
        most = settings.max_allocations
        found = await service.ledger.read(
            lambda reader: reader.allocations(
                group, (request.area1, request.area2), request.start, request.end, most + 1
            )
        )
        if len(found) > most:
            raise Refusal(
                Rule.LIMIT_EXCEEDED,
                f"The answer has more than {most} allocations: ask for a shorter interval.",
            )
        return AllocationDataResp(True, "OK", allocation_lists(found))


def allocation_lists(found: list[Allocation]) -> tuple[AllocationDataList, ...]:
    """CMM 5.3.4: one list for each group and direction."""
    together: dict[tuple[str, str, str], list[AllocationData]] = {}
    for allocation in found:
        key = (allocation.group, allocation.in_area, allocation.out_area)
        together.setdefault(key, []).append(
            AllocationData(
                allocation.activity, str(allocation.allocation_id), allocation.period.start,
                allocation.period.end, allocation.quantity, allocation.at,
            )
        )  # fmt: skip
    return tuple(AllocationDataList(*key, tuple(items)) for key, items in together.items())


def _atc_lists(book: Book, party: Party, request: AtcDataReq) -> AtcDataResp:
    """Both directions of the interconnector that was asked for."""
    clock = book.market.clock
    day = clock.day_of(request.date)
    lists = []
    for out_area, in_area in ((request.area1, request.area2), (request.area2, request.area1)):
        placed = book.place(out_area, in_area)
        if placed is None:
            raise _unknown(out_area, in_area)
        pool, direction = placed
        if pool.border.name not in party.borders:
            raise Refusal(
                Rule.BORDER_NOT_GRANTED,
                f"{party.name} has no access to the border {pool.border.name}.",
            )
        items = tuple(
            AtcData(period.start, period.end, pool.available(direction, period.start))
            for period in book.periods(pool, day)
        )
        if not items:
            raise Refusal(
                Rule.NOT_PUBLISHED, f"No capacity of {pool.border.name} is published for {day}."
            )
        lists.append(AtcDataList(pool.border.name, clock.start_of(day), in_area, out_area, items))
    return AtcDataResp(True, lists=tuple(lists))


def _require(party: Party, role: Role) -> None:
    if role not in party.roles:
        raise Refusal(Rule.ROLE_MISSING, f"{party.name} does not have the role {role.value}.")


def _unknown(out_area: str, in_area: str) -> Refusal:
    return Refusal(Rule.AREA_UNKNOWN, f"No interconnector joins {out_area} and {in_area}.")


def _result(outcome: Outcome) -> AlcResult:
    number = None if outcome.allocation_id is None else str(outcome.allocation_id)
    return AlcResult(outcome.client_id, outcome.success, outcome.message, number, outcome.confirmed)
