"""What services need of the world outside: the protocols that stores, keys and transports fulfil.

Services know these and never a concrete class; `assembly` joins the two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.delivery import Decision, Side, TraceEntry
from gridpost.core.enrolment import Enrolment
from gridpost.core.holds import Controls
from gridpost.core.https import Authorise, HttpAnswer, HttpRequest, TlsCredentials
from gridpost.core.journal import Identity, JournalRow, Recorded
from gridpost.core.message import InternalMessage, Metadata
from gridpost.core.message_box import (
    BoxEntry,
    Brief,
    Content,
    Found,
    Outgoing,
    Purged,
    Retention,
    Search,
    Tally,
)
from gridpost.core.message_path import Route
from gridpost.core.notices import Notices
from gridpost.core.own_entry import OwnEntry
from gridpost.core.synchronisation import Subsystem

T = TypeVar("T")

# How many bytes of contents one answer may hold in memory, unless a caller asks for more.
ANSWER_BYTES = 64 * 1024 * 1024


class Clock(Protocol):
    """The only source of the current time."""

    def now(self) -> datetime:
        """An aware datetime in UTC."""
        ...


class Signer(Protocol):
    """A private key behind one of our own SIGNING certificates."""

    @property
    def certificate(self) -> Certificate: ...

    async def sign(self, data: bytes, algorithm: str = "SHA-512") -> bytes:
        """A signature over `data`. `algorithm` is a name of the seal's registry.

        "SHA-512" (503 cl. 6.5.4) is RSASSA-PKCS1-v1_5 with SHA-512.
        """
        ...


class SessionKeyOpener(Protocol):
    """A private key behind one of our own ENCRYPTION certificates."""

    @property
    def certificate(self) -> Certificate: ...

    async def open(self, wrapped: bytes, padding: str) -> bytes | None:
        """The session key, or None when it does not decrypt.

        `padding` is a name of the seal's registry. A caller that gets None goes on with a random
        key, so that a peer cannot tell a bad session key from a bad content.
        """
        ...


class Keyring(Protocol):
    """All private keys of one component; several of a kind are valid during a renewal (503 cl. 8.5)."""

    def signers(self) -> Sequence[Signer]: ...

    def openers(self) -> Sequence[SessionKeyOpener]: ...


class MessageBox(Protocol):
    """The messages of one endpoint, inside a transaction."""

    def put(self, entry: BoxEntry, content: Content) -> bool:
        """Store a new message. False: this (side, id) is or was here already; nothing changed.

        A large content is better staged before the transaction: see `Store.staged`. A conversation
        that the application has used already is refused; the caller looks for it first.
        """
        ...

    def put_many(self, messages: Sequence[tuple[BoxEntry, Content]]) -> Sequence[bool]:
        """Like `put` for each, in this order, in a fraction of the time; a refusal stores none."""
        ...

    def find(self, side: Side, message_id: str) -> BoxEntry | None:
        """The entry, locked until the transaction ends where processes share the store."""
        ...

    def sign(self, metadata: Metadata) -> None:
        """A sent message that had to wait for its signature has it, also in its transfer."""
        ...

    def find_conversation(self, application: str, conversation_id: str) -> BoxEntry | None:
        """The sent message of a conversation; None: the caller may start one."""
        ...

    def content(self, side: Side, message_id: str) -> bytes | None:
        """The clear document; None once retention removed it."""
        ...

    def move(self, side: Side, decision: Decision) -> None:
        """Write the delivery of a decision and append its trace entry.

        The entry must be here: a caller that holds a decision has found it in this transaction.
        """
        ...

    def trace(self, side: Side, message_id: str) -> Sequence[TraceEntry]: ...

    def keep_acknowledgement(self, acknowledgement: InternalMessage) -> None:
        """Store an acknowledgement that moved its original, a sent message, as evidence (4.5.4)."""
        ...

    def acknowledgements(self, message_id: str) -> Sequence[InternalMessage]:
        """What was kept for a sent message, in the order of arrival."""
        ...

    def waiting(
        self, message_type: str, now: datetime, limit: int, after: int = 0
    ) -> Sequence[BoxEntry]:
        """Received messages of exactly this type that no application confirmed, oldest first.

        Only those whose number is above `after`.

        Expired ones are left out even before their EXPIRE event is written (503 cl. 5.7).
        """
        ...

    def hold(
        self, message_type: str, now: datetime, limit: int, after: int = 0
    ) -> Sequence[BoxEntry]:
        """As `waiting`, for a channel that hands over by itself, where processes share the store.

        What another process holds is left out; what is given is held by this process until it is
        confirmed or let go, or until this process ends.
        """
        ...

    def let_go(self) -> None:
        """This process hands nothing over at the moment: others may have what it held."""
        ...

    def count_waiting(self, message_type: str, now: datetime) -> int: ...

    def waiting_types(self) -> Sequence[str]:
        """The message-types of which something may be waiting, each once."""
        ...

    def expired(self, now: datetime, limit: int) -> Sequence[BoxEntry]:
        """Entries in one of EXPIRING_STATES whose expiration time has passed, earliest first."""
        ...

    def search(self, search: Search, limit: int, before: int | None = None) -> Found:
        """Newest first; a page looks at no more than LOOKED_AT messages, and says where to go on.

        The period of a search trusts the clock: what came with a time that is wrong by more than
        a thousand messages may be missing from it.
        """
        ...

    def recent(self, since: datetime, limit: int) -> Sequence[Brief]:
        """What came into the box since then, newest first."""
        ...

    def tally(self) -> Tally: ...

    def enqueue(
        self, message: InternalMessage, route: Route, expires_at: datetime, priority: int = 0
    ) -> int:
        """Add a transfer. The content of a message in the box is not stored a second time."""
        ...

    def outgoing(
        self,
        now: datetime,
        limit: int,
        *,
        under_way: Collection[int] = (),
        closed: Collection[Route] = (),
        max_bytes: int = ANSWER_BYTES,
    ) -> Sequence[Outgoing]:
        """Transfers that are due and not expired: by priority (higher first), then in order.

        Those `under_way`, by number, and those by a `closed` route are left out. The answer ends
        before its contents exceed `max_bytes`, but holds at least one transfer where there is one.
        """
        ...

    def next_due(self, now: datetime) -> datetime | None:
        """When the next postponed transfer becomes due, before it expires; None: nothing waits."""
        ...

    def postpone(self, number: int, due_at: datetime) -> None:
        """Count a failed attempt and wait until `due_at`."""
        ...

    def hasten(self, route: Route) -> int:
        """The way is open again: what was postponed on this route is due at once. How many."""
        ...

    def awaited(self, now: datetime) -> Mapping[Route, datetime]:
        """503 cl. 6.4: routes of sent messages for which an acknowledgement may still come.

        Each with the time at which the last of them expires.
        """
        ...

    def settle(self, number: int) -> None:
        """The receiver has it: forget the transfer."""
        ...

    def stop_transfer(self, message_id: str) -> None:
        """Take every transfer of this internal message out of the queue."""
        ...

    def drop_expired_transfers(self, now: datetime) -> int: ...

    def purge(self, retention: Retention, now: datetime, limit: int) -> Purged:
        """Remove what retention no longer asks for, at most `limit` of each kind.

        Nothing goes before its final state, nor while a transfer still needs it.
        """
        ...

    def finished(self, before: datetime, limit: int) -> Sequence[BoxEntry]:
        """What retention could remove and was final by then, each side from the oldest on."""
        ...

    def discard(self, side: Side, message_ids: Sequence[str]) -> int:
        """Remove such messages whatever retention says; the IDs of received ones are remembered."""
        ...


class Journal(Protocol):
    """The journal of one component instance, inside a transaction."""

    def append(self, row: JournalRow) -> int:
        """The row's sequence number; numbers have no gaps and follow the order of commits."""
        ...

    def read(self, after: int, limit: int) -> Sequence[Recorded]: ...

    def listed(self, after: int, limit: int) -> Sequence[Recorded]:
        """Rows of LISTED_KINDS after a number, oldest first."""
        ...

    def latest(self, kind: str, limit: int, before: int | None = None) -> Sequence[Recorded]:
        """Rows of one of LISTED_KINDS, newest first; the next page is `before` the last one's number.

        The numbers are for turning pages: with several streams they are not those of `read`.
        """
        ...

    def exported(self) -> int:
        """The highest sequence number that has been exported, 0 at first."""
        ...

    def mark_exported(self, sequence: int) -> None:
        """Rows up to `sequence` are safe elsewhere. Never moves back, nor beyond the last row."""
        ...

    def prune(
        self,
        now: datetime,
        retention: timedelta,
        *,
        keep_exported: timedelta | None = None,
        limit: int = 10_000,
    ) -> int:
        """Delete at most `limit` rows from the beginning; how many went.

        A row goes when its retention has ended; if it was exported, already after `keep_exported`,
        where that is given. The first row that has to stay keeps all rows behind it: what is left
        has no gaps.
        """
        ...


class UnitOfWork(Protocol):
    """Everything that commits together."""

    @property
    def box(self) -> MessageBox: ...

    @property
    def journal(self) -> Journal: ...

    @property
    def notices(self) -> Notices: ...

    @property
    def controls(self) -> Controls: ...


class Store(Protocol):
    """Durable state of a component.

    `run` executes `work` in a transaction of its own and returns when that is durable; many calls
    may share one flush to disk. If `work` raises, its changes are undone and the exception is
    passed on. `work` is synchronous, touches nothing but its unit of work, and may run in another
    thread.
    """

    @property
    def identity(self) -> Identity:
        """Whose store this is; made once, when the store was created."""
        ...

    async def run(self, work: Callable[[UnitOfWork], T]) -> T:
        """Refuses with STORE_FULL or INTERNAL, and nothing done, when the disk does not keep it.

        A call that is cancelled was done entirely or not at all.
        """
        ...

    def staged(self, content: bytes) -> AbstractAsyncContextManager[Content]:
        """Take a content to disk before the transaction that puts it, so that it holds up nobody.

        What no committed `put` has used by the end of the block is thrown away.
        """
        ...

    async def read(self, work: Callable[[UnitOfWork], T]) -> T:
        """Like `run`, for work that changes nothing; sees all that was committed before."""
        ...

    async def close(self) -> None:
        """Finish the work that is waiting, then let go of everything. More work is an error."""
        ...


class KeyCabinet(Keyring, Protocol):
    """A keyring whose keys can be made, brought in and certified (503 cl. 7.6).

    A key is called by its SubjectPublicKeyInfo. What a call did is durable when it returns.
    """

    def create_key(self, bits: int = 2048, kind: CertificateKind | None = None) -> bytes:
        """`kind`: what it will be certified for; a cabinet may have places for some kinds."""
        ...

    def import_key(self, der: bytes) -> bytes:
        """A key made elsewhere (PKCS#8, DER)."""
        ...

    def export_key(self, spki: bytes) -> bytes:
        """PKCS#8 without encryption, for the TLS library; refused for a key that must not leave."""
        ...

    def install(self, certificate: Certificate) -> None:
        """A certificate for one of the keys; installing it again changes nothing."""
        ...

    def certificates(self) -> Sequence[Certificate]: ...


class DirectoryCopy(Protocol):
    """What a component keeps of the directory of the entire system (503 cl. 7.1), in a transaction."""

    def load(self) -> Sequence[Subsystem]: ...

    def save(self, subsystems: Sequence[Subsystem], changed: Collection[str]) -> None:
        """Make the copy equal to these, by delete and replace (503 cl. 7.7.2).

        Of a subsystem that is not in `changed`, by the code of its directory, at most the end of
        validity is new: its components need not be written again.
        """
        ...


class OwnEntryStore(Protocol):
    """The component's own configuration data, in a transaction (503 cl. 7.3.3)."""

    def load(self) -> OwnEntry | None: ...

    def save(self, entry: OwnEntry) -> None: ...


class EnrolmentStore(Protocol):
    """How far the registration of this component has come, in a transaction (503 cl. 7.6)."""

    def load(self) -> Enrolment | None: ...

    def save(self, enrolment: Enrolment) -> None: ...


class DirectoryClientWork(Protocol):
    """What a client of the directory commits together."""

    @property
    def directory_copy(self) -> DirectoryCopy: ...

    @property
    def own_entry(self) -> OwnEntryStore: ...

    @property
    def enrolment(self) -> EnrolmentStore: ...

    @property
    def journal(self) -> Journal: ...


class DirectoryClientStore(Protocol):
    """The part of a `Store` that a client of the directory uses."""

    async def run(self, work: Callable[[DirectoryClientWork], T]) -> T: ...

    async def read(self, work: Callable[[DirectoryClientWork], T]) -> T: ...


class HttpsCaller(Protocol):
    """Requests over HTTPS with certificates on both sides."""

    async def request(
        self, request: HttpRequest, *, urls: Sequence[str], authorise: Authorise
    ) -> HttpAnswer:
        """Tries the URLs in order. `authorise` sees the server's chain before the request leaves."""
        ...


HttpsCallers = Callable[[Callable[[], TlsCredentials]], HttpsCaller]
"""Makes a caller that shows the credentials which the function gives at that moment."""
