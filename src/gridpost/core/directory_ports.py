"""What a component-directory needs of its store, beyond the journal that every component has.

Registrations, the entries they lead to, the ledger of certificates and the journal commit together:
a component that is told APPROVED is in the directory, whatever happens next.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

from gridpost.core.component import Component
from gridpost.core.identifiers import ComponentCode
from gridpost.core.journal import Identity
from gridpost.core.ports import Journal
from gridpost.core.registration import Registration, RegistrationStatus
from gridpost.core.registry_office import Invitation, IssuedCertificate
from gridpost.core.synchronisation import Subsystem

T = TypeVar("T")


class Registrations(Protocol):
    """Requests in the order in which they were filed; none is ever deleted."""

    def add(self, registration: Registration) -> None: ...

    def save(self, registration: Registration) -> None:
        """Write the decision on a registration that was added before."""
        ...

    def find(self, registration_id: str) -> Registration | None: ...

    def of_component(self, code: str) -> Sequence[Registration]:
        """All requests for a code, newest first."""
        ...

    def search(self, status: RegistrationStatus | None, limit: int) -> Sequence[Registration]:
        """Newest first."""
        ...

    def count(self, status: RegistrationStatus) -> int: ...


class Invitations(Protocol):
    """Installation certificates that were handed out."""

    def add(self, invitation: Invitation) -> None: ...

    def save(self, invitation: Invitation) -> None: ...

    def find(self, fingerprint: bytes) -> Invitation | None: ...

    def of_component(self, code: str) -> Sequence[Invitation]: ...


class Ledger(Protocol):
    """Every certificate ever issued or published for a component; lines are never deleted."""

    def record(self, line: IssuedCertificate) -> None:
        """Add a line; a certificate that is in the ledger already stays as it is."""
        ...

    def find(self, fingerprint: bytes) -> IssuedCertificate | None: ...

    def of_key(self, key_digest: bytes) -> Sequence[IssuedCertificate]: ...

    def revoke(self, code: str, at: datetime) -> Sequence[IssuedCertificate]:
        """Mark every line of the code that is not marked yet, and return those lines."""
        ...


class Entries(Protocol):
    """The content of the directory: the own subsystem, and replicas of others."""

    def revision(self) -> int:
        """A number that grows with every change of entries or replicas."""
        ...

    def own(self) -> Sequence[Component]: ...

    def find(self, code: str) -> Component | None:
        """An entry of the own subsystem."""
        ...

    def put(self, component: Component) -> None: ...

    def remove(self, code: str) -> None: ...

    def replicas(self) -> Sequence[Subsystem]:
        """Other subsystems, in the order in which they were first synchronised (503 cl. 7.3.2)."""
        ...

    def put_replica(self, subsystem: Subsystem) -> None:
        """Delete and replace; the new content is there as a whole or not at all (503 cl. 7.1)."""
        ...

    def drop_replica(self, code: ComponentCode) -> None: ...


class RegistryUnit(Protocol):
    """Everything of a component-directory that commits together."""

    @property
    def registrations(self) -> Registrations: ...

    @property
    def invitations(self) -> Invitations: ...

    @property
    def ledger(self) -> Ledger: ...

    @property
    def entries(self) -> Entries: ...

    @property
    def journal(self) -> Journal: ...


class RegistryStore(Protocol):
    """As `core.ports.Store`, for a component-directory."""

    @property
    def identity(self) -> Identity: ...

    async def run(self, work: Callable[[RegistryUnit], T]) -> T: ...

    async def read(self, work: Callable[[RegistryUnit], T]) -> T: ...

    async def close(self) -> None: ...


class Connections(Protocol):
    """The open connections of the server."""

    def close_of(self, fingerprints: Collection[bytes]) -> int:
        """End every connection that was opened with one of these certificates (SHA-256 of DER)."""
        ...
