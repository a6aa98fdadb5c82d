"""Keeping the local copy fresh (503 cl. 7.7): whom to ask, how often, and what to do when nobody answers.

Decides the moment of the next request. The content of a request and what an answer changes are
decided in `core.synchronisation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from gridpost.core.identifiers import ComponentCode
from gridpost.core.ports import HttpsCaller
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.synchronisation import Directory, merge
from gridpost.services.directory_client.context import ClientContext
from gridpost.services.directory_client.cycle import Cycle
from gridpost.services.directory_client.directory_peer import is_directory
from gridpost.services.directory_client.exchange import DirectoryExchange
from gridpost.services.directory_client.local_copy import LocalCopy
from gridpost.services.directory_client.retry import Backoff
from gridpost.wire.directory import Query

log = structlog.get_logger(__name__)

# 503 cl. 7.7.1: at the latest when this part of the validity is used up, whatever the cycle.
_USED_UP = 2 / 3
_SHORTEST = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class SynchronisationState:
    """For the operator."""

    succeeded_at: datetime | None = None
    succeeded_with: ComponentCode | None = None
    failed_at: datetime | None = None
    reason: str = ""
    warnings: tuple[str, ...] = ()


class Synchroniser:
    """Asks the first available component-directory, cycle after cycle."""

    def __init__(self, context: ClientContext, copy: LocalCopy, caller: HttpsCaller) -> None:
        self._context = context
        self._copy = copy
        self._caller = caller
        self._backoff = Backoff(context.retries)
        self._cycle = Cycle(self.attempt)
        self.state = SynchronisationState()

    async def run(self) -> None:
        """Until cancelled. Whatever goes wrong, the next attempt is made."""
        await self._cycle.run()

    def wake(self) -> None:
        """Synchronise now rather than at the end of the cycle."""
        self._cycle.wake()

    async def attempt(self) -> timedelta:
        """One round; how long to wait for the next."""
        try:
            await self.round()
        except Refusal as refusal:
            return self._failed(refusal)
        except Exception as error:
            # Our own bug must not end the loop: the copy would lapse and stop every message.
            log.exception("synchronisation failed")
            return self._failed(Refusal(Rule.INTERNAL, f"{type(error).__name__}: {error}"))
        self._backoff.succeeded()
        return self.until_next(self._context.clock.now())

    async def round(self) -> ComponentCode:
        """503 cl. 7.7.3: the first of the list that answers; which one it was."""
        failures: list[Refusal] = []
        for code in self.directories():
            try:
                await self._synchronise_with(code)
            except Refusal as refusal:
                log.warning(
                    "directory not available", directory=code, reason=refusal.message, id=refusal.id
                )
                failures.append(refusal)
            else:
                return code
        if not failures:
            raise Refusal(
                Rule.NOT_ENROLLED,
                f"{self._context.code} is not registered and has no directory to ask",
                "register it first",
            )
        if len(failures) == 1:
            raise failures[0]
        raise Refusal(failures[0].rule, "; ".join(f.message for f in failures))

    def directories(self) -> tuple[ComponentCode, ...]:
        """The configured list; without one the home directory (503 cl. 7.7.3)."""
        if self._context.settings.directories:
            return self._context.settings.directories
        home = self._copy.home
        return () if home is None else (home.code,)

    def until_next(self, now: datetime) -> timedelta:
        """The cycle, or less when data would lapse before it is over (503 cl. 7.7.1)."""
        cycle = self._context.settings.cycle
        ends = [
            s.valid_until for s in self._copy().subsystems.values() if s.valid_until is not None
        ]
        if not ends:
            return cycle
        return min(cycle, max(_SHORTEST, (min(ends) - now) * _USED_UP))

    async def _synchronise_with(self, code: ComponentCode) -> None:
        entry = self._copy.directory_entry(code)
        if entry is None:
            raise Refusal(
                Rule.COMPONENT_UNKNOWN, f"no component-directory {code} is known", "check the list"
            )
        home, context = self._copy.home, self._context
        urls = entry.urls or (home.urls if home is not None and home.code == code else ())
        exchange = DirectoryExchange(
            self._caller, urls, is_directory(entry, home, context.roots, context.clock)
        )
        before: Directory = self._copy()
        # Validity counts from here: an answer that is long under way is older than it looks.
        at = context.clock.now()
        received = await exchange.synchronise(Query(before.couples()))
        result = merge(before, received.answer, at=at)
        await self._copy.take(result, at)
        warnings = (*received.warnings, *result.warnings)
        for warning in warnings:
            log.warning("synchronised data", directory=code, warning=warning)
        if result.changed:
            log.info("directory changed", directory=code, subsystems=sorted(result.changed))
        self.state = SynchronisationState(at, code, warnings=warnings)

    def _failed(self, refusal: Refusal) -> timedelta:
        now = self._context.clock.now()
        self.state = SynchronisationState(
            self.state.succeeded_at,
            self.state.succeeded_with,
            now,
            refusal.message,
            self.state.warnings,
        )
        return self._backoff.failed()
