"""503 cl. 4: what the system as a whole promises, over a network that grows from two endpoints on.

First a directory and two endpoints; then a broker; then a second broker, and a second directory with
an endpoint of its own. Each part of the file needs what the part before it has started.
"""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from gridpost.core.refusal import Refusal
from gridpost.demo.channels import FolderChannel
from support.folders import CHANNEL, Folders
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
