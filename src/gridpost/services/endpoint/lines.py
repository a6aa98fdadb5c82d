"""Which connections this endpoint has, and where it listens (503 cl. 6.4).

At most one connection to each broker or peer. Consumers are attached to the brokers of the own
message-paths that are usable now, and to those from which an acknowledgement may still come. Both
are looked at again when the directory changes, when the period of a path begins or ends, when a
message takes a new route and when the last one on a route is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

import structlog

from gridpost.core.component import Component, ComponentType
from gridpost.core.identifiers import ComponentCode
from gridpost.core.links import Octets
from gridpost.core.message_path import DIRECT, MessagePath, Route
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.inbound import Inbound
from gridpost.services.endpoint.line import Dial, Line, LineSettings
from gridpost.services.endpoint.peers import Peers

log = structlog.get_logger(__name__)

_LONGEST = timedelta(seconds=30)
"""Between two looks: messages become final without a signal, and unused connections end."""


@dataclass(frozen=True, slots=True)
class LineView:
    """One connection, for operators and for `explain`."""

    peer: str
    connected: bool
    listening: bool
    under_way: int
    reason: str
    elsewhere: bool = False
    """Does another process of this endpoint listen in its place?"""


class Lines:
    """services.endpoint.transfer.Courier."""

    def __init__(
        self,
        context: EndpointContext,
        peers: Peers,
        inbound: Inbound,
        dial: Dial,
        *,
        settings: LineSettings | None = None,
        own_paths: Callable[[], Sequence[MessagePath]] = tuple,
        on_open: Callable[[Route], None] = lambda route: None,
    ) -> None:
        """`own_paths` are those configured here; what the directory publishes counts as well."""
        self._context = context
        self._peers = peers
        self._inbound = inbound
        self._dial = dial
        self._settings = settings or LineSettings()
        self._own_paths = own_paths
        self.on_open = on_open
        self._lines: dict[ComponentCode, Line] = {}
        self._wake = asyncio.Event()
        self._hushed = False
        self.may_listen: Callable[[], bool] = lambda: True
        """False: another process of this endpoint listens, so that what arrives keeps its order."""
        self._awaited: dict[Route, datetime] = {}
        context.signals.on_enqueued(self._enqueued)

    # ------------------------------------------------------------ transfers

    async def deliver(self, route: Route, receiver: ComponentCode, *octets: Octets) -> None:
        line = await self._line(route.broker or receiver)
        await line.send(receiver, *octets)

    def closed(self) -> Collection[Route]:
        """Brokers that need not be tried now; whether a peer is up is known only by trying."""
        return [
            Route(code)
            for code, line in self._lines.items()
            if line.closed and self._is_broker(code)
        ]

    def views(self) -> list[LineView]:
        elsewhere = not self.may_listen()
        return [
            LineView(line.code, line.connected, line.attached, line.under_way, line.why, elsewhere)
            for line in self._lines.values()
        ]

    # ------------------------------------------------------------ attachments

    def wake(self) -> None:
        """The directory or the configuration has changed."""
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled. Connections stay: transfers that are under way still need them."""
        while True:
            self._wake.clear()
            delay = await self.look()
            with suppress(TimeoutError):
                async with asyncio.timeout(delay.total_seconds()):
                    await self._wake.wait()

    async def hush(self) -> None:
        """The endpoint stops: listen no more, but let what is under way find its way out."""
        self._hushed = True
        await asyncio.gather(*(line.listen_no_more() for line in self._lines.values()))

    async def close(self) -> None:
        lines, self._lines = list(self._lines.values()), {}
        await asyncio.gather(*(line.close() for line in lines))

    async def look(self) -> timedelta:
        """Attach what is wanted, detach what is not; how long until something may change."""
        now = self._context.clock.now()
        awaited = await self._context.store.read(lambda work: work.box.awaited(now))
        self._awaited = dict(awaited)
        paths = list(self._paths(now))
        wanted = {ComponentCode(code) for code in self._settings.permanent}
        wanted |= {p.route.broker for p in paths if p.route.broker and p.usable_at(now)}
        wanted |= {route.broker for route in awaited if route.broker}
        if not self.may_listen():
            wanted = set()
        for code in sorted(wanted):
            try:
                line = await self._line(code)
            except Refusal as refusal:
                log.warning("cannot listen", broker=code, reason=refusal.message)
                continue
            route = Route(code)
            if self._hushed:
                break
            line.listen(self._context.code, partial(self._inbound.take, came_by=route))
        await self._tidy(wanted)
        moments = [m for p in paths for m in _moments(p) if m > now]
        moments += [until for until in awaited.values() if until > now]
        return min([_LONGEST, *(m - now for m in moments)])

    def _paths(self, now: datetime) -> Iterator[MessagePath]:
        own = self._context.directory().find(self._context.code, now)
        yield from self._own_paths()
        if own is not None:
            yield from own.paths

    async def _tidy(self, wanted: Collection[str]) -> None:
        """503 cl. 6.4: connections follow the paths and the traffic."""
        clock = asyncio.get_running_loop().time()
        now = self._context.clock.now()
        directory = self._context.directory()
        for code, line in list(self._lines.items()):
            if line.listening and code not in wanted:
                await line.listen_no_more()
            component = directory.find(code, now)
            moved = component is not None and component.urls != line.urls
            gone = component is None and not directory.lapsed(code, now)
            if moved or gone or (not line.listening and line.idle(clock)):
                del self._lines[code]
                await line.close()
                if moved:
                    self._wake.set()
                # What waited for this line has to ask for a new one.
                self.on_open(self._route(code))

    def _enqueued(self, route: Route, receiver: ComponentCode) -> None:
        if route.broker is None:
            return
        line = self._lines.get(route.broker)
        if line is None or not line.listening or route not in self._awaited:
            self._awaited.setdefault(route, self._context.clock.now())
            self._wake.set()

    # ------------------------------------------------------------ connections

    async def _line(self, code: ComponentCode) -> Line:
        line = self._lines.get(code)
        if line is None:
            component = self._component(code)
            line = self._lines[code] = Line(
                code,
                component.urls,
                self._settings,
                self._dial,
                self._peers.server(code),
                self._changed,
            )
        return line

    def _component(self, code: ComponentCode) -> Component:
        now = self._context.clock.now()
        directory = self._context.directory()
        component = directory.find(code, now)
        if component is None:
            if directory.lapsed(code, now):
                raise Refusal(
                    Rule.DIRECTORY_DATA_LAPSED, f"what is known of {code} is no longer valid"
                )
            raise Refusal(Rule.UNREACHABLE, f"{code} is not in the directory")
        if not component.urls:
            raise Refusal(Rule.UNREACHABLE, f"{code} publishes no address")
        return component

    def _route(self, code: ComponentCode) -> Route:
        return Route(code) if self._is_broker(code) else DIRECT

    def _is_broker(self, code: ComponentCode) -> bool:
        component = self._context.directory().find(code, self._context.clock.now())
        return component is not None and component.type is ComponentType.BROKER

    def _changed(self, line: Line) -> None:
        if line.connected:
            log.info("line open", peer=line.code)
            self.on_open(self._route(line.code))
        else:
            log.warning("line closed", peer=line.code, reason=line.why)


def _moments(path: MessagePath) -> Iterator[datetime]:
    yield path.valid_from.at
    if path.valid_until is not None:
        yield path.valid_until.at
