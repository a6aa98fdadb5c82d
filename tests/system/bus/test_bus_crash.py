"""A bus that is killed between any two steps of a request: one effect, one reply, one event."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from gridpost.core.amqp091 import Properties
from gridpost.envelope import ResponseMessage, Result, Sender, decode, encode
from support.bus_site import CONTEXT
from support.child import environment
from support.postgres import PostgresDatabase
from support.rabbitmq import EDGE, Rabbit
from support.waiting import eventually

COUNTS = '<c:Counts xmlns:c="urn:counts"/>'


def write(rabbit: Rabbit, folder: Path, virtual_host: str, database: str) -> Path:
    """`database`: the section postgres; empty: SQLite."""
    certificate = rabbit.certificate(EDGE)
    file = folder / "bus.toml"
    file.write_text(
        f"""component = "bus"
code = "MDM"
home = "home"
contexts = ["{CONTEXT}"]
store = "{"postgres" if database else "sqlite"}"
[rabbitmq]
urls = ["{rabbit.url}"]
virtual_host = "{virtual_host}"
roots = "{certificate / "root.pem"}"
certificate = "{certificate / "chain.pem"}"
key = "{certificate / "key.pem"}"
{database}"""
    )
    return file


class Buses:
    """Processes of buses, children of one that has everything loaded."""

    def __init__(self) -> None:
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "support.bus_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )

    def _ask(self, *words: object) -> int:
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        print(*words, file=self._parent.stdin, flush=True)
        return int(self._parent.stdout.readline())

    async def start(self, file: Path, stop_at: str) -> int:
        pid = self._ask("start", file, stop_at)
        await eventually(lambda: (file.parent / f"serving-{pid}").exists())
        return pid

    def wait(self, pid: int) -> int:
        return self._ask("wait", pid)

    def kill(self, pid: int) -> int:
        return self._ask("kill", pid)

    def close(self) -> None:
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.close()
        self._parent.wait(60)
        self._parent.stdout.close()


@pytest.fixture(scope="module")
def buses() -> Iterator[Buses]:
    found = Buses()
    yield found
    found.close()


def effects(folder: Path, postgres: PostgresDatabase | None) -> list[tuple[object, ...]]:
    query = "SELECT message_id FROM effect"
    if postgres is not None:
        with postgres.connect() as connection:
            connection.execute("SET search_path TO gridpost")
            return connection.execute(query).fetchall()
    with closing(sqlite3.connect(folder / "home" / "store" / "gridpost.sqlite3")) as store:
        return store.execute(query).fetchall()


@pytest.mark.req("100-3.3.17-a", component="bus")
@pytest.mark.req("100-4.3-a")
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.parametrize("stop_at", ["taken", "handler", "committed", "published", "settled"])
async def test_a_killed_bus_loses_nothing_and_does_nothing_twice(
    request: pytest.FixtureRequest,
    rabbitmq: Rabbit,
    buses: Buses,
    tmp_path: Path,
    stop_at: str,
    store: str,
) -> None:
    virtual_host = rabbitmq.virtual_host()
    postgres, section = None, ""
    if store == "postgres":
        postgres = request.getfixturevalue("postgres")
        words = [f'{name} = "{value}"' for name, value in postgres.section(tmp_path).items()]
        section = "\n".join(["[postgres]", *words, ""])
    file = write(rabbitmq, tmp_path, virtual_host, section)
    connection = await rabbitmq.client(virtual_host=virtual_host).connect()
    channel = await connection.channel()
    replies, _ = await channel.declare_queue(durable=False, auto_delete=False)
    events, _ = await channel.declare_queue(durable=False, auto_delete=False)
    await channel.declare_exchange(CONTEXT, "topic")
    await channel.bind(events, CONTEXT, f"{CONTEXT}.EVENTS.Counts.*")
    sent = Sender("EMS", CONTEXT).request("create", "Counts", COUNTS)
    doomed = await buses.start(file, stop_at)
    await channel.publish(
        encode(sent),
        Properties(reply_to=replies, correlation_id="t", expiration=timedelta(seconds=60)),
        routing_key=f"{CONTEXT}.REQUESTS.Counts.create",
    )
    assert buses.wait(doomed) == -9
    # Another process, with the same store, goes on.
    second = await buses.start(file, "never")
    try:
        got: list[bytes] = []
        told: list[bytes] = []
        await channel.consume(replies, lambda m: got.append(m.body), no_ack=True)
        await channel.consume(events, lambda m: told.append(m.body), no_ack=True)
        await eventually(lambda: got and told, 60)
    finally:
        buses.kill(second)
        await connection.close()
    answer = decode(got[0])
    assert isinstance(answer, ResponseMessage)
    assert answer.reply.result is Result.OK
    # Sent again, perhaps, but always the same.
    assert len(set(got)) == len(set(told)) == 1
    assert effects(tmp_path, postgres) == [(sent.header.message_id,)]
