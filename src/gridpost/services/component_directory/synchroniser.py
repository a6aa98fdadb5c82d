"""Synchronisation with the other component-directories of the system (503 cl. 4.4.3, 7.7).

Each asks each of the others for the other's own subsystem and nothing else. What arrives replaces
the replica as a whole, in one transaction, and never outlives what was granted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog

from gridpost.core.component import ComponentType
from gridpost.core.directory_ports import RegistryStore, RegistryUnit
from gridpost.core.https import Authorise, HttpAnswer, HttpRequest
from gridpost.core.identifiers import ComponentCode
from gridpost.core.journal import AdministrationRow
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.synchronisation import (
    Answer,
    Couple,
    Directory,
    Merge,
    Subsystem,
    content_id,
    merge_home_of,
)
from gridpost.services.component_directory.api import PREFIX
from gridpost.services.component_directory.gatekeeper import proves
from gridpost.services.component_directory.metrics import DirectoryMetrics
from gridpost.services.component_directory.publication import Publication
from gridpost.services.component_directory.settings import Peer
from gridpost.services.directory_client.cycle import Cycle
from gridpost.wire.directory import (
    Query,
    decode_components,
    decode_error,
    encode_query,
)
from gridpost.wire.x509 import Purpose, verify_chain

log = structlog.get_logger(__name__)

Ask = Callable[[Peer, HttpRequest, Authorise], Awaitable[HttpAnswer]]
"""Sends a request to the first URL of a peer that answers, over a connection that was authorised."""


@dataclass(frozen=True, slots=True)
class PeerState:
    """How the synchronisation with a peer goes, for the operator."""

    code: ComponentCode
    succeeded_at: datetime | None = None
    failed_at: datetime | None = None
    reason: str = ""


class Synchroniser:
    def __init__(
        self,
        store: RegistryStore,
        clock: Clock,
        publication: Publication,
        metrics: DirectoryMetrics,
        ask: Ask,
        roots: Callable[[], Sequence[bytes]],
    ) -> None:
        self._store = store
        self._clock = clock
        self._publication = publication
        self._metrics = metrics
        self._ask = ask
        self._roots = roots
        self._states: dict[ComponentCode, PeerState] = {}
        self._cycle = Cycle(self._peers)

    @property
    def states(self) -> tuple[PeerState, ...]:
        peers = self._publication.settings.peers
        return tuple(self._states.get(p.code, PeerState(p.code)) for p in peers)

    async def run(self) -> None:
        """Until cancelled: all peers at once, cycle after cycle (503 cl. 7.7.3)."""
        await self._cycle.run()

    def reconfigured(self) -> None:
        """Another list of peers, or another cycle: it counts now, not when the old one is over."""
        self._cycle.wake()

    async def _peers(self) -> timedelta:
        await self.cycle()
        return self._publication.settings.cycle

    async def cycle(self) -> None:
        """One round. A peer that cannot be reached holds up nobody."""
        await self.forget_others()
        await asyncio.gather(*(self._attempt(p) for p in self._publication.settings.peers))

    async def forget_others(self) -> None:
        """503 cl. 7.7.2: a subsystem that is no longer in the configured list disappears."""
        wanted = {peer.code for peer in self._publication.settings.peers}

        def work(unit: RegistryUnit) -> None:
            for replica in unit.entries.replicas():
                if replica.component_directory not in wanted:
                    unit.entries.drop_replica(replica.component_directory)

        directory = await self._publication.directory()
        if set(directory.subsystems) - wanted - {self._publication.settings.code}:
            await self._store.run(work)

    async def synchronise(self, peer: Peer) -> Merge:
        """Ask one peer once, and take over what it answers."""
        # 503 cl. 7.7.2: one couple, of the server itself; none before the first answer.
        held = (await self._publication.directory()).subsystems.get(peer.code)
        couples = () if held is None else (Couple(peer.code, held.content_id),)
        request = HttpRequest(
            "GET", f"{PREFIX}/components", encode_query(Query(couples, only_home=True))
        )
        at = self._clock.now()
        identities = await self._publication.identities()

        def authorise(chain: Sequence[bytes]) -> None:
            verified = verify_chain(chain, self._roots(), self._clock.now(), Purpose.SERVER)
            try:
                known = identities.identify(verified.leaf, verified.issuer, self._clock.now())
            except Refusal:
                if verified.leaf.subject_code == peer.code and proves(peer, verified):
                    return
                raise
            if known.code != peer.code or known.type is not ComponentType.COMPONENT_DIRECTORY:
                raise Refusal(
                    Rule.CERTIFICATE_NOT_OF_COMPONENT,
                    f"the server is {known.code}, not the component-directory {peer.code}",
                )

        answer = await self._ask(peer, request, authorise)
        if answer.status != 200:
            raise Refusal(Rule.UNREACHABLE, f"{peer.code} answered {_reason(answer)}")
        received = await asyncio.to_thread(decode_components, answer.body)
        for warning in received.warnings:
            log.warning("synchronised data is faulty", component_directory=peer.code, what=warning)
        return await self._store.run(lambda unit: self._take(unit, peer, received.answer, at))

    async def _attempt(self, peer: Peer) -> None:
        before = self._states.get(peer.code, PeerState(peer.code))
        now = self._clock.now()
        try:
            merge = await self.synchronise(peer)
        except Refusal as refusal:
            self._failed(before, now, f"{refusal.message} {refusal.details}".strip())
        except Exception as error:
            log.exception("synchronisation failed", component_directory=peer.code)
            self._failed(before, now, type(error).__name__)
        else:
            self._states[peer.code] = PeerState(peer.code, succeeded_at=now)
            self._metrics.received(peer.code, now)
            for warning in merge.warnings:
                log.warning(
                    "synchronised data rejected", component_directory=peer.code, why=warning
                )
            if merge.changed:
                log.info("subsystem replaced", component_directory=peer.code)

    def _failed(self, before: PeerState, at: datetime, reason: str) -> None:
        self._states[before.code] = replace(before, failed_at=at, reason=reason)
        self._metrics.not_received(before.code)
        log.warning("synchronisation failed", component_directory=before.code, reason=reason)

    def _take(self, unit: RegistryUnit, peer: Peer, received: Answer, at: datetime) -> Merge:
        own = tuple(unit.entries.own())
        home = Subsystem(self._publication.settings.code, content_id(own), own)
        merge = merge_home_of(
            Directory.of([home, *unit.entries.replicas()]), received, peer.code, at=at
        )
        replica = merge.directory.subsystems.get(peer.code)
        if replica is None:
            unit.entries.drop_replica(peer.code)
        else:
            unit.entries.put_replica(replica)
        if merge.changed:
            unit.journal.append(
                AdministrationRow(
                    at,
                    actor=peer.code,
                    action="subsystem synchronised",
                    target=peer.code,
                    after=replica.content_id if replica else "",
                    reason="; ".join(merge.warnings),
                )
            )
        return merge


def _reason(answer: HttpAnswer) -> str:
    try:
        return f"{answer.status}: {decode_error(answer.body)}"
    except Refusal:
        return str(answer.status)
