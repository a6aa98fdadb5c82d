"""The console of a bus: who serves, what it takes, which envelopes passed, and what nobody took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from gridpost.console.frame import Frame, number_of
from gridpost.console.settings import Place
from gridpost.console.visiting import Visitor
from gridpost.core.bus import Instance
from gridpost.core.journal import EnvelopeRow, Recorded

PLACES = (
    Place("/", "Overview", "overview"),
    Place("/envelopes", "Envelopes", "message"),
    Place("/services", "Services", "path"),
)
PAGE = 50
LOOKED_AT = 5000
"""Rows of the journal that one search reads: a page must not take long, however full it is."""


class Served(Protocol):
    """The running bus, as its operator sees it."""

    @property
    def connected(self) -> bool: ...

    @property
    def under_way(self) -> int: ...

    async def instances(self) -> Sequence[Instance]: ...

    async def waiting(self) -> int:
        """Replies, events and calls in the outbox."""
        ...

    async def dead_letters(self) -> Mapping[str, int] | None:
        """Envelopes in each queue; None: there is no broker to ask."""
        ...

    async def envelopes(self, limit: int, before: int | None) -> Sequence[Recorded]:
        """Newest first."""
        ...

    def interface(self) -> Sequence[Mapping[str, str]]: ...

    def subscribers(self) -> Sequence[Mapping[str, str]]: ...


class BusConsole:
    def __init__(self, frame: Frame, served: Served) -> None:
        self._frame = frame
        self._served = served

    def app(self) -> ASGIApp:
        route = self._frame.route
        return self._frame.app(
            [
                route("/", self._overview),
                route("/envelopes", self._envelopes),
                route("/services", self._services),
            ]
        )

    async def _overview(self, request: Request, visitor: Visitor) -> Response:
        served = self._served
        return self._frame.render(
            request,
            "bus/overview.html",
            connected=served.connected,
            under_way=served.under_way,
            waiting=await served.waiting(),
            dead=await served.dead_letters(),
            instances=await served.instances(),
        )

    async def _envelopes(self, request: Request, visitor: Visitor) -> Response:
        wanted = request.query_params.get("search", "").strip()
        found = await self._served.envelopes(
            LOOKED_AT if wanted else PAGE + 1, number_of(request.query_params, "before")
        )
        rows = [recorded for recorded in found if _fits(recorded.row, wanted)]
        shown = rows[:PAGE]
        more = None
        if len(rows) > PAGE:
            more = shown[-1].sequence
        elif wanted and len(found) == LOOKED_AT:
            # Nothing more among those that were read; older ones were not.
            more = found[-1].sequence
        return self._frame.render(
            request,
            "bus/envelopes.html",
            rows=shown,
            search=wanted,
            more=more,
            until=found[-1].row.at if wanted and found else None,
        )

    async def _services(self, request: Request, visitor: Visitor) -> Response:
        return self._frame.render(
            request,
            "bus/services.html",
            services=self._served.interface(),
            subscribers=self._served.subscribers(),
        )


def _fits(row: object, wanted: str) -> bool:
    if not isinstance(row, EnvelopeRow):
        return False
    texts = (row.message_id, row.correlation_id, row.source, row.noun, row.destination, row.codes)
    return any(wanted.lower() in text.lower() for text in texts)
