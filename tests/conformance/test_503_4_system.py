"""503 cl. 4: what the system as a whole promises, over a network that grows from two endpoints on.

First a directory and two endpoints; then a broker; then a second broker, and a second directory with
an endpoint of its own. Each part of the file needs what the part before it has started.
"""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from gridpost.core.refusal import Refusal
from gridpost.demo.channels import FolderChannel
from support.folders import CHANNEL, Folders, gone
from support.network import Network, until_status
from support.waiting import eventually

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(1200)]
PEER = """
[synchronisation]
cycle = "500ms"
[[synchronisation.peers]]
code = "{}"
urls = ["https://127.0.0.1:{}"]
"""
DOCS = Path(__file__).parents[2] / "docs" / "operations"
PATHS = ("INDIRECT:B1", "DIRECT*=DIRECT", "SECOND*=INDIRECT:B2")


def archive() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as zipped:
        zipped.writestr("a.txt", "a")
    return made.getvalue()


DOCUMENTS = {
    "xml": b'<?xml version="1.0"?><a xmlns="urn:x">\xc3\xa4</a>',
    "broken xml": b"<a><b></a>",
    "not UTF-8": "Ärger".encode("latin-1") + b"\xff\xfe",
    "zip": archive(),
    "every byte": bytes(range(256)),
}


class System:
    def __init__(self, folder: Path) -> None:
        self.one = Network(folder / "one")
        self.two = Network(folder / "two", "CD-2", folder / "one" / "root")

    async def open(self) -> None:
        """Two endpoints of one party and a directory; no broker exists yet."""
        self.one.folder.mkdir()
        await self.one.open()
        first = 'directories = ["CD-1", "CD-2"]\n'
        for code in ("E1", "E2"):
            Folders(self.one, code)
            await self.one.endpoint(
                code, *PATHS, direct=True, more=CHANNEL.format(code=code, more="")
            )
            file = self.one.components[code].file
            text = file.read_text().replace("[synchronisation]\n", f"[synchronisation]\n{first}")
            file.write_text(text)
        await self.one.start("E1", "E2")

    async def close(self) -> None:
        for net in (self.one, self.two):
            await net.close()

    async def deliver(
        self, sender: str, recipient: str, type_: str, content: bytes = b"document"
    ) -> tuple[str, bytes]:
        """The route that a document took, and what came out."""
        nets = {code: net for net in (self.one, self.two) for code in net.components}
        async with nets[sender].api(sender) as here, nets[recipient].api(recipient) as there:
            message_id = await here.send(recipient, type_, content)
            await until_status(here, message_id, "DELIVERED")
            received = await there.receive(type_)
            assert received is not None
            assert received.message.message_id == message_id
            await there.confirm(message_id)
            await until_status(here, message_id, "RECEIVED")
            return (await here.status(message_id)).route, received.content


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def system(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[System]:
    found = System(tmp_path_factory.mktemp("system"))
    try:
        await found.open()
        yield found
    finally:
        await found.close()


async def seen(net: Network, broker: str, view: str) -> list[dict[str, Any]]:
    text = net.components[broker].file.read_text()
    port = text.split("[operations]\nport = ")[1].split("\n")[0]
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        found: list[dict[str, Any]] = (await client.get(f"http://127.0.0.1:{port}/{view}")).json()
        return found


@pytest.mark.req("503-4.4.5-a", component="system")
async def test_the_system_grows_from_no_broker_to_several_brokers_and_directories(
    system: System,
) -> None:
    one, two = system.one, system.two
    # Two endpoints and a directory.
    await _reached(one, "E1", "E2", "DIRECT-A")
    assert await system.deliver("E1", "E2", "DIRECT-A") == ("DIRECT", b"document")
    # The same with a broker.
    await one.broker("B1")
    await one.start("B1")
    await _reached(one, "E1", "E2", "A01")
    assert (await system.deliver("E1", "E2", "A01"))[0] == "INDIRECT:B1"
    # Several brokers and several directories.
    await one.broker("B2")
    await one.start("B2")
    two.folder.mkdir()
    await two.open()
    await two.endpoint("E3", *PATHS)
    await two.start("E3")
    for net, other in ((one, two), (two, one)):
        with net.directory.file.open("a") as file:
            file.write(PEER.format(other.code, other.directory_port))
    await eventually(lambda: one.directory.logged("configuration reloaded"))
    await eventually(lambda: two.directory.logged("configuration reloaded"))
    await _reached(one, "E1", "E3", "SECOND-A")
    await _reached(two, "E3", "E1", "A01")
    assert (await system.deliver("E1", "E3", "SECOND-A"))[0] == "INDIRECT:B2"
    assert (await system.deliver("E3", "E1", "A01"))[0] == "INDIRECT:B1"


async def _reached(net: Network, sender: str, recipient: str, type_: str) -> None:
    """Until a tracing message of this type gets through."""
    async with net.api(sender) as api, asyncio.timeout(120):
        while True:
            try:
                await until_status(api, await api.test(recipient, type_), "DELIVERED", "FAILED")
                return
            except Refusal:
                await asyncio.sleep(0.1)


@pytest.mark.req("503-4.1-a", component="system")
@pytest.mark.parametrize("what", DOCUMENTS)
async def test_a_document_of_any_format_arrives_byte_by_byte(system: System, what: str) -> None:
    """In any order, too: nothing but the sender decides what comes after what."""
    _, content = await system.deliver("E1", "E2", "ANY", DOCUMENTS[what])
    assert content == DOCUMENTS[what]
    _, content = await system.deliver("E2", "E1", "ANY", DOCUMENTS[what])
    assert content == DOCUMENTS[what]


@pytest.mark.req("503-4.4.2-d", component="system")
async def test_a_route_has_one_broker_at_most_and_brokers_do_not_know_each_other(
    system: System,
) -> None:
    one = system.one
    await one.components["E2"].stop()
    try:
        async with one.api("E1") as sender:
            first = await sender.send("E2", "A01", b"by the first broker")
            second = await sender.send("E2", "SECOND-B", b"by the second broker")

            async def depths() -> tuple[int, int]:
                queues = [await seen(one, code, "queues") for code in ("B1", "B2")]
                found = [sum(q["messages"] for q in rows if q["queue"] == "E2") for rows in queues]
                return found[0], found[1]

            async with asyncio.timeout(60):
                while await depths() != (1, 1):
                    await asyncio.sleep(0.1)
            for code in ("B1", "B2"):
                known = {row["component"] for row in await seen(one, code, "connections")}
                assert known <= {"E1", "E2", "E3"}
                assert "E1" in known
    finally:
        await one.components["E2"].start()
    async with one.api("E1") as sender, one.api("E2") as recipient:
        for message_id in (first, second):
            await until_status(sender, message_id, "DELIVERED")
            await recipient.confirm(message_id)
            await until_status(sender, message_id, "RECEIVED")


@pytest.mark.req("503-4.4.5-d", component="system")
async def test_two_endpoints_of_one_party_share_nothing(system: System) -> None:
    """E1 and E2 name the same organization and person."""
    one, two = system.one, system.two
    async with two.api("E3") as sender, one.api("E1") as first, one.api("E2") as second:
        mine, yours = [await sender.send(code, "PARTY", code.encode()) for code in ("E1", "E2")]
        for message_id in (mine, yours):
            await until_status(sender, message_id, "DELIVERED")
        for api, message_id, code in ((first, mine, b"E1"), (second, yours, b"E2")):
            received = await api.receive("PARTY")
            assert received is not None
            assert (received.message.message_id, received.content) == (message_id, code)
            await api.confirm(message_id)
            assert await api.receive("PARTY") is None


@pytest.mark.req("503-4.4.5-b", component="system")
async def test_with_two_directories_one_may_stop(system: System) -> None:
    """What E3 publishes at CD-2 reaches E1 although the directory of E1 is down."""
    one, two = system.one, system.two
    await one.directory.stop()
    try:
        assert (await system.deliver("E1", "E2", "A01"))[0] == "INDIRECT:B1"
        with two.components["E3"].file.open("a") as file:
            file.write('[[paths]]\nmessage_type = "MOVED"\npath = "INDIRECT:B2"\n')
        async with one.api("E1") as sender, asyncio.timeout(120):
            while True:
                message_id = await sender.send("E3", "MOVED", b"where to?")
                if (await sender.status(message_id)).route == "INDIRECT:B2":
                    break
                await asyncio.sleep(0.3)
            await until_status(sender, message_id, "DELIVERED")
    finally:
        await one.directory.start()


@pytest.mark.req("503-7.3.4-b", component="system")
async def test_a_path_of_the_future_moves_traffic_at_its_time_and_nothing_is_lost(
    system: System,
) -> None:
    one = system.one
    moment = datetime.now(UTC) + timedelta(seconds=15)
    with one.components["E2"].file.open("a") as file:
        file.write(
            '[[paths]]\nmessage_type = "SWITCH"\npath = "INDIRECT:B1"\n'
            f"valid_until = {moment:%Y-%m-%dT%H:%M:%SZ}\n"
            '[[paths]]\nmessage_type = "SWITCH"\npath = "INDIRECT:B2"\n'
            f"valid_from = {moment:%Y-%m-%dT%H:%M:%SZ}\n"
        )
    routes: list[str] = []
    async with one.api("E1") as sender, asyncio.timeout(120):
        sent = []
        while routes.count("INDIRECT:B2") < 5:
            message_id = await sender.send("E2", "SWITCH", b"on the way")
            routes.append((await sender.status(message_id)).route)
            sent.append(message_id)
            await asyncio.sleep(0.2)
        for message_id in sent:
            await until_status(sender, message_id, "DELIVERED")
    assert routes == sorted(routes)
    assert routes[0] == "INDIRECT:B1"
    # Administrators are told so.
    manual = (DOCS / "endpoint.md").read_text(encoding="utf-8")
    assert "need time to reach everybody" in manual


@pytest.mark.req("503-T48-f", component="system")
async def test_a_file_stays_until_the_application_removes_it(system: System) -> None:
    here, there_ = Folders(system.one, "E1"), Folders(system.one, "E2")
    await here.send("APP_E2_F01_one.xml", "<one/>")
    await eventually(lambda: list(there_.into.glob("*.xml")) or list(there_.into.glob("*.dat")))
    (file,) = there_.into.iterdir()
    lines = await here.log_of("APP_E2_F01_one.xml.log", until="RECEIVED")
    # RECEIVED, and the endpoint has been started again: the file is the application's.
    await system.one.components["E2"].stop()
    await system.one.components["E2"].start()
    assert file.read_text() == "<one/>"
    file.unlink()
    await gone(file)
    assert (await here.log_of("APP_E2_F01_one.xml.log", until="RECEIVED")) == lines


@pytest.mark.req("503-11.2.3-d", component="system")
async def test_our_application_gives_each_file_a_name_of_its_own(tmp_path: Path) -> None:
    """Sender application and baMessageID are in the name, and the manual asks others for the same."""
    (tmp_path / "OUT").mkdir()

    async def find(label: str) -> str:
        return label

    channel = FolderChannel(tmp_path, find)
    for number in range(3):
        await channel.send("E2", b"x", f"folder-{number}")
    names = [file.name for file in (tmp_path / "OUT").iterdir()]
    assert len(set(names)) == 3
    assert all(name.startswith("gridpost-demo_E2_") for name in names)
    manual = (DOCS / "folders.md").read_text(encoding="utf-8")
    assert "so that no two files have the same name" in manual
