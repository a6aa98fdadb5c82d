"""One connection to a broker or peer endpoint, with the links on it that are wanted (503 cl. 6.4)."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gridpost.core.identifiers import ComponentCode
from gridpost.core.links import (
    Consumer,
    LinkKeeper,
    LinkRefused,
    Octets,
    Outcome,
    OutcomeKind,
    Producer,
    ReceivedDelivery,
    ServerCheck,
)
from gridpost.core.refusal import Refusal, Rule

Dial = Callable[[Sequence[str], ServerCheck, Callable[[bool, str], None]], LinkKeeper]
"""Keeps a connection up: URLs in their order, who must answer, whom to tell of every change."""


@dataclass(frozen=True, slots=True)
class LineSettings:
    consumers: int = 1
    """Consumers of one broker; more make a group that is attached and detached as a whole."""
    consumers_of: dict[str, int] = field(default_factory=dict)
    """The same for brokers by code."""
    producers: int = 1
    producers_to: dict[str, int] = field(default_factory=dict)
    """By recipient, or by `broker/recipient`."""
    credit: int = 100
    """Messages that one consumer lets its broker send ahead."""
    max_recipients: int = 40
    """Groups of producers on one connection; the one that was used least recently makes room."""
    under_way: int = 128
    """Transfers that may wait for their outcome on one connection."""
    attach_seconds: float = 15.0
    idle_seconds: float = 60.0
    permanent: tuple[str, ...] = ()
    """Brokers that are always listened to, whatever the message-paths say (503 cl. 6.4)."""

    def group(self, line: str, recipient: str) -> int:
        named = self.producers_to.get(f"{line}/{recipient}")
        return named or self.producers_to.get(recipient, self.producers)


class Line:
    def __init__(
        self,
        code: ComponentCode,
        urls: Sequence[str],
        settings: LineSettings,
        dial: Dial,
        check: ServerCheck,
        on_state: Callable[[Line], None],
    ) -> None:
        self.code = code
        self.urls = tuple(urls)
        self.connected = False
        self.why = "not connected yet"
        self.used_at = asyncio.get_running_loop().time()
        self.under_way = 0
        self._settings = settings
        self._on_state = on_state
        self._first = asyncio.Event()
        self._producers: OrderedDict[str, list[Producer]] = OrderedDict()
        self._turn = 0
        self._consumers: list[Consumer] = []
        self._keeper = dial(self.urls, check, self._state)

    # ------------------------------------------------------------ as a client that consumes

    @property
    def listening(self) -> bool:
        return bool(self._consumers)

    @property
    def attached(self) -> bool:
        return bool(self._consumers) and all(c.attached for c in self._consumers)

    def listen(self, queue: str, on_delivery: Callable[[ReceivedDelivery], None]) -> None:
        if self._consumers:
            return
        size = self._settings.consumers_of.get(self.code, self._settings.consumers)
        self._consumers = [
            self._keeper.consumer(queue, on_delivery, self._settings.credit) for _ in range(size)
        ]

    async def listen_no_more(self) -> None:
        consumers, self._consumers = self._consumers, []
        await asyncio.gather(*(consumer.close() for consumer in consumers))

    # ------------------------------------------------------------ as a client that produces

    @property
    def closed(self) -> bool:
        """Known to be down, or full: whoever has something for it need not come now."""
        return (self._first.is_set() and not self.connected) or (
            self.under_way >= self._settings.under_way
        )

    def idle(self, now: float) -> bool:
        return self.under_way == 0 and now - self.used_at >= self._settings.idle_seconds

    async def send(self, queue: str, *octets: Octets) -> None:
        """Returns when the other side has the message; refuses with what it said otherwise."""
        self.used_at = asyncio.get_running_loop().time()
        self.under_way += 1
        try:
            await self._first.wait()
            if not self.connected:
                raise Refusal(Rule.UNREACHABLE, f"{self.code} cannot be reached: {self.why}")
            producer = await self._producer(queue)
            if not producer.attached:
                await self._ready(producer, queue)
            outcome = await producer.send(*octets)
        finally:
            self.under_way -= 1
            self.used_at = asyncio.get_running_loop().time()
        if not outcome.taken:
            raise _refusal(self.code, outcome)

    async def _ready(self, producer: Producer, queue: str) -> None:
        try:
            async with asyncio.timeout(self._settings.attach_seconds):
                await producer.ready()
        except LinkRefused as refused:
            raise Refusal(
                Rule.UNREACHABLE, f"{self.code} gives no link to {queue}: {refused}"
            ) from None
        except TimeoutError:
            # The connection went meanwhile: whoever waits here keeps others from their turn.
            raise Refusal(
                Rule.UNREACHABLE, f"{self.code} does not answer: {self.why or 'no link'}"
            ) from None

    async def _producer(self, queue: str) -> Producer:
        group = self._producers.get(queue)
        if group is None:
            while len(self._producers) >= self._settings.max_recipients:
                _, oldest = self._producers.popitem(last=False)
                await asyncio.gather(*(producer.close() for producer in oldest))
            size = self._settings.group(self.code, queue)
            group = self._producers[queue] = [self._keeper.producer(queue) for _ in range(size)]
        self._producers.move_to_end(queue)
        self._turn += 1
        return group[self._turn % len(group)]

    # ------------------------------------------------------------ the connection

    async def close(self) -> None:
        self._consumers.clear()
        self._producers.clear()
        self.connected = False
        self.why = "closed"
        self._first.set()
        await self._keeper.close()

    def _state(self, connected: bool, why: str) -> None:
        changed = connected != self.connected or not self._first.is_set()
        self.connected = connected
        self.why = "" if connected else why
        self._first.set()
        if changed:
            self._on_state(self)


def _refusal(code: str, outcome: Outcome) -> Refusal:
    said = f"{outcome.condition} {outcome.description}".strip()
    if outcome.kind is OutcomeKind.REJECTED:
        return Refusal(
            Rule.UNREACHABLE, f"{code} rejected the message: {said or 'no reason given'}"
        )
    if outcome.kind in (OutcomeKind.LOST, OutcomeKind.UNSENT):
        return Refusal(Rule.UNREACHABLE, f"the connection to {code} was lost during the transfer")
    return Refusal(Rule.UNREACHABLE, f"{code} gave the message back: {said or outcome.kind}")
