"""The exporter of a component's journal: which store, which landing folder, when it looks again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import ValidationError

from gridpost.assembly.clock import SystemClock
from gridpost.assembly.configuration import read_toml
from gridpost.assembly.journal_configuration import landing_of
from gridpost.core.refusal import Refusal, Rule
from gridpost.pipeline.files import Place, place
from gridpost.stores.segments.export import (
    Export,
    Exporter,
    component_cpu_seconds,
    lower_priority,
)
from gridpost.stores.segments.landing import Landing

if TYPE_CHECKING:
    from gridpost.assembly.postgres_configuration import PostgresSection


class JournalExporter(Protocol):
    def run(self) -> list[Export]:
        """Everything that is committed now: one result for each journal of the component."""
        ...


@dataclass(frozen=True, slots=True)
class ExportJob:
    """What `gridpost journal export` was asked to do."""

    exporter: JournalExporter
    store: Path | None
    """That of the component; None: a database elsewhere."""

    def component_cpu_seconds(self) -> float | None:
        """Of the component beside which this runs; None: it does not run, or elsewhere."""
        return None if self.store is None else component_cpu_seconds(self.store)

    def once(self) -> list[Export]:
        return self.exporter.run()

    def follow(self, interval: timedelta, stop: threading.Event) -> Iterator[list[Export]]:
        """What is new, once in an interval.

        Nobody watches the files of the store in between: a busy component changes them all the time, and a
        look that finds nothing takes half a millisecond.
        """
        yield self.exporter.run()
        while not stop.wait(interval.total_seconds()):
            done = self.exporter.run()
            if any(one.segments for one in done):
                yield done
        yield self.exporter.run()


def export_job(file: Path, landing: str | Place | None, rows: int) -> ExportJob:
    """By the keys `home` and `store` every component says where its journal is."""
    content = read_toml(file)
    home = content.get("home")
    if not isinstance(home, str) or not isinstance(content.get("component"), str):
        raise Refusal(Rule.USAGE, f"{file}: not the configuration of a component")
    folder = file.resolve().parent / home
    lower_priority()
    target = Landing(place(landing or _configured(file, content) or folder / "landing"))
    now = SystemClock().now
    local = Exporter(folder / "store", target, now, rows)
    section = _database(file, content)
    if section is None:
        return ExportJob(local, folder / "store")
    # Only here: the driver is there with gridpost[postgres] only.
    from gridpost.stores.segments.postgres import PostgresExporter

    shared = PostgresExporter(section.settings(), target, now, rows)
    if content["component"] == "broker":
        # An edge keeps transfers in the database and everything else in its folder.
        return ExportJob(_Both(local, shared), None)
    return ExportJob(shared, None)


def _configured(file: Path, content: dict[str, Any]) -> str:
    section = content.get("journal")
    named = section.get("landing") if isinstance(section, dict) else None
    return landing_of(file, named) if isinstance(named, str) and named else ""


@dataclass(frozen=True, slots=True)
class _Both:
    """The folder first: it is there also while the database is not."""

    local: JournalExporter
    shared: JournalExporter

    def run(self) -> list[Export]:
        return [*self.local.run(), *self.shared.run()]


def _database(file: Path, content: dict[str, Any]) -> PostgresSection | None:
    """Where the journal is if `store`, or the kind that its section says, is "postgres"."""
    store, section = content.get("store"), content.get("postgres")
    kind = store.get("kind") if isinstance(store, dict) else store
    if kind != "postgres" or not isinstance(section, dict):
        return None
    # Only here: what a configuration of a broker needs takes longer to load than everything else.
    from gridpost.assembly.broker_configuration import QueuesPostgresSection
    from gridpost.assembly.postgres_configuration import PostgresSection

    model = QueuesPostgresSection if content["component"] == "broker" else PostgresSection
    try:
        return model(**section).beside(file.resolve().parent)
    except ValidationError as error:
        raise Refusal(Rule.USAGE, f"{file}: postgres: {error.errors()[0]['msg']}") from None
