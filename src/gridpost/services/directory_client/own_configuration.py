"""The component's own configuration data: stored here first, then pushed to the home directory (7.3.3).

Nobody else may be told: 503 cl. 7.1 has one place for it, the component-directory at home.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog

from gridpost.core.component import Component, system_inconsistencies
from gridpost.core.journal import AdministrationRow
from gridpost.core.own_entry import OwnEntry, change, confirm, same_data
from gridpost.core.ports import DirectoryClientWork, HttpsCaller
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.directory_client.context import ClientContext
from gridpost.services.directory_client.cycle import Cycle
from gridpost.services.directory_client.directory_peer import is_directory
from gridpost.services.directory_client.exchange import DirectoryExchange
from gridpost.services.directory_client.local_copy import LocalCopy
from gridpost.services.directory_client.retry import Backoff

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PushState:
    """For the operator: is the directory behind, and why (503 cl. 7.3.3)?"""

    pending: bool = False
    pushed_at: datetime | None = None
    failed_at: datetime | None = None
    reason: str = ""


class OwnConfiguration:
    def __init__(self, context: ClientContext, copy: LocalCopy, caller: HttpsCaller) -> None:
        self._context = context
        self._copy = copy
        self._caller = caller
        self._backoff = Backoff(context.retries)
        self._cycle = Cycle(self.attempt)
        self.state = PushState()

    async def load(self) -> Component | None:
        """What is stored; also after a start, when a push may still be owed."""
        entry = await self._context.store.read(lambda work: work.own_entry.load())
        self.state = replace(self.state, pending=entry is not None and entry.pending)
        return None if entry is None else entry.component

    async def change(self, component: Component, *, by: str) -> None:
        """Store a change of the administrator `by`; refuses what is inconsistent (503 cl. 7.3.1)."""
        if component.code != self._context.code or component.type is not self._context.type:
            raise Refusal(
                Rule.INCONSISTENT_CONFIGURATION,
                f"this is {self._context.type} {self._context.code}, not {component.code}",
            )

        def store(work: DirectoryClientWork) -> OwnEntry:
            before = work.own_entry.load()
            after = change(before, component)
            if after is not before:
                work.own_entry.save(after)
                work.journal.append(
                    AdministrationRow(
                        self._context.clock.now(),
                        actor=by,
                        action="configuration changed",
                        target=component.code,
                        before="" if before is None else f"revision {before.revision}",
                        after=f"revision {after.revision}",
                    )
                )
            return after

        try:
            entry = await self._context.store.run(store)
        except Refusal as refusal:
            if refusal.rule is Rule.INCONSISTENT_CONFIGURATION:
                log.warning(
                    "configuration is inconsistent",
                    problem=refusal.message,
                    more=refusal.details,
                    id=refusal.id,
                )
            raise
        for warning in self._against_system(component):
            log.warning("configuration does not fit the system", warning=warning)
        self.state = replace(self.state, pending=entry.pending)
        self._cycle.wake()

    async def warnings(self) -> tuple[str, ...]:
        """503 cl. 7.3.2: what the rest of the system makes of our configuration at this moment."""
        entry = await self._context.store.read(lambda work: work.own_entry.load())
        return () if entry is None else self._against_system(entry.component)

    async def run(self) -> None:
        """Until cancelled: whatever is pending is pushed, again and again until the home has it."""
        await self._cycle.run()

    def wake(self) -> None:
        """Try now rather than at the end of a back-off."""
        self._cycle.wake()

    async def attempt(self) -> timedelta | None:
        """One push if one is owed; how long to wait before the next attempt, None for ever."""
        try:
            await self.push()
        except Refusal as refusal:
            log.warning("push failed", reason=refusal.message, more=refusal.details, id=refusal.id)
            self._failed(refusal.message)
            return self._backoff.failed()
        except Exception as error:
            # A bug of ours must not end the loop: the change would never reach the directory.
            log.exception("push failed")
            self._failed(f"{type(error).__name__}: {error}")
            return self._backoff.failed()
        self._backoff.succeeded()
        return None

    async def push(self) -> bool:
        """Send what the home directory does not have yet; was there anything?"""
        entry = await self._context.store.read(lambda work: work.own_entry.load())
        if entry is None or not entry.pending:
            return False
        home = self._copy.home
        if home is None:
            raise Refusal(Rule.NOT_ENROLLED, f"{self._context.code} is not registered yet")
        published = self._copy.directory_entry(home.code) or home.entry()
        exchange = DirectoryExchange(
            self._caller,
            published.urls or home.urls,
            is_directory(published, home, self._context.roots, self._context.clock),
        )
        sent = self._with_certificates(entry.component)
        held, warnings = await exchange.push(sent)
        for warning in warnings:
            log.warning("pushed entry", warning=warning)
        if not same_data(held, sent):
            raise Refusal(
                Rule.REFUSED_BY_DIRECTORY,
                f"{home.code} answered the push with other data than it was sent",
            )

        def confirmed(work: DirectoryClientWork) -> OwnEntry:
            latest = work.own_entry.load() or entry
            after = confirm(latest, entry.revision)
            work.own_entry.save(after)
            return after

        after = await self._context.store.run(confirmed)
        self.state = PushState(after.pending, self._context.clock.now())
        log.info("configuration pushed", directory=home.code, revision=entry.revision)
        if after.pending:
            self._cycle.wake()
        return True

    def _with_certificates(self, component: Component) -> Component:
        """Demanded by the schema, ignored by the directory (see divergences, directory owned attributes)."""
        home = self._copy.home
        return replace(
            component,
            certificates=tuple(self._context.keys.certificates()),
            component_directory=component.component_directory if home is None else home.code,
        )

    def _against_system(self, component: Component) -> tuple[str, ...]:
        now = self._context.clock.now()
        others: dict[str, Component] = {c.code: c for c in self._copy().components(now)}
        # Before the first synchronisation everything would look unknown.
        return tuple(system_inconsistencies(component, others)) if others else ()

    def _failed(self, reason: str) -> None:
        self.state = PushState(True, self.state.pushed_at, self._context.clock.now(), reason)
