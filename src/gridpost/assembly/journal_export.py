"""The exporter of a component's journal: which store, which landing folder, when it looks again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError
from watchfiles import watch

from gridpost.assembly.broker_configuration import QueuesPostgresSection
from gridpost.assembly.clock import SystemClock
from gridpost.assembly.configuration import read_toml
from gridpost.assembly.journal_configuration import landing_of
from gridpost.assembly.postgres_configuration import PostgresSection
from gridpost.core.refusal import Refusal, Rule
from gridpost.pipeline.files import Place, place
from gridpost.stores.segments.export import (
    Export,
    Exporter,
    component_cpu_seconds,
    lower_priority,
)
from gridpost.stores.segments.landing import Landing


class JournalExporter(Protocol):
    def run(self) -> list[Export]:
        """Everything that is committed now: one result for each journal of the component."""
        ...


@dataclass(frozen=True, slots=True)
class ExportJob:
    """What `gridpost journal export` was asked to do."""

    exporter: JournalExporter
    watched: Path | None
    """The store whose changes the kernel tells; None: a database elsewhere."""

    def component_cpu_seconds(self) -> float | None:
        """Of the component beside which this runs; None: it does not run, or elsewhere."""
        return None if self.watched is None else component_cpu_seconds(self.watched)

    def once(self) -> list[Export]:
        return self.exporter.run()

    def follow(self, interval: timedelta, stop: threading.Event) -> Iterator[list[Export]]:
        """After each change of the store, at most once in an interval."""
        yield self.exporter.run()
        last = time.monotonic()
        seconds = interval.total_seconds()
        for _ in self._changes(seconds, stop):
            if stop.wait(max(0.0, last + seconds - time.monotonic())):
                break
            last = time.monotonic()
            done = self.exporter.run()
            if any(one.segments for one in done):
                yield done
        yield self.exporter.run()

    def _changes(self, seconds: float, stop: threading.Event) -> Iterator[object]:
        if self.watched is not None:
            # Commits append to the write-ahead log.
            yield from watch(
                self.watched, stop_event=stop, recursive=False, step=200, raise_interrupt=False
            )
        while self.watched is None and not stop.wait(seconds):
            yield None


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
    model = QueuesPostgresSection if content["component"] == "broker" else PostgresSection
    try:
        return model(**section).beside(file.resolve().parent)
    except ValidationError as error:
        raise Refusal(Rule.USAGE, f"{file}: postgres: {error.errors()[0]['msg']}") from None
