"""The broker as a whole: who may connect, what is looked after in between, what operators see."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

import structlog

from gridpost.core.certificate import CertificateKind
from gridpost.core.journal import AdministrationRow, RefusalRow
from gridpost.core.links import Admission, Connection, Peer
from gridpost.core.queues import SharedQueueStore
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.broker.context import BrokerContext
from gridpost.services.broker.queues import Queues
from gridpost.services.broker.session import Session
from gridpost.services.broker.settings import BrokerSettings
from gridpost.services.operations.doorstep import Doorstep
from gridpost.wire.x509 import Purpose, read_certificate, verify_chain

log = structlog.get_logger(__name__)

_PRUNE_EVERY = timedelta(minutes=10)
_LOCK_OUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class QueueView:
    """One line of `gridpost broker queues`."""

    code: str
    depth: int
    octets: int
    under_way: int
    held: int
    producers: int
    consumers: int
    oldest_at: datetime | None

    def plain(self) -> dict[str, Any]:
        return {
            "queue": self.code,
            "messages": self.depth,
            "octets": self.octets,
            "under_way": self.under_way,
            "held": self.held,
            "producers": self.producers,
            "consumers": self.consumers,
            "oldest": None if self.oldest_at is None else self.oldest_at.isoformat(),
        }


class Broker:
    """core.links.Gatekeeper."""

    def __init__(self, context: BrokerContext) -> None:
        self.context = context
        self.queues = Queues(context)
        self._sessions: set[Session] = set()
        self._pruned_at: datetime | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.doorstep = Doorstep(
            self._keep, context.clock, context.metrics.refused, context.settings.refused_connections
        )

    # ------------------------------------------------------------ connecting

    async def admit(self, peer: Peer, connection: Connection) -> Admission:
        """503 Table 4, Connect. The chain was verified by TLS; here it is judged by our own rules."""
        context = self.context
        now = context.clock.now()
        try:
            if context.store.trouble is not None:
                # Another address of this broker may serve.
                raise context.store.trouble
            # The root that ends a verified chain is ours, not the peer's.
            verified = verify_chain(peer.chain[:-1], context.roots(), now, Purpose.CLIENT)
            component = context.identities().identify(verified.leaf, verified.issuer, now)
            context.access.connect(context.directory(), component.code, now)
        except Refusal as refusal:
            context.refused(refusal, f"{_claimed(peer.chain)} {peer.address}".strip())
            raise
        session = Session(
            context,
            self.queues,
            component.code,
            verified.leaf,
            verified.issuer,
            connection,
            self._sessions.discard,
        )
        self._sessions.add(session)
        log.info("connected", client=component.code, peer=peer.address)
        return Admission(component.code, session, until=verified.leaf.not_after)

    def refused(self, refusal: Refusal, identity: str, address: str) -> None:
        """By the transport: a limit, a wrong frame, TLS. Whoever is not known is on the doorstep."""
        if identity:
            self.context.refused(refusal, identity)
        else:
            self.doorstep.refused(refusal, address)

    async def _keep(self, rows: Sequence[RefusalRow]) -> None:
        for row in rows:
            self.context.write_down(row)

    def check_sessions(self) -> int:
        """After a synchronisation or a new restriction; how many connections were closed."""
        return sum(not session.check() for session in list(self._sessions))

    # ------------------------------------------------------------ running

    async def open(self) -> None:
        store = self.context.store
        if store.capabilities.shared:
            await cast(SharedQueueStore, store).serve(self._store_lost, self._told_to_lock_out)
        await self.queues.open()

    def _store_lost(self, refusal: Refusal) -> None:
        """Nothing is settled: clients connect again, and what was open is sent again."""
        log.error("store out of reach", why=refusal.message)
        self.queues.lost()
        for session in list(self._sessions):
            session.leave(refusal)

    # ------------------------------------------------------------ removing a queue

    async def remove_queue(self, code: str, actor: str) -> None:
        """503 cl. 6.3, by an administrator: locked out first, proven empty, then removed."""
        async with self.queues.locked_out(code) as queue:
            if queue is None:
                raise Refusal(Rule.QUEUE_UNKNOWN, f"there is no queue {code} here")
            await self._lock_out(code)
            if not await self.queues.remove(code):
                raise Refusal(Rule.QUEUE_NOT_EMPTY, f"the queue {code} is not empty")
        self.context.write_down(
            AdministrationRow(
                self.context.clock.now(), actor=actor, action="queue removed", target=code
            )
        )

    async def _lock_out(self, code: str) -> None:
        queue = self.queues.get(code)
        if queue is None:
            return
        refusal = Refusal(Rule.QUEUE_IN_USE, f"the queue {code} is being removed")
        for taker in list(queue.takers):
            taker.link.close(refusal)
        for session in list(self._sessions):
            session.lock_out(code, refusal)
        deadline = asyncio.get_running_loop().time() + _LOCK_OUT_SECONDS
        while queue.referred:
            if asyncio.get_running_loop().time() > deadline:
                raise Refusal(Rule.QUEUE_IN_USE, f"links still lead to the queue {code}")
            await asyncio.sleep(0.02)

    def _told_to_lock_out(self, code: str) -> None:
        task = asyncio.get_running_loop().create_task(self._lock_out_and_leave(code))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _lock_out_and_leave(self, code: str) -> None:
        try:
            async with self.queues.locked_out(code):
                await self._lock_out(code)
                await self.queues.leave(code)
                # A client attaches again at once: let the other edge be first.
                await asyncio.sleep(_LOCK_OUT_SECONDS)
        except Refusal as refusal:
            log.warning("queue not let go of", queue=code, why=refusal.message)

    def configure(self, settings: BrokerSettings, actor: str, before: str, after: str) -> None:
        """503 cl. 10: new settings count at once, and what changed is written down."""
        self.context.configure(settings)
        self.doorstep.most = settings.refused_connections
        self.queues.configure()
        self.context.write_down(
            AdministrationRow(
                self.context.clock.now(),
                actor=actor,
                action="settings changed",
                target=settings.code,
                before=before,
                after=after,
            )
        )
        self.check_sessions()

    async def run(self) -> None:
        """Look after everything, until cancelled."""
        while True:
            await asyncio.sleep(self.context.settings.upkeep.total_seconds())
            try:
                await self.look_after()
            except Refusal as refusal:
                log.error("upkeep", why=refusal.message, details=refusal.details)

    async def look_after(self) -> None:
        now = self.context.clock.now()
        self.check_sessions()
        await self.queues.refresh()
        await self.queues.drop_expired()
        await self.context.store.forget(now)
        await self.queues.remove_idle()
        if self._pruned_at is None or now - self._pruned_at >= _PRUNE_EVERY:
            self._pruned_at = now
            retention = self.context.settings.journal_retention
            await self.context.store.prune(now, retention)

    # ------------------------------------------------------------ what operators see

    def view(self) -> Sequence[QueueView]:
        return [
            QueueView(
                queue.code,
                queue.depth,
                queue.octets,
                queue.under_way,
                queue.held,
                queue.producers,
                len(queue.takers),
                queue.oldest_at,
            )
            for queue in self.queues
        ]

    def measure(self) -> None:
        """Bring the figures that describe a state up to date."""
        self.context.metrics.state(
            ((queue.code, queue.depth, queue.oldest_at) for queue in self.queues),
            len(self._sessions),
            self.context.store.space,
            self.context.clock.now(),
        )

    async def health(self) -> dict[str, Any]:
        """Proves a durable write. `ok` is false while new messages are refused."""
        store = self.context.store
        space, trouble = store.space, store.trouble
        took = timedelta(0) if trouble is not None else await store.probe()
        return {
            "ok": not space.refusing and trouble is None,
            "reason": space.reason if trouble is None else trouble.message,
            "commit_ms": round(took.total_seconds() * 1000, 3),
            "free_bytes": space.free,
            "used_bytes": space.used,
            "connections": len(self._sessions),
            "queues": len(list(self.queues)),
        }


def _claimed(chain: Sequence[bytes]) -> str:
    """The name in a certificate that was not believed, for the journal."""
    try:
        return read_certificate(chain[0], CertificateKind.AUTHENTICATION).subject_code
    except (IndexError, Refusal):
        return ""
