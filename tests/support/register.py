"""The registers of requirements: what each document demands, and what a claim on a row may say.

A row names one or several components, and counts once for each: the unit of conformance is the
pair (row, component).
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

LEVELS = ("MUST", "SHOULD", "MAY")
COLUMNS = ["id", "clause", "level", "component", "requirement", "verify"]
EXCEPTION_COLUMNS = ["id", "component", "reason"]
EXCEPTIONS_FILE = "exceptions.csv"
ELSEWHERE_FILE = "proven_elsewhere.csv"

# How the ledger names a register; a register that is not listed goes by its file name.
TITLES = {
    "503-delivery": "IEC 62325-503, delivery",
    "503-directory-and-interfaces": "IEC 62325-503, directory and interfaces",
    "61968-100": "IEC 61968-100",
    "cmm": "XBID CMM public message interface",
    "mades-1.1": "MADES 1.1",
}


class RegisterError(Exception):
    """A register, an exception or a marker that cannot be right."""


@dataclass(frozen=True, slots=True, order=True)
class Pair:
    """One row as far as it concerns one component."""

    row: str
    component: str


@dataclass(frozen=True, slots=True)
class Row:
    id: str
    document: str
    level: str
    components: tuple[str, ...]

    def pair(self, component: str | None) -> Pair:
        """The pair that a claim means; without a component only where the row names just one."""
        choices = ", ".join(self.components)
        if component is None:
            if len(self.components) > 1:
                raise RegisterError(f"{self.id} needs component=, one of: {choices}")
            return Pair(self.id, self.components[0])
        if component not in self.components:
            raise RegisterError(f"{self.id} does not concern {component!r}, only: {choices}")
        return Pair(self.id, component)


@dataclass(frozen=True, slots=True)
class Registers:
    """All rows, in the order of their files, and the pairs that are not implemented with a reason."""

    rows: Mapping[str, Row]
    exceptions: Mapping[Pair, str] = field(default_factory=dict)
    elsewhere: Mapping[Pair, str] = field(default_factory=dict)
    """Pairs whose proof does not speak with the component by its own protocol, and why."""

    def claim(self, ids: Sequence[str], component: str | None) -> Iterable[Pair]:
        """The pairs that one marker claims to prove."""
        for id_ in ids:
            row = self.rows.get(id_)
            if row is None:
                raise RegisterError(f"{id_!r} is not a requirement of any register")
            pair = row.pair(component)
            if pair in self.exceptions:
                raise RegisterError(
                    f"{id_} ({pair.component}) stands in {EXCEPTIONS_FILE} and is claimed by a test"
                )
            yield pair

    @property
    def documents(self) -> list[str]:
        return list(dict.fromkeys(row.document for row in self.rows.values()))

    def pairs(self, document: str, level: str | None = None) -> list[tuple[Row, Pair]]:
        return [
            (row, Pair(row.id, component))
            for row in self.rows.values()
            if row.document == document and level in (None, row.level)
            for component in row.components
        ]


def read_registers(folder: Path) -> Registers:
    rows: dict[str, Row] = {}
    for file in sorted(folder.glob("*.csv")):
        if file.name in (EXCEPTIONS_FILE, ELSEWHERE_FILE):
            continue
        for line, cells in _read(file, COLUMNS):
            row = Row(
                id=cells["id"],
                document=TITLES.get(file.stem, file.stem),
                level=cells["level"],
                components=tuple(cells["component"].split("+")),
            )
            if row.id in rows:
                raise RegisterError(f"{file.name}:{line}: {row.id} stands in the registers twice")
            if row.level not in LEVELS:
                raise RegisterError(f"{file.name}:{line}: level {row.level!r} is none of {LEVELS}")
            if not all(row.components) or len(set(row.components)) != len(row.components):
                raise RegisterError(f"{file.name}:{line}: component {cells['component']!r}")
            rows[row.id] = row
    if not rows:
        raise RegisterError(f"no register of requirements in {folder}")
    return Registers(
        rows,
        _read_reasons(folder / EXCEPTIONS_FILE, rows),
        _read_reasons(folder / ELSEWHERE_FILE, rows),
    )


def _read_reasons(file: Path, rows: Mapping[str, Row]) -> dict[Pair, str]:
    exceptions: dict[Pair, str] = {}
    if not file.exists():
        return exceptions
    for line, cells in _read(file, EXCEPTION_COLUMNS):
        row = rows.get(cells["id"])
        if row is None:
            raise RegisterError(f"{file.name}:{line}: {cells['id']!r} is not a requirement")
        if not cells["reason"]:
            raise RegisterError(f"{file.name}:{line}: {row.id} stands there without a reason")
        exceptions[row.pair(cells["component"] or None)] = cells["reason"]
    return exceptions


def _read(file: Path, columns: list[str]) -> Iterable[tuple[int, dict[str, str]]]:
    with file.open(newline="", encoding="utf-8") as text:
        reader = csv.DictReader(text, strict=True)
        if reader.fieldnames != columns:
            raise RegisterError(f"{file.name}: columns are {reader.fieldnames}, not {columns}")
        for cells in reader:
            if None in cells or None in cells.values():
                raise RegisterError(f"{file.name}:{reader.line_num}: not {len(columns)} columns")
            yield reader.line_num, {name: value.strip() for name, value in cells.items()}
