"""A bus that is watched, backed up and brought back, and whose journal does not grow for ever."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from gridpost.assembly.backup import back_up, restore
from gridpost.assembly.bus import RunningBus, running_bus
from gridpost.assembly.bus_configuration import read_bus_configuration
from gridpost.core.amqp091 import Properties
from gridpost.core.bus import BusUnit
from gridpost.core.journal import AdministrationRow
from gridpost.core.refusal import Refusal, Rule
from gridpost.envelope import Result, Sender, encode
from gridpost.envelope.client import BusClient
from gridpost.services.bus import watching as conditions
from gridpost.stores.sqlite.bus import SqliteBusLedger
from gridpost.transports.free_port import free_port
from support import bus_handlers
from support.bus_site import CONTEXT, configuration, journal
from support.bus_web import NOTE
from support.child import environment
from support.rabbitmq import EDGE, Rabbit
from support.waiting import eventually

FAST = {"cycle": timedelta(milliseconds=100)}


async def health(bus: RunningBus) -> dict[str, Any]:
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        answer = await client.get(f"http://127.0.0.1:{bus.operations_port}/health")
    return dict(answer.json())


async def alerts_until(bus: RunningBus, *kinds: str) -> dict[str, dict[str, Any]]:
    """By their kind, as soon as these and no others are open in a bus that watches."""
    async with asyncio.timeout(60):
        while True:
            found = (await health(bus)).get("alerts")
            if found is not None and {alert["kind"] for alert in found} == set(kinds):
                return {alert["kind"]: alert for alert in found}
            await asyncio.sleep(0.02)


async def watcher(*buses: RunningBus) -> RunningBus:
    """Which of them it is, is chance."""
    async with asyncio.timeout(60):
        while True:
            for bus in buses:
                if "alerts" in await health(bus):
                    return bus
            await asyncio.sleep(0.02)


async def waiting_for(port: int) -> str:
    """What a bus that starts says that it waits for, as soon as it says so."""
    async with asyncio.timeout(120), httpx.AsyncClient(trust_env=False, timeout=60) as client:
        while True:
            with contextlib.suppress(httpx.TransportError):
                answer = await client.get(f"http://127.0.0.1:{port}/health")
                if answer.json().get("waiting_for", "RabbitMQ") != "RabbitMQ":
                    assert answer.status_code == 503
                    return str(answer.json()["waiting_for"])
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def relay(port: int, rabbit: Rabbit) -> AsyncIterator[None]:
    """The node answers at this port too."""
    target = urlsplit(rabbit.url)

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(target.hostname, target.port)
        await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))

    async with await asyncio.start_server(meet, "127.0.0.1", port):
        yield


def late(rabbit: Rabbit, virtual_host: str, home: Path, milliseconds: int) -> tuple[Any, int, int]:
    """A bus whose RabbitMQ is not there yet, and the ports of both."""
    broker, operations = free_port(), free_port()
    values = configuration(rabbit, virtual_host, home, operations={"port": operations})
    section = values.rabbitmq.model_copy(
        update={
            "urls": (f"amqps://localhost:{broker}",),
            "patience": timedelta(milliseconds=milliseconds),
        }
    )
    return values.model_copy(update={"rabbitmq": section}), broker, operations


async def test_a_bus_that_starts_before_rabbitmq_waits_for_it_and_says_so(
    rabbitmq: Rabbit, tmp_path: Path
) -> None:
    virtual_host = rabbitmq.virtual_host()
    values, broker, operations = late(rabbitmq, virtual_host, tmp_path / "bus", 60_000)
    async with AsyncExitStack() as stack:
        starting = stack.enter_async_context(running_bus(values))
        said = asyncio.create_task(waiting_for(operations))
        opened = asyncio.create_task(_open_when(said, stack, relay(broker, rabbitmq)))
        bus = await starting
        assert f"localhost:{broker}" in await said
        await opened
        found = await health(bus)
        async with httpx.AsyncClient(trust_env=False, timeout=60) as web:
            living = await web.get(f"http://127.0.0.1:{operations}/instances")
        assert [one["name"] for one in living.json()] == [bus.service.instance]
        assert found["ready"] is True
        assert "waiting_for" not in found
        connection = await rabbitmq.client(virtual_host=virtual_host).connect()
        client = await BusClient(connection, CONTEXT).open()
        answer = await client.call(
            Sender("EMS", CONTEXT).request("get", "MeterReadings", ids=["m"])
        )
        assert answer.reply.result is Result.FAILED  # nobody knows that meter
        await connection.close()


async def _open_when(said: asyncio.Task[str], stack: AsyncExitStack, opening: Any) -> None:
    await said
    await stack.enter_async_context(opening)


async def test_a_bus_ends_with_the_reason_when_rabbitmq_does_not_come_in_time(
    rabbitmq: Rabbit, tmp_path: Path
) -> None:
    values, broker, _ = late(rabbitmq, rabbitmq.virtual_host(), tmp_path / "bus", 600)
    with pytest.raises(Refusal, match=f"localhost:{broker}") as caught:
        async with running_bus(values):
            raise AssertionError("it serves without a broker")
    assert caught.value.rule is Rule.AMQP091_UNREACHABLE


async def test_a_bus_that_waits_for_rabbitmq_stops_when_it_is_asked_to(tmp_path: Path) -> None:
    operations = free_port()
    file = tmp_path / "bus.toml"
    file.write_text(
        f"""component = "bus"
code = "MDM"
home = "bus"
contexts = ["{CONTEXT}"]
[rabbitmq]
urls = ["amqp://localhost:{free_port()}"]
user = "nobody"
password = "none"
[operations]
port = {operations}
"""
    )
    command = "from gridpost.cli import main; main()"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", command, "bus", "run", "--config", str(file), env=environment()
    )
    try:
        await waiting_for(operations)
        process.terminate()
        async with asyncio.timeout(60):
            assert await process.wait() == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


async def test_dead_letters_are_an_alert_until_somebody_has_taken_them(
    rabbitmq: Rabbit, tmp_path: Path
) -> None:
    virtual_host = rabbitmq.virtual_host()
    values = configuration(rabbitmq, virtual_host, tmp_path / "bus", alerts=FAST)
    async with running_bus(values) as bus:
        await alerts_until(bus)
        connection = await rabbitmq.client(virtual_host=virtual_host).connect()
        channel = await connection.channel()
        queue = f"{CONTEXT}.REQUESTS.MeterReadings.get"
        await channel.publish(b"no envelope", Properties(), routing_key=queue)
        alerts = await alerts_until(bus, "dead_letters")
        assert alerts["dead_letters"]["subject"] == f"{CONTEXT}.DEAD"
        assert alerts["dead_letters"]["text"].startswith("1 envelopes")
        figures = bus.service.metrics.registry
        assert figures.get_sample_value("gridpost_bus_dead_letters", {"context": CONTEXT}) == 1

        letter = await channel.get(f"{CONTEXT}.DEAD")
        assert letter is not None
        await channel.ack(letter.tag)
        await alerts_until(bus)
        await connection.close()


async def test_a_bus_without_its_broker_and_a_certificate_that_ends_are_alerts(
    rabbitmq: Rabbit, tmp_path: Path
) -> None:
    soon = FAST | {"rules": {"certificate_expiry": timedelta(days=36500)}}
    values = configuration(rabbitmq, rabbitmq.virtual_host(), tmp_path / "bus", alerts=soon)
    async with running_bus(values) as bus:
        alerts = await alerts_until(bus, "certificate_expiry")
        assert alerts["certificate_expiry"]["subject"] == "rabbitmq"
        assert await conditions.broker(bus.service)() == []
        bus.service.lost(Refusal(Rule.AMQP091_UNREACHABLE, "gone"))
        [condition] = await conditions.broker(bus.service)()
        assert (condition.kind, condition.severity) == ("rabbitmq", "critical")


async def test_one_of_several_processes_tells_and_another_goes_on_when_it_is_gone(
    rabbitmq: Rabbit, tmp_path: Path
) -> None:
    values = configuration(rabbitmq, rabbitmq.virtual_host(), tmp_path / "bus", alerts=FAST)
    async with AsyncExitStack() as others:
        first = await others.enter_async_context(running_bus(values))
        await alerts_until(first)
        async with running_bus(values) as second:
            found = await health(second)
            assert "alerts" not in found
            assert found["watched_by"] == "another process of this bus"
            await others.aclose()
            await alerts_until(second)


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_refused_envelopes_reach_the_siem_and_are_counted(
    rabbitmq: Rabbit, tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    lines = bytearray()
    options: dict[str, Any] = {"store": store}
    if store == "postgres":
        options["postgres"] = request.getfixturevalue("postgres").section(tmp_path)

    async def heard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            lines.extend(data)
        writer.close()

    server = await asyncio.start_server(heard, "127.0.0.1", 0)
    address = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    values = configuration(
        rabbitmq,
        rabbitmq.virtual_host(),
        tmp_path / "bus",
        syslog={"address": address},
        alerts=FAST | {"rules": {"refused_connections": 5}},
        **options,
    )
    try:
        async with running_bus(values) as one, running_bus(values) as two:
            # A request of another context, in a queue of this one: a security event.
            foreign = Sender("EMS", "PRODUCTION").request("get", "MeterReadings")
            connection = await rabbitmq.client(virtual_host=values.rabbitmq.virtual_host).connect()
            channel = await connection.channel()
            queue = f"{CONTEXT}.REQUESTS.MeterReadings.get"
            for _ in range(6):
                await channel.publish(encode(foreign), Properties(), routing_key=queue)
            told = (
                await alerts_until(await watcher(one, two), "dead_letters", "refused_connections")
            )["refused_connections"]
            assert "was refused" in told["text"]
            await eventually(lambda: lines.count(b" security [gridpost@32473") >= 6)
            # Each once, whichever of the processes refused it.
            assert len(set(re.findall(rb'id="[^"]+"', lines))) == lines.count(b" security [") == 6
            assert lines.count(b"ENVELOPE_CONTEXT") == 6
            await connection.close()
    finally:
        server.close()


def write_configuration(rabbitmq: Rabbit, folder: Path) -> Path:
    certificate = rabbitmq.certificate(EDGE)
    file = folder / "bus.toml"
    file.write_text(
        f"""component = "bus"
code = "MDM"
home = "home"
contexts = ["{CONTEXT}"]
handlers = ["support.bus_handlers"]
[rabbitmq]
urls = ["{rabbitmq.url}"]
virtual_host = "{rabbitmq.virtual_host()}"
roots = "{certificate / "root.pem"}"
certificate = "{certificate / "chain.pem"}"
key = "{certificate / "key.pem"}"
[operations]
port = 0
"""
    )
    return file


async def test_a_restored_bus_knows_what_it_did_before_its_backup(
    rabbitmq: Rabbit, tmp_path: Path
) -> None:
    file, archive = write_configuration(rabbitmq, tmp_path), tmp_path / "mdm.tar"
    values = read_bus_configuration(file)
    request = Sender("EMS", CONTEXT).request("create", "Notes", NOTE.format("one"))
    done = ("create", request.header.message_id)
    async with running_bus(values) as bus:
        # A stored reply goes to whoever asked first, so this client stays.
        connection = await rabbitmq.client(virtual_host=values.rabbitmq.virtual_host).connect()
        client = await BusClient(connection, CONTEXT, within=timedelta(seconds=60)).open()
        assert (await client.call(request)).reply.result is Result.OK

        def own_table(unit: BusUnit) -> None:
            unit.execute("CREATE TABLE company_files (file TEXT)")
            unit.execute("INSERT INTO company_files VALUES ('readings.csv')")

        await bus.ledger.run(own_table)
        saved = await asyncio.to_thread(
            back_up, file, archive, datetime.now(UTC), lambda done, total: None
        )
        assert (saved.component, saved.code) == ("bus", "MDM")
    shutil.rmtree(tmp_path / "home")
    await asyncio.to_thread(restore, archive, file, datetime.now(UTC), lambda done, total: None)
    async with running_bus(values) as bus:
        told = (await health(bus))["restored"]
        assert "is done again" in told["missing"]
        assert (await client.call(request)).reply.result is Result.OK
        rows = await bus.ledger.run(lambda unit: unit.execute("SELECT file FROM company_files"))
        assert list(rows) == [("readings.csv",)]
        await connection.close()
    # The reply came from the store: the handler was not asked a second time.
    assert bus_handlers.CALLS.count(done) == 1


async def test_rows_of_the_journal_go_when_their_time_is_over(
    rabbitmq: Rabbit, tmp_path: Path
) -> None:
    home = tmp_path / "bus"
    ledger = await asyncio.to_thread(SqliteBusLedger.open, home / "store", "MDM")
    now = datetime.now(UTC)

    def rows(unit: BusUnit) -> None:
        for at, actor in ((now - timedelta(days=8), "old"), (now, "new")):
            unit.record(AdministrationRow(at, actor=actor, action="looked", target="MDM"))

    await ledger.run(rows)
    await ledger.close()
    values = configuration(
        rabbitmq, rabbitmq.virtual_host(), home, journal={"retention": timedelta(days=7)}
    )

    def actors() -> list[str]:
        return [row.actor for row in journal(home) if isinstance(row, AdministrationRow)]

    assert actors() == ["old", "new"]
    async with running_bus(values):
        await eventually(lambda: actors() == ["new"])
