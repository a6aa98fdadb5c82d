"""The demonstration as a newcomer runs it, and what it says when something is in its way."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gridpost.assembly.network import NetworkFiles, Placed
from gridpost.assembly.root_ca import create_root
from gridpost.core.refusal import Refusal
from gridpost.demo import further
from gridpost.demo.bus_part import SERVICE as BUS_USER
from gridpost.demo.bus_part import BusPart
from gridpost.demo.node_part import NodePart
from gridpost.demo.part import place
from gridpost.demo.rabbit import DemoRabbit
from support.network import CLI, environment
from support.pki import NOW
from support.readme import commands_of_the_readme


def demo(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CLI, "demo", *words], capture_output=True, text=True, check=False, env=environment()
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the commands of the README name, in a folder of this test."""
    return tmp_path_factory.mktemp("demo") / "network"


@pytest.mark.timeout(900)
def test_the_demo_delivers_every_document_with_its_proof_and_shows_every_part(home):
    command, _ = commands_of_the_readme("demo")
    first = subprocess.run(
        [*CLI, *command], capture_output=True, text=True, check=False, env=environment(),
        cwd=home.parent,
    )  # fmt: skip
    assert first.returncode == 0, first.stderr
    result = json.loads(first.stdout)
    assert result["sent"] == result["received"] == result["proofs_verified"] > 0
    assert result["failed"] == 0
    assert sum(result["by_channel"].values()) == result["received"]
    # The journals alone tell the same story. Connectivity tests are messages, too.
    known = result["key_figures"]
    assert known["failed"] == 0
    assert known["messages"] >= known["received"] >= result["received"]
    assert known["reconciliation"].get("mismatch", 0) == 0
    assert known["proofs"].get("not proven", 0) == 0
    assert known["proofs"]["proven"] >= result["received"]
    # Directory, broker, three endpoints, bus and node keep a journal each.
    assert known["journals"] == 7
    assert result["left_out"] == {}
    assert result["parts"]["capacity"]["allocated_kw"] == 250
    assert all(result["parts"]["capacity"]["broadcasts"].values())
    assert result["parts"]["bus"]["events"] == ["created", "canceled"]
    assert result["parts"]["node"]["opened"] == 2
    for code, ready in (("NODE", "listening"), ("CMM", "active"), ("BUS", "serving")):
        text = (home / "log" / f"{code}.log").read_text(encoding="utf-8")
        lines = [json.loads(line) for line in text.splitlines()]
        (told,) = [line for line in lines if line["event"] == ready]
        ports = json.loads((home / code / "ports.json").read_text())
        assert told["console_port"] == ports["console"]


@pytest.mark.timeout(400)
def test_a_component_that_does_not_start_is_named_with_its_log_and_line(home):
    ports = {
        component["code"]: component["ports"]
        for component in json.loads((home / "network.json").read_text())["components"]
    }
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", ports["BROKER"]["server"]))
        taken.listen()
        run = demo("--once", "--no-pipeline", "--no-further", "--json", "--home", str(home))
    assert run.returncode == 1
    told = json.loads(run.stdout)["refused"]
    assert "the broker BROKER did not start" in told["message"]
    assert f"log {home / 'log' / 'BROKER.log'}, line " in told["details"]


@pytest.mark.timeout(600)
def test_a_kept_network_starts_again_stays_up_until_interrupted_and_stops_every_component(home):
    identities = {file: file.read_bytes() for file in home.glob("*/data/keys/*.key")}
    assert identities
    _, command = commands_of_the_readme("demo")
    with subprocess.Popen(
        [*CLI, *command],
        stdout=subprocess.PIPE,
        cwd=home.parent,
        text=True,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if "Ctrl-C stops it" in line:
                break
        process.send_signal(signal.SIGINT)
        process.stdout.read()
    assert process.returncode == 0
    assert "48 of 48 documents RECEIVED, 48 proofs verified" in said
    for part in ("pipeline", "capacity", "bus", "node"):
        assert f"Left out: {part}, because" in said
    assert {file: file.read_bytes() for file in home.glob("*/data/keys/*.key")} == identities
    port = json.loads((home / "network.json").read_text())["components"][1]["ports"]["server"]
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path):
    (tmp_path / "letter.txt").write_text("mine")
    run = demo("--once", "--home", str(tmp_path))
    assert run.returncode == 1
    assert "is not empty" in run.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["letter.txt"]


def _free() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_part_whose_engine_is_missing_is_left_out_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(further, "what_is_missing", lambda: "rabbitmq-server is not installed")
    placed = Placed("directory", "D", tmp_path / "D" / "directory.toml", {})
    made = further.Further(NetworkFiles(tmp_path, placed, placed, ()), _free)
    assert made.left_out == {
        "capacity": "rabbitmq-server is not installed",
        "bus": "rabbitmq-server is not installed",
    }
    assert [part.name for part in made.parts] == ["node"]


@pytest.mark.timeout(400)
async def test_a_part_that_does_not_start_is_named_with_its_log_and_line(tmp_path):
    rabbit = DemoRabbit(tmp_path / "rabbitmq", _free())
    await asyncio.to_thread(rabbit.prepare, [BUS_USER], NOW)
    part = BusPart(
        tmp_path, place(tmp_path, "bus", "BUS", ("operations", "console"), _free), rabbit
    )
    part.prepare()
    # Nobody listens where RabbitMQ should be, and its certificate is gone.
    rabbit.certificate(BUS_USER)[0].unlink()
    with pytest.raises(Refusal, match="the bus BUS did not start") as refused:
        await part.show(lambda step: None)
    assert f"log {tmp_path / 'log' / 'BUS.log'}, line " in (refused.value.details or "")


@pytest.mark.timeout(600)
async def test_endpoints_of_the_old_standard_are_the_same_at_the_next_start(tmp_path):
    create_root(tmp_path / "root", "Test ROOT CA", "", timedelta(days=3650), NOW, None)
    directory = Placed("directory", "D", tmp_path / "D" / "directory.toml", {})
    files = NetworkFiles(tmp_path, directory, directory, ())
    placed = place(tmp_path, "node", "NODE", ("server", "operations", "console"), _free)
    certificates = []
    for _ in range(2):
        part = NodePart(files, placed)
        await asyncio.to_thread(part.prepare, datetime.now(UTC))
        try:
            assert (await part.show(lambda step: None))["opened"] == 2
        finally:
            await part.processes[0].stop()
        papers = (placed.folder / "endpoints").glob("*/*.pem")
        certificates.append({file: file.read_bytes() for file in papers})
    assert certificates[0] == certificates[1]
    assert len(certificates[0]) == 8
