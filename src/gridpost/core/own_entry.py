"""The configuration data that a component owns, and whether its home directory has it already.

503 cl. 7.3.3: a change is stored here first and pushed afterwards, so the directory never holds
what the component lacks. The revision tells a push that was overtaken by a newer change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gridpost.core.component import Component, inconsistencies
from gridpost.core.refusal import Refusal, Rule


@dataclass(frozen=True, slots=True)
class OwnEntry:
    component: Component
    """Only what Table 18 gives to the component counts: its directory owns the rest."""
    revision: int = 1
    pushed: int = 0
    """The last revision that the home directory has confirmed."""

    @property
    def pending(self) -> bool:
        return self.pushed < self.revision


def change(entry: OwnEntry | None, component: Component) -> OwnEntry:
    """503 cl. 7.3.1: what is inconsistent is refused, with everything there is to mend."""
    problems = list(inconsistencies(component))
    if problems:
        raise Refusal(
            Rule.INCONSISTENT_CONFIGURATION,
            f"the configuration of {component.code} is inconsistent: {problems[0]}",
            "; ".join(problems[1:]),
        )
    if entry is None:
        return OwnEntry(component)
    if same_data(entry.component, component):
        return entry
    return replace(entry, component=component, revision=entry.revision + 1)


def confirm(entry: OwnEntry, revision: int) -> OwnEntry:
    """The home directory holds this revision, which may be older than the one we have by now."""
    return replace(entry, pushed=max(entry.pushed, revision))


def same_data(a: Component, b: Component) -> bool:
    """Do they agree in what the component owns (503 Table 18, owner C)?"""
    return owned(a) == owned(b)


def owned(component: Component) -> tuple[object, ...]:
    return (
        component.contact,
        component.urls,
        component.implementation,
        component.paths,
        component.restriction,
    )
