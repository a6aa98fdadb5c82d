"""A whole capacity site for tests: an operator's CA, a private RabbitMQ, users with packages, a service.

Everything is made as an operator makes it: certificates by the CA, accounts by the management API.
The node and the packages serve the whole run; each test has a virtual host and a ledger of its own.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from gridpost.assembly import capacity_users
from gridpost.assembly.capacity import RunningCapacity, running_capacity
from gridpost.assembly.capacity_configuration import CapacityConfiguration
from gridpost.assembly.root_ca import create_root
from gridpost.bench._rabbitmq import Node, NodePlan
from gridpost.capacity import AsyncCapacityClient, ClientSettings, Wanted
from gridpost.core.amqp091 import Channel, Incoming, Properties, RabbitConnection
from gridpost.core.market_time import Period
from gridpost.core.refusal import Refusal
from gridpost.transports.amqp091 import Amqp091Client
from gridpost.transports.package_tls import package_context
from gridpost.wire.cmm import decode, unpack
from support.capacity_market import APG, CEPS, DK1, EON, GROUP, RTE, RWE, ZONE
from support.waiting import eventually

BETA = "11XGROUP-BETA-AE"
SERVICE = "cmm-service"
PASSPHRASE = "correct horse"
USERS: list[dict[str, Any]] = [
    {"name": "u1", "roles": ["explicit-participant"], "balancing_groups": [GROUP],
     "borders": ["DE-DK", "DE-FR", "AT-CZ"]},
    {"name": "u10", "roles": ["explicit-participant"], "balancing_groups": [BETA],
     "borders": ["DE-DK"]},
    {"name": "u.1", "roles": ["explicit-participant", "allocation-reporting"],
     "balancing_groups": [GROUP, BETA], "borders": ["DE-DK", "AT-CZ"]},
    {"name": "r1", "roles": ["allocation-reporting"], "balancing_groups": [GROUP], "borders": []},
]  # fmt: skip
BORDERS: list[dict[str, Any]] = [
    {"name": "DE-DK", "interconnectors": [[EON, DK1]], "opening_days": 30},
    {"name": "DE-FR", "interconnectors": [[RWE, RTE], [EON, RTE]], "common_atc": True,
     "opening_days": 30},
    {"name": "AT-CZ", "interconnectors": [[APG, CEPS]], "unit": "15m", "ramping": 500,
     "opening_days": 30},
]  # fmt: skip

DAY = ZONE.day_of(datetime.now(UTC)) + timedelta(days=3)


def periods(day: date = DAY, minutes: int = 60) -> tuple[Period, ...]:
    return ZONE.periods(day, timedelta(minutes=minutes))


def capacity_csv(
    *rows: tuple[str, str, int], day: date = DAY, minutes: int = 60, only: slice = slice(None)
) -> str:
    """Areas and kW, for every unit of a day."""
    lines = ["out_area,in_area,period_start,quantity_kw"]
    for out_area, in_area, quantity in rows:
        lines += [
            f"{out_area},{in_area},{period.start.isoformat()},{quantity}"
            for period in periods(day, minutes)[only]
        ]
    return "\n".join(lines)


DE_DK_1000 = ((EON, DK1, 1000), (DK1, EON, 1000))


def wanted(
    quantity: int, number: int = 12, areas: tuple[str, str] = (EON, DK1), **more: Any
) -> Wanted:
    period = periods()[number]
    return Wanted(*areas, period.start, period.end, quantity, **more)


@dataclass
class CapacityNode:
    """RabbitMQ and the operator's CA."""

    folder: Path
    node: Node
    roots: Path
    _packages: dict[str, Path] = field(default_factory=dict)

    def package(self, user: str) -> Path:
        if user not in self._packages:
            folder = self.folder / "packages" / user
            configuration = self.configuration(self.folder, "any", users=[_plain(user)])
            capacity_users.make_package(configuration, user, folder, PASSPHRASE, datetime.now(UTC))
            self._packages[user] = folder
        return self._packages[user]

    def context(self, user: str) -> ssl.SSLContext:
        return package_context(self.roots, self.package(user) / f"{user}.p12", PASSPHRASE)

    def client(self, user: str, virtual_host: str, **options: Any) -> Amqp091Client:
        return Amqp091Client(
            [self.node.url], virtual_host=virtual_host, tls=lambda: self.context(user), **options
        )

    def settings(self, user: str, virtual_host: str, **options: Any) -> ClientSettings:
        options.setdefault("response_timeout", timedelta(seconds=30))
        return ClientSettings(
            user, (self.node.url,), lambda: self.context(user), virtual_host, **options
        )

    def configuration(self, home: Path, virtual_host: str, **update: Any) -> CapacityConfiguration:
        values: dict[str, Any] = {
            "component": "capacity",
            "code": "CMM-1",
            "home": home,
            "zone": "Europe/Berlin",
            "rabbitmq": {
                "urls": [self.node.url],
                "virtual_host": virtual_host,
                "user": SERVICE,
                "roots": self.roots,
                "package": self.folder / "packages" / SERVICE / f"{SERVICE}.p12",
                "passphrase": PASSPHRASE,
            },
            "management": {
                "url": f"https://localhost:{self.node.management_port}",
                "user": self.node.plan.administrator,
                "password": self.node.plan.password,
                "roots": self.roots,
            },
            "authority": {"folder": self.folder / "authority"},
            "borders": BORDERS,
            "balancing_groups": [{"eic": GROUP}, {"eic": BETA}],
            "users": USERS,
            "operations": {"port": 0},
            "broadcasts": {"heartbeat": "1s"},
        }
        return CapacityConfiguration(**{**values, **update})

    def api(self, method: str, path: str, body: object = None) -> httpx.Response:
        plan = self.node.plan
        context = ssl.create_default_context(cafile=str(self.roots))
        with httpx.Client(verify=context, trust_env=False, timeout=60) as client:
            return client.request(
                method,
                f"https://localhost:{self.node.management_port}/api/{path}",
                json=body,
                auth=(plan.administrator, plan.password),
            )

    def virtual_host(self) -> str:
        return f"cmm-{uuid4().hex[:8]}"


def _plain(user: str) -> dict[str, Any]:
    return {"name": user, "roles": ["explicit-participant"], "balancing_groups": [GROUP]}


@contextmanager
def capacity_node(folder: Path, *settings: str) -> Iterator[CapacityNode]:
    """`settings`: more lines of rabbitmq.conf."""
    authority = folder / "authority"
    create_root(authority, "Capacity operator CA", "", timedelta(days=90), datetime.now(UTC), None)
    site = CapacityNode(folder, None, authority / "root.pem")  # type: ignore[arg-type]
    versions = ("ssl_options.versions.1 = tlsv1.3", "ssl_options.versions.2 = tlsv1.2")
    node = Node(NodePlan(folder, management=True, settings=(*versions, *settings)))
    site.node = node
    configuration = site.configuration(folder, "any")
    capacity_users.make_server_certificate(
        configuration, ("localhost", "127.0.0.1"), folder, datetime.now(UTC)
    )
    package = folder / "packages" / SERVICE
    capacity_users.make_package(configuration, SERVICE, package, PASSPHRASE, datetime.now(UTC))
    site._packages[SERVICE] = package
    node.start()
    try:
        yield site
    finally:
        node.kill()


@dataclass
class CapacitySite:
    """One running service, with a virtual host of its own."""

    node: CapacityNode
    configuration: CapacityConfiguration
    running: RunningCapacity

    @property
    def virtual_host(self) -> str:
        return self.configuration.rabbitmq.virtual_host

    def settings(self, user: str, **options: Any) -> ClientSettings:
        return self.node.settings(user, self.virtual_host, **options)

    @asynccontextmanager
    async def client(self, user: str = "u1", **options: Any) -> AsyncIterator[AsyncCapacityClient]:
        async with AsyncCapacityClient(self.settings(user, **options)) as client:
            yield client

    async def publish(self, *rows: tuple[str, str, int], **more: Any) -> dict[str, Any]:
        return await self.act("publish", file=capacity_csv(*(rows or DE_DK_1000), **more))

    async def act(self, action: str, **form: Any) -> Any:
        return await self.running.administration.actions()[action]({"by": "test", **form})

    async def queues(self) -> dict[str, Any]:
        answer = await asyncio.to_thread(self.node.api, "GET", f"queues/{self.virtual_host}")
        return {row["name"]: row for row in answer.json()}

    async def bindings(self, queue: str) -> list[dict[str, Any]]:
        path = f"queues/{self.virtual_host}/{queue}/bindings"
        answer = await asyncio.to_thread(self.node.api, "GET", path)
        return [row for row in answer.json() if row["source"]]


class Participant:
    """A client that knows nothing: it publishes what it is told and keeps what it gets."""

    def __init__(self, connection: RabbitConnection, channel: Channel, user: str) -> None:
        self.connection, self.channel, self.user = connection, channel, user
        self.responses: list[Incoming] = []
        self.broadcasts: list[Incoming] = []

    async def send(self, body: bytes | str, correlation_id: str | None = None, **more: Any) -> str:
        name = correlation_id or uuid4().hex
        exchange = more.pop("exchange", f"cmm.request.{self.user}")
        key = more.pop("key", "capacity.request")
        mandatory = more.pop("mandatory", True)
        properties = Properties(
            **{"content_type": "text/xml;v=1.0", "persistent": False, **more},
            correlation_id=name,
        )
        data = body.encode() if isinstance(body, str) else body
        await self.channel.publish(
            data, properties, exchange=exchange, routing_key=key, mandatory=mandatory
        )
        return name

    async def listen(self) -> None:
        """To its response queue, once it is there."""
        async with asyncio.timeout(60):
            while True:
                channel = await self.connection.channel(confirms=False)
                try:
                    await channel.consume(
                        f"cmm.responseQueue.{self.user}", self.responses.append, no_ack=True
                    )
                    return
                except Refusal:
                    await asyncio.sleep(0.05)

    async def response(self, correlation_id: str) -> Incoming:
        def found() -> list[Incoming]:
            return [r for r in self.responses if r.properties.correlation_id == correlation_id]

        await eventually(found, 60)
        return found()[0]

    async def ask(self, body: bytes | str, correlation_id: str | None = None, **more: Any) -> Any:
        """The message of the response."""
        return read(await self.response(await self.send(body, correlation_id, **more)))

    async def login(self, arguments: str | None = None) -> Any:
        text = "<Login/>" if arguments is None else f'<Login arguments="{arguments}"/>'
        name = await self.send(text)
        await self.listen()
        return read(await self.response(name))

    async def subscribe(self) -> Channel:
        channel = await self.connection.channel(confirms=False)
        queue = f"cmm.broadcastQueue.{self.user}"
        await channel.consume(queue, self.broadcasts.append, no_ack=True)
        return channel

    def of_kind(self, kind: type) -> list[tuple[dict[str, Any], Any]]:
        """Broadcasts of a kind, with their headers."""
        found = []
        for incoming in self.broadcasts:
            if incoming.properties.content_type == "text/xml;v=1.0":
                message = read(incoming)
                if isinstance(message, kind):
                    found.append((dict(incoming.properties.headers), message))
        return found


def read(incoming: Incoming) -> Any:
    return decode(unpack(incoming.body, incoming.properties.content_encoding, 10_000_000))


@asynccontextmanager
async def participant(site: CapacitySite, user: str) -> AsyncIterator[Participant]:
    connection = await site.node.client(user, site.virtual_host).connect()
    try:
        yield Participant(connection, await connection.channel(), user)
    finally:
        await connection.close()


@asynccontextmanager
async def capacity_service(
    node: CapacityNode,
    home: Path,
    virtual_host: str = "",
    clock: Any = None,
    **update: Any,
) -> AsyncIterator[CapacitySite]:
    configuration = node.configuration(home, virtual_host or node.virtual_host(), **update)
    await asyncio.to_thread(capacity_users.apply, configuration)
    async with running_capacity(configuration, clock=clock) as running:
        yield CapacitySite(node, configuration, running)


@pytest.fixture(scope="session")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CapacityNode]:
    # Names of Unix sockets and of Erlang's files are short.
    folder = Path(tempfile.mkdtemp(prefix="cmm-", dir=tmp_path_factory.getbasetemp()))
    os.chmod(folder, 0o700)
    with capacity_node(folder) as node:
        yield node
