"""Two edges of one broker, as processes, in front of a RabbitMQ node or a PostgreSQL server."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from gridpost.core.journal import JournalRow
from gridpost.stores.postgres.journal import PostgresJournal, streams
from gridpost.stores.postgres.session import connect
from gridpost.stores.postgres.settings import PostgresSettings
from gridpost.stores.sqlite.database import connect_reader
from gridpost.stores.sqlite.journal import SqliteJournal
from support.broker_process import BrokerNetwork, broker_network
from support.postgres import PostgresServer
from support.rabbitmq import EDGE, Rabbit


def rabbitmq_section(rabbit: Rabbit, virtual_host: str) -> dict[str, Any]:
    folder = rabbit.certificate(EDGE)
    return {
        "urls": [rabbit.url],
        "virtual_host": virtual_host,
        "roots": str(folder / "root.pem"),
        "certificate": str(folder / "chain.pem"),
        "key": str(folder / "key.pem"),
        "heartbeat": "5s",
    }


def in_rabbitmq(rabbit: Rabbit) -> dict[str, Any]:
    return {
        "store": {"kind": "rabbitmq", "min_free": 0},
        "rabbitmq": rabbitmq_section(rabbit, rabbit.virtual_host()),
    }


def in_postgres(server: PostgresServer, folder: Path) -> dict[str, Any]:
    """The password comes into a file in `folder`."""
    schema = f"edges_{secrets.token_hex(4)}"
    section = server.default_database().section(folder)
    return {
        "store": {"kind": "postgres", "min_free": 0},
        "postgres": {**section, "schema": schema, "look": "500ms"},
    }


def journal_of(edge: BrokerNetwork) -> Iterator[JournalRow]:
    """All rows of an edge, while it runs or not; with PostgreSQL the transfers of all edges."""
    section = edge.configuration.get("postgres")
    if section is not None:
        password = Path(section["password_file"]).read_text().strip()
        settings = PostgresSettings(section["dsn"], password, schema=section["schema"])
        with connect(settings, read_only=True) as connection:
            for stream in streams(connection):
                recorded = PostgresJournal(connection, stream).read(0, 1_000_000)
                yield from (one.row for one in recorded)
    with closing(connect_reader(edge.home / "store")) as database:
        yield from (one.row for one in SqliteJournal(database).read(0, 1_000_000))


@asynccontextmanager
async def two_edges(
    folder: Path, **sections: Any
) -> AsyncIterator[tuple[BrokerNetwork, BrokerNetwork]]:
    """The first registers the broker, the second joins it; they share the directory and the store.

    `sections` say which store: `in_rabbitmq` or `in_postgres`.
    """
    (folder / "first").mkdir()
    (folder / "second").mkdir()
    async with broker_network(folder / "first", start=False, **sections) as first:
        second = BrokerNetwork(folder / "second", first.directory, members=first.members)
        second.configuration = dict(sections)
        second.configure()
        await second.cli("broker", "join", str(first.home), "--config", str(second.file))
        await first.start()
        try:
            await second.start()
            yield first, second
            await second.close_connections()
        finally:
            if not second.ended:
                await second.kill()
