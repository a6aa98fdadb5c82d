"""The capacity service as processes: the command line, kill -9 with a standby, and a broker restart."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import AsyncExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from gridpost.capacity import (
    AllocationType,
    AsyncCapacityClient,
    ConnectionLost,
    Heartbeat,
    LoggedIn,
)
from gridpost.cli import app
from gridpost.core.refusal import Refusal
from gridpost.transports.free_port import free_port
from support.capacity_market import DK1, EON, GROUP
from support.capacity_site import (
    BORDERS,
    PASSPHRASE,
    SERVICE,
    USERS,
    capacity_csv,
    capacity_node,
    capacity_service,
    participant,
    periods,
    wanted,
)  # fmt: skip
from support.waiting import eventually

CLI = [sys.executable, "-c", "from gridpost.cli import main; main()", "capacity"]
ENVIRONMENT = {
    **os.environ,
    "GRIDPOST_CAPACITY_PASSPHRASE": PASSPHRASE,
    "GRIDPOST_PACKAGE_PASSPHRASE": PASSPHRASE,
    "PYTHONPATH": str(Path(__file__).resolve().parents[3] / "src"),
}


def toml(value) -> str:
    return json.dumps(value) if not isinstance(value, bool) else str(value).lower()


def write_configuration(node, folder: Path, host: str) -> Path:
    tables = []
    for name, rows in (("borders", BORDERS), ("users", USERS)):
        for row in rows:
            tables.append(f"[[{name}]]")
            tables += [f"{key} = {toml(value)}" for key, value in row.items()]
    file = folder / "capacity.toml"
    plan = node.node.plan
    file.write_text(
        f"""component = "capacity"
code = "CMM-1"
home = "home"
zone = "Europe/Berlin"
[rabbitmq]
urls = ["{node.node.url}"]
virtual_host = "{host}"
user = "{SERVICE}"
roots = "{node.roots}"
package = "{node.package(SERVICE)}/{SERVICE}.p12"
passphrase = "{PASSPHRASE}"
[management]
url = "https://localhost:{node.node.management_port}"
user = "{plan.administrator}"
password = "{plan.password}"
roots = "{node.roots}"
[authority]
folder = "{node.folder}/authority"
[broadcasts]
heartbeat = "1s"
[limits]
requests = 100000
[operations]
port = {free_port()}
[[balancing_groups]]
eic = "{GROUP}"
[[balancing_groups]]
eic = "11XGROUP-BETA-AE"
"""
        + "\n".join(tables)
    )
    return file


def command(*arguments: str, code: int = 0) -> str:
    """As in a shell, but without the start of a process; `run` alone has one of its own."""
    result = CliRunner().invoke(app, ["capacity", *arguments], env=ENVIRONMENT)
    refused = isinstance(result.exception, Refusal)
    assert (1 if refused else result.exit_code) == code, (
        arguments,
        result.output,
        result.exception,
    )
    return result.stdout


def listening(process: int) -> list[str]:
    sockets = psutil.Process(process).net_connections(kind="inet")
    return [found.laddr.ip for found in sockets if found.status == psutil.CONN_LISTEN]


async def say(*arguments: str, code: int = 0) -> str:
    return await asyncio.to_thread(command, *arguments, code=code)


@contextmanager
def service(config: Path, log: Path):
    with log.open("ab") as stream:
        process = subprocess.Popen(
            [*CLI, "run", "--config", str(config)], env=ENVIRONMENT, stderr=stream, stdout=stream
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(120)


@pytest.mark.req("cmm-4.2-c", component="rabbitmq-topology")
@pytest.mark.req("cmm-4.2-c", component="client")
@pytest.mark.req("cmm-1.2-a", component="service")
@pytest.mark.req("cmm-1.2-a", component="rabbitmq-topology")
@pytest.mark.req("cmm-4.2-b", component="client")
async def test_a_killed_service_is_followed_by_its_standby_and_commands_do_their_work(
    rabbit, tmp_path
):
    """One long story, because starting processes costs most of it."""
    from cryptography.hazmat.primitives.serialization import pkcs12

    host = rabbit.virtual_host()
    config = write_configuration(rabbit, tmp_path, host)
    applied = json.loads(await say("users", "--config", str(config), "--apply", "--json"))
    assert {"u1", "u10", "u.1", "r1", SERVICE} <= set(applied["users"])
    exported = tmp_path / "definitions.json"
    await say("users", "--config", str(config), "--export", str(exported))
    rights = {p["user"]: p for p in json.loads(exported.read_text())["permissions"]}
    assert rights["u.1"]["write"] == r"^cmm\.request\.u\.1$"
    assert rights["u.1"]["configure"] == "^$"
    account = tmp_path / "account"
    await say("users", "--config", str(config), "--package", "u1", "--out", str(account))
    store = pkcs12.load_pkcs12((account / "u1.p12").read_bytes(), PASSPHRASE.encode())
    certificate = store.cert.certificate
    assert certificate.version.name == "v3"
    assert certificate.public_key().key_size == 2048
    assert certificate.subject.rfc4514_string() == "CN=u1"
    assert "Capacity operator CA" in certificate.issuer.rfc4514_string()

    log, standby_log = tmp_path / "first.log", tmp_path / "second.log"
    with service(config, log) as first:
        await eventually(lambda: b'"active"' in log.read_bytes(), 60)
        await eventually(lambda: listening(first.pid), 60)
        # The operators' listener, and nothing for clients.
        assert listening(first.pid) == ["127.0.0.1"]
        file = tmp_path / "capacity.csv"
        file.write_text(capacity_csv((EON, DK1, 10_000), (DK1, EON, 10_000)))
        published = json.loads(await say("publish", str(file), "--config", str(config), "--json"))
        assert published["offers"] == 48
        client = ("--account", str(account / "client.toml"), "--json")
        areas = ("--out-area", EON, "--in-area", DK1, "--start", periods()[12].start.isoformat())
        done = json.loads(await say("allocate", *client, *areas, "--quantity", "100"))
        assert done["items"][0]["confirmed_kw"] == 100
        await say("halt", "DE-DK", "--config", str(config))
        halted = json.loads(await say("allocate", *client, *areas, "--quantity", "1", code=1))
        assert halted["items"][0]["message"] == "The service is in HALT."
        await say("resume", "DE-DK", "--config", str(config))

        with service(config, standby_log):
            await eventually(lambda: b"waiting for the ledger" in standby_log.read_bytes(), 60)
            settings = rabbit.settings("u1", host, response_timeout=timedelta(seconds=15))
            async with AsyncCapacityClient(settings) as trader:
                told: dict[str, int] = {}
                unknown = []

                async def trade(number: int) -> None:
                    try:
                        result = await trader.allocate([wanted(1, number % 24)], AllocationType.IOC)
                    except Refusal:
                        return  # the broker returned it: not executed
                    if result.known:
                        told.update(
                            {i.allocation_id: i.confirmed for i in result.items if i.success}
                        )
                    else:
                        unknown.append(result)

                trading = [asyncio.create_task(trade(n)) for n in range(150)]
                await eventually(lambda: len(told) > 20, 60)
                first.send_signal(signal.SIGKILL)
                first.wait()
                await asyncio.gather(*trading)
                await eventually(lambda: b'"active"' in standby_log.read_bytes(), 60)
                assert told
                # What was unknown becomes known, and nothing is sold twice for it.
                async with asyncio.timeout(60):
                    for result in unknown:
                        while True:
                            try:
                                known = await trader.resolve(result)
                                if known.known:
                                    break
                            except Refusal:
                                await asyncio.sleep(0.2)
                        told.update(
                            {i.allocation_id: i.confirmed for i in known.items if i.success}
                        )
                lists = await trader.allocations(
                    GROUP, periods()[0].start, periods()[-1].end, EON, DK1
                )
                stored = {i.allocation_id: i.quantity for part in lists for i in part.items}
                assert told.items() <= stored.items()
                atc = await trader.atc(periods()[0].start, EON, DK1)
                free = sum(item.quantity for item in atc[0].items)
                assert free == 24 * 10_000 - sum(stored.values())
            shown = json.loads(
                await say("atc", *client, "--area1", EON, "--area2", DK1,
                        "--date", periods()[0].start.isoformat())
            )  # fmt: skip
            assert len(shown["atc"]) == 48
            listed = json.loads(
                await say("allocations", *client, "--balancing-group", GROUP, "--area1", EON,
                        "--area2", DK1, "--from", periods()[0].start.isoformat(),
                        "--to", periods()[-1].end.isoformat())
            )  # fmt: skip
            assert {row["allocation_id"] for row in listed["allocations"]} == set(stored)
            assert json.loads(await say("login", *client))["logged_in"]
            lines = await say("watch", "--account", str(account / "client.toml"), "--count", "2")
            assert json.loads(lines.splitlines()[0]) == {"event": "LoggedIn", "again": False}
            await say("users", "--config", str(config), "--disable", "u10")
            assert rabbit.api("GET", "users/u10").status_code == 404
            await say("adjust", str(file), "--config", str(config))
            wrong = tmp_path / "wrong.csv"
            wrong.write_text("nothing")
            await say("publish", str(wrong), "--config", str(config), code=1)


async def blocked(site) -> list[str]:
    answer = await asyncio.to_thread(site.node.api, "GET", "connections")
    return [row["user"] for row in answer.json() if row["state"] == "blocked"]


async def survive_a_full_broker(node, site, trader) -> None:
    """CMM 3.2.5.3: publishers are held back while memory is short, and go on afterwards."""
    await asyncio.to_thread(node.node.control, "set_vm_memory_high_watermark", "absolute", "1MB")
    held = asyncio.create_task(trader.allocate([wanted(5, 3)]))
    async with asyncio.timeout(60):
        while "u1" not in await blocked(site):
            await asyncio.sleep(0.1)
    assert not held.done()
    await asyncio.to_thread(node.node.control, "set_vm_memory_high_watermark", "0.6")
    result = await held
    assert (result if result.known else await trader.resolve(result)).confirmed == 5
    assert trader.connected


@pytest.mark.req("cmm-3.2.5.3-a", component="client")
@pytest.mark.req("cmm-3.1.3-a")
@pytest.mark.req("cmm-5.2.1-a")
@pytest.mark.req("cmm-3.2.4-a")
@pytest.mark.req("cmm-3.2.4-b")
@pytest.mark.req("cmm-3.1.3-d", component="service")
@pytest.mark.req("cmm-3.1.3-d", component="rabbitmq-topology")
async def test_service_and_clients_survive_a_restart_of_the_broker(tmp_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("node")
    with capacity_node(folder) as node:
        async with AsyncExitStack() as stack:
            site = await stack.enter_async_context(capacity_service(node, tmp_path))
            await site.publish()
            trader = await stack.enter_async_context(site.client())
            async with participant(site, "u10") as other:
                # Left in a queue when the broker goes: lost, as the document has it.
                await other.login()
                assert (await trader.allocate([wanted(10)])).confirmed == 10
            await survive_a_full_broker(node, site, trader)
            node.node.kill()
            await eventually(lambda: any(isinstance(e, ConnectionLost) for e in trader._events), 60)
            assert not trader.connected
            with pytest.raises(Refusal):
                await trader.allocate([wanted(1)])
            trader._events.clear()
            await asyncio.to_thread(node.node.start)
            await eventually(
                lambda: any(isinstance(e, LoggedIn) and e.again for e in trader._events), 90
            )
            await eventually(lambda: any(isinstance(e, Heartbeat) for e in trader._events), 60)
            queues = await site.queues()
            assert "cmm.broadcastQueue.u10" not in queues
            assert "cmm.broadcastQueue.u1" in queues
            assert (await trader.allocate([wanted(20)])).confirmed == 20
            lists = await trader.atc(periods()[0].start, EON, DK1)
            assert lists[0].items[12].quantity == 970
