"""A whole network as an operator has it: a root, a directory, a broker and endpoints, each a process.

Everything is done by commands; nothing is faked. Ports are free ones of this run.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gridpost.client import AsyncEndpoint
from support.waiting import eventually

CLI = [sys.executable, "-c", "from gridpost.cli import main; main()"]
SRC = Path(__file__).parents[2] / "src"
BUNDLE_PASSWORD = "told by telephone"
API_PASSWORD = "application secret"
CONTACT = """[contact]
organization = "Grid of Examplia"
person = "A. Operator"
email = "ops@grid.example"
phone = "+00 1 234"
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GRIDPOST_")}
    return kept | {"PYTHONPATH": str(SRC)} | more


async def cli(*arguments: str, expect: int = 0, **more: str) -> Any:
    process = await asyncio.create_subprocess_exec(
        *CLI,
        *arguments,
        "--json",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(**more),
    )
    out, err = await process.communicate()
    assert process.returncode == expect, f"{arguments}: {err.decode()} {out.decode()}"
    return json.loads(out)


@dataclass
class Running:
    """One component process; its log is kept."""

    name: str
    file: Path
    process: asyncio.subprocess.Process | None = None
    lines: list[dict[str, Any]] = field(default_factory=list)
    _reader: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self.lines.clear()
        self.process = await asyncio.create_subprocess_exec(
            *CLI, self.name, "run", "--config", str(self.file),
            stderr=asyncio.subprocess.PIPE, env=environment(),
        )  # fmt: skip
        self._reader = asyncio.create_task(self._read(self.process))
        await eventually(lambda: self.logged("listening") or self.ended, 30)
        assert not self.ended, self.lines

    @property
    def ended(self) -> bool:
        return self.process is None or self.process.returncode is not None

    def logged(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line.get("event") == event]

    async def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process is None:
            return 0
        if self.process.returncode is None:
            self.process.send_signal(number)
        code = await self.process.wait()
        if self._reader is not None:
            await self._reader
        return code

    async def kill(self) -> None:
        await self.stop(signal.SIGKILL)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            try:
                self.lines.append(json.loads(line))
            except json.JSONDecodeError:
                self.lines.append({"event": "text", "text": line.decode("utf-8", "replace")})


class Network:
    """CD-1, brokers and endpoints. Endpoints have one user, `app`, with the API on loopback."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.directory_port = free_port()
        self.administration_port = free_port()
        self.directory = Running("directory", folder / "directory.toml")
        self.components: dict[str, Running] = {}
        self.ports: dict[str, int] = {}
        self._token = ""
        self._hash = ""

    @property
    def root(self) -> Path:
        return self.folder / "root" / "root.pem"

    async def open(self) -> None:
        folder = self.folder
        root = folder / "root"
        await cli("ca", "init", str(root), "--name", "Test ROOT CA")
        token = await cli("directory", "token", "alice")
        self._token = token["token"]
        self._hash = (await cli("endpoint", "password", GRIDPOST_NEW_PASSWORD=API_PASSWORD))["hash"]
        (certificate,) = root.glob("*.pem")
        self.directory.file.write_text(
            'component = "component-directory"\ncode = "CD-1"\nhome = "cd"\n'
            f'roots = ["{certificate}"]\n{CONTACT}'
            f'[server]\nhost = "127.0.0.1"\nport = {self.directory_port}\n'
            f'urls = ["https://127.0.0.1:{self.directory_port}"]\n'
            f"[administration]\nport = {self.administration_port}\n"
            f'[administration.tokens]\nalice = "{token["hash"]}"\n',
            encoding="utf-8",
        )
        config = ("--config", str(self.directory.file))
        request = (await cli("directory", "init", *config))["request"]
        signed = folder / "ca.pem"
        await cli("ca", "sign", str(root), request, "--out", str(signed))
        await cli("directory", "init", *config, "--import", str(signed))
        await self.directory.start()

    async def administer(self, *arguments: str) -> Any:
        config = ("--config", str(self.directory.file))
        return await cli(
            "directory",
            *arguments,
            *config,
            GRIDPOST_TOKEN=self._token,
            GRIDPOST_BUNDLE_PASSWORD=BUNDLE_PASSWORD,
        )

    async def enrol(self, kind: str, code: str, file: Path) -> None:
        bundle = self.folder / f"{code}.bundle"
        await self.administer("invite", code, "--out", str(bundle))
        words = (kind, "register", str(bundle), "--config", str(file))
        result = await cli(*words, GRIDPOST_BUNDLE_PASSWORD=BUNDLE_PASSWORD)
        assert result["state"] == "SUBMITTED", result
        await self.administer("approve", result["registration"])
        result = await cli(*words, "--wait", "20", GRIDPOST_BUNDLE_PASSWORD=BUNDLE_PASSWORD)
        assert result["state"] == "INSTALLED", result
        self.components[code] = Running(kind, file)

    async def broker(self, code: str, more: str = "") -> Running:
        port = self.ports[code] = free_port()
        file = self.folder / f"{code}.toml"
        file.write_text(
            f'component = "broker"\ncode = "{code}"\nhome = "{code}"\ndrain = "5s"\n{CONTACT}'
            f'[server]\nhost = "127.0.0.1"\nport = {port}\nurls = ["amqps://127.0.0.1:{port}"]\n'
            f"[operations]\nport = {free_port()}\n"
            '[synchronisation]\ncycle = "500ms"\n[store]\nmin_free = 0\n' + more,
            encoding="utf-8",
        )
        await self.enrol("broker", code, file)
        return self.components[code]

    async def endpoint(
        self, code: str, *paths: str, direct: bool = False, more: str = ""
    ) -> Running:
        """`paths` are written as PATH, or TYPE=PATH."""
        port = self.ports[code] = free_port()
        file = self.folder / f"{code}.toml"
        text = (
            f'component = "endpoint"\ncode = "{code}"\nhome = "{code}"\ndrain = "5s"\n'
            f"{more}{CONTACT}[api]\nport = {port}\n[operations]\nport = {free_port()}\n"
            '[synchronisation]\ncycle = "500ms"\n'
            f'[users.app]\npassword = "{self._hash}"\n'
        )
        if direct:
            number = free_port()
            text += f'[direct]\nhost = "127.0.0.1"\nport = {number}\n'
            text += f'urls = ["amqps://127.0.0.1:{number}"]\n'
        for path in paths:
            pattern, _, route = path.rpartition("=")
            text += f'[[paths]]\nmessage_type = "{pattern or "*"}"\npath = "{route}"\n'
        file.write_text(text, encoding="utf-8")
        await self.enrol("endpoint", code, file)
        return self.components[code]

    async def start(self, *codes: str) -> None:
        for code in codes or tuple(self.components):
            await self.components[code].start()

    def api(self, code: str, password: str = API_PASSWORD) -> AsyncEndpoint:
        return AsyncEndpoint(
            f"http://127.0.0.1:{self.ports[code]}", user="app", password=password, timeout=30
        )

    async def known(self, code: str, *others: str) -> None:
        """Until `code` has heard of the paths of the others: a test of the way to each succeeds."""
        from gridpost.core.refusal import Refusal

        async with self.api(code) as api:
            for other in others:
                for _ in range(100):
                    try:
                        await api.test(other, "PROBE")
                        break
                    except Refusal:
                        await asyncio.sleep(0.1)
                else:
                    raise AssertionError(f"{code} does not find {other}")

    async def close(self) -> None:
        for running in (*self.components.values(), self.directory):
            await running.kill()


@asynccontextmanager
async def network(folder: Path) -> AsyncIterator[Network]:
    found = Network(folder)
    try:
        await found.open()
        yield found
    finally:
        await found.close()


async def until_status(
    api: AsyncEndpoint, message_id: str, *wanted: str, seconds: float = 20
) -> str:
    async with asyncio.timeout(seconds):
        while True:
            status = (await api.status(message_id)).status
            if status in wanted:
                return status
            await asyncio.sleep(0.05)
