"""`gridpost init`: what it writes is a network that starts, with the commands its README names."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gridpost.client import AsyncEndpoint
from gridpost.core.refusal import Refusal
from gridpost.transports.free_port import _taken, free_port
from support.network import CLI, Running, cli, environment, until_status

PORTS = 20
"""At most, of the network below."""


def init(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CLI, "init", str(folder), *words], capture_output=True, text=True, check=False,
        env=environment(),
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("init") / "network"
    words = (
        "--endpoint",
        "NORTH",
        "--direct",
        "WEST@1",
        "--first-port",
        str(_room()),
        "--cycle",
        "1s",
    )
    run = init(made, *words)
    assert run.returncode == 0, run.stderr
    return made


def _room() -> int:
    """The first of a row of ports that are free, and that nobody else is given meanwhile."""
    while True:
        first = free_port()
        if all(_taken(port) for port in range(first + 1, first + PORTS)):
            return first


def test_every_configuration_passes_the_check(folder):
    for file in folder.glob("*/*.toml"):
        run = subprocess.run(
            [*CLI, "check-config", str(file)], capture_output=True, text=True, check=False,
            env=environment(),
        )  # fmt: skip
        assert run.returncode == 0, run.stderr


def test_secrets_are_readable_by_their_owner_only(folder):
    files = [*folder.glob("*/*.token"), *folder.glob("*/*.password"), *folder.glob("**/*.key")]
    assert len(files) >= 4
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} <= {0o600, 0o400}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_each_component_has_a_unit_that_systemd_reads_and_a_container(folder):
    units = sorted(file.name for file in (folder / "systemd").iterdir())
    assert units == [f"gridpost-{c}.service" for c in ("BROKER", "DIRECTORY", "NORTH", "WEST-1")]
    for file in (folder / "systemd").iterdir():
        text = file.read_text()
        config = text.split("--config ")[1].split()[0]
        assert Path(config).exists()
    compose = (folder / "compose.yaml").read_text()
    assert all(f"\n  {name}:\n" in compose for name in ("broker", "directory", "north", "west-1"))


def test_nothing_is_overwritten(folder):
    run = init(folder)
    assert run.returncode == 1
    assert "is not empty" in run.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--endpoint", "A", "--endpoint", "a"), "a code of its own"),
        (("--endpoint", "../x"), "component code"),
        (("--host", "a b"), "not a host name"),
        (("--first-port", "70000"), "no room"),
        (("--cycle", "soon"), "write a duration"),
    ],
)
def test_a_network_that_cannot_be_is_refused_and_nothing_is_written(tmp_path, words, said):
    run = init(tmp_path / "network", *words)
    assert run.returncode == 1
    assert said in run.stderr
    assert not (tmp_path / "network").exists()


@pytest.mark.timeout(600)
async def test_the_network_runs_by_the_commands_that_its_readme_names(folder, tmp_path):
    """Directory, enrol.sh, broker, endpoints, a document there and its answer back."""
    placed = json.loads((folder / "network.json").read_text())["components"]
    running = {c["code"]: Running(c["command"], folder / c["configuration"]) for c in placed}
    ports = {c["code"]: c["ports"] for c in placed}
    commands = tmp_path / "bin"
    commands.mkdir()
    script = commands / "gridpost"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{CLI[-1]}" "$@"\n')
    script.chmod(0o755)
    try:
        await running["DIRECTORY"].start()
        for _ in range(2):  # the second time finds everything done
            enrol = await asyncio.create_subprocess_exec(
                folder / "enrol.sh",
                stderr=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                env=environment(PATH=f"{commands}{os.pathsep}{os.environ['PATH']}"),
            )
            _, err = await enrol.communicate()
            assert enrol.returncode == 0, err.decode()
        for code in ("BROKER", "NORTH", "WEST@1"):
            await running[code].start()
        document = tmp_path / "document.xml"
        document.write_text("<Schedule/>")
        url = f"http://127.0.0.1:{ports['NORTH']['api']}"
        secret = folder / "NORTH" / "app.password"
        words = ("--url", url, "--user", "app", "--password-file", str(secret))
        async with AsyncEndpoint(url, user="app", password=secret.read_text().strip()) as api:
            for _ in range(600):
                try:
                    await api.test("WEST@1", "A01")
                    break
                except Refusal:
                    await asyncio.sleep(0.1)
            sent = await cli("send", "WEST@1", "A01", str(document), *words)
            assert await until_status(api, sent["messageID"], "DELIVERED") == "DELIVERED"
            assert (await api.status(sent["messageID"])).route == "DIRECT"
    finally:
        for component in reversed(running.values()):
            await component.kill()
