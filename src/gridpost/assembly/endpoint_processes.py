"""Several processes of one endpoint over one database: who does what, and who hears of what.

Transfers, arrivals and channels run in every process. Duties that must not run twice at a time run
where their lease is, and what they write is refused once another process has the lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import structlog

from gridpost.assembly.endpoint_keys import EndpointKeys
from gridpost.assembly.endpoint_parts import EndpointCore
from gridpost.assembly.endpoint_wishes import Wishes
from gridpost.core.delivery import Side, TraceEntry
from gridpost.core.message_box import BoxEntry
from gridpost.core.ports import UnitOfWork
from gridpost.services.directory_client.client import DirectoryClient
from gridpost.services.endpoint.service import Duty, EndpointService
from gridpost.stores.postgres.endpoint import PostgresEndpointStore, fenced_by
from gridpost.stores.postgres.leases import Leases
from gridpost.stores.postgres.news import Listener, Topic
from gridpost.stores.postgres.processes import process_name
from gridpost.stores.postgres.transaction import Fence

log = structlog.get_logger(__name__)

LISTENING = "listening"


class EndpointProcess:
    """This process among those of its endpoint."""

    def __init__(
        self,
        store: PostgresEndpointStore,
        core: EndpointCore,
        client: DirectoryClient,
        keys: EndpointKeys,
    ) -> None:
        self._store = store
        self._core = core
        self._client = client
        self._keys = keys
        self._leases = Leases(store.settings, process_name())
        self._listener = Listener(store.settings, lambda: store.process, self._heard, self._lost)
        self._looking = asyncio.Event()
        self._listens = False
        store.keeps_order = lambda message_type: core.context.settings.keeps_order(message_type)
        core.lines.may_listen = self._may_listen
        self._wishes = Wishes(store, core.operating)
        core.operating.ask_owner = self._wishes.ask
        core.views["processes"] = self._view
        self._leases.add("take-over", self._leased("take-over", [Duty("take-over", self._succeed)]))
        self._leases.add(LISTENING, self._listen)

    def once(self, name: str, duties: Sequence[Duty]) -> None:
        """These run in one process at a time."""
        self._leases.add(name, self._leased(name, duties))

    def duties(self) -> list[Duty]:
        return [Duty("news", self._listener.run), Duty("leases", self._leases.run)]

    def _view(self) -> dict[str, object]:
        return {"number": self._store.process, "duties": sorted(self._leases.held())}

    def _leased(self, name: str, duties: Sequence[Duty]) -> Callable[[Fence], Awaitable[None]]:
        async def run(fence: Fence) -> None:
            with fenced_by(fence):
                await EndpointService(duties).run()

        return run

    # ------------------------------------------------------------ the work of others

    async def _succeed(self) -> None:
        """Until cancelled: what a process leaves behind is taken over."""
        while True:
            self._looking.clear()
            gone = await self._store.take_over()
            if gone:
                log.warning("processes are gone; their work is taken over", processes=gone)
                self._look_at_everything()
                await self._wishes.answer()
            try:
                async with asyncio.timeout(self._store.settings.lease_look.total_seconds()):
                    await self._looking.wait()
            except TimeoutError:
                continue

    # ------------------------------------------------------------ order on arrival

    def _may_listen(self) -> bool:
        """503 cl. 5.11: two processes that consume from one queue would overtake each other."""
        return self._listens or not self._core.context.settings.ordered

    async def _listen(self, fence: Fence) -> None:
        self._listens = True
        self._core.lines.wake()
        try:
            await asyncio.Event().wait()
        finally:
            self._listens = False
            self._core.lines.wake()

    # ------------------------------------------------------------ news

    def _lost(self) -> None:
        if self._core.amqp is not None:
            self._core.amqp.forget_ahead()

    async def _heard(self, topic: Topic, about: str) -> None:
        core = self._core
        match topic:
            case Topic.TRANSFER:
                if about == str(self._store.process):
                    core.dispatcher.wake()
            case Topic.OFFERED:
                await self._offered(about)
            case Topic.STATUS:
                await self._moved(about)
            case Topic.NOTICE if core.amqp is not None:
                core.amqp.noticed(about)
            case Topic.LET_GO if core.amqp is not None:
                core.amqp.freed(about)
            case Topic.DIRECTORY:
                await self._synchronised()
            case Topic.OWN_ENTRY:
                await self._client.configuration.load()
                self._client.configuration.wake()
            case Topic.KEYS:
                await self._reload()
            case Topic.HOLDS:
                await core.operating.reload()
                await self._wishes.answer()
            case Topic.GONE:
                self._looking.set()
            case Topic.EVERYTHING:
                await self._reload()
                await core.operating.reload()
                self._look_at_everything()
                await self._wishes.answer()
            case _:
                pass

    def _look_at_everything(self) -> None:
        self._core.lines.wake()
        self._core.dispatcher.wake()
        if self._core.amqp is not None:
            self._core.amqp.forget_ahead()

    async def _reload(self) -> None:
        await asyncio.to_thread(self._keys.reload)
        await self._client.open()
        self._client.configuration.wake()
        self._core.directory_changed()

    async def _synchronised(self) -> None:
        """By the process that has this duty; what it got is the truth for all."""
        before = self._client.directory()
        after = await self._client.copy.load()
        state = self._client.synchroniser.state
        now = self._core.context.clock.now()
        self._client.synchroniser.state = replace(state, succeeded_at=now, reason="")
        if after != before:
            self._core.directory_changed()

    async def _offered(self, message_type: str) -> None:
        now = self._core.context.clock.now()
        # The newest is enough: a listener looks for all that waits.
        found = await self._store.read(lambda work: work.box.newest_waiting(message_type, now))
        if found is not None:
            self._core.context.signals.offered_elsewhere(found)

    async def _moved(self, message_id: str) -> None:
        def look(work: UnitOfWork) -> tuple[BoxEntry | None, Sequence[TraceEntry]]:
            return work.box.find(Side.SENT, message_id), work.box.trace(Side.SENT, message_id)

        entry, trace = await self._store.read(look)
        if entry is not None and trace:
            self._core.context.signals.happened_elsewhere(entry, trace[-1])
