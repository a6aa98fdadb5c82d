"""One small network for all tests of consoles: a directory, a broker and two endpoints over real TLS.

They run in this process, each assembled from its configuration file as the command line does it:
twenty processes would cost a busy machine minutes.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
import pytest_asyncio

from gridpost.assembly.broker import running_broker
from gridpost.assembly.broker_configuration import read_broker_configuration
from gridpost.assembly.directory import RunningDirectory, running_directory
from gridpost.assembly.directory_configuration import read_directory_configuration
from gridpost.assembly.directory_keys import DirectoryKeys
from gridpost.assembly.endpoint import EndpointCore, running_endpoint
from gridpost.assembly.endpoint_configuration import read_endpoint_configuration
from gridpost.assembly.enrolling import register_broker, register_endpoint
from gridpost.assembly.installation import packer
from gridpost.core.delivery import Status
from gridpost.core.refusal import Refusal
from gridpost.pipeline.key_figures import COUNTS, GROUPS
from gridpost.pipeline.lake import Lake
from gridpost.services.endpoint.submission import Document
from gridpost.services.operations.passwords import hash_password
from gridpost.transports.free_port import free_port
from support.directory_process import TestRoot
from support.network import CONTACT
from support.old_network import TestNode
from support.post import TestClock

ROOT = Path(__file__).resolve().parents[2]
PASSWORD = "a password of the test"
BUNDLE_PASSWORD = "told by telephone"
PEOPLE = {"ada": "administrator", "oskar": "operator", "vera": "viewer", "lothar": "viewer"}
BROWSER_SECONDS = 500
PATIENCE = 60
"""Seconds; a machine may be busy with other things."""
_HASH = hash_password(PASSWORD)


class Component:
    """Started and stopped in a task of its own, as its contexts demand."""

    def __init__(self, opened: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        self._opened = opened
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.running: Any = None

    async def start(self) -> None:
        self._stop.clear()
        ready = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(ready))
        await asyncio.wait([ready, self._task], return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            self._task.result()
        self.running = ready.result()

    async def stop(self) -> None:
        self._stop.set()
        if self._task is not None:
            await self._task

    async def _run(self, ready: asyncio.Future[Any]) -> None:
        async with self._opened() as running:
            ready.set_result(running)
            await self._stop.wait()


@dataclass
class Site:
    """The network with its consoles, and what was sent through it."""

    folder: Path
    root: TestRoot
    components: dict[str, Component] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    sent: dict[str, str] = field(default_factory=dict)
    pending: dict[str, str] = field(default_factory=dict)
    old_node: TestNode = field(init=False)

    def url(self, code: str) -> str:
        return f"https://127.0.0.1:{self.ports[code]}"

    def file(self, code: str) -> Path:
        return self.folder / f"{code}.toml"

    def core(self, code: str) -> EndpointCore:
        core: EndpointCore = self.components[code].running.core
        return core

    @property
    def directory(self) -> RunningDirectory:
        running: RunningDirectory = self.components["CD-1"].running
        return running

    def console(self, code: str) -> str:
        self.ports[code] = free_port()
        people = "".join(
            f'[console.users.{name}]\nrole = "{role}"\npassword = "{_HASH}"\n'
            for name, role in PEOPLE.items()
        )
        lake = self.folder / "lake"
        if not lake.exists():
            a_lake(self.folder)
        return f'\n[console]\nport = {self.ports[code]}\nlocked = "1h"\nlake = "{lake}"\n{people}'

    def visit(self, code: str) -> httpx.AsyncClient:
        """A client that keeps cookies and follows nothing, as a forger would write one."""
        return httpx.AsyncClient(
            base_url=self.url(code), verify=_trusting(), trust_env=False, timeout=PATIENCE
        )

    @asynccontextmanager
    async def signed_in(self, code: str, name: str) -> AsyncIterator[httpx.AsyncClient]:
        async with self.visit(code) as client:
            answer = await client.post(
                "/login",
                data={"name": name, "password": PASSWORD},
                headers={"origin": self.url(code)},
            )
            assert answer.status_code == 303, answer.text
            yield client

    # ------------------------------------------------------------ building it

    async def open_directory(self) -> None:
        port = free_port()
        file = self.file("CD-1")
        file.write_text(
            'component = "component-directory"\ncode = "CD-1"\nhome = "CD-1"\n'
            f'roots = ["{self.root.file}"]\n{CONTACT}'
            f'[server]\nhost = "127.0.0.1"\nport = {port}\nurls = ["https://127.0.0.1:{port}"]\n'
            "[administration]\nport = 0\n"
            # Nobody answers there: the page of other directories has something to tell.
            '[[synchronisation.peers]]\ncode = "CD-2"\n'
            f'urls = ["https://127.0.0.1:{free_port()}"]\n' + self.console("CD-1"),
            encoding="utf-8",
        )
        self.root.certify(DirectoryKeys(read_directory_configuration(file)))
        await self._begin("CD-1", lambda: running_directory(_directory(file), file=file))

    async def open_broker(self, code: str) -> None:
        port, file = free_port(), self.file(code)
        file.write_text(
            f'component = "broker"\ncode = "{code}"\nhome = "{code}"\ndrain = "5s"\n{CONTACT}'
            f'[server]\nhost = "127.0.0.1"\nport = {port}\nurls = ["amqps://127.0.0.1:{port}"]\n'
            '[operations]\nport = 0\n[synchronisation]\ncycle = "500ms"\n'
            "[store]\nmin_free = 0\n" + self.console(code),
            encoding="utf-8",
        )
        await self._enrol(code, register_broker)
        await self._begin(code, lambda: running_broker(read_broker_configuration(file), file=file))

    async def open_endpoint(self, code: str, *, console: bool) -> None:
        file = self._endpoint_file(code, self.console(code) if console else "")
        await self._enrol(code, register_endpoint)
        await self._begin(
            code, lambda: running_endpoint(read_endpoint_configuration(file), file=file)
        )

    async def open_node(self, code: str) -> None:
        """A node of MADES 1.1 with two endpoints, a message between them, and a node that is away."""
        self.ports[code] = free_port()
        options: dict[str, dict[str, Any]] = {"console": {"port": self.ports[code]}} | {
            f"console.users.{name}": {"role": role, "password": _HASH}
            for name, role in PEOPLE.items()
        }
        self.old_node = TestNode(self.folder / code, code, self.root, options=options)
        await self._begin(code, self.old_node.run)
        one, two = [await self.old_node.endpoint(name) for name in ("OLD-1", "OLD-2")]
        await one.session().upload([await one.message(two)])
        away = f"N2 https://127.0.0.1:{free_port()}\n"
        await self.old_node.ask("import-nodes", file=away)

    async def apply(self, code: str) -> None:
        """An endpoint asks to join, and nobody has decided yet."""
        self._endpoint_file(code, "")
        self.pending[code] = await self._file(code, register_endpoint)

    def _endpoint_file(self, code: str, more: str) -> Path:
        file = self.file(code)
        file.write_text(
            f'component = "endpoint"\ncode = "{code}"\nhome = "{code}"\ndrain = "5s"\n'
            f"{CONTACT}[api]\nport = 0\n[operations]\nport = 0\n"
            '[synchronisation]\ncycle = "500ms"\n[expiration.by_type]\nSHORT = "1s"\n'
            f'# How others reach us.\n[[paths]]\npath = "INDIRECT:B1"\n{more}',
            encoding="utf-8",
        )
        return file

    async def _enrol(self, code: str, register: Callable[..., dict[str, Any]]) -> None:
        await self.directory.office.approve(await self._file(code, register), by="the fixture")
        bundle = self.folder / f"{code}.bundle"
        done = await asyncio.to_thread(register, self.file(code), bundle, BUNDLE_PASSWORD, PATIENCE)
        assert done["state"] == "INSTALLED", done

    async def _file(self, code: str, register: Callable[..., dict[str, Any]]) -> str:
        keys = DirectoryKeys(_directory(self.file("CD-1")))
        pack = packer(self.directory.publication, keys.credentials(lambda: datetime.now(UTC)))
        bundle = self.folder / f"{code}.bundle"
        bundle.write_bytes(
            pack(await self.directory.office.invite(code, by="the fixture"), BUNDLE_PASSWORD)
        )
        filed = await asyncio.to_thread(register, self.file(code), bundle, BUNDLE_PASSWORD, 0)
        assert filed["state"] == "SUBMITTED", filed
        return str(filed["registration"])

    async def _begin(
        self, code: str, opened: Callable[[], AbstractAsyncContextManager[Any]]
    ) -> None:
        self.components[code] = Component(opened)
        await self.components[code].start()


def a_lake(folder: Path) -> Path:
    lake = Lake.open(folder / "lake", create=True)
    table = lake.table("gold", "reconciliation")
    now = TestClock().now()
    told = {"day": now.date(), "complete_up_to": now}
    rows = {"message_id": ["m1", "m2"], "verdict": ["matched", "mismatch"], "reason": ["", "<b>"]}
    rows |= {name: [value] * 2 for name, value in told.items()}
    table.append(table.stage_arrow(pa.table(rows)))
    group = dict.fromkeys(GROUPS, "x") | {"sender_code": "E1", **told}
    delivery = lake.table("gold", "delivery")
    line = {**group, **dict.fromkeys(COUNTS, 7)}
    delivery.append(delivery.stage_arrow(pa.Table.from_pylist([line])))
    marks = lake.table("gold", "marks")
    marks.append(marks.stage_arrow(pa.table({"component": ["E1"], "time": [now]})))
    return lake.root


def _directory(file: Path) -> Any:
    return read_directory_configuration(file)


def _trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("consoles")
    found = Site(folder, TestRoot(folder / "root"))
    try:
        await found.open_directory()
        await found.open_broker("B1")
        await found.open_endpoint("E1", console=True)
        await found.open_endpoint("E2", console=False)
        await found.open_node("N1")
        await _traffic(found)
        await found.apply("E8")
        await found.apply("E9")
        yield found
    finally:
        for component in reversed(found.components.values()):
            await component.stop()


async def _traffic(site: Site) -> None:
    """Documents in every state: confirmed, delivered, waiting here, in a queue, expired."""
    one, two = site.core("E1"), site.core("E2")
    await _known(one, "E2")
    await _known(two, "E1")

    async def send(core: EndpointCore, to: str, type_: str, content: bytes, name: str) -> str:
        return await core.submission.send("app", Document(to, type_, content, name))

    ids = [
        await send(one, "E2", "SCHEDULE", f"<Schedule>{n}</Schedule>".encode(), f"DOC-{n}")
        for n in range(8)
    ]
    for message_id in ids:
        await _until(one, message_id, Status.DELIVERED)
    # Named one by one: they need not have arrived in the order in which they were sent.
    for message_id in ids[:6]:
        await two.handover.confirm(message_id)
        await _until(one, message_id, Status.RECEIVED)
    site.sent["received"], site.sent["delivered"] = ids[0], ids[7]
    site.sent["here"] = await send(two, "E1", "RESERVE", b"<Reserve>1</Reserve>", "RES-1")
    await _until(two, site.sent["here"], Status.DELIVERED)
    await site.components["E2"].stop()
    site.sent["failed"] = await send(one, "E2", "SHORT", b"too late", "LATE-1")
    site.sent["queued"] = await send(one, "E2", "SCHEDULE", b"<Schedule/>", "DOC-9")
    await _until(one, site.sent["failed"], Status.FAILED)


async def _known(core: EndpointCore, other: str) -> None:
    """Until this endpoint has heard of the paths of the other."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                test = await core.submission.test_connectivity("app", other, "PROBE")
            except Refusal:
                await asyncio.sleep(0.1)
                continue
            await _until(core, test, Status.DELIVERED)
            return


async def _until(core: EndpointCore, message_id: str, wanted: Status) -> None:
    async with asyncio.timeout(PATIENCE):
        while await core.enquiry.status(message_id) is not wanted:
            await asyncio.sleep(0.05)


async def drive(site: Site, part: str, **more: Any) -> dict[str, str]:
    """Run a part of the browser's script; what went wrong in each flow, empty where nothing did."""
    shots = ROOT / "var" / "screenshots"
    shots.mkdir(parents=True, exist_ok=True)
    told = {
        "part": part,
        "urls": {code: site.url(code) for code in site.ports},
        "password": PASSWORD,
        "shots": str(shots),
        "sent": site.sent,
        "pending": site.pending,
        **more,
    }
    log = ROOT / "var" / f"browser-{part}.log"
    with log.open("wb") as stream:
        process = await asyncio.create_subprocess_exec(
            "node",
            str(Path(__file__).with_name("browser.js")),
            stdout=asyncio.subprocess.PIPE,
            stderr=stream,
            env=os.environ
            | {"CONSOLE": json.dumps(told), "NODE_PATH": str(ROOT / "tests/interop/node_modules")},
        )
    try:
        async with asyncio.timeout(BROWSER_SECONDS):
            out, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise AssertionError(f"the browser did not come to an end:\n{log.read_text()}") from None
    assert process.returncode == 0, log.read_text() + out.decode()
    found: dict[str, str] = json.loads(out)
    return found
