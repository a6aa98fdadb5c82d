"""A Gridpost endpoint in a network of MADES 1.1: two nodes, endpoints at each, real TLS between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio

from gridpost.assembly.clock import SystemClock
from gridpost.core.delivery import Side
from gridpost.core.message import COMPRESSOR, InternalType
from gridpost.core.node import RemoteNode
from gridpost.core.node_list import write_node_list
from support.directory_process import TestRoot
from support.old_endpoint import OldGridpost
from support.old_network import OldEndpoint, TestNode

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Site:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        root = TestRoot(folder / "root")
        self.nodes = [
            TestNode(
                folder / code, code, root, clock=SystemClock(), options={"directory": {"ttl": "2s"}}
            )  # type: ignore[arg-type]
            for code in ("N1", "N2")
        ]
        self.stack = AsyncExitStack()

    async def open(self) -> None:
        for node in self.nodes:
            await self.stack.enter_async_context(node.run())
        known = tuple(RemoteNode(n.code, (n.url,)) for n in self.nodes)
        for node in self.nodes:
            others = tuple(n for n in known if n.code != node.code)
            await node.ask("import-nodes", file=write_node_list(others).decode())

    async def synchronise(self) -> None:
        for node in self.nodes:
            told = await node.ask("synchronise")
            assert all(not n["problem"] for n in told), told

    async def peer(self, node: int) -> OldEndpoint:
        """One that is no Gridpost endpoint, only a client of its node."""
        code = f"P{uuid4().hex[:8]}"
        found = await self.nodes[node].endpoint(code, key_name=f"peer {node}")
        await self.synchronise()
        return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    site = Site(tmp_path_factory.mktemp("old"))
    try:
        await site.open()
        yield site
    finally:
        await site.stack.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(site: Site) -> AsyncIterator[tuple[OldGridpost, OldGridpost]]:
    """E1 at N1 and E2 at N2."""
    registered = [
        await node.endpoint(f"E{n + 1}", key_name=f"old E{n + 1}")
        for n, node in enumerate(site.nodes)
    ]
    await site.synchronise()
    one, two = (OldGridpost(site.folder / e.code, e, {"compress": ["ZIPPED"]}) for e in registered)
    async with one.run(), two.run():
        yield one, two


async def test_a_document_goes_through_both_nodes_and_its_acknowledgements_come_back(
    site: Site, pair: tuple[OldGridpost, OldGridpost]
) -> None:
    one, two = pair
    sent = await one.send("E2", b"\0first\xff")
    assert await two.receive() == (sent, b"\0first\xff")
    entry = await one.until(sent, "RECEIVED")
    assert str(entry.route) == "MADES-1.1"
    assert entry.metadata.message_mversion == 1
    assert entry.metadata.sender_description == "Grid of Examplia"
    events = [line.event.value for line in await one.trace(sent)]
    assert events == [
        "ACCEPT", "TRANSFERRED", "DELIVERY_ACKNOWLEDGED", "RECEIVE_ACKNOWLEDGED"
    ]  # fmt: skip
    trace = await one.trace(sent)
    assert trace[0].detail == "network MADES 1.1, node N2"
    assert trace[1].detail == "MADES-1.1:N2"
    # Uploaded to the recipient's node, never to the sender's own; acknowledgements the other way.
    at_one, at_two = [await node.states("E1", "E2") for node in site.nodes]
    assert at_two[sent] == "DELIVERED"
    assert sent not in at_one
    assert len(at_one) == 2
    assert set(at_one.values()) == {"DELIVERED"}


async def test_what_is_compressed_is_signed_packed_and_handed_over_unpacked(
    pair: tuple[OldGridpost, OldGridpost],
) -> None:
    one, two = pair
    document = b"<Document>" + b"same " * 10_000 + b"</Document>"
    sent = await one.send("E2", document, "ZIPPED")
    assert await two.receive("ZIPPED") == (sent, document)
    entry = await two.entry(sent, Side.RECEIVED)
    assert entry.metadata.processors_named(COMPRESSOR)
    assert entry.size < 2_000
    await one.until(sent, "RECEIVED")
    plain = await one.send("E2", document, "PLAIN")
    await two.receive("PLAIN")
    assert not (await two.entry(plain, Side.RECEIVED)).metadata.processors_named(COMPRESSOR)


async def test_a_tracing_message_is_answered_with_its_own_kind(
    pair: tuple[OldGridpost, OldGridpost],
) -> None:
    one, _ = pair
    assert one.running is not None
    sent = await one.running.core.submission.test_connectivity("soap:app", "E2", "TRACING")
    entry = await one.until(sent, "TRACED")
    assert entry.metadata.internal_type is InternalType.TRACING_MESSAGE


async def test_messages_of_one_type_arrive_in_the_order_of_their_acceptance(
    pair: tuple[OldGridpost, OldGridpost],
) -> None:
    one, two = pair
    # A large one takes longer to seal than those behind it.
    documents = [b"%d " % n * (200_000 if n % 7 == 0 else 10) for n in range(30)]
    sent = [await one.send("E2", document, "ORDER") for document in documents]
    received = [await two.receive("ORDER") for _ in documents]
    assert received == list(zip(sent, documents, strict=True))
    await asyncio.gather(*(one.until(message_id, "RECEIVED") for message_id in sent))
