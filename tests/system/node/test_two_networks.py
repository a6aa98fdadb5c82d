"""Two networks, one endpoint: two nodes of MADES 1.1 beside a 503 network, everything a process.

NEW lives in the 503 network alone and OLD in the old one alone; ONE and TWO live in both, with keys of
their own in each. Documents of the types N* have a message-path in 503, those of the types M* have none.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
import pytest_asyncio

from gridpost.client import AsyncEndpoint
from gridpost.core.node import RemoteNode
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.proof_file import decode
from gridpost.wire.seal.proof import verify_proof
from gridpost.wire.x509 import from_pem
from support.directory_process import TestRoot
from support.network import Network, network, until_status
from support.node_process import NodeProcess
from support.old_endpoint import old_section, write_papers
from support.old_network import OldEndpoint, node_list
from support.old_site import fetch
from support.soak import Soak

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

T = TypeVar("T")

BY_503 = "N*=INDIRECT:B1"


@dataclass
class Site:
    net: Network
    root: TestRoot
    nodes: dict[str, NodeProcess]
    old: dict[str, OldEndpoint] = field(default_factory=dict)

    async def join(self, code: str, node: str) -> str:
        """Registration at a home node; the section for the configuration of the endpoint."""
        made = await asyncio.to_thread(self.nodes[node].new_endpoint, code)
        self.old[code] = made
        papers = await asyncio.to_thread(write_papers, self.net.folder / f"papers-{code}", made)
        return old_section(made, papers)

    async def synchronise(self) -> None:
        for node in self.nodes.values():
            told = await asyncio.to_thread(node.tell, "synchronise")
            assert all(not n["problem"] for n in told), told

    async def passed(self, node: str, business_type: str) -> list[dict[str, Any]]:
        """What a node has, or had, of one business-type."""
        found = await asyncio.to_thread(self.nodes[node].tell, "messages")
        return [m for m in found if m["business_type"] == business_type]

    async def kill(self, name: str) -> None:
        """SIGKILL, and a new start."""
        if name in self.nodes:
            await asyncio.to_thread(self.nodes[name].kill)
            await asyncio.to_thread(self.nodes[name].start)
        else:
            await self.net.components[name].kill()
            await self.net.components[name].start()


def _nodes(folder: Path, root: TestRoot) -> dict[str, NodeProcess]:
    options = {"messages": {"upkeep_cycle": "500ms"}, "directory": {"cycle": "2s"}}
    return {c: NodeProcess(folder / c, c, root, options=options).start() for c in ("N1", "N2")}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("networks")
    root = TestRoot(folder / "old-root")
    nodes = await asyncio.to_thread(_nodes, folder, root)
    try:
        async with network(folder) as net:
            site = Site(net, root, nodes)
            known = [RemoteNode(n.code, (n.url,)) for n in nodes.values()]
            for node in nodes.values():
                others = tuple(n for n in known if n.code != node.code)
                file = node_list(others).decode()
                await asyncio.to_thread(node.tell, "import-nodes", file=file)
            await net.broker("B1")
            await net.start("B1")
            await net.endpoint("NEW", BY_503)
            await net.endpoint("OLD", enrol=False, last=await site.join("OLD", "N1"))
            await net.endpoint("ONE", BY_503, last=await site.join("ONE", "N1"))
            await net.endpoint("TWO", BY_503, last=await site.join("TWO", "N2"))
            await site.synchronise()
            await net.start("NEW", "OLD", "ONE", "TWO")
            for code, other in (("NEW", "ONE"), ("NEW", "TWO"), ("ONE", "TWO"), ("TWO", "ONE")):
                await _heard(net, code, other)
            yield site
    finally:
        for node in nodes.values():
            await asyncio.to_thread(node.kill)


async def _heard(net: Network, code: str, other: str) -> None:
    """Until the 503 directory has told `code` of the paths of `other`: tests take them then."""
    async with net.api(code) as api, asyncio.timeout(60):
        while await _way(api, other) != "INDIRECT:B1":
            await asyncio.sleep(0.2)


async def _way(api: AsyncEndpoint, other: str) -> str:
    try:
        return (await api.status(await api.test(other, "N-PROBE"))).route
    except Refusal:
        return ""


async def _take(api: AsyncEndpoint, message_type: str) -> tuple[str, bytes]:
    """The next document, confirmed."""
    async with asyncio.timeout(180):
        while (found := await api.receive(message_type)) is None:
            await asyncio.sleep(0.05)
    await api.confirm(found.message.message_id)
    return found.message.message_id, found.content or b""


async def _exchange(
    site: Site, sender: str, recipient: str, message_type: str, content: bytes = b"<Document/>"
) -> str:
    async with site.net.api(sender) as out, site.net.api(recipient) as into:
        sent = await out.send(recipient, message_type, content)
        assert await _take(into, message_type) == (sent, content)
        await until_status(out, sent, "RECEIVED", seconds=180)
    return sent


async def _proven(site: Site, code: str, message_id: str, side: str, root: Path) -> None:
    """Offline, with the ROOT CA of that network and of no other one."""
    async with site.net.api(code) as api:
        proof = decode(await api.proof(message_id, side)).proof
    other = site.root.file if root != site.root.file else site.net.root
    verdict = verify_proof(proof, _certificates(root), [])
    assert verdict.origin.proven, verdict.origin
    assert verdict.receipt.proven is (side == "sent"), verdict.receipt
    assert not verify_proof(proof, _certificates(other), []).origin.proven


def _certificates(file: Path) -> tuple[bytes, ...]:
    return from_pem(file.read_bytes())


async def test_a_recipient_in_both_gets_by_503_what_503_accepts(site: Site) -> None:
    for sender, recipient in (("NEW", "ONE"), ("ONE", "TWO")):
        sent = await _exchange(site, sender, recipient, "N01")
        async with site.net.api(sender) as api:
            assert (await api.status(sent)).route == "INDIRECT:B1"
            first = (await api.trace(sent))[0]
            steps = (await api.explain(sent)).steps
        if sender == "ONE":
            assert first.detail == "network IEC 62325-503, INDIRECT:B1"
            assert ("network", True, "IEC 62325-503, INDIRECT:B1") in steps
        await _proven(site, sender, sent, "sent", site.net.root)
        await _proven(site, recipient, sent, "received", site.net.root)
    # Neither the documents nor their acknowledgements have seen a node.
    for node in site.nodes:
        assert await site.passed(node, "N01") == []


async def test_what_503_does_not_accept_takes_the_old_network_there_and_back(site: Site) -> None:
    sent = await _exchange(site, "ONE", "TWO", "M01")
    async with site.net.api("ONE") as api:
        assert (await api.status(sent)).route == "MADES-1.1"
        first = (await api.trace(sent))[0]
        steps = (await api.explain(sent)).steps
    why = "MADES 1.1, node N2, because TWO has no message-path"
    assert first.detail.startswith(f"network {why}")
    assert any(name == "network" and text.startswith(why) for name, _, text in steps)
    # The document lay in the node of its recipient, both acknowledgements in that of its sender.
    assert [m["message_id"] for m in await site.passed("N2", "M01")] == [sent]
    back = await site.passed("N1", "M01")
    assert {(m["sender"], m["receiver"]) for m in back} == {("TWO", "ONE")}
    assert sorted(m["internal_type"] for m in back) == [
        "DELIVERY_ACKNOWLEDGEMENT", "RECEIVE_ACKNOWLEDGEMENT",
    ]  # fmt: skip
    await _proven(site, "ONE", sent, "sent", site.root.file)
    await _proven(site, "TWO", sent, "received", site.root.file)


@pytest.mark.parametrize(("sender", "recipient"), [("OLD", "ONE"), ("TWO", "OLD")])
async def test_an_endpoint_of_the_old_network_alone_needs_no_503(
    site: Site, sender: str, recipient: str
) -> None:
    """Whatever the type: 503 knows nothing of one of the two."""
    sent = await _exchange(site, sender, recipient, "N02")
    async with site.net.api(sender) as api:
        assert (await api.status(sent)).route == "MADES-1.1"
    await _proven(site, sender, sent, "sent", site.root.file)
    await _proven(site, recipient, sent, "received", site.root.file)


async def test_endpoints_that_share_no_network_do_not_reach_each_other(site: Site) -> None:
    """Nobody in both networks forwards: that would break seals from end to end."""
    for sender, recipient in (("NEW", "OLD"), ("OLD", "NEW")):
        async with site.net.api(sender) as api:
            with pytest.raises(Refusal) as refused:
                await api.send(recipient, "N03", b"x")
        assert refused.value.rule is Rule.RECIPIENT_UNKNOWN


@pytest.mark.req("m11-2.8-a", component="system")
async def test_neither_node_is_needed_by_the_endpoints_of_the_other(site: Site) -> None:
    await asyncio.to_thread(site.nodes["N2"].kill)
    await _exchange(site, "OLD", "ONE", "M02")
    await asyncio.to_thread(site.nodes["N2"].start)
    peer = await asyncio.to_thread(site.nodes["N2"].new_endpoint, "PEER")
    await asyncio.to_thread(site.nodes["N1"].kill)
    async with site.net.api("TWO") as api:
        sent = await api.send("PEER", "M02", b"x")
        async with asyncio.timeout(180):
            while (await api.status(sent)).state != "DELIVERING":
                await asyncio.sleep(0.05)
        ((metadata, body),) = await fetch(peer)
        assert metadata.message_id == sent
        made = await peer.delivery_acknowledgement(metadata, body, site.old["TWO"])
        await peer.session().upload([made])
        await until_status(api, sent, "DELIVERED", seconds=180)
    await asyncio.to_thread(site.nodes["N1"].start)


@dataclass
class Stream:
    """One application that sends and one that receives; both repeat until they are answered."""

    sender: str
    recipient: str
    message_type: str
    route: str
    sent: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    confirmed: Counter[str] = field(default_factory=Counter)

    async def send(self, api: AsyncEndpoint, count: int) -> None:
        for number in range(count):
            key = f"{self.message_type}-{number}"
            self.sent.append(
                await _repeat(
                    lambda key=key: api.send(
                        self.recipient, self.message_type, key.encode(), key=key
                    )
                )
            )

    async def receive(self, api: AsyncEndpoint, count: int) -> None:
        while self.confirmed.total() < count:
            found = await _repeat(lambda: api.receive(self.message_type))
            if found is None:
                await asyncio.sleep(0.05)
                continue
            name = (found.content or b"").decode()
            if name not in self.seen:
                self.seen.append(name)
            # Confirmed once, whatever happens between: it is never handed over after that.
            await _repeat(lambda message_id=found.message.message_id: api.confirm(message_id))
            self.confirmed[name] += 1

    async def account(self, api: AsyncEndpoint) -> None:
        """Each was received, once, by the network it was accepted for, and as it was sent."""
        for message_id in self.sent:
            await _repeat(
                lambda message_id=message_id: until_status(api, message_id, "RECEIVED", seconds=300)
            )
            found = await _repeat(lambda message_id=message_id: api.status(message_id))
            assert found.route == self.route
        names = [f"{self.message_type}-{n}" for n in range(len(self.sent))]
        assert self.confirmed == Counter(names)
        if self.route == "MADES-1.1":
            assert self.seen == names


async def _repeat(call: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await call()
        except Refusal as refusal:
            if not refusal.retryable:
                raise
            await asyncio.sleep(0.1)


@pytest.mark.timeout(3600)
@pytest.mark.req("m11-2.6-a", component="system")
@pytest.mark.req("m11-3.6-a", component="endpoint")
@pytest.mark.req("m11-3.13-c", component="system")
async def test_nodes_and_endpoints_are_killed_during_transfers(site: Site, soak: Soak) -> None:
    """SIGKILL of either node and of both endpoints that live in two networks; an exact account."""
    count, kills = soak.scale(200), soak.scale(30)
    chance = random.Random(soak.seed)
    streams = [
        Stream("NEW", "ONE", "N-KILL-1", "INDIRECT:B1"),
        Stream("ONE", "TWO", "N-KILL-2", "INDIRECT:B1"),
        Stream("ONE", "TWO", "M-KILL-3", "MADES-1.1"),
        Stream("TWO", "OLD", "M-KILL-4", "MADES-1.1"),
        Stream("OLD", "ONE", "M-KILL-5", "MADES-1.1"),
    ]
    async with AsyncExitStack() as stack:
        api = {
            code: await stack.enter_async_context(site.net.api(code))
            for code in ("NEW", "OLD", "ONE", "TWO")
        }
        work = [s.send(api[s.sender], count) for s in streams]
        work += [s.receive(api[s.recipient], count) for s in streams]

        async def strike() -> None:
            victims = ["N1", "ONE", "N2", "TWO"] * (kills // 4 + 1)
            for victim in victims[:kills]:
                await asyncio.sleep(chance.uniform(0.1, 0.6))
                await site.kill(victim)

        async with asyncio.TaskGroup() as group:
            for task in (*work, strike()):
                group.create_task(task)
        for stream in streams:
            await stream.account(api[stream.sender])
    total = len(streams) * count
    soak.report(messages=total, kills=kills, received=sum(len(s.seen) for s in streams))
