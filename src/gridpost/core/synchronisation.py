"""The directory as every component holds it: one replica per subsystem, merged, with an end of validity.

Decides what a synchronisation answer contains, how it changes the copy (delete and replace, 503
cl. 7.7.2), which codes are refused (7.3.2) and until when data may be used (7.7.1).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType

from gridpost.core.component import Component, ComponentType
from gridpost.core.identifiers import ComponentCode


@dataclass(frozen=True, slots=True)
class Subsystem:
    """Everything one component-directory is home of, as one content.

    `valid_until` is None in the component-directory that owns the data: there it never lapses.
    """

    component_directory: ComponentCode
    content_id: str
    components: tuple[Component, ...]
    valid_until: datetime | None = None

    def valid_at(self, at: datetime) -> bool:
        return self.valid_until is None or at < self.valid_until


@dataclass(frozen=True, slots=True)
class Couple:
    """What a client already has of a subsystem (503 cl. 7.7.2)."""

    component_directory: ComponentCode
    content_id: str


@dataclass(frozen=True, slots=True)
class Grant:
    """503 cl. 7.7.2: the triplet of an answer."""

    component_directory: ComponentCode
    content_id: str
    ttl: timedelta


@dataclass(frozen=True, slots=True)
class Answer:
    """A synchronisation answer: a grant per subsystem, the components of the changed ones."""

    grants: tuple[Grant, ...]
    components: tuple[Component, ...]


@dataclass(frozen=True, slots=True)
class Merge:
    """The copy after an answer, and what its owner has to be told."""

    directory: Directory
    changed: frozenset[ComponentCode]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Directory:
    """The local copy of the configuration data of the entire system."""

    subsystems: Mapping[ComponentCode, Subsystem] = field(
        default_factory=lambda: MappingProxyType({})
    )
    _index: Mapping[str, tuple[Subsystem, Component]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        index = {
            component.code: (subsystem, component)
            for subsystem in self.subsystems.values()
            for component in subsystem.components
        }
        object.__setattr__(self, "_index", index)

    @classmethod
    def of(cls, subsystems: Iterable[Subsystem]) -> Directory:
        return cls(MappingProxyType({s.component_directory: s for s in subsystems}))

    def find(self, code: str, at: datetime) -> Component | None:
        """503 cl. 7.7.1: data whose validity has ended is as good as missing."""
        found = self._index.get(code)
        return found[1] if found is not None and found[0].valid_at(at) else None

    def lapsed(self, code: str, at: datetime) -> bool:
        """Is this component known, but only from data that must no longer be used?"""
        found = self._index.get(code)
        return found is not None and not found[0].valid_at(at)

    def components(self, at: datetime) -> Iterator[Component]:
        for subsystem, component in self._index.values():
            if subsystem.valid_at(at):
                yield component

    def couples(self) -> tuple[Couple, ...]:
        """The query of an endpoint or broker: one couple for each subsystem it holds."""
        return tuple(Couple(s.component_directory, s.content_id) for s in self.subsystems.values())


def content_id(components: Iterable[Component]) -> str:
    """503 cl. 7.7.2: distinct contents have distinct identifiers, also after a restore.

    A digest of the content cannot repeat for another content, whatever happened to a counter.
    """
    digest = hashlib.sha256()
    for component in sorted(components, key=lambda c: c.code):
        digest.update(repr(_canonical(component)).encode())
        digest.update(b"\n")
    return digest.hexdigest()


def answer(
    directory: Directory,
    couples: Iterable[Couple],
    *,
    home: ComponentCode,
    ttl: timedelta,
    only_home: bool,
    at: datetime,
) -> Answer:
    """What the component-directory `home` replies to a synchronisation request (503 cl. 7.7)."""
    held = {couple.component_directory: couple.content_id for couple in couples}
    grants: list[Grant] = []
    components: list[Component] = []
    for subsystem in directory.subsystems.values():
        if only_home and subsystem.component_directory != home:
            continue
        # 503 cl. 7.7.1: never a longer validity than what was granted to us.
        granted = ttl if subsystem.valid_until is None else min(ttl, subsystem.valid_until - at)
        if granted <= timedelta(0):
            continue
        grants.append(Grant(subsystem.component_directory, subsystem.content_id, granted))
        if held.get(subsystem.component_directory) != subsystem.content_id:
            components.extend(subsystem.components)
    return Answer(tuple(grants), tuple(components))


def merge(directory: Directory, received: Answer, *, at: datetime) -> Merge:
    """An endpoint or broker takes over an answer about all subsystems (503 cl. 7.7.2).

    `at` is when the request left: the time an answer spends on its way shortens its validity.
    Subsystems that are no longer listed disappear.
    """
    arrived = _by_home(received.components)
    subsystems: list[Subsystem] = []
    changed: set[ComponentCode] = set(directory.subsystems)
    warnings: list[str] = []
    for grant in received.grants:
        old = directory.subsystems.get(grant.component_directory)
        if old is not None and old.content_id == grant.content_id:
            components = old.components
            changed.discard(grant.component_directory)
        elif grant.component_directory in arrived:
            components = tuple(arrived[grant.component_directory])
            changed.add(grant.component_directory)
        else:
            # A grant for a content that we do not have and that was not sent.
            warnings.append(
                f"{grant.component_directory} announced content {grant.content_id} without sending it"
            )
            if old is not None:
                subsystems.append(old)
                changed.discard(grant.component_directory)
            continue
        subsystems.append(
            Subsystem(grant.component_directory, grant.content_id, components, at + grant.ttl)
        )
    # 503 cl. 4.4.3: whoever had a code and still has it keeps it, whichever directory was asked.
    now_of = {s.component_directory: {c.code for c in s.components} for s in subsystems}
    owners = {
        c.code: s.component_directory
        for s in directory.subsystems.values()
        for c in s.components
        if c.code in now_of.get(s.component_directory, ())
    }
    kept, duplicates = without_duplicates(subsystems, owners)
    return Merge(Directory.of(kept), frozenset(changed), (*warnings, *duplicates))


def merge_home_of(
    directory: Directory, received: Answer, peer: ComponentCode, *, at: datetime
) -> Merge:
    """A component-directory takes over the subsystem of `peer`, and nothing else, from `peer`."""
    others = [s for s in directory.subsystems.values() if s.component_directory != peer]
    own = Answer(
        tuple(g for g in received.grants if g.component_directory == peer),
        tuple(c for c in received.components if c.component_directory == peer),
    )
    known = directory.subsystems.get(peer)
    partial = merge(Directory.of([known] if known else []), own, at=at)
    # 503 cl. 7.3.2: what was there first keeps its code; only the duplicates are rejected.
    owners = {c.code: s.component_directory for s in others for c in s.components}
    kept, duplicates = without_duplicates(partial.directory.subsystems.values(), owners)
    foreign = tuple(
        f"{peer} sent {c.code}, which belongs to {c.component_directory}: ignored"
        for c in received.components
        if c.component_directory != peer
    )
    return Merge(
        Directory.of([*others, *kept]),
        partial.changed,
        (*partial.warnings, *foreign, *duplicates),
    )


def without_duplicates(
    subsystems: Iterable[Subsystem], owners: Mapping[ComponentCode, ComponentCode]
) -> tuple[list[Subsystem], list[str]]:
    """503 cl. 7.3.2: components whose code belongs to another subsystem are left out.

    A code that nobody in `owners` has belongs to the first subsystem that has it.
    """
    owned = dict(owners)
    kept: list[Subsystem] = []
    warnings: list[str] = []
    for subsystem in subsystems:
        components: dict[str, Component] = {}
        for component in subsystem.components:
            owner = owned.setdefault(component.code, subsystem.component_directory)
            if owner == subsystem.component_directory and component.code not in components:
                components[component.code] = component
            else:
                warnings.append(
                    f"{component.code} of subsystem {subsystem.component_directory} is rejected: "
                    f"the code belongs to subsystem {owner}"
                )
        left = tuple(components.values())
        kept.append(
            Subsystem(
                subsystem.component_directory,
                # 503 cl. 7.7.2: what is left is another content. Under an identifier of its own it
                # is asked for again in every cycle, so the rest comes when the duplicate has gone.
                subsystem.content_id
                if len(left) == len(subsystem.components)
                else content_id(left),
                left,
                subsystem.valid_until,
            )
        )
    return kept, warnings


def home_directory(directory: Directory, component: Component, at: datetime) -> Component | None:
    """The entry of the component-directory that `component` is registered with."""
    home = directory.find(component.component_directory, at)
    return home if home is not None and home.type is ComponentType.COMPONENT_DIRECTORY else None


def _by_home(components: Iterable[Component]) -> dict[ComponentCode, list[Component]]:
    homes: dict[ComponentCode, list[Component]] = {}
    for component in components:
        homes.setdefault(component.component_directory, []).append(component)
    return homes


def _canonical(component: Component) -> tuple[object, ...]:
    """Every attribute in one fixed order; sets are sorted, so equal contents give equal text."""
    return (
        component.code,
        component.type.value,
        component.contact,
        component.component_directory,
        component.implementation,
        component.urls,
        tuple((c.certificate_id, c.kind.value, c.der) for c in component.certificates),
        str(component.created),
        str(component.modified),
        tuple(
            (
                p.message_type,
                str(p.route),
                p.valid_from.text,
                str(p.valid_until),
                None if p.senders is None else sorted(p.senders),
            )
            for p in component.paths
        ),
        None
        if component.restriction is None
        else (sorted(component.restriction.components), component.restriction.message_types),
    )
