"""A whole network as an operator has it: a root, a directory, a broker and endpoints, each a process.

Registration is the real one; it is called in this process, because a command for every step would cost
most of the time of a test. Ports are free ones of this run.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

from gridpost.assembly.administration_client import AdministrationClient
from gridpost.assembly.clock import SystemClock
from gridpost.assembly.directory_configuration import read_directory_configuration
from gridpost.assembly.directory_keys import DirectoryKeys
from gridpost.assembly.network import Placed
from gridpost.assembly.root_ca import create_root, sign_request
from gridpost.client import AsyncEndpoint
from gridpost.demo.enrolment import enrol
from gridpost.services.operations.administrators import hash_token, new_token
from gridpost.services.operations.passwords import hash_password
from gridpost.transports.free_port import free_port
from gridpost.wire.x509 import from_pem
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


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GRIDPOST_")}
    return kept | {"PYTHONPATH": str(SRC)} | more


@cache
def _hash(password: str) -> str:
    return hash_password(password)


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
    ready: str = "listening"
    """What it logs when it serves."""
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
        await eventually(lambda: self.logged(self.ready) or self.ended, 240)
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

    def show_trouble(self) -> None:
        """What a failed test shows of this process: its last errors."""
        errors = [line for line in self.lines if line.get("level") in ("error", "critical")]
        for line in errors[-5:]:
            print(self.file.stem, json.dumps(line, indent=1).replace("\\n", "\n"))

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            try:
                self.lines.append(json.loads(line))
            except json.JSONDecodeError:
                self.lines.append({"event": "text", "text": line.decode("utf-8", "replace")})


class Network:
    """CD-1, brokers and endpoints. Endpoints have one user, `app`, with the API on loopback."""

    def __init__(
        self, folder: Path, code: str = "CD-1", root: Path | None = None, more: str = ""
    ) -> None:
        """`root` is the folder of a ROOT CA that another network has already; `more` are sections."""
        self._more = more
        self.folder = folder
        self.code = code
        self.directory_port = free_port()
        self.administration_port = free_port()
        self.directory = Running("directory", folder / "directory.toml")
        self.components: dict[str, Running] = {}
        self.ports: dict[str, int] = {}
        self._root = root
        self.token = ""

    @property
    def root(self) -> Path:
        return (self._root or self.folder / "root") / "root.pem"

    async def open(self) -> None:
        await asyncio.to_thread(self._write)
        await self.directory.start()

    def _write(self) -> None:
        now = SystemClock().now()
        if self._root is None:
            create_root(self.root.parent, "Test ROOT CA", "", timedelta(days=3650), now, None)
        self.token = new_token()
        self.directory.file.write_text(
            f'component = "component-directory"\ncode = "{self.code}"\nhome = "cd"\n'
            f'roots = ["{self.root}"]\n{CONTACT}'
            f'[server]\nhost = "127.0.0.1"\nport = {self.directory_port}\n'
            f'urls = ["https://127.0.0.1:{self.directory_port}"]\n'
            f"[administration]\nport = {self.administration_port}\n"
            f'[administration.tokens]\nalice = "{hash_token(self.token)}"\n{self._more}',
            encoding="utf-8",
        )
        keys = DirectoryKeys(read_directory_configuration(self.directory.file))
        _, signed = sign_request(
            self.root.parent, keys.request().read_bytes(), timedelta(days=3650), now, None
        )
        (der,) = from_pem(signed)
        keys.install_authority(der, now)

    async def administer(self, *arguments: str) -> Any:
        config = ("--config", str(self.directory.file))
        return await cli(
            "directory",
            *arguments,
            *config,
            GRIDPOST_TOKEN=self.token,
            GRIDPOST_BUNDLE_PASSWORD=BUNDLE_PASSWORD,
        )

    async def enrol(self, kind: str, code: str, file: Path) -> None:
        """503 cl. 7.6: invitation, registration, approval, certificates."""
        section = read_directory_configuration(self.directory.file).administration
        client = AdministrationClient(section, self.token)
        await asyncio.to_thread(enrol, client, Placed(kind, code, file, {}))
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
        self,
        code: str,
        *paths: str,
        direct: bool = False,
        more: str = "",
        last: str = "",
        enrol: bool = True,
    ) -> Running:
        """`paths` are written as PATH, or TYPE=PATH; `last` are sections at the end of the file."""
        port = self.ports[code] = free_port()
        operations = self.ports[f"{code} operations"] = free_port()
        file = self.folder / f"{code}.toml"
        text = (
            f'component = "endpoint"\ncode = "{code}"\nhome = "{code}"\ndrain = "5s"\n'
            f"{more}{CONTACT}[api]\nport = {port}\n[operations]\nport = {operations}\n"
            '[synchronisation]\ncycle = "500ms"\n'
            f'[users.app]\npassword = "{_hash(API_PASSWORD)}"\n'
        )
        if direct:
            number = free_port()
            text += f'[direct]\nhost = "127.0.0.1"\nport = {number}\n'
            text += f'urls = ["amqps://127.0.0.1:{number}"]\n'
        for path in paths:
            pattern, _, route = path.rpartition("=")
            text += f'[[paths]]\nmessage_type = "{pattern or "*"}"\npath = "{route}"\n'
        file.write_text(text + last, encoding="utf-8")
        if enrol:
            await self.enrol("endpoint", code, file)
        else:
            self.components[code] = Running("endpoint", file)
        return self.components[code]

    async def start(self, *codes: str) -> None:
        for code in codes or tuple(self.components):
            await self.components[code].start()

    def api(self, code: str, password: str = API_PASSWORD) -> AsyncEndpoint:
        return AsyncEndpoint(
            f"http://127.0.0.1:{self.ports[code]}", user="app", password=password, timeout=60
        )

    async def known(self, code: str, *others: str) -> None:
        """Until `code` has heard of the paths of the others: a test of the way to each succeeds."""
        from gridpost.core.refusal import Refusal

        async with self.api(code) as api:
            for other in others:
                for _ in range(600):
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
            running.show_trouble()


@asynccontextmanager
async def network(folder: Path, more: str = "") -> AsyncIterator[Network]:
    """`more` are sections for the directory."""
    found = Network(folder, more=more)
    try:
        await found.open()
        yield found
    finally:
        await found.close()


async def until_status(
    api: AsyncEndpoint, message_id: str, *wanted: str, seconds: float = 60
) -> str:
    async with asyncio.timeout(seconds):
        while True:
            status = (await api.status(message_id)).status
            if status in wanted:
                return status
            await asyncio.sleep(0.05)


def add_process(net: Network, first: str, second: str) -> None:
    """The same endpoint once more: its own home and ports, no registration of its own."""
    text = net.components[first].file.read_text()
    for name, key in ((first, second), (f"{first} operations", f"{second} operations")):
        port = net.ports[key] = free_port()
        text = text.replace(f"port = {net.ports[name]}\n", f"port = {port}\n")
    file = net.folder / f"{second}.toml"
    file.write_text(text.replace(f'home = "{first}"', f'home = "{second}"'))
    net.components[second] = Running("endpoint", file)
