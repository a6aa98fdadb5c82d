"""What a component may change in its own entry, and the directory's entry of itself (503 cl. 7.2, 7.3)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import structlog

from gridpost import __version__
from gridpost.core import directory_journal
from gridpost.core.certificate import Certificate
from gridpost.core.component import Component, ComponentType, Implementation, inconsistencies
from gridpost.core.directory_ports import RegistryStore, RegistryUnit
from gridpost.core.instant import Instant
from gridpost.core.journal import AdministrationRow
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.registry_office import Applicant, entry_on_push
from gridpost.core.version import INSTALLED
from gridpost.services.component_directory.authority import ledger_line
from gridpost.services.component_directory.publication import Publication

log = structlog.get_logger(__name__)


class Entries:
    """Entries of the own subsystem, changed by their owners."""

    def __init__(self, store: RegistryStore, clock: Clock, publication: Publication) -> None:
        self._store = store
        self._clock = clock
        self._publication = publication

    def may_push(self, kind: ComponentType, code: str, applicant: Applicant) -> None:
        """503 Table 25: only the component itself, under the resource of its own type."""
        component = applicant.component
        if component is None:
            raise Refusal(
                Rule.INSTALLATION_CERTIFICATE,
                "an installation certificate opens /registrations only",
            )
        if applicant.code != code or component.type is not kind:
            raise Refusal(
                Rule.ACCESS_DENIED,
                f"{applicant.code} may push the entry of {applicant.code} only",
            )
        if component.component_directory != self._publication.settings.code:
            raise Refusal(
                Rule.RESOURCE_UNKNOWN,
                f"{code} is registered with {component.component_directory}, not here",
            )

    async def push(self, pushed: Component, code: str, applicant: Applicant) -> Component:
        """The entry as it is published after the push."""
        self.may_push(pushed.type, code, applicant)
        at = self._clock.now()

        def work(unit: RegistryUnit) -> Component:
            known = unit.entries.find(code)
            if known is None:  # revoked since it was identified
                raise Refusal(Rule.RESOURCE_UNKNOWN, f"there is no entry {code}")
            entry = entry_on_push(known, pushed, at=at)
            if entry is not known:
                unit.entries.put(entry)
                unit.journal.append(
                    AdministrationRow(
                        at,
                        actor=applicant.code,
                        action="entry pushed",
                        target=code,
                        after=", ".join(_changes(known, entry)),
                    )
                )
                for row in directory_journal.rows([known], [entry], at):
                    unit.journal.append(row)
            return entry

        entry = await self._store.run(work)
        log.info("entry pushed", code=code, changed=entry.modified == Instant.of(at))
        return entry

    async def publish_own(self, certificates: tuple[Certificate, ...]) -> Component:
        """503 cl. 7.2: the one entry of the directory itself, from its configuration and keys."""
        at = self._clock.now()
        settings = self._publication.settings

        def work(unit: RegistryUnit) -> Component:
            known = unit.entries.find(settings.code)
            entry = self._own(known, certificates, at)
            for certificate in certificates:
                unit.ledger.record(ledger_line(certificate, settings.code))
            if entry != known:
                unit.entries.put(entry)
                unit.journal.append(
                    AdministrationRow(
                        at,
                        actor=settings.code,
                        action="own entry published",
                        target=settings.code,
                        after=", ".join(_changes(known, entry) if known else ["created"]),
                    )
                )
                for row in directory_journal.rows([known] if known else [], [entry], at):
                    unit.journal.append(row)
            return entry

        return await self._store.run(work)

    def _own(
        self, known: Component | None, certificates: tuple[Certificate, ...], at: datetime
    ) -> Component:
        settings = self._publication.settings
        entry = Component(
            settings.code,
            ComponentType.COMPONENT_DIRECTORY,
            settings.contact,
            settings.code,
            Implementation(str(INSTALLED), "Gridpost", __version__, str(INSTALLED)),
            settings.urls,
            certificates,
            known.created if known else Instant.of(at),
            known.modified if known else Instant.of(at),
        )
        for problem in inconsistencies(entry):
            raise Refusal(Rule.INCONSISTENT_CONFIGURATION, f"own entry: {problem}")
        return entry if entry == known else replace(entry, modified=Instant.of(at))


def _changes(before: Component, after: Component) -> list[str]:
    names = ("contact", "urls", "implementation", "paths", "restriction", "certificates")
    return [name for name in names if getattr(before, name) != getattr(after, name)]
