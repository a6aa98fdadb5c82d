"""503 cl. 4.4.3, 5.8, 7 and 8.5 on a broker: what it tells the directory, and how it lives with one."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from gridpost.core.component import Component, ComponentType, Implementation
from gridpost.core.identifiers import ComponentCode, MessageTypePattern, new_message_id
from gridpost.core.instant import Instant
from gridpost.core.links import LinkRefused, Outcome, SentDelivery
from gridpost.core.message_path import DIRECT, MessagePath
from gridpost.wire.directory import InstallationBundle, decode_query, encode_bundle
from gridpost.wire.x509 import to_pem
from support.broker_process import (
    BrokerNetwork,
    Inbox,
    amqp_credentials,
    chosen_store,
    message,
)
from support.builders import CONTACT
from support.fake_directory import FakeDirectory
from support.https import Proxy, listening
from support.pki import TestComponent
from support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

INTEROP = Path(__file__).parents[1] / "interop"
DEAD = "https://127.0.0.1:1"
TWO_ADDRESSES = "ops@grid.example, night@grid.example"
URLS = ["amqps://b1-second.grid.example:5671", "amqps://b1-first.grid.example:5671"]


@asynccontextmanager
async def network_of(
    folder: Path, directory: FakeDirectory, **environment: Any
) -> AsyncIterator[BrokerNetwork]:
    """A broker in `folder` whose configuration the environment completes."""
    async with directory.running():
        network = BrokerNetwork(folder, directory, chosen_store())
        network.environment = {
            f"GRIDPOST_BROKER_{key.upper()}": value if isinstance(value, str) else json.dumps(value)
            for key, value in environment.items()
        }
        network.endpoint("E1")
        network.endpoint("E2")
        network.configure()
        bundle = folder / "bundle"
        bundle.write_bytes(encode_bundle(directory.bundle("B1")))
        directory.auto_approve = True
        result = await network.cli(
            "broker", "register", str(bundle), "--config", str(network.file), "--wait", "30"
        )
        assert result["state"] == "INSTALLED", result
        await network.start()
        try:
            yield network
            await network.close_connections()
        finally:
            await network.kill()


def texts(element: Any, name: str) -> list[str]:
    return [str(found.text) for found in element.iter(f"{{*}}{name}")]


@pytest.mark.req("503-T25-g", "503-T18-d", "503-4.4.3-b", "503-T25-i", component="broker")
@pytest.mark.req("503-7.6-m", component="broker")
async def test_a_broker_publishes_itself_follows_the_directory_and_serves_without_more(
    tmp_path: Path,
) -> None:
    directory = FakeDirectory()
    restriction = {"message_types": ["A*"]}
    async with network_of(
        tmp_path,
        directory,
        server__urls=URLS,
        restriction=restriction,
        contact__email=TWO_ADDRESSES,
    ) as broker:
        await eventually(lambda: [s for s in directory.of("PUT") if s.path.endswith("/B1")])
        pushed = directory.of("PUT")[-1]
        assert pushed.path == "/api/v1/brokers/B1"
        entry = etree.fromstring(pushed.body)
        assert etree.QName(entry).localname == "broker"
        for name in ("organization", "person", "phone"):
            assert texts(entry, name) == [getattr(CONTACT, name)]
        assert texts(entry, "email") == [TWO_ADDRESSES]
        (implementation,) = entry.iter("{*}madesImplementation")
        assert implementation.get("madesVersion") == "2"
        assert texts(entry, "messageType") == ["A*"]
        assert not list(entry.iter("{*}path"))
        await eventually(lambda: directory.others["B1"].urls)
        assert list(directory.others["B1"].urls) == URLS
        # Nothing more has to be set up.
        (taken, refused) = await broker.send(
            "E1", "E2", message(message_type="A01"), message(message_type="B01")
        )
        assert taken.taken
        assert refused.condition == "amqp:not-allowed"
        assert len(await broker.receive("E2", 1)) == 1
        # Table 25: the question is the body of a GET, and says what is known already.
        await broker.synchronised()
        asked = [s for s in directory.of("GET") if s.path == "/api/v1/components"][-1]
        assert etree.QName(etree.fromstring(asked.body)).localname == "componentsQuery"
        known = {c.component_directory: c.content_id for c in decode_query(asked.body).couples}
        assert known[ComponentCode("CD-1")] == directory.subsystem().content_id
        # A changed subsystem comes whole: the broker knows the new one, and not the one that left.
        broker.endpoint("E3")
        broker.revoke("E2")
        await broker.synchronised()
        connection = await broker.connect("E1")
        assert (await connection.attach_producer("E3")).attached
        with pytest.raises(LinkRefused, match="amqp:not-found"):
            await connection.attach_producer("E2")


Change = Callable[[Any], None]
"""Of the entry of one component in a document."""


def without(name: str) -> Change:
    def change(entry: Any) -> None:
        found = next(entry.iter(f"{{*}}{name}"))
        found.getparent().remove(found)

    return change


def no_version(entry: Any) -> None:
    del next(entry.iter("{*}madesImplementation")).attrib["madesVersion"]


def armoured(entry: Any) -> None:
    text = next(entry.iter("{*}certificates"))[0].find("{*}certificate")
    text.text = f"-----BEGIN CERTIFICATE-----\n{text.text}\n-----END CERTIFICATE-----"


def path_out_of_order(entry: Any) -> None:
    path = next(entry.iter("{*}validFrom")).getparent()
    path.insert(0, path.find("{*}validFrom"))


def restriction_in_an_endpoint(entry: Any) -> None:
    etree.SubElement(entry, "restriction")


def paths_in_a_broker(entry: Any) -> None:
    etree.SubElement(entry, "paths")


BREACHES: tuple[tuple[str, Change], ...] = (
    ("E11", without("organization")),
    ("E11", without("person")),
    ("E11", without("email")),
    ("E11", without("phone")),
    ("E11", without("madesImplementation")),
    ("E11", no_version),
    ("B1", without("restriction")),
    ("E11", restriction_in_an_endpoint),
    ("B1", paths_in_a_broker),
    ("E11", armoured),
    ("E11", without("certificateID")),
    ("E11", path_out_of_order),
    ("E11", without("validFrom")),
)


def changed(code: str, change: Change) -> Callable[[bytes], bytes]:
    def rewrite(document: bytes) -> bytes:
        root = etree.fromstring(document)
        for named in root.iter("code"):
            if named.text == code:
                change(named.getparent())
                return bytes(etree.tostring(root, xml_declaration=True, encoding="UTF-8"))
        return document

    return rewrite


@pytest.mark.req("503-T18-c", "503-T18-l", "503-T18-m", "503-T20-a", component="broker")
@pytest.mark.req("503-T19-a", "503-7.8.1-j", component="broker")
async def test_a_broker_takes_no_document_that_breaks_the_tables_and_the_next_one_that_does_not(
    broker: BrokerNetwork,
) -> None:
    """What was taken is seen by whom the broker serves: in the broken documents is one more."""
    directory = broker.directory
    broker.endpoint("E11")
    path = MessagePath(
        MessageTypePattern("A*"), DIRECT, Instant.of(datetime.now(UTC) - timedelta(days=1))
    )
    directory.others["E11"] = replace(
        directory.others["E11"],
        contact=replace(CONTACT, email=TWO_ADDRESSES),
        paths=(path,),
    )
    # Not before the first breach is in place.
    directory.rewrite = changed(*BREACHES[0])
    connection = await broker.connect("E1")
    for code, change in BREACHES:
        directory.rewrite = changed(code, change)
        await broker.synchronised()
        with pytest.raises(LinkRefused, match="amqp:not-found"):
            await connection.attach_producer("E11")
    directory.rewrite = lambda document: document
    await broker.synchronised()
    assert (await connection.attach_producer("E11")).attached
    # By the certificate of its entry it is let in.
    assert (await broker.connect("E11")).peer


@pytest.mark.req("503-9.2-d", "503-9.2-e", component="broker")
async def test_the_version_of_a_message_is_in_the_message(broker: BrokerNetwork) -> None:
    connection = await broker.connect("E1")
    producer = await connection.attach_producer("E2")

    def of_version(number: int) -> bytes:
        body = b"version %d" % number
        return message(body=body, change=lambda m: replace(m, message_mversion=number))

    for known in (1, 2):
        assert (await producer.send(of_version(known))).taken
    for unknown in (0, 3, 99):
        outcome = await producer.send(of_version(unknown))
        assert outcome.condition == "amqp:not-implemented"
        assert f"version {unknown}" in outcome.description
    assert producer.attached
    got = await broker.receive("E2", 2)
    assert [octets[-9:] for octets in got] == [b"version 1", b"version 2"]


@pytest.mark.req("503-T18-e", component="broker")
async def test_a_broker_with_an_address_of_another_protocol_is_refused(tmp_path: Path) -> None:
    network = BrokerNetwork(tmp_path, FakeDirectory())
    network.configure()
    network.environment = {"GRIDPOST_BROKER_SERVER__URLS": '["https://b1.grid.example"]'}
    told = await network.cli("check-config", str(network.file), expect=1, read=False)
    assert "amqps://" in told


@pytest.mark.req("503-T20-b", component="broker")
async def test_what_an_entry_says_of_its_software_does_not_keep_anybody_out(
    broker: BrokerNetwork,
) -> None:
    member = broker.endpoint("E5")
    entry = broker.directory.others["E5"]
    odd = Implementation("2", "Other product", "7.1-rc", "2, or so; ask us")
    broker.directory.others["E5"] = replace(entry, implementation=odd)
    await broker.synchronised()
    assert (await broker.connect(member.code)).peer


@pytest.mark.req("503-4.4.3-c", "503-7.7.1-e", component="broker")
async def test_messages_pass_without_a_directory_until_its_data_lapse(tmp_path: Path) -> None:
    directory = FakeDirectory(ttl=timedelta(seconds=20))
    async with network_of(tmp_path, directory) as broker:
        await broker.synchronised()
        directory.fail = 503
        connection = await broker.connect("E1")
        producer = await connection.attach_producer("E2")
        assert (await producer.send(message())).taken
        assert len(await broker.receive("E2", 1)) == 1
        async with asyncio.timeout(60):
            while (await producer.send(message())).taken:
                await asyncio.sleep(0.2)
        with pytest.raises(LinkRefused):
            await broker.connect("E1")
        directory.fail = 0
        await broker.synchronised()
        assert (await broker.send("E1", "E2", message()))[0].taken


@dataclass
class TwoAddresses(FakeDirectory):
    """Publishes a first address at which nobody answers."""

    @property
    def entry(self) -> Component:
        return replace(super().entry, urls=(DEAD, self.url))

    def bundle(self, code: str, *urls: str) -> InstallationBundle:
        return super().bundle(code, DEAD, self.url)


@pytest.mark.req("503-10-f", component="broker")
async def test_a_directory_is_reached_at_its_second_address(tmp_path: Path) -> None:
    async with network_of(tmp_path, TwoAddresses()) as broker:
        await broker.synchronised()
        broker.endpoint("E6")
        await broker.synchronised()
        connection = await broker.connect("E1")
        assert (await connection.attach_producer("E6")).attached


@dataclass
class BehindProxy(FakeDirectory):
    """Publishes a name that only the proxy can resolve."""

    @property
    def url(self) -> str:
        return f"https://{self.code.lower()}.grid.invalid:{self.port}"


@pytest.mark.req("503-4.4.3-e", "503-10-d", component="broker")
async def test_without_its_home_a_broker_asks_another_directory_through_the_proxy(
    tmp_path: Path,
) -> None:
    home, other, proxy = BehindProxy(), BehindProxy("CD-2"), Proxy()
    proxy.hosts = {"cd-1.grid.invalid": "127.0.0.1", "cd-2.grid.invalid": "127.0.0.1"}
    async with listening(proxy) as port, other.running():
        home.foreign["CD-2"] = other.subsystem()
        async with network_of(
            tmp_path,
            home,
            synchronisation__directories=["CD-1", "CD-2"],
            synchronisation__proxy=f"http://127.0.0.1:{port}",
        ) as broker:
            await broker.synchronised()
            assert f"cd-1.grid.invalid:{home.port}" in proxy.targets
            home.fail = 503
            # The others of the system know the subsystem as it was.
            other.foreign["CD-1"] = home.subsystem()
            broker.members["N2"] = added(other, "N2")
            other.asked.clear()
            await asyncio.wait_for(other.asked.wait(), 60)
            connection = await broker.connect("E1")
            async with asyncio.timeout(60):
                while True:
                    try:
                        producer = await connection.attach_producer("N2")
                        break
                    except LinkRefused:
                        await asyncio.sleep(0.2)
            assert (await producer.send(message(receiver="N2"))).taken
            assert len(await broker.receive("N2", 1)) == 1
            assert f"cd-2.grid.invalid:{other.port}" in proxy.targets
            await broker.close_connections()


def added(directory: FakeDirectory, code: str) -> TestComponent:
    """An endpoint of this directory."""
    member = directory.pki.component(code)
    directory.others[code] = Component(
        member.code,
        ComponentType.ENDPOINT,
        CONTACT,
        ComponentCode(directory.code),
        Implementation("2"),
        certificates=member.certificates,
    )
    return member


@pytest.mark.req("503-8.5-h", "503-4.4.3-a", component="broker")
async def test_an_endpoint_under_another_root_is_served_when_both_are_trusted(
    tmp_path: Path,
) -> None:
    directory, other = FakeDirectory(), FakeDirectory("CD-2", root="NEW ROOT")
    member = added(other, "N1")
    # Already of CD-1, its home: nobody else can register it.
    usurper = added(other, "E1")
    directory.foreign["CD-2"] = other.subsystem()
    (tmp_path / "roots.pem").write_bytes(to_pem(directory.pki.root, other.pki.root))
    async with network_of(tmp_path, directory, roots=["roots.pem"]) as broker:
        await broker.synchronised()
        broker.members["N1"] = member
        new = amqp_credentials(member, directory.pki.root)
        connection = await broker.connect("N1", new)
        producer = await connection.attach_producer("E2")
        assert (await producer.send(message(sender="N1"))).taken
        # And back, to the endpoint under the new root.
        assert (await broker.send("E1", "N1", message(receiver="N1")))[0].taken
        assert len(await broker.receive("E2", 1)) == 1
        inbox = Inbox()
        await connection.attach_consumer("N1", inbox, credit=5)
        await eventually(lambda: len(inbox.messages) == 1)
        # Each component has one home: what another directory says of a code that has one is void.
        assert directory.others["B1"].component_directory == "CD-1"
        with pytest.raises(LinkRefused):
            await broker.connect("E1", amqp_credentials(usurper, directory.pki.root))
        assert (await broker.send("E1", "E2", message()))[0].taken


@pytest.mark.req("503-5.8.3-a", component="broker")
async def test_messages_go_in_transfer_frames_and_states_in_disposition_frames(
    broker: BrokerNetwork, tmp_path: Path
) -> None:
    for code, task, ours, theirs in (
        ("E1", {"produce": "E2", "messages": [fields()]}, "transfer", "disposition"),
        ("E2", {"consume": "E2", "count": 1}, "disposition", "transfer"),
    ):
        own = amqp_credentials(broker.members[code], broker.directory.pki.root)
        (tmp_path / "chain.pem").write_bytes(own.chain_pem)
        (tmp_path / "key.pem").write_bytes(own.key_pem)
        (tmp_path / "roots.pem").write_bytes(own.roots_pem)
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(INTEROP / "broker_proton.py"), str(broker.port), str(tmp_path),
            json.dumps(task), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={"PN_TRACE_FRM": "1"},
        )  # fmt: skip
        async with asyncio.timeout(60):
            out, err = await process.communicate()
        assert json.loads(out)["error"] is None
        lines = [line for line in err.decode("utf-8", "replace").splitlines() if " @" in line]
        said = [at for at, line in enumerate(lines) if f"-> @{ours}" in line]
        heard = [at for at, line in enumerate(lines) if f"<- @{theirs}" in line]
        assert said
        assert heard
        transfers, states = (said, heard) if ours == "transfer" else (heard, said)
        assert transfers[0] < states[0]


def fields() -> dict[str, Any]:
    return {
        "id": new_message_id(),
        "sender": "E1",
        "receiver": "E2",
        "subject": "A01",
        "ttl": 60_000,
        "body": "sealed",
    }


@pytest.mark.req("503-5.8.1-f", "503-5.9-b", component="broker")
async def test_a_transfer_that_its_sender_did_not_settle_is_known_after_a_crash(
    tmp_path: Path,
) -> None:
    async with network_of(tmp_path, FakeDirectory(), limits__max_unsettled=4) as broker:
        # So many records of transfers that their senders have not settled, and no more.
        slow = await broker.connect("E1")
        careful = await slow.attach_producer("E2", exactly_once=True)
        unsettled: list[SentDelivery] = []

        def keep(delivery: SentDelivery, outcome: Outcome) -> None:
            unsettled.append(delivery)

        careful.on_outcome = keep  # type: ignore[method-assign]
        for _ in range(6):
            careful.send(message())
        await eventually(lambda: len(unsettled) == 4)
        await asyncio.sleep(0.5)
        assert len(unsettled) == 4
        # Settled by the sender: the broker drops the records, and there is room for others.
        for delivery in unsettled[:4]:
            delivery.settle()
        await eventually(lambda: len(unsettled) == 6)
        slow.close()
        await slow.lost
        assert len(await broker.receive("E2", 6)) == 6
        sent = message(body=b"only once")
        connection = await broker.connect("E1")
        producer = await connection.attach_producer("E2", exactly_once=True)
        outcome = await producer.send(sent)
        # The broker has it, and waits for our settlement before it settles itself.
        assert outcome.taken
        assert not outcome.settled
        connection.abort()
        await connection.lost
        await broker.kill()
        await broker.start()
        # The sender never learnt that it was settled: it sends again, and the record is there.
        again = await broker.connect("E1")
        second = await again.attach_producer("E2", exactly_once=True)
        assert (await second.send(sent)).taken
        got = await broker.receive("E2", 1)
        await asyncio.sleep(0.3)
        assert len(got) == 1
        assert await broker.depth("E2") == 0
