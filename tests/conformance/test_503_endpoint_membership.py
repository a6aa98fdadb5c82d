"""503 cl. 4.4.3, 4.5.1, 6.3, 9 and 10 on one running endpoint: what it tells, trusts, keeps and finds.

The endpoint is the real one, with its ports and its disk. The directories and brokers around it are
made of our wire code, so that they can be put out of order; all are behind a proxy.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from gridpost.assembly.endpoint import RunningEndpoint, endpoint_parts, running_endpoint
from gridpost.assembly.endpoint_configuration import read_endpoint_configuration
from gridpost.core.certificate import CertificateKind
from gridpost.core.component import Component, ComponentType, Implementation
from gridpost.core.identifiers import ComponentCode, MessageType, new_message_id
from gridpost.core.instant import Instant
from gridpost.core.journal import AdministrationRow, JournalRow, RefusalRow
from gridpost.core.links import LinkRefused, OutcomeKind, Peer
from gridpost.core.message import InternalType, Metadata, SealedMessage
from gridpost.core.message_path import Restriction
from gridpost.core.refusal import Refusal
from gridpost.services.endpoint.submission import Document
from gridpost.transports.amqp10 import AmqpClient, AmqpLimits, AmqpServer, TlsCredentials
from gridpost.transports.amqp10.client import ClientConnection
from gridpost.transports.free_port import free_port
from gridpost.wire.mades.amqp_message import encode
from support.amqp_world import LiveClock
from support.broker_process import amqp_credentials
from support.builders import CONTACT, path
from support.cutting_proxy import CuttingProxy, cutting_proxy
from support.fake_directory import PASSWORD, FakeDirectory
from support.https import Proxy, listening, live_pki
from support.memory_broker import MemoryBroker
from support.pki import TestComponent
from support.waiting import eventually

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

DEAD = "https://cd-1.grid.invalid:1"
MAX_CONTENT = 50_000
TEXT = """component = "endpoint"
code = "E1"
home = "home"
drain = "1s"
max_content = {max_content}
[contact]
organization = "O"
person = "P"
email = "a@b.example"
phone = "{phone}"
[api]
port = {api}
[operations]
port = {operations}
[direct]
host = "127.0.0.1"
port = {direct}
urls = ["amqps://127.0.0.1:{direct}"]
[connections]
proxy = "socks5://127.0.0.1:{proxy}"
exactly_once = true
consumers_of = {{ B1 = 3 }}
producers_to = {{ E5 = 2, "B1/E7" = 4 }}
[synchronisation]
cycle = "200ms"
proxy = "http://127.0.0.1:{proxy}"
directories = ["CD-1", "CD-2"]
[[paths]]
path = "INDIRECT:B1"
"""


@dataclass
class Behind(FakeDirectory):
    """At a name that only the proxy can resolve; nobody answers at its first address."""

    @property
    def url(self) -> str:
        return f"https://{self.code.lower()}.grid.invalid:{self.port}"

    @property
    def entry(self) -> Component:
        return replace(super().entry, urls=(DEAD, self.url))


class Broker:
    """Without rules or store; shows the certificate of whom the test says."""

    def __init__(self, member: TestComponent, root: bytes, limits: AmqpLimits) -> None:
        self.memory = MemoryBroker()
        self.server = AmqpServer(container=member.code, clock=LiveClock(), limits=limits)
        self.own = amqp_credentials(member, root)
        self.port = 0

    async def open(self) -> None:
        self.port = await self.server.listen("127.0.0.1", 0, self.memory, tls=lambda: self.own)


@dataclass
class Site:
    home: Behind
    other: Behind
    proxy: Proxy
    broker: Broker
    relay: CuttingProxy
    file: Path
    values: dict[str, object]
    members: dict[tuple[str, str], TestComponent] = field(default_factory=dict)
    endpoint: RunningEndpoint = field(init=False)

    @property
    def targets(self) -> list[str]:
        return self.proxy.targets

    def member(self, code: str, directory: FakeDirectory | None = None) -> TestComponent:
        """The same each time: its keys and certificates."""
        made = directory or self.home
        if (made.code, code) not in self.members:
            self.members[made.code, code] = made.pki.component(code)
        return self.members[made.code, code]

    def add(
        self, directory: FakeDirectory, code: str, *urls: str, kind: str = "endpoint"
    ) -> TestComponent:
        """A component of this directory."""
        member = self.member(code, directory)
        is_broker = kind == "broker"
        certificates = (member.authentication,) if is_broker else member.certificates
        directory.others[code] = Component(
            member.code,
            ComponentType.BROKER if is_broker else ComponentType.ENDPOINT,
            CONTACT,
            ComponentCode(directory.code),
            Implementation("2"),
            urls,
            certificates=certificates,
            restriction=Restriction() if is_broker else None,
            paths=() if is_broker else (path("*", "INDIRECT:B1"),),
        )
        return member

    def known(self, code: str) -> Component | None:
        return self.endpoint.parts.client.directory().find(code, datetime.now(UTC))

    async def journal(self) -> list[JournalRow]:
        store = self.endpoint.core.context.store
        return [r.row for r in await store.read(lambda work: work.journal.read(0, 10_000))]

    async def connect(self, own: TlsCredentials) -> ClientConnection:
        async def anyone(peer: Peer) -> None:
            pass

        url = f"amqps://127.0.0.1:{self.values['direct']}"
        client = AmqpClient(
            [url], container="x", tls=lambda: own, check=anyone,
            limits=AmqpLimits(close_seconds=0.5),
        )  # fmt: skip
        return await client.connect()

    def write(self, **values: object) -> None:
        self.values |= values
        self.file.write_text(TEXT.format(**self.values), encoding="utf-8")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("member")
    home, other, proxy = Behind(), Behind("CD-2"), Proxy()
    proxy.hosts = dict.fromkeys(
        ("cd-1.grid.invalid", "cd-2.grid.invalid", "b1.grid.invalid", "b2.grid.invalid"),
        "127.0.0.1",
    )
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(listening(proxy))
        await stack.enter_async_context(home.running())
        await stack.enter_async_context(other.running())
        home.foreign["CD-2"] = other.subsystem()
        limits = AmqpLimits(close_seconds=0.5)
        member = home.pki.component("B1")
        broker = Broker(member, home.pki.root, limits)
        await broker.open()
        stack.push_async_callback(broker.server.close)
        relay = await stack.enter_async_context(cutting_proxy(broker.port))
        found = Site(home, other, proxy, broker, relay, folder / "e1.toml", {})
        found.members["CD-1", "B1"] = member
        urls = [f"amqps://b1.grid.invalid:{p}" for p in (free_port(), relay.port, broker.port)]
        found.add(home, "B1", *urls, kind="broker")
        found.add(home, "E5")
        found.write(
            max_content=MAX_CONTENT,
            phone="1",
            proxy=port,
            **{name: free_port() for name in ("api", "operations", "direct")},
        )
        configuration = read_endpoint_configuration(found.file)
        home.auto_approve = True
        async with endpoint_parts(configuration) as parts:
            bundle = home.bundle("E1", DEAD, home.url)
            await parts.client.enroller.register(bundle, PASSWORD, CONTACT, by="administrator")
            await parts.client.enroller.run()
        # As if it had been of an older version when it was registered.
        home.others["E1"] = replace(home.others["E1"], implementation=Implementation("1"))
        found.endpoint = await stack.enter_async_context(
            running_endpoint(configuration, file=found.file)
        )
        await eventually(lambda: found.known("E5") is not None)
        await eventually(lambda: broker.memory.queues["E1"].consumers)
        yield found


@pytest.mark.req("503-4.5.1-d", "503-9.1-a", "503-9.2-a", component="endpoint")
async def test_the_entry_of_an_endpoint_has_three_kinds_of_certificates_and_its_version(
    site: Site,
) -> None:
    await eventually(lambda: site.home.others["E1"].implementation.mades_version == "2")
    entry = site.home.others["E1"]
    assert sorted(c.kind for c in entry.certificates) == sorted(
        [CertificateKind.AUTHENTICATION, CertificateKind.SIGNING, CertificateKind.ENCRYPTION]
    )
    assert len({c.der for c in entry.certificates}) == 3
    keys = {c.kind: c.der for c in site.endpoint.parts.keys.certificates()}
    assert keys == {c.kind: c.der for c in entry.certificates}


@pytest.mark.req("503-10-d", "503-10-f", component="endpoint")
async def test_servers_are_reached_through_the_proxy_at_whichever_address_works(
    site: Site,
) -> None:
    """HTTPS and AMQPS; the names mean nothing on this side of the proxy."""
    assert "cd-1.grid.invalid:1" in site.targets
    assert f"cd-1.grid.invalid:{site.home.port}" in site.targets
    refused, relayed, straight = [
        url.removeprefix("amqps://") for url in site.home.others["B1"].urls
    ]
    assert [t for t in site.targets if t.startswith("b1.")][:2] == [refused, relayed]
    (view,) = [v for v in site.endpoint.core.lines.views() if v.peer == "B1"]
    assert view.connected
    # The address that was chosen dies in the middle of a session, and takes nobody in again.
    site.relay.refusing_new = True
    site.relay.word = b""
    await site.endpoint.core.submission.send("app", Document("E5", "A01", b"wakes the line"))
    await eventually(lambda: site.relay.cuts)
    await eventually(lambda: straight in site.targets)
    await eventually(lambda: site.broker.memory.queues["E1"].consumers)
    message_id = await site.endpoint.core.submission.send("app", Document("E5", "A01", b"document"))
    queue = site.broker.memory.queues["E5"]
    await eventually(lambda: any(message_id.encode() in octets for _, octets in queue.messages))


@pytest.mark.req("503-4.4.3-b", component="endpoint")
async def test_a_changed_subsystem_is_asked_for_in_each_cycle_and_comes_whole(site: Site) -> None:
    site.add(site.home, "E6")
    await eventually(lambda: site.known("E6") is not None)
    site.add(site.home, "E7")
    del site.home.others["E6"]
    await eventually(lambda: site.known("E7") is not None)
    assert site.known("E6") is None
    copy = site.endpoint.parts.client.directory().subsystems[ComponentCode("CD-1")]
    assert copy.content_id == site.home.subsystem().content_id
    assert {c.code for c in copy.components} == {"CD-1", *site.home.others}
    # Nothing changed: it goes on asking.
    for _ in range(2):
        site.home.asked.clear()
        await asyncio.wait_for(site.home.asked.wait(), 60)


@pytest.mark.req("503-4.4.3-a", component="endpoint")
async def test_each_component_has_one_home_and_no_other_directory_can_have_its_code(
    site: Site,
) -> None:
    ours = site.known("E5")
    site.add(site.other, "E5")
    site.add(site.other, "E9")
    site.home.foreign["CD-2"] = site.other.subsystem()
    await eventually(lambda: site.known("E9") is not None)
    assert ours is not None
    known = site.known("E5")
    assert known is not None
    assert (known.component_directory, known.certificates) == ("CD-1", ours.certificates)
    nine = site.known("E9")
    assert nine is not None
    assert nine.component_directory == "CD-2"
    assert site.home.others["E1"].component_directory == "CD-1"


@pytest.mark.req("503-4.4.3-e", component="endpoint")
async def test_without_its_home_an_endpoint_asks_another_directory(site: Site) -> None:
    site.home.fail = 503
    try:
        # The others of the system know the subsystem as it was.
        site.other.foreign["CD-1"] = site.home.subsystem()
        site.add(site.other, "N2")
        await eventually(lambda: site.known("N2") is not None)
        assert f"cd-2.grid.invalid:{site.other.port}" in site.targets
        # That directory claims a code that it does not have: asking it changes nothing.
        kept = site.known("E5")
        assert kept is not None
        assert kept.component_directory == "CD-1"
    finally:
        site.home.fail = 0


@pytest.mark.req("503-10-a", component="endpoint")
async def test_errors_and_changed_parameters_are_journalled(site: Site) -> None:
    before = datetime.now(UTC)
    with pytest.raises(Refusal) as refused:
        await site.endpoint.core.submission.send("app", Document("NOBODY", "A01", b"x"))
    assert refused.value.rule.name
    connection = await site.connect(amqp_credentials(site.member("E5"), site.home.pki.root))
    with pytest.raises(LinkRefused):
        await connection.attach_consumer("E1", lambda delivery: None, credit=1)
    connection.close()
    await connection.lost
    site.write(phone="2")
    async with asyncio.timeout(60):
        while not [r for r in await site.journal() if changed(r)]:
            await asyncio.sleep(0.02)
    rows = await site.journal()
    (change,) = [r for r in rows if changed(r)]
    assert isinstance(change, AdministrationRow)
    assert change.actor == "configuration file"
    assert '"phone":"1"' in change.before
    assert '"phone":"2"' in change.after
    errors = [r for r in rows if isinstance(r, RefusalRow) and r.rule == "CONSUMER_ON_ENDPOINT"]
    assert errors
    assert all(r.at >= before for r in (change, *errors))
    assert all(r.message and r.peer == "E5" for r in errors)


async def test_rights_of_open_streams_are_looked_at_when_the_configuration_changes(
    site: Site,
) -> None:
    admitted = True
    stream = site.endpoint.core.events.subscribe(lambda side, type_: True, lambda: admitted)
    assert (await anext(stream)).startswith(":")
    admitted = False
    site.write(phone="3")
    async with asyncio.timeout(60):
        assert not [event async for event in stream if "event:" in event]


def changed(row: JournalRow) -> bool:
    return isinstance(row, AdministrationRow) and row.action == "settings changed"


def message(size: int, sender: str = "E5") -> bytes:
    now = datetime.now(UTC)
    metadata = Metadata(
        message_id=new_message_id(),
        receiver_code=ComponentCode("E1"),
        message_type=MessageType("A01"),
        generated=Instant.of(now),
        expiration_time=Instant.of(now + timedelta(hours=1)),
        sender_code=ComponentCode(sender),
        internal_type=InternalType.STANDARD_MESSAGE,
    )
    return encode(SealedMessage(metadata, bytes(size)), None, now)


@pytest.mark.req("503-6.3-h", component="endpoint")
async def test_maximum_size_and_delivery_policy_are_configured(site: Site) -> None:
    connection = await site.connect(amqp_credentials(site.member("E5"), site.home.pki.root))
    producer = await connection.attach_producer("E1")
    # Refused for what it is (not sealed), but not for its size.
    assert (await producer.send(message(MAX_CONTENT))).kind is not OutcomeKind.UNSENT
    largest = MAX_CONTENT + 2**20
    outcome = await producer.send(message(largest + 1))
    assert outcome.kind is OutcomeKind.REJECTED
    assert outcome.condition == "amqp:link:message-size-exceeded"
    assert f"up to {largest} octets" in outcome.description
    # The largest size was announced; a peer that does not heed it loses its link.
    producer._max_message_size = 0
    outcome = await producer.send(message(largest + 1))
    assert outcome.kind is OutcomeKind.LOST
    await asyncio.wait_for(producer.detached.wait(), 60)
    again = await connection.attach_producer("E1")
    assert (await again.send(message(MAX_CONTENT))).kind is OutcomeKind.ACCEPTED
    connection.close()
    await connection.lost
    # exactly_once = true: the receiver of each link settles second.
    await site.endpoint.core.submission.send("app", Document("E5", "A01", b"document"))
    memory = site.broker.memory
    await eventually(lambda: memory.producers)
    links = [consumer.link for consumer in memory.queues["E1"].consumers]
    links += [producer.link for producer in memory.producers]
    assert links
    assert all(link.attachment.exactly_once for link in links)


@pytest.mark.req("503-6.4-f")
async def test_groups_of_links_have_the_size_that_the_configuration_says(site: Site) -> None:
    memory = site.broker.memory
    await eventually(lambda: len(memory.queues["E1"].consumers) == 3)
    if "E7" not in site.home.others:
        site.add(site.home, "E7")
    await eventually(lambda: site.known("E7") is not None)
    for code, size in (("E5", 2), ("E7", 4)):
        message_id = await site.endpoint.core.submission.send("app", Document(code, "A01", b"x"))
        queue = memory.queues[code]
        await eventually(
            lambda q=queue, i=message_id: any(i.encode() in octets for _, octets in q.messages)
        )
        producers = [p for p in memory.producers if p.link.attachment.address == code]
        assert len(producers) == size


@pytest.mark.req("503-4.5.1-b", component="endpoint")
async def test_both_sides_of_a_connection_have_to_be_registered_and_valid(site: Site) -> None:
    """As a server and as a client; nothing passes before."""
    root, stranger = site.home.pki.root, live_pki("CD-1", "OTHER ROOT")
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.check_hostname, bare.verify_mode = False, ssl.CERT_NONE
    port = int(str(site.values["direct"]))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=bare)
        writer.write(b"AMQP\x03\x01\x00\x00")
        if not await asyncio.wait_for(reader.read(), 60):
            raise ConnectionError
    wrong = {
        "untrusted": amqp_credentials(stranger.component("E5"), root),
        "unregistered": amqp_credentials(site.home.pki.component("STRANGER"), root),
    }
    for what, own in wrong.items():
        with pytest.raises(LinkRefused):
            connection = await site.connect(own)
            await connection.attach_producer("E1")
            pytest.fail(what)
    # A server that is registered, but not as the broker that was dialled.
    impostor = Broker(site.member("B1"), root, AmqpLimits(close_seconds=0.5))
    await impostor.open()
    site.add(site.home, "B2", f"amqps://b2.grid.invalid:{impostor.port}", kind="broker")
    site.add(site.home, "E8")
    site.home.others["E8"] = replace(site.home.others["E8"], paths=(path("*", "INDIRECT:B2"),))
    await eventually(lambda: site.known("E8") is not None)
    await site.endpoint.core.submission.send("app", Document("E8", "A01", b"secret"))

    def refused() -> bool:
        views = [v for v in site.endpoint.core.lines.views() if v.peer == "B2"]
        return bool(views) and not views[0].connected and "B1" in views[0].reason

    await eventually(refused)
    assert impostor.memory.deliveries == 0
    await impostor.server.close()
    # A component that was revoked is put out, and not let in again.
    own = amqp_credentials(site.member("E5"), root)
    connection = await site.connect(own)
    assert (await connection.attach_producer("E1")).attached
    del site.home.others["E5"]
    await asyncio.wait_for(asyncio.shield(connection.lost), 60)
    with pytest.raises(LinkRefused):
        await (await site.connect(own)).attach_producer("E1")
