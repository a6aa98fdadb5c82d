"""One MADES 1.1 network for the tests of a file: nodes N1 and N2, the Gridpost endpoints E1 and E2, peers.

A network for all files would stand still while others run, and find every one of its times over afterwards.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
from lxml import etree

from gridpost.assembly.clock import SystemClock
from gridpost.core.journal import JournalRow
from gridpost.core.message import Metadata
from gridpost.core.node import RemoteNode
from gridpost.services.directory_client.node_soap import NodeSoapClient
from gridpost.wire.mades11.services import ENDPOINT, NAMESPACE
from gridpost.wire.soap.envelope import Envelope
from support.directory_process import TestRoot
from support.network import API_PASSWORD
from support.old_endpoint import OldGridpost
from support.old_network import OldEndpoint, TestNode, node_list
from support.soap import envelope

TTL = 600.0


@dataclass(frozen=True)
class Call:
    """What an endpoint asked of a node."""

    urls: tuple[str, ...]
    operation: str
    text: str


class Recorder:
    """services.directory_client.node_soap.NodeSoapClient, with a memory."""

    def __init__(self, client: NodeSoapClient) -> None:
        self._client = client
        self.calls: list[Call] = []

    async def call(
        self, urls: Sequence[str], authorise: Any, operation: str, texts: Sequence[str], *more: Any
    ) -> Envelope:
        self.calls.append(Call(tuple(urls), operation, "".join(texts)))
        return await self._client.call(urls, authorise, operation, texts, *more)

    def of(self, *operations: str) -> list[Call]:
        return [c for c in self.calls if c.operation in operations]


def lapse(endpoint: OldGridpost) -> None:
    """What the home node told this endpoint has expired."""
    assert endpoint.running is not None
    old = endpoint.running.core.old
    assert old is not None
    directory = old.directory
    for known in (directory._components, directory._certificates):
        for key, (answer, _) in known.items():
            known[key] = answer, directory._clock.now()
    directory._copy = None


def record(endpoint: OldGridpost) -> Recorder:
    assert endpoint.running is not None
    old = endpoint.running.core.old
    assert old is not None
    recorder = Recorder(old._client)
    for session in (old.home, *old._sessions.values()):
        session._client = recorder  # type: ignore[assignment]
    old._client = recorder  # type: ignore[assignment]
    return recorder


class OldSite:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = TestRoot(folder / "root")
        options = {"directory": {"ttl": f"{TTL:.0f}s"}, "messages": {"upkeep_cycle": "200ms"}}
        clock: Any = SystemClock()
        self.nodes = [
            TestNode(folder / code, code, self.root, clock=clock, options=options)
            for code in ("N1", "N2")
        ]
        self.stack = AsyncExitStack()
        self.one: OldGridpost
        self.two: OldGridpost

    async def open(self) -> None:
        for node in self.nodes:
            await self.stack.enter_async_context(node.run())
        known = tuple(RemoteNode(n.code, (n.url,)) for n in self.nodes)
        for node in self.nodes:
            others = tuple(n for n in known if n.code != node.code)
            await node.ask("import-nodes", file=node_list(others).decode())
        self.one, self.two = [
            await self.gridpost(
                n, f"E{n + 1}", {"compress": ["ZIP*"], "minimum_versions": {"NEW*": 2}}
            )
            for n in (0, 1)
        ]

    async def gridpost(
        self, node: int, code: str, more: dict[str, Any] | None = None, top: str = ""
    ) -> OldGridpost:
        """A Gridpost endpoint that runs until the site closes."""
        endpoint = await self.nodes[node].endpoint(code, key_name=f"old {node}")
        await self.synchronise()
        made = OldGridpost(self.folder / code, endpoint, more or {}, top)
        await self.stack.enter_async_context(made.run())
        return made

    async def peer(self, node: int) -> OldEndpoint:
        """No Gridpost endpoint, only a client of its node that sees and forges everything."""
        code = f"P{uuid4().hex[:8]}"
        found = await self.nodes[node].endpoint(code, key_name=f"peer {node}")
        await self.synchronise()
        return found

    async def synchronise(self) -> None:
        for node in self.nodes:
            told = await node.ask("synchronise")
            assert all(not n["problem"] for n in told), told


async def fetch(peer: OldEndpoint, count: int = 1) -> list[tuple[Metadata, bytes]]:
    """The next messages for a peer, as they lay in its node; confirmed."""
    import asyncio

    session = peer.session()
    found: list[tuple[Metadata, bytes]] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            messages, _ = await session.download()
            await session.confirm([m.message_id for m, _ in messages])
            found += messages
            await asyncio.sleep(0.02)
    return found


async def journal(endpoint: OldGridpost, kind: type[JournalRow]) -> list[Any]:
    assert endpoint.running is not None
    store = endpoint.running.core.context.store
    rows = await store.read(lambda work: work.journal.read(0, 100_000))
    return [r.row for r in rows if isinstance(r.row, kind)]


async def ask(endpoint: OldGridpost, operation: str, *fields: str) -> etree._Element:
    """The old interface for applications, over HTTP; the answer is valid."""
    body = f'<m:{operation}Request xmlns:m="{NAMESPACE}">{"".join(fields)}</m:{operation}Request>'
    async with httpx.AsyncClient(auth=("app", API_PASSWORD), timeout=60) as client:
        response = await client.post(
            f"http://127.0.0.1:{endpoint.api_port}/mades/1",
            content=envelope("1.2", body),
            headers={"content-type": "application/soap+xml"},
        )
    root = etree.fromstring(response.content)
    found = next(
        e for e in root.iter(etree.Element) if str(e.tag).startswith(f"{{{NAMESPACE}}}{operation}")
    )
    ENDPOINT.schema.validate(found)
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def old_site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[OldSite]:
    site = OldSite(tmp_path_factory.mktemp("old"))
    try:
        await site.open()
        yield site
    finally:
        await site.stack.aclose()
