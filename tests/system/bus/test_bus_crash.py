"""A bus that is killed between any two steps of a request: one effect, one reply, one event."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from gridpost.core.amqp091 import Properties
from gridpost.envelope import ResponseMessage, Result, Sender, decode, encode
from support.bus_site import CONTEXT
from support.child import environment
from support.rabbitmq import EDGE, Rabbit
from support.waiting import eventually

COUNTS = '<c:Counts xmlns:c="urn:counts"/>'


def write(rabbit: Rabbit, folder: Path, virtual_host: str) -> Path:
    certificate = rabbit.certificate(EDGE)
    file = folder / "bus.toml"
    file.write_text(
        f"""component = "bus"
code = "MDM"
home = "home"
contexts = ["{CONTEXT}"]
[rabbitmq]
urls = ["{rabbit.url}"]
virtual_host = "{virtual_host}"
roots = "{certificate / "root.pem"}"
certificate = "{certificate / "chain.pem"}"
key = "{certificate / "key.pem"}"
"""
    )
    return file


def start(file: Path, stop_at: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "support.bus_child", str(file), stop_at],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )


@pytest.mark.req("100-3.3.17-a", component="bus")
@pytest.mark.req("100-4.3-a")
@pytest.mark.parametrize("stop_at", ["taken", "handler", "committed", "published", "settled"])
async def test_a_killed_bus_loses_nothing_and_does_nothing_twice(
    rabbitmq: Rabbit, tmp_path: Path, stop_at: str
) -> None:
    virtual_host = rabbitmq.virtual_host()
    file = write(rabbitmq, tmp_path, virtual_host)
    connection = await rabbitmq.client(virtual_host=virtual_host).connect()
    channel = await connection.channel()
    replies, _ = await channel.declare_queue(durable=False, auto_delete=False)
    events, _ = await channel.declare_queue(durable=False, auto_delete=False)
    await channel.declare_exchange(CONTEXT, "topic")
    await channel.bind(events, CONTEXT, f"{CONTEXT}.EVENTS.Counts.*")
    request = Sender("EMS", CONTEXT).request("create", "Counts", COUNTS)
    doomed = start(file, stop_at)
    assert doomed.stdout is not None
    doomed.stdout.readline()
    await channel.publish(
        encode(request),
        Properties(reply_to=replies, correlation_id="t", expiration=timedelta(seconds=60)),
        routing_key=f"{CONTEXT}.REQUESTS.Counts.create",
    )
    assert doomed.wait(60) == -9
    # Another process, with the same store, goes on.
    second = start(file, "never")
    try:
        assert second.stdout is not None
        second.stdout.readline()
        got: list[bytes] = []
        told: list[bytes] = []
        await channel.consume(replies, lambda m: got.append(m.body), no_ack=True)
        await channel.consume(events, lambda m: told.append(m.body), no_ack=True)
        await eventually(lambda: got and told, 60)
    finally:
        second.kill()
        second.wait()
        doomed.stdout.close()
        second.stdout.close()
        await connection.close()
    answer = decode(got[0])
    assert isinstance(answer, ResponseMessage)
    assert answer.reply.result is Result.OK
    # Sent again, perhaps, but always the same.
    assert len(set(got)) == len(set(told)) == 1
    with sqlite3.connect(tmp_path / "home" / "store" / "gridpost.sqlite3") as store:
        effects = store.execute("SELECT message_id FROM effect").fetchall()
    store.close()
    assert effects == [(request.header.message_id,)]
