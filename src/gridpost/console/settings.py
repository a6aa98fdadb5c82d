"""What a console is told by the configuration of its component, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from gridpost.console.oidc import OidcSettings
from gridpost.console.roles import Person, Role


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """Everything here may change while the component runs."""

    people: Mapping[str, Person] = field(default_factory=dict)
    idle: timedelta = timedelta(minutes=30)
    longest: timedelta = timedelta(hours=12)
    attempts: int = 5
    locked: timedelta = timedelta(minutes=15)
    documents: Role = Role.OPERATOR
    """The least role that may take documents and proofs out of the component."""
    oidc: OidcSettings | None = None
    lake: Path | None = None
    """Where the pipeline keeps its tables; with it the console has a page of key figures."""


@dataclass(frozen=True, slots=True)
class Whose:
    """The component whose console this is."""

    code: str
    kind: str
    version: str


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the navigation."""

    path: str
    label: str
    icon: str
    role: Role = Role.VIEWER
