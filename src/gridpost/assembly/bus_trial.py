"""A bus without broker and web, for tests of handlers: a message in, what is answered and told out.

Everything between is what a running bus does: rules, schema, transaction, memory of requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from prometheus_client import CollectorRegistry

from gridpost.assembly.clock import SystemClock
from gridpost.core.bus import Outgoing
from gridpost.core.envelope import (
    EventMessage,
    FaultMessage,
    RequestMessage,
    ResponseMessage,
    specific,
)
from gridpost.core.envelope_exchange import Guard
from gridpost.core.refusal import Refusal
from gridpost.services.bus.answering import Arrival
from gridpost.services.bus.metrics import BusMetrics
from gridpost.services.bus.service import BusService
from gridpost.services.bus.settings import BusSettings
from gridpost.stores.sqlite.bus import SqliteBusLedger
from gridpost.wire.envelope import decode, encode


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of a request."""

    responses: tuple[ResponseMessage | FaultMessage, ...]
    events: tuple[EventMessage, ...]

    @property
    def response(self) -> ResponseMessage | FaultMessage:
        """The only one; a one-way request has none."""
        (found,) = self.responses
        return found


class TrialBus:
    """Use `trial_bus`."""

    def __init__(self, service: BusService, context: str) -> None:
        self.service = service
        self._context = context

    async def ask(self, request: RequestMessage | bytes) -> Tried:
        """As a client of a queue asks; a retryable Refusal is raised, as it would be tried again."""
        body = request if isinstance(request, bytes) else encode(request)
        arrival = Arrival(self._context, "trial", "queue:trial", "trial")
        treated = await self.service.processor.request(body, arrival)
        responses: list[ResponseMessage | FaultMessage] = []
        events: list[EventMessage] = []
        for post in treated.posts:
            outgoing = post if isinstance(post, Outgoing) else post.outgoing
            message = specific(decode(outgoing.body))
            if isinstance(message, EventMessage):
                events.append(message)
            elif isinstance(message, ResponseMessage | FaultMessage):
                responses.append(message)
        return Tried(tuple(responses), tuple(events))

    async def tell(self, event: EventMessage | bytes) -> Refusal | None:
        """As an event comes by its topic; why it would be a dead letter, or None."""
        body = event if isinstance(event, bytes) else encode(event)
        return (await self.service.processor.event(body, Arrival(self._context, "trial"))).dead


@asynccontextmanager
async def trial_bus(
    register: Callable[[BusService], None],
    *,
    context: str = "TESTING",
    settings: BusSettings | None = None,
) -> AsyncIterator[TrialBus]:
    """`register` is what a module of handlers has; its tables are in a database that ends here."""
    contexts = frozenset({context})
    settings = settings or BusSettings("TRIAL", contexts, Guard(contexts))
    with TemporaryDirectory(prefix="gridpost-trial-") as folder:
        ledger = await asyncio.to_thread(SqliteBusLedger.open, Path(folder), settings.name)
        try:
            service = BusService(settings, ledger, SystemClock(), BusMetrics(CollectorRegistry()))
            register(service)
            yield TrialBus(service, context)
        finally:
            await ledger.close()
