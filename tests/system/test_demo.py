"""The demonstration as a newcomer runs it, and what it says when something is in its way."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from support.network import CLI, environment


def demo(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CLI, "demo", *words], capture_output=True, text=True, check=False, env=environment()
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "network"


@pytest.mark.timeout(400)
def test_the_demo_delivers_every_document_with_its_proof_and_its_network_starts_again(home):
    first = demo("--once", "--json", "--home", str(home))
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

    identities = {file: file.read_bytes() for file in home.glob("*/data/keys/*.key")}
    assert identities
    again = demo("--once", "--no-pipeline", "--messages", "2", "--home", str(home))
    assert again.returncode == 0, again.stderr
    assert "verified" in again.stdout
    assert {file: file.read_bytes() for file in home.glob("*/data/keys/*.key")} == identities


@pytest.mark.timeout(120)
def test_a_component_that_does_not_start_is_named_with_its_log_and_line(home):
    ports = {
        component["code"]: component["ports"]
        for component in json.loads((home / "network.json").read_text())["components"]
    }
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", ports["BROKER"]["server"]))
        taken.listen()
        run = demo("--once", "--no-pipeline", "--json", "--home", str(home))
    assert run.returncode == 1
    told = json.loads(run.stdout)["refused"]
    assert "the broker BROKER did not start" in told["message"]
    assert f"log {home / 'log' / 'BROKER.log'}, line " in told["details"]


@pytest.mark.timeout(120)
def test_it_stays_up_until_it_is_interrupted_and_then_stops_every_component(home):
    with subprocess.Popen(
        [*CLI, "demo", "--no-pipeline", "--home", str(home)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "Ctrl-C stops it" in line:
                break
        process.send_signal(signal.SIGINT)
        process.stdout.read()
    assert process.returncode == 0
    port = json.loads((home / "network.json").read_text())["components"][1]["ports"]["server"]
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path):
    (tmp_path / "letter.txt").write_text("mine")
    run = demo("--once", "--home", str(tmp_path))
    assert run.returncode == 1
    assert "is not empty" in run.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["letter.txt"]
