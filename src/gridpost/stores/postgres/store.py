"""The store of one component in PostgreSQL: opening, reading, writing and closing.

What a component keeps is its `unit`: a class over a `Transaction`. Works run in threads, one that
writes and some that read, each with a connection of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock, local
from typing import Generic, TypeVar

import psycopg

from gridpost.core.journal import Identity
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.postgres.committer import Committer
from gridpost.stores.postgres.faults import refusing
from gridpost.stores.postgres.migrations import Migrations, migrate
from gridpost.stores.postgres.session import Connection, Session, connect
from gridpost.stores.postgres.settings import PostgresSettings
from gridpost.stores.postgres.transaction import Fence, Transaction

T = TypeVar("T")
U = TypeVar("U")

_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_STALE_MARKS = "DELETE FROM commit_mark WHERE at < now() - interval '7 days'"


class PostgresStore(Generic[U]):
    """`run` and `read` of the store ports, for works on a `U`."""

    def __init__(
        self,
        settings: PostgresSettings,
        component: str,
        unit: Callable[[Transaction], U],
        committer: Committer,
    ) -> None:
        """Use `open`."""
        self.settings = settings
        self.identity = Identity(component, committer.stream.instance)
        self._unit = unit
        self._committer = committer
        self._readers = ThreadPoolExecutor(
            settings.readers, thread_name_prefix="gridpost-pg-reader"
        )
        self._reading = local()
        self._sessions: list[Session] = []
        self._closing = Lock()

    @classmethod
    def open(
        cls,
        settings: PostgresSettings,
        component: str,
        migrations: Migrations,
        unit: Callable[[Transaction], U],
        *,
        exclusive: bool = False,
        prepare: Callable[[Connection], None] | None = None,
    ) -> PostgresStore[U]:
        """Open the store of a component, or make its tables. Blocks.

        Refuses a database that does not keep what it commits, that belongs to another component,
        or that a newer Gridpost has written; an `exclusive` store also while another process has it.
        """
        committer = Committer(settings, exclusive=exclusive, prepare=prepare)
        with refusing():
            prepare_schema(settings, component, migrations)
            try:
                committer.start()
            except BaseException:
                committer.stop()
                raise
        return cls(settings, component, unit, committer)

    async def run(self, work: Callable[[U], T]) -> T:
        result: T = await self._committer.submit(lambda t: work(self._unit(t)))
        return result

    async def run_fenced(self, fence: Fence, work: Callable[[U], T]) -> T:
        """As `run`, and refused when another process holds the lease by now."""

        def fenced(transaction: Transaction) -> T:
            transaction.require(fence)
            return work(self._unit(transaction))

        result: T = await self._committer.submit(fenced)
        return result

    def fenced(self, fence: Fence) -> FencedStore[U]:
        return FencedStore(self, fence)

    async def read(self, work: Callable[[U], T]) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, self._read, work)

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _read(self, work: Callable[[U], T]) -> T:
        session: Session | None = getattr(self._reading, "session", None)
        if session is None:
            session = self._reading.session = Session(self.settings, read_only=True)
            self._sessions.append(session)
        with refusing():
            connection, _ = session.begin(_READ)
            try:
                return work(self._unit(Transaction(connection, self._committer.stream, False)))
            except psycopg.errors.ReadOnlySqlTransaction as error:
                raise RuntimeError("work that reads must not change anything") from error
            finally:
                _end(connection, session)

    def _close(self) -> None:
        with self._closing:
            self._committer.stop()
            self._readers.shutdown()
            for session in self._sessions:
                session.drop()


def prepare_schema(settings: PostgresSettings, component: str, migrations: Migrations) -> None:
    """Bring the tables of a component up to date; nobody else's are touched."""
    with connect(settings) as connection:
        migrate(connection, settings.schema, migrations)
        _identify(connection, component)
        connection.execute(_STALE_MARKS)


class FencedStore(Generic[U]):
    """The store as the holder of a lease sees it: what it writes after losing the lease is refused."""

    def __init__(self, store: PostgresStore[U], fence: Fence) -> None:
        self._store = store
        self._fence = fence
        self.identity = store.identity

    async def run(self, work: Callable[[U], T]) -> T:
        return await self._store.run_fenced(self._fence, work)

    async def read(self, work: Callable[[U], T]) -> T:
        return await self._store.read(work)


def _end(connection: Connection, session: Session) -> None:
    try:
        connection.execute("ROLLBACK")
    except psycopg.OperationalError:
        session.drop()


def _identify(connection: Connection, component: str) -> None:
    connection.execute(
        "INSERT INTO meta (name, value) VALUES ('component', %s) ON CONFLICT DO NOTHING",
        (component,),
    )
    found = connection.execute("SELECT value FROM meta WHERE name = 'component'").fetchone()
    if found != (component,):
        raise Refusal(
            Rule.STORE_OF_ANOTHER,
            f"the store belongs to {found[0] if found else 'nobody'}, not to {component}",
            "each component needs a schema of its own",
        )
