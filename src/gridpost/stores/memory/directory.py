"""A component-directory's store that forgets everything when the process ends.

The twin of the durable store: the same contract, used by tests and by anything that needs no disk.
A unit of work changes a copy, which replaces the state when the work did not raise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeVar

from gridpost.core.component import Component
from gridpost.core.identifiers import ComponentCode
from gridpost.core.journal import JournalRow, Recorded
from gridpost.core.registration import Registration, RegistrationStatus
from gridpost.core.registry_office import Invitation, IssuedCertificate
from gridpost.core.synchronisation import Subsystem

T = TypeVar("T")


class MemoryRegistrations:
    def __init__(self) -> None:
        self._rows: dict[str, Registration] = {}

    def __copy__(self) -> MemoryRegistrations:
        twin = MemoryRegistrations()
        twin._rows = dict(self._rows)
        return twin

    def add(self, registration: Registration) -> None:
        if registration.registration_id in self._rows:
            raise ValueError("this registration is in the books already")
        self._rows[registration.registration_id] = registration

    def save(self, registration: Registration) -> None:
        if registration.registration_id not in self._rows:
            raise KeyError(registration.registration_id)
        self._rows[registration.registration_id] = registration

    def find(self, registration_id: str) -> Registration | None:
        return self._rows.get(registration_id)

    def of_component(self, code: str) -> Sequence[Registration]:
        return [r for r in reversed(self._rows.values()) if r.request.code == code]

    def search(self, status: RegistrationStatus | None, limit: int) -> Sequence[Registration]:
        found = [r for r in reversed(self._rows.values()) if status in (None, r.status)]
        return found[:limit]

    def count(self, status: RegistrationStatus) -> int:
        return sum(1 for r in self._rows.values() if r.status is status)


class MemoryInvitations:
    def __init__(self) -> None:
        self._rows: dict[bytes, Invitation] = {}

    def __copy__(self) -> MemoryInvitations:
        twin = MemoryInvitations()
        twin._rows = dict(self._rows)
        return twin

    def add(self, invitation: Invitation) -> None:
        if invitation.fingerprint in self._rows:
            raise ValueError("this invitation is in the books already")
        self._rows[invitation.fingerprint] = invitation

    def save(self, invitation: Invitation) -> None:
        if invitation.fingerprint not in self._rows:
            raise KeyError(invitation.fingerprint.hex())
        self._rows[invitation.fingerprint] = invitation

    def find(self, fingerprint: bytes) -> Invitation | None:
        return self._rows.get(fingerprint)

    def of_component(self, code: str) -> Sequence[Invitation]:
        return [i for i in self._rows.values() if i.code == code]


class MemoryLedger:
    def __init__(self) -> None:
        self._lines: dict[bytes, IssuedCertificate] = {}

    def __copy__(self) -> MemoryLedger:
        twin = MemoryLedger()
        twin._lines = dict(self._lines)
        return twin

    def record(self, line: IssuedCertificate) -> None:
        self._lines.setdefault(line.fingerprint, line)

    def find(self, fingerprint: bytes) -> IssuedCertificate | None:
        return self._lines.get(fingerprint)

    def of_key(self, key_digest: bytes) -> Sequence[IssuedCertificate]:
        return [line for line in self._lines.values() if line.key_digest == key_digest]

    def revoke(self, code: str, at: datetime) -> Sequence[IssuedCertificate]:
        marked = [
            replace(line, revoked_at=at)
            for line in self._lines.values()
            if line.code == code and line.revoked_at is None
        ]
        self._lines |= {line.fingerprint: line for line in marked}
        return marked


class MemoryEntries:
    def __init__(self) -> None:
        self._revision = 0
        self._own: dict[str, Component] = {}
        self._replicas: dict[str, Subsystem] = {}

    def __copy__(self) -> MemoryEntries:
        twin = MemoryEntries()
        twin._revision = self._revision
        twin._own = dict(self._own)
        twin._replicas = dict(self._replicas)
        return twin

    def revision(self) -> int:
        return self._revision

    def own(self) -> Sequence[Component]:
        return [self._own[code] for code in sorted(self._own)]

    def find(self, code: str) -> Component | None:
        return self._own.get(code)

    def put(self, component: Component) -> None:
        self._own[component.code] = component
        self._revision += 1

    def remove(self, code: str) -> None:
        del self._own[code]
        self._revision += 1

    def replicas(self) -> Sequence[Subsystem]:
        return list(self._replicas.values())

    def put_replica(self, subsystem: Subsystem) -> None:
        self._replicas[subsystem.component_directory] = subsystem
        self._revision += 1

    def drop_replica(self, code: ComponentCode) -> None:
        if self._replicas.pop(code, None) is not None:
            self._revision += 1


class MemoryDirectoryJournal:
    def __init__(self) -> None:
        self._rows: list[Recorded] = []
        self._last = 0
        self._exported = 0

    def __copy__(self) -> MemoryDirectoryJournal:
        twin = MemoryDirectoryJournal()
        twin._rows = list(self._rows)
        twin._last, twin._exported = self._last, self._exported
        return twin

    def append(self, row: JournalRow) -> int:
        self._last += 1
        self._rows.append(Recorded(self._last, row))
        return self._last

    def read(self, after: int, limit: int) -> Sequence[Recorded]:
        return [r for r in self._rows if r.sequence > after][:limit]

    def exported(self) -> int:
        return self._exported

    def mark_exported(self, sequence: int) -> None:
        self._exported = max(self._exported, sequence)

    def prune(
        self,
        now: datetime,
        retention: timedelta,
        *,
        keep_exported: timedelta | None = None,
        limit: int = 10_000,
    ) -> int:
        gone = 0
        for recorded in self._rows[:limit]:
            kept_for = retention
            if keep_exported is not None and recorded.sequence <= self._exported:
                kept_for = min(retention, keep_exported)
            if recorded.row.at > now - kept_for:
                break
            gone += 1
        del self._rows[:gone]
        return gone


@dataclass
class MemoryDirectoryUnitOfWork:
    """One state; a copy of it is what a unit of work changes."""

    registrations: MemoryRegistrations = field(default_factory=MemoryRegistrations)
    invitations: MemoryInvitations = field(default_factory=MemoryInvitations)
    ledger: MemoryLedger = field(default_factory=MemoryLedger)
    entries: MemoryEntries = field(default_factory=MemoryEntries)
    journal: MemoryDirectoryJournal = field(default_factory=MemoryDirectoryJournal)

    def __copy__(self) -> MemoryDirectoryUnitOfWork:
        return MemoryDirectoryUnitOfWork(
            copy(self.registrations),
            copy(self.invitations),
            copy(self.ledger),
            copy(self.entries),
            copy(self.journal),
        )


class MemoryDirectoryStore:
    """`core.directory_ports.RegistryStore` in memory."""

    def __init__(self) -> None:
        self._state = MemoryDirectoryUnitOfWork()
        self._lock = asyncio.Lock()

    async def run(self, work: Callable[[MemoryDirectoryUnitOfWork], T]) -> T:
        async with self._lock:
            state = copy(self._state)
            result = work(state)
            self._state = state
            return result

    async def read(self, work: Callable[[MemoryDirectoryUnitOfWork], T]) -> T:
        return work(copy(self._state))

    async def close(self) -> None:
        """Nothing to close; the state stays readable for whoever looks at it afterwards."""
