"""What one process tells the others in the moment of a commit (NOTIFY), so that nobody has to look.

A piece of news carries no duty: whoever misses one, as after a lost connection, looks at everything.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from enum import StrEnum

import psycopg
import structlog

from gridpost.core.refusal import Refusal
from gridpost.stores.postgres.leases import connect_async
from gridpost.stores.postgres.session import Connection
from gridpost.stores.postgres.settings import PostgresSettings

log = structlog.get_logger(__name__)

_NOTIFY = "SELECT pg_notify(%s, %s)"
_LONGEST = 7_000
"""PostgreSQL carries less than 8000 bytes."""


class Topic(StrEnum):
    TRANSFER = "transfer"
    """A transfer for the process of this number."""
    OFFERED = "offered"
    """A document of this message-type waits."""
    STATUS = "status"
    """The delivery of this sent message has moved."""
    NOTICE = "notice"
    """A notice waits in this channel."""
    LET_GO = "let-go"
    """Documents of this message-type, or notices of this channel, are held no more."""
    DIRECTORY = "directory"
    """The directory was synchronised."""
    OWN_ENTRY = "own-entry"
    KEYS = "keys"
    HOLDS = "holds"
    """Operators have paused or resumed something, or wish something of another process."""
    GONE = "gone"
    """A process has ended in order: its work is free."""
    EVERYTHING = "everything"
    """News may have been missed."""


def channel_of(schema: str) -> str:
    """Short enough for a name, whatever the schema is called."""
    return f"gridpost_{hashlib.sha256(schema.encode()).hexdigest()[:24]}"


class News:
    """Of one work: it goes out when its transaction commits; the same is told once."""

    __slots__ = ("_channel", "_connection", "_me", "_told")

    def __init__(self, connection: Connection, channel: str, me: int) -> None:
        self._connection = connection
        self._channel = channel
        self._me = me
        self._told: set[str] = set()

    def tell(self, topic: Topic, about: str = "") -> None:
        text = f"{self._me} {topic} {about}"
        if text in self._told or len(text.encode(errors="replace")) > _LONGEST:
            return
        self._told.add(text)
        self._connection.execute(_NOTIFY, (self._channel, text))


Heard = Callable[[Topic, str], Awaitable[None]]


class Listener:
    """Hears what other processes have committed."""

    def __init__(
        self,
        settings: PostgresSettings,
        me: Callable[[], int],
        heard: Heard,
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        """`lost` is called in the moment in which the connection is known to be gone."""
        self._settings = settings
        self._lost = lost
        self._me = me
        self._heard = heard

    async def run(self) -> None:
        """Until cancelled."""
        pause = self._settings.lease_look.total_seconds()
        while True:
            try:
                connection = await connect_async(self._settings)
            except (psycopg.Error, Refusal) as error:
                log.warning("no database for news", reason=str(error))
                await asyncio.sleep(pause)
                continue
            try:
                await connection.execute(f"LISTEN {channel_of(self._settings.schema)}")
                await self._tell(Topic.EVERYTHING, "")
                async for notice in connection.notifies():
                    sender, _, rest = notice.payload.partition(" ")
                    topic, _, about = rest.partition(" ")
                    if sender != str(self._me()):
                        await self._tell(Topic(topic), about)
            except psycopg.Error as error:
                self._lost()
                log.warning("news lost", reason=str(error))
            finally:
                await connection.close()
            await asyncio.sleep(pause)

    async def _tell(self, topic: Topic, about: str) -> None:
        try:
            await self._heard(topic, about)
        except Refusal as refusal:
            log.warning("news not used", topic=topic, reason=refusal.message, id=refusal.id)
