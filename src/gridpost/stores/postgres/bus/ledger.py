"""The store of a bus in PostgreSQL: a transaction for each work, several at once, in threads of their own.

A work that does not return in time is given up: whatever it did is rolled back when it ends, and
another thread takes its place.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg import errors

from gridpost.core.bus import Handled, Instance, Posted
from gridpost.core.journal import Identity, JournalRow, Recorded
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.bus_unit import Cursor, SqlBusUnit
from gridpost.stores.postgres.bus.schema import MIGRATIONS
from gridpost.stores.postgres.faults import refusal_of, refusing
from gridpost.stores.postgres.journal import PostgresJournal, Stream, claim, streams
from gridpost.stores.postgres.migrations import migrate
from gridpost.stores.postgres.session import Connection, Session, connect
from gridpost.stores.postgres.settings import PostgresSettings

T = TypeVar("T")
_LANES = 4
_LOCK = """
    SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' request ' || %s, 0))
"""
_NO_STREAM = Stream(0, "")
ListedRows: TypeAlias = Callable[[int, int], Awaitable[Sequence[Recorded]]]
_COMPONENT = "INSERT INTO meta VALUES ('component', %s) ON CONFLICT (name) DO NOTHING"


class PostgresBusUnit(SqlBusUnit):
    """core.bus.BusUnit."""

    __slots__ = ("_connection", "_journal", "_rows")

    def __init__(self, connection: Connection, stream: Stream) -> None:
        super().__init__()
        self._connection = connection
        self._journal = PostgresJournal(connection, stream)

    def _run(self, statement: str, parameters: Sequence[Any] = ()) -> Cursor:
        found = self._connection.execute(translated(statement).encode(), parameters)
        return found if found.description is not None else _NOTHING

    def _run_all(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(translated(statement).encode(), rows)

    def handled(self, source: str, keys: Sequence[str]) -> Handled | None:
        # Whoever else has the same request waits until this transaction has ended.
        for key in sorted(keys):
            self._connection.execute(_LOCK, (f"{source}/{key}",))
        return super().handled(source, keys)

    @property
    def journal(self) -> PostgresJournal:
        return self._journal

    def record(self, row: JournalRow) -> None:
        self._journal.append(row)

    def prune(self, now: datetime, retention: timedelta, keep_exported: timedelta) -> int:
        return self._journal.prune(now, retention, keep_exported=keep_exported)


class _Nothing:
    """What a statement without rows gives, as SQLite has it."""

    def __iter__(self) -> Any:
        return iter(())

    def fetchone(self) -> None:
        return None

    def fetchall(self) -> list[Any]:
        return []


_NOTHING = _Nothing()


def translated(statement: str) -> str:
    """`?` outside of quotes becomes the parameter of psycopg."""
    parts = statement.replace("%", "%%").split("'")
    parts[::2] = [part.replace("?", "%s") for part in parts[::2]]
    return "'".join(parts)


@dataclass(eq=False)
class _Ticket:
    work: Callable[[PostgresBusUnit], Any]
    future: Future[Any] = field(default_factory=Future)
    lock: threading.Lock = field(default_factory=threading.Lock)
    begun: bool = False
    committing: bool = False
    given_up: bool = False
    connection: Connection | None = None


class PostgresBusLedger:
    """core.bus.BusLedger."""

    def __init__(self, settings: PostgresSettings, component: str, identity: Identity) -> None:
        """Use `open`."""
        self.settings = settings
        self.identity = identity
        self.abandoned = 0
        self._queue: SimpleQueue[_Ticket | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="gridpost-pg-bus-reader")
        self._reading = Session(settings, read_only=True)
        for _ in range(_LANES):
            self._start()

    @classmethod
    def open(cls, settings: PostgresSettings, component: str) -> PostgresBusLedger:
        with refusing(), connect(settings) as connection:
            migrate(connection, settings.schema, MIGRATIONS)
            connection.execute(_COMPONENT, (component,))
        return cls(settings, component, Identity(component, settings.schema))

    def _start(self) -> None:
        thread = threading.Thread(target=self._lane, name="gridpost-pg-bus", daemon=True)
        thread.start()
        self._threads.append(thread)

    async def run(self, work: Callable[[PostgresBusUnit], T], within: float | None = None) -> T:
        ticket = _Ticket(work)
        self._queue.put(ticket)
        future: asyncio.Future[T] = asyncio.wrap_future(ticket.future)
        try:
            async with asyncio.timeout(within):
                return await asyncio.shield(future)
        except TimeoutError:
            with ticket.lock:
                late = not ticket.committing
                ticket.given_up = late
            if not late:
                return await future
            future.cancel()
            if ticket.begun:
                # The thread is left to itself; another one does its work from now on.
                self.abandoned += 1
                self._start()
                if ticket.connection is not None:
                    with suppress(psycopg.Error):
                        ticket.connection.cancel()
            raise Refusal(
                Rule.HANDLER_TIMEOUT, f"the handler was not done after {within:g} s"
            ) from None

    def _lane(self) -> None:
        stream: list[Stream] = []
        session = Session(
            self.settings, prepare=lambda c: stream.__setitem__(slice(None), [claim(c)])
        )
        while (ticket := self._queue.get()) is not None:
            with ticket.lock:
                if ticket.given_up:
                    continue
                ticket.begun = True
            try:
                result = self._done(ticket, session, stream)
            except BaseException as error:
                session.drop()
                if not ticket.future.done():
                    with suppress(Exception):
                        ticket.future.set_exception(_told(error))
            else:
                with suppress(Exception):
                    ticket.future.set_result(result)
            if ticket.given_up:
                break
        session.drop()

    def _done(self, ticket: _Ticket, session: Session, stream: list[Stream]) -> Any:
        connection, _ = session.begin("BEGIN")
        ticket.connection = connection
        result = ticket.work(PostgresBusUnit(connection, stream[0]))
        with ticket.lock:
            if ticket.given_up:
                raise Refusal(Rule.HANDLER_TIMEOUT, "the handler was given up")
            ticket.committing = True
        connection.execute("COMMIT")
        return result

    async def unsent(self, limit: int) -> Sequence[Posted]:
        return await self.run(lambda unit: unit.unsent(limit))

    async def sent(self, sequences: Sequence[int]) -> None:
        await self.run(lambda unit: unit.sent(sequences))

    async def forget(self, before: datetime) -> int:
        return await self.run(lambda unit: unit.forget(before))

    async def alive(self, instance: str, at: datetime, load: int) -> None:
        await self.run(lambda unit: unit.alive(instance, at, load))

    async def instances(self, since: datetime) -> Sequence[Instance]:
        return await self.run(lambda unit: unit.instances(since))

    async def read(self, work: Callable[[PostgresBusUnit], T]) -> T:
        """Beside whoever writes: what operators look at holds no request up."""
        return await self._read(lambda connection: work(PostgresBusUnit(connection, _NO_STREAM)))

    async def streams(self) -> Mapping[str, ListedRows]:
        """People's actions and refusals in the streams that threads of any process have written."""
        found = await self._read(streams)
        return {stream.instance: partial(self._listed, stream) for stream in found}

    async def _listed(self, stream: Stream, after: int, limit: int) -> Sequence[Recorded]:
        return await self._read(lambda c: PostgresJournal(c, stream).listed(after, limit))

    async def _read(self, work: Callable[[Connection], T]) -> T:
        def reading() -> T:
            with refusing():
                try:
                    connection, _ = self._reading.begin("BEGIN READ ONLY")
                    result = work(connection)
                    connection.execute("ROLLBACK")
                except BaseException:
                    self._reading.drop()
                    raise
            return result

        return await asyncio.get_running_loop().run_in_executor(self._reader, reading)

    async def close(self) -> None:
        await asyncio.to_thread(self._reader.shutdown)
        self._reading.drop()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join, 5)


def _told(error: BaseException) -> BaseException:
    if isinstance(error, errors.UniqueViolation):
        # Another process was first with the same request: the next attempt finds its reply.
        return Refusal(Rule.BUSY, "another process treats the same message")
    return refusal_of(error) or error
