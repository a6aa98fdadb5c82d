"""The console of the capacity service: what is available, what happened, and who takes part."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from gridpost.console.frame import Frame, Visitor, moment_of, number_of
from gridpost.console.roles import Role
from gridpost.console.settings import Place
from gridpost.core.refusal import Refusal, Rule

PLACES = (
    Place("/", "Available capacity", "overview"),
    Place("/events", "Order of events", "queue"),
    Place("/users", "Users", "connection"),
    Place("/publish", "Publish", "send", Role.OPERATOR),
    Place("/on-behalf", "Allocate on behalf", "registration", Role.ADMINISTRATOR),
)
PAGE = 50
_ITEMS = 48
"""Periods of one allocation on behalf by a form."""


class Desk(Protocol):
    """The running service, as its operators see it; what they change carries their name."""

    def atc(self) -> Sequence[Mapping[str, Any]]: ...

    def borders(self) -> Sequence[Mapping[str, Any]]: ...

    def users(self) -> Sequence[Mapping[str, Any]]: ...

    async def events(
        self, limit: int, before: int | None = None
    ) -> Sequence[Mapping[str, Any]]: ...

    def actions(self) -> Mapping[str, Callable[[dict[str, Any]], Awaitable[Any]]]: ...


class CapacityConsole:
    def __init__(
        self, frame: Frame, desk: Desk, health: Callable[[], Awaitable[Mapping[str, Any]]]
    ) -> None:
        self._frame = frame
        self._desk = desk
        self._health = health

    def app(self) -> ASGIApp:
        route = self._frame.route
        return self._frame.app(
            [
                route("/", self._available),
                route("/borders/{border}/{what:path}", self._ask, Role.OPERATOR),
                route("/borders/{border}/{what:path}", self._switch, Role.OPERATOR, "POST"),
                route("/events", self._events),
                route("/users", self._users),
                route("/publish", self._publish_form, Role.OPERATOR),
                route("/publish", self._publish, Role.OPERATOR, "POST"),
                route("/on-behalf", self._allocate_form, Role.ADMINISTRATOR),
                route("/on-behalf", self._allocate, Role.ADMINISTRATOR, "POST"),
            ]
        )

    # ------------------------------------------------------------ what is available

    async def _available(self, request: Request, visitor: Visitor) -> Response:
        live = "live" in request.query_params
        rows = self._desk.atc()
        borders = self._desk.borders()
        wanted = request.query_params.get("border", "")
        names = list(dict.fromkeys(str(row["border"]) for row in borders))
        border = wanted if wanted in names else names[0] if names else ""
        days = sorted({str(row["day"]) for row in rows if row["border"] == border})
        asked = request.query_params.get("day", "")
        day = asked if asked in days else days[0] if days else ""
        shown = [row for row in rows if row["border"] == border and row["day"] == day]
        return self._frame.render(
            request,
            "capacity/available_live.html" if live else "capacity/available.html",
            **({"fragment": True} if live else {}),
            names=names,
            border=border,
            days=days,
            day=day,
            pools=[row for row in borders if row["border"] == border],
            charts=charts(shown),
            health=await self._health(),
        )

    async def _ask(self, request: Request, visitor: Visitor) -> Response:
        border, interconnector, halted = self._which(request)
        return self._confirming(request, border, interconnector, halted, "", "")

    async def _switch(self, request: Request, visitor: Visitor) -> Response:
        border, interconnector, halted = self._which(request)
        reason, typed = visitor.text("reason"), visitor.text("confirm")
        if not halted and typed != border:
            told = f"Type {border} to confirm."
            return self._confirming(request, border, interconnector, halted, reason, told)
        action = "resume" if halted else "halt"
        form = {"border": border, "interconnector": interconnector, "by": visitor.actor}
        await self._desk.actions()[action](form | {"reason": reason})
        target = f"{border} {interconnector}".strip()
        told = f"Allocation on {target} {'goes on' if halted else 'is halted'}."
        return self._frame.back(visitor, f"/?border={border}", told)

    def _which(self, request: Request) -> tuple[str, str, bool]:
        """Border, interconnector (or none: all of it), and whether all of that is halted."""
        border, what = request.path_params["border"], request.path_params["what"]
        pools = [row for row in self._desk.borders() if row["border"] == border]
        interconnector = "" if what == "all" else what
        if interconnector:
            pools = [row for row in pools if row["interconnector"] == interconnector]
        if not pools:
            raise Refusal(Rule.RESOURCE_UNKNOWN, "there is no such border or interconnector")
        return border, interconnector, all(row["status"] == "HALT" for row in pools)

    def _confirming(
        self,
        request: Request,
        border: str,
        interconnector: str,
        halted: bool,
        reason: str,
        problem: str,
    ) -> Response:
        return self._frame.render(
            request,
            "capacity/switch.html",
            422 if problem else 200,
            border=border,
            interconnector=interconnector,
            halted=halted,
            reason=reason,
            problem=problem,
        )

    # ------------------------------------------------------------ events and users

    async def _events(self, request: Request, visitor: Visitor) -> Response:
        lines = await self._desk.events(PAGE + 1, number_of(request.query_params, "before"))
        shown = [_with_times(line) for line in lines[:PAGE]]
        more = shown[-1]["sequence"] if len(lines) > PAGE else None
        return self._frame.render(request, "capacity/events.html", lines=shown, more=more)

    async def _users(self, request: Request, visitor: Visitor) -> Response:
        return self._frame.render(request, "capacity/users.html", users=self._desk.users())

    # ------------------------------------------------------------ publish, allocate

    async def _publish_form(self, request: Request, visitor: Visitor) -> Response:
        return self._publishing(request, "", "publish", "")

    async def _publish(self, request: Request, visitor: Visitor) -> Response:
        text, action = visitor.text("text"), visitor.text("do")
        upload = visitor.form.get("file")
        if isinstance(upload, UploadFile) and upload.filename:
            text = (await upload.read()).decode("utf-8-sig", errors="replace")
        if action not in ("publish", "adjust"):
            raise Refusal(Rule.USAGE, "capacity is published or adjusted")
        try:
            done = await self._desk.actions()[action]({"file": text, "by": visitor.actor})
        except Refusal as refusal:
            return self._publishing(request, text, action, _sentence(refusal.message))
        return self._frame.back(
            visitor, "/", f"{done['offers']} values taken, {done['broadcasts']} broadcasts made."
        )

    def _publishing(self, request: Request, text: str, do: str, problem: str) -> Response:
        return self._frame.render(
            request,
            "capacity/publish.html",
            422 if problem else 200,
            text=text,
            do=do,
            problem=problem,
        )

    async def _allocate_form(self, request: Request, visitor: Visitor) -> Response:
        return self._allocating(request, {}, "", ())

    async def _allocate(self, request: Request, visitor: Visitor) -> Response:
        names = ("balancing_group", "out_area", "in_area", "start", "periods", "quantity", "type")
        given = {name: visitor.text(name) for name in names}
        try:
            done = await self._desk.actions()["allocate"](
                {
                    "by": visitor.actor,
                    "balancing_group": given["balancing_group"],
                    "type": given["type"],
                    "items": self._items(given),
                }
            )
        except Refusal as refusal:
            return self._allocating(request, given, _sentence(refusal.message), ())
        return self._allocating(request, given, "", done["items"])

    def _items(self, given: Mapping[str, str]) -> list[dict[str, Any]]:
        areas = (given["out_area"], given["in_area"])
        row = next((r for r in self._desk.atc() if (r["out_area"], r["in_area"]) == areas), None)
        if row is None:
            raise Refusal(Rule.AREA_UNKNOWN, "nothing is open between these areas")
        start = moment_of(given["start"], "Start")
        count, quantity = given["periods"], given["quantity"]
        if start is None or not count.isdigit() or not 1 <= int(count) <= _ITEMS:
            raise Refusal(Rule.USAGE, f"give a start and 1 to {_ITEMS} periods")
        if not quantity.isdigit() or int(quantity) < 1:
            raise Refusal(Rule.USAGE, "the quantity is a whole number of kW, 1 at least")
        begin = datetime.fromisoformat(str(row["period_start"]))
        length = datetime.fromisoformat(str(row["period_end"])) - begin
        return [
            {
                "out_area": areas[0],
                "in_area": areas[1],
                "period_start": (start + n * length).isoformat(),
                "period_end": (start + (n + 1) * length).isoformat(),
                "quantity": int(quantity),
            }
            for n in range(int(count))
        ]

    def _allocating(
        self,
        request: Request,
        given: Mapping[str, str],
        problem: str,
        outcomes: Sequence[Mapping[str, Any]],
    ) -> Response:
        groups = sorted({g for user in self._desk.users() for g in user["balancing_groups"]})
        areas = sorted({str(row["out_area"]) for row in self._desk.atc()})
        return self._frame.render(
            request,
            "capacity/on_behalf.html",
            422 if problem else 200,
            given=given,
            problem=problem,
            outcomes=outcomes,
            groups=groups,
            areas=areas,
        )


def charts(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One for each interconnector: [times, available and offered each way], and what they are."""
    together: dict[frozenset[str], dict[tuple[str, str], list[Mapping[str, Any]]]] = {}
    for row in rows:
        areas = (str(row["out_area"]), str(row["in_area"]))
        together.setdefault(frozenset(areas), {}).setdefault(areas, []).append(row)
    return [_chart(ways) for ways in together.values()]


def _chart(ways: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    first = next(iter(ways.values()))
    times = [int(datetime.fromisoformat(str(row["period_start"])).timestamp()) for row in first]
    ends = int(datetime.fromisoformat(str(first[-1]["period_end"])).timestamp())
    columns: list[list[int]] = [[*times, ends]]
    labels = []
    for (out_area, in_area), rows in ways.items():
        for name in ("available", "offered"):
            values = [int(row[name]) for row in rows]
            columns.append([*values, values[-1]])
            labels.append(f"{name} {out_area} \u2192 {in_area}")
    return {
        "title": " / ".join(next(iter(ways))),
        "data": columns,
        "labels": labels,
        "rows": [row for rows in ways.values() for row in rows],
        "shortfall": sum(int(row["shortfall"]) for rows in ways.values() for row in rows),
    }


def _with_times(line: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: datetime.fromisoformat(value)
        if name in ("at", "period_start", "period_end") and value
        else value
        for name, value in line.items()
    }


def _sentence(message: str) -> str:
    return message[:1].upper() + message[1:].rstrip(".") + "."
