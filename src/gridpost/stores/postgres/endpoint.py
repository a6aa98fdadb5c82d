"""The store of an endpoint in PostgreSQL, which several processes of that endpoint share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from threading import local
from typing import TypeVar

import psycopg

from gridpost.core.enrolment import Enrolment
from gridpost.core.message_box import Content, Staged
from gridpost.core.own_entry import OwnEntry
from gridpost.core.refusal import Refusal
from gridpost.core.synchronisation import Subsystem
from gridpost.stores.postgres.box import PostgresBox
from gridpost.stores.postgres.controls import PostgresControls
from gridpost.stores.postgres.directory_client import (
    PostgresDirectoryCopy,
    PostgresEnrolment,
    PostgresOwnEntry,
)
from gridpost.stores.postgres.endpoint_schema import ENDPOINT
from gridpost.stores.postgres.faults import refusing
from gridpost.stores.postgres.news import News, Topic, channel_of
from gridpost.stores.postgres.notices import PostgresNotices
from gridpost.stores.postgres.processes import Process, take_over
from gridpost.stores.postgres.session import Connection, Session
from gridpost.stores.postgres.settings import PostgresSettings
from gridpost.stores.postgres.store import PostgresStore
from gridpost.stores.postgres.transaction import Fence, Transaction

T = TypeVar("T")

STAGING_THRESHOLD = 256 * 1024
"""Contents above this many bytes go to the database before the transaction that puts them."""

_STAGE = "INSERT INTO content (stager, body) VALUES (%s, %s) RETURNING number"
_DISCARD = "DELETE FROM content WHERE number = %s AND stager IS NOT NULL"

_fence: ContextVar[Fence | None] = ContextVar("fence", default=None)


@contextmanager
def fenced_by(fence: Fence) -> Iterator[None]:
    """Whatever this task, and those that it starts, write through the store is refused without the lease."""
    token = _fence.set(fence)
    try:
        yield
    finally:
        _fence.reset(token)


class _ToldCopy(PostgresDirectoryCopy):
    def __init__(self, connection: Connection, news: News) -> None:
        super().__init__(connection)
        self._news = news

    def save(self, subsystems: Sequence[Subsystem], changed: Collection[str]) -> None:
        super().save(subsystems, changed)
        self._news.tell(Topic.DIRECTORY)


class _ToldOwnEntry(PostgresOwnEntry):
    def __init__(self, connection: Connection, news: News) -> None:
        super().__init__(connection)
        self._news = news

    def save(self, entry: OwnEntry) -> None:
        super().save(entry)
        self._news.tell(Topic.OWN_ENTRY)


class _ToldEnrolment(PostgresEnrolment):
    def __init__(self, connection: Connection, news: News) -> None:
        super().__init__(connection)
        self._news = news

    def save(self, enrolment: Enrolment) -> None:
        super().save(enrolment)
        self._news.tell(Topic.KEYS)


class PostgresEndpointUnit:
    """core.ports.UnitOfWork and DirectoryClientWork."""

    __slots__ = ("_me", "_news", "_transaction", "box", "controls", "journal", "notices")

    def __init__(
        self, transaction: Transaction, me: int, channel: str, keeps_order: Callable[[str], bool]
    ) -> None:
        connection = transaction.connection
        self._transaction = transaction
        self._me = me
        self._news = News(connection, channel, me)
        self.box = PostgresBox(transaction, me, self._news, keeps_order)
        self.notices = PostgresNotices(connection, me, self._news)
        self.controls = PostgresControls(connection, me, self._news)
        self.journal = transaction.journal

    @property
    def directory_copy(self) -> PostgresDirectoryCopy:
        return _ToldCopy(self._transaction.connection, self._news)

    @property
    def own_entry(self) -> PostgresOwnEntry:
        return _ToldOwnEntry(self._transaction.connection, self._news)

    @property
    def enrolment(self) -> PostgresEnrolment:
        return _ToldEnrolment(self._transaction.connection, self._news)

    def tell(self, topic: Topic, about: str = "") -> None:
        self._news.tell(topic, about)

    def take_over(self) -> list[str]:
        """The work of processes that are gone becomes ours; their names."""
        return take_over(self._transaction.connection, self._me, self._news)


class PostgresEndpointStore:
    """core.ports.Store, shared by the processes of one endpoint."""

    def __init__(self, store: PostgresStore[PostgresEndpointUnit], process: Process) -> None:
        """Use `open`."""
        self._store = store
        self._process = process
        self.settings = store.settings
        self.identity = store.identity
        self.keeps_order: Callable[[str], bool] = lambda message_type: False
        """Which message-types go to each recipient one after the other: the assembly knows."""
        self._stagers = ThreadPoolExecutor(2, thread_name_prefix="gridpost-pg-stager")
        self._staging = local()
        self._sessions: list[Session] = []
        self._closed = False

    @classmethod
    def open(cls, settings: PostgresSettings, component: str) -> PostgresEndpointStore:
        """Join the processes of an endpoint, and take over from those that are gone. Blocks."""
        process = Process()
        channel = channel_of(settings.schema)
        opened: list[PostgresEndpointStore] = []

        def unit(transaction: Transaction) -> PostgresEndpointUnit:
            return PostgresEndpointUnit(
                transaction,
                process.number,
                channel,
                lambda message_type: opened[0].keeps_order(message_type),
            )

        def enter(connection: Connection) -> None:
            process.enter(connection)
            with connection.transaction():
                take_over(connection, process.number, News(connection, channel, process.number))

        store = PostgresStore.open(settings, component, ENDPOINT, unit, prepare=enter)
        opened.append(cls(store, process))
        return opened[0]

    @property
    def process(self) -> int:
        return self._process.number

    async def run(self, work: Callable[[PostgresEndpointUnit], T]) -> T:
        """Inside `fenced_by`: refused when another process holds the lease by now."""
        fence = _fence.get()
        if fence is None:
            return await self._store.run(work)
        return await self._store.run_fenced(fence, work)

    async def read(self, work: Callable[[PostgresEndpointUnit], T]) -> T:
        return await self._store.read(work)

    async def take_over(self) -> list[str]:
        return await self._store.run(lambda unit: unit.take_over())

    @asynccontextmanager
    async def staged(self, content: bytes) -> AsyncIterator[Content]:
        if len(content) <= STAGING_THRESHOLD:
            yield content
            return
        loop = asyncio.get_running_loop()
        staged = await loop.run_in_executor(self._stagers, self._stage, content)
        try:
            yield staged
        finally:
            if not self._closed:
                # Nobody waits for it; what a killed process leaves goes when another takes over.
                loop.run_in_executor(self._stagers, self._discard, staged)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            with suppress(Refusal):
                # The others need not wait until they miss this process.
                await self._store.run(lambda unit: unit.tell(Topic.GONE))
            await asyncio.to_thread(self._stagers.shutdown)
            for session in self._sessions:
                session.drop()
        await self._store.close()

    def _stage(self, content: bytes) -> Staged:
        me = self._process.number
        with refusing():
            found = self._session().begin("SELECT 1")[0].execute(_STAGE, (me, content)).fetchone()
        if found is None:
            raise ValueError("the content got no number")
        return Staged(f"{found[0]} of {me}", len(content))

    def _discard(self, staged: Staged) -> None:
        try:
            connection, _ = self._session().begin("SELECT 1")
            connection.execute(_DISCARD, (int(staged.name.partition(" ")[0]),))
        except psycopg.Error:
            # Swept away when this process ends.
            self._session().drop()

    def _session(self) -> Session:
        session: Session | None = getattr(self._staging, "session", None)
        if session is None:
            session = self._staging.session = Session(self.settings)
            self._sessions.append(session)
        return session
