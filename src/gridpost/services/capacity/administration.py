"""What operators do with capacity: publish, adjust, allocate on behalf, halt and resume; as JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from gridpost.core.allocation import AllocationType, Order, Party, Role
from gridpost.core.capacity import Status, Trigger
from gridpost.core.capacity_ledger import CapacityUnit, Request
from gridpost.core.instant import Instant
from gridpost.core.journal import AdministrationRow, JournalRow
from gridpost.core.market_time import Period
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.capacity import desk
from gridpost.services.capacity.service import CapacityService
from gridpost.wire.cmm.capacity_file import read_capacity

OPERATOR = "operator"


class Administration:
    """Each action takes a JSON object; `by` names the person, for the ledger and the journal."""

    def __init__(self, service: CapacityService) -> None:
        self._service = service

    def actions(self) -> Mapping[str, Callable[[dict[str, Any]], Awaitable[Any]]]:
        return {
            "publish": lambda form: self._offer(form, Trigger.PUBLISH),
            "adjust": lambda form: self._offer(form, Trigger.ADJUST_CAPACITY),
            "halt": lambda form: self._status(form, Status.HALT),
            "resume": lambda form: self._status(form, Status.ALLOCATION),
            "allocate": self._allocate,
        }

    def questions(self) -> Mapping[str, Callable[[dict[str, Any]], Awaitable[Any]]]:
        """For the operations listener: they change nothing."""
        return {"events": self._asked_events}

    async def _asked_events(self, form: dict[str, Any]) -> list[dict[str, Any]]:
        limit, before = form.get("limit"), form.get("before")
        if not isinstance(limit, int) or not 0 < limit <= 10_000:
            raise Refusal(Rule.USAGE, "'limit' is a number from 1 to 10000")
        return await self.events(limit, before if isinstance(before, int) and before else None)

    def views(self) -> Mapping[str, Callable[[], Any]]:
        return {"atc": self.atc, "users": self.users, "borders": self.borders}

    def now(self) -> datetime:
        return self._service.clock.now()

    async def note(self, row: JournalRow) -> None:
        await self._service.ledger.run(lambda unit: unit.journal.append(row))

    async def events(self, limit: int, before: int | None = None) -> list[dict[str, Any]]:
        """Lines of the ledger, newest first: the order in which everything happened."""
        lines = await self._service.ledger.read(lambda reader: reader.latest(limit, before))
        return [
            {
                name: value.isoformat() if isinstance(value, datetime) else value
                for name, value in asdict(line).items()
            }
            for line in lines
        ]

    async def allocations(
        self, group: str, areas: tuple[str, str], start: datetime, end: datetime
    ) -> list[dict[str, Any]]:
        """Of one balancing group on an interconnector, both ways."""
        most = self._service.settings.max_allocations
        found = await self._service.ledger.read(
            lambda reader: reader.allocations(group, areas, start, end, most + 1)
        )
        if len(found) > most:
            raise Refusal(
                Rule.LIMIT_EXCEEDED, f"more than {most} allocations: ask for a shorter interval"
            )
        return [
            {
                "allocation_id": allocation.allocation_id,
                "at": allocation.at.isoformat(),
                "user": allocation.user,
                "balancing_group": allocation.group,
                "client_id": allocation.client_id,
                "out_area": allocation.out_area,
                "in_area": allocation.in_area,
                "period_start": allocation.period.start.isoformat(),
                "period_end": allocation.period.end.isoformat(),
                "quantity": allocation.quantity,
                "event": allocation.event.value,
                "correlation_id": allocation.correlation_id,
            }
            for allocation in found
        ]

    def atc(self) -> list[dict[str, object]]:
        now = self._service.clock.now()
        return self._service.ledger.look(lambda book: desk.atc_view(book, now))

    def users(self) -> list[dict[str, object]]:
        logged_in = self._service.logged_in()
        return [
            {
                "user": party.name,
                "logged_in": party.name in logged_in,
                "roles": sorted(role.value for role in party.roles),
                "balancing_groups": list(party.groups),
                "borders": sorted(party.borders),
            }
            for party in self._service.settings.parties.values()
        ]

    def borders(self) -> list[dict[str, object]]:
        return self._service.ledger.look(
            lambda book: [
                {
                    "border": pool.border.name,
                    "interconnector": str(pool.interconnector),
                    "common_atc": pool.border.common_atc,
                    "unit_minutes": int(pool.border.unit.total_seconds() // 60),
                    "ramping": pool.border.ramping,
                    "status": pool.status.value,
                }
                for pool in book.pools.values()
            ]
        )

    async def _offer(self, form: dict[str, Any], event: Trigger) -> dict[str, Any]:
        offers = read_capacity(_text(form, "file").encode())
        service = self._service
        names, actor, now = service.settings.names, _actor(form), service.clock.now()
        notices = await service.ledger.run(
            lambda unit: desk.publish(unit, names, offers, event, actor, now)
        )
        service.post.broadcast(notices)
        service.changed()
        return {"offers": len(offers), "broadcasts": len(notices)}

    async def _status(self, form: dict[str, Any], status: Status) -> dict[str, Any]:
        service = self._service
        border, interconnector = _text(form, "border"), str(form.get("interconnector") or "")
        names, actor, now = service.settings.names, _actor(form), service.clock.now()
        reason = str(form.get("reason") or "")[:500]
        notices = await service.ledger.run(
            lambda unit: desk.set_status(
                unit, names, border, interconnector, status, actor, now, reason
            )
        )
        service.post.broadcast(notices)
        return {"border": border, "status": status.value, "broadcasts": len(notices)}

    async def _allocate(self, form: dict[str, Any]) -> dict[str, Any]:
        """On behalf of a balancing group; `event` ALLOCATION for another market system."""
        service = self._service
        group = _text(form, "balancing_group")
        if group not in service.settings.groups:
            raise Refusal(Rule.GROUP_NOT_OWN, f"there is no balancing group {group}")
        try:
            event = Trigger(form.get("event") or Trigger.ON_BEHALF)
            kind = AllocationType(form.get("type") or AllocationType.AON)
            orders = [
                Order(
                    str(item.get("client_id") or f"on-behalf-{number}"), group,
                    _text(item, "out_area"), _text(item, "in_area"),
                    Period(
                        Instant.parse(_text(item, "period_start")).at,
                        Instant.parse(_text(item, "period_end")).at,
                    ),
                    int(item["quantity"]),
                    number,
                )
                for number, item in enumerate(form.get("items") or [])
            ]  # fmt: skip
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise Refusal(Rule.USAGE, f"the allocation cannot be read: {error!r}") from None
        if not orders or event not in (Trigger.ON_BEHALF, Trigger.ALLOCATION):
            raise Refusal(Rule.USAGE, "give items, and ON_BEHALF or ALLOCATION as the event")
        party = Party(
            _actor(form), frozenset(Role), (group,), frozenset(service.settings.market.borders)
        )
        request = Request(party.name, str(form.get("correlation_id") or ""), event, kind.value)
        names, now = service.settings.names, service.clock.now()
        asked, window = desk.Asked(request, orders, party), service.settings.duplicate_window

        def work(unit: CapacityUnit) -> desk.Answer:
            answer = desk.allocate(unit, names, [asked], now, window)
            made = sum(outcome.success for outcome in answer.outcomes[0])
            text = f"{made} of {len(orders)} allocated"
            unit.note(AdministrationRow(now, party.name, event.value, group, after=text))
            return answer

        answer = await service.ledger.run(work)
        service.post.broadcast(answer.notices)
        return {
            "items": [
                {
                    "client_id": outcome.client_id,
                    "success": outcome.success,
                    "message": outcome.message,
                    "allocation_id": outcome.allocation_id,
                    "confirmed": outcome.confirmed,
                }
                for outcome in answer.outcomes[0]
            ]
        }


def _text(form: dict[str, Any], name: str) -> str:
    value = form.get(name)
    if not isinstance(value, str) or not value:
        raise Refusal(Rule.USAGE, f"'{name}' is missing")
    return value


def _actor(form: dict[str, Any]) -> str:
    return f"{OPERATOR}:{str(form.get('by') or 'unknown')[:100]}"
