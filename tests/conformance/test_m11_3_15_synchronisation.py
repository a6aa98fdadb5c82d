"""MADES 1.1 cl. 3.15.2, 3.15.3, 4.2.1, 5.3.5: how nodes learn from each other, and what they say."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from gridpost.assembly.clock import SystemClock
from gridpost.core.certificate import CertificateKind
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.directory_client.node_soap import read_answer
from gridpost.services.node.directory import NodeDirectory
from gridpost.stores.sqlite.node_unit import SqliteNodeUnit
from gridpost.wire.mades11.directory import description, read_descriptions
from gridpost.wire.mades11.forms import container
from gridpost.wire.soap.envelope import Envelope
from gridpost.wire.soap.fault import envelope_text
from gridpost.wire.soap.version import SOAP_12
from gridpost.wire.xml_text import element
from support.directory_process import TestRoot
from support.https import Proxy, listening
from support.old_network import KINDS, TestNode
from support.old_site import Recorder
from support.pki import rsa_key

pytestmark = pytest.mark.asyncio(loop_scope="module")

SIGNING = CertificateKind.SIGNING


@dataclass
class Trio:
    a: TestNode
    b: TestNode
    c: TestNode
    calls: Recorder

    def listed(self, *nodes: TestNode) -> str:
        return "".join(f"{n.code} {n.url}\n" for n in nodes)

    async def told(self) -> dict[str, dict[str, Any]]:
        return {n["code"]: n for n in await self.a.ask("synchronise")}

    def knows(self, code: str) -> bool:
        assert self.a.running is not None
        return code in self.a.running.directory.components

    async def quiet(self) -> None:
        """What an import asks for by itself is done."""
        assert self.a.running is not None
        wanted = self.a.running.synchroniser._wanted
        async with asyncio.timeout(60):
            while wanted.is_set():
                await asyncio.sleep(0.01)
        async with self.a.running.synchroniser._lock:
            self.calls.calls.clear()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def trio(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Trio]:
    folder = tmp_path_factory.mktemp("nodes")
    root, clock = TestRoot(folder / "root"), SystemClock()
    made: list[Any] = [
        TestNode(folder / c, c, root, clock=clock)
        for c in ("NA", "NB", "NC")  # type: ignore[arg-type]
    ]
    a, b, c = made
    async with a.run() as running, b.run(), c.run():
        calls = Recorder(running.synchroniser._client)
        running.synchroniser._client = calls  # type: ignore[assignment]
        yield Trio(a, b, c, calls)


def names() -> str:
    return f"E{uuid4().hex[:8]}"


@pytest.mark.req("m11-3.15.3-a", component="node")
@pytest.mark.req("m11-3.15.2-e", component="node")
@pytest.mark.req("m11-T50-a", component="node")
@pytest.mark.req("m11-4.2.1-a", component="node")
@pytest.mark.req("m11-4.2.1-c", component="node")
async def test_the_imported_nodes_are_asked_for_what_is_new(trio: Trio) -> None:
    calls = trio.calls
    calls.calls.clear()
    await trio.a.ask("import-nodes", file=trio.listed(trio.a, trio.b, trio.c))
    await trio.told()
    assert {c.urls for c in calls.calls} == {(trio.b.url,), (trio.c.url,)}
    assert sorted(c.urls[0] for c in calls.of("GetNodeMversion")) == sorted(
        [trio.b.url, trio.c.url]
    )
    first = next(c for c in calls.of("GetAllDirectoryData") if c.urls == (trio.b.url,))
    assert "<dversion>" not in first.text
    assert "<serviceMversion>1</serviceMversion>" in first.text
    await trio.quiet()
    before = (await trio.a.ask("nodes"))[0]["dversion"]
    # Once more: the held version goes out, and nothing but its confirmation comes back.
    assert trio.a.running is not None
    known = dict(trio.a.running.directory.components)
    assert {n["problem"] for n in (await trio.told()).values()} == {""}
    again = next(c for c in calls.of("GetAllDirectoryData") if c.urls == (trio.b.url,))
    assert f"<dversion>{before}</dversion>" in again.text
    assert calls.of("GetNodeMversion") == []
    assert trio.a.running.directory.components == known
    assert all(trio.a.running.directory.components[c] is known[c] for c in known)
    # A node that left the list is asked no more, and an import asks all for their version again.
    await trio.a.ask("import-nodes", file=trio.listed(trio.a, trio.b))
    await trio.told()
    assert {c.urls for c in calls.calls[2:]} == {(trio.b.url,)}
    assert [c.urls for c in calls.of("GetNodeMversion")] == [(trio.b.url,)]
    assert not trio.knows("NC")
    await trio.a.ask("import-nodes", file=trio.listed(trio.a, trio.b, trio.c))
    await trio.quiet()


async def test_a_reply_without_news_has_no_components(trio: Trio) -> None:
    assert trio.b.running is not None
    version = trio.b.running.directory.dversion
    for known, news in (("", True), (element("dversion", str(version)), False)):
        request = container("GetAllDirectoryDataRequest", known + element("serviceMversion", "1"))
        found = await trio.calls.call(
            [trio.b.url], lambda chain: None, "GetAllDirectoryData", [request]
        )
        assert (found.body.find("components") is not None) is news
        assert found.body.findtext("dversion") == str(version)


@pytest.mark.req("m11-3.15.2-b", component="node")
async def test_what_changed_elsewhere_is_here_after_a_cycle_or_at_once_on_demand(
    tmp_path: Path,
) -> None:
    root, clock = TestRoot(tmp_path / "root"), SystemClock()
    often = {"directory": {"cycle": "100ms"}}
    a = TestNode(tmp_path / "A", "NA", root, clock=clock, options=often)  # type: ignore[arg-type]
    b = TestNode(tmp_path / "B", "NB", root, clock=clock)  # type: ignore[arg-type]
    async with a.run() as running, b.run() as other:
        for node in (a, b):
            await node.ask("import-nodes", file=f"NA {a.url}\nNB {b.url}\n")
        await b.endpoint("E1", key_name="old 0")
        async with asyncio.timeout(60):
            while "E1" not in running.directory.components:
                await asyncio.sleep(0.02)
        # The cycle of B is an hour: only its administrator makes it ask.
        await a.endpoint("E2", key_name="old 1")
        assert "E2" not in other.directory.components
        await b.ask("synchronise")
        assert "E2" in other.directory.components


@pytest.mark.req("m11-3.15.2-h", component="node")
async def test_an_update_that_fails_in_the_middle_changes_nothing(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    await trio.told()
    assert trio.a.running is not None
    before = dict(trio.a.running.directory.components)
    (held,) = [n["dversion"] for n in await trio.a.ask("nodes") if n["code"] == "NB"]
    codes = [names(), names()]
    for code in codes:
        await trio.b.endpoint(code, key_name="old 0")
    put, seen = SqliteNodeUnit.put_component, []

    def fail(unit: SqliteNodeUnit, component: Any) -> None:
        if component.code == codes[1]:
            seen.append(component.code)
            raise Refusal(Rule.STORE_FULL, "the disk is full")
        put(unit, component)

    monkeypatch.setattr(SqliteNodeUnit, "put_component", fail)
    told = await trio.told()
    assert seen
    assert "disk is full" in told["NB"]["problem"]
    assert told["NB"]["dversion"] == held
    assert trio.a.running.directory.components == before
    stored = await trio.a.running.store.read(lambda unit: unit.components())
    assert {c.code for c in stored} == set(before)
    monkeypatch.undo()
    assert (await trio.told())["NB"]["problem"] == ""
    assert all(map(trio.knows, codes))


@pytest.mark.req("m11-3.15.3-d", component="node")
async def test_nothing_is_synchronised_during_an_import(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    await trio.quiet()
    go, entered, real = asyncio.Event(), asyncio.Event(), NodeDirectory.change

    async def slow(directory: NodeDirectory, *args: Any, **options: Any) -> None:
        entered.set()
        await go.wait()
        await real(directory, *args, **options)

    monkeypatch.setattr(NodeDirectory, "change", slow)
    file = trio.listed(trio.a, trio.b, trio.c)
    importing = asyncio.create_task(trio.a.ask("import-nodes", file=file))
    await entered.wait()
    asked = asyncio.create_task(trio.a.ask("synchronise"))
    await asyncio.sleep(0.2)
    assert trio.calls.calls == []
    go.set()
    await importing
    assert {n["problem"] for n in await asked} == {""}
    assert trio.calls.of("GetAllDirectoryData")


@pytest.mark.req("m11-3.15.3-e", component="node")
async def test_when_each_node_was_last_heard_is_shown(trio: Trio) -> None:
    before = await trio.told()
    trio_client = trio.calls._client

    class Half:
        async def call(self, urls: Any, *more: Any) -> Envelope:
            if tuple(urls) == (trio.c.url,):
                raise Refusal(Rule.UNREACHABLE, "NC is away")
            return await trio_client.call(urls, *more)

    trio.calls._client = Half()  # type: ignore[assignment]
    try:
        after = await trio.told()
    finally:
        trio.calls._client = trio_client
    assert after["NB"]["last_success"] > before["NB"]["last_success"]
    assert after["NC"]["last_success"] == before["NC"]["last_success"]
    shown = {n["code"]: n["last_success"] for n in await trio.a.ask("nodes")}
    assert shown == {code: n["last_success"] for code, n in after.items()}


@pytest.mark.req("m11-T57-a", component="node")
@pytest.mark.req("m11-T56-a", component="node")
async def test_all_certificates_of_an_endpoint_come_along_with_their_tags(trio: Trio) -> None:
    code = names()
    first = await trio.b.endpoint(code, key_name="old 0")
    keys = {kind: rsa_key(f"old 1 {kind}") for kind in KINDS[:2]}
    await trio.b.ask("renew", code=code, **trio.b.register_form(code, keys))
    lost = first.certificate_id(SIGNING)
    await trio.b.ask("revoke", code=code, certificate_id=lost, reason="lost")
    await trio.told()
    assert trio.a.running is not None
    assert trio.b.running is not None
    got = trio.a.running.directory.components[code].certificates
    assert len(got) == 5
    assert got == trio.b.running.directory.components[code].certificates
    assert [k.certificate.certificate_id for k in got if k.revoked] == [lost]
    # `revoked` may be left out, which means that it is not.
    told = description(trio.b.running.directory.components[code])
    assert "<revoked>false</revoked>" in told
    silent = re.sub("<revoked>[a-z]+</revoked>", "", told)
    (read,) = _read(silent)
    assert len(read.certificates) == 5
    assert not any(k.revoked for k in read.certificates)


def _read(components: str) -> Any:
    return read_descriptions(_answer(element("nodeCode", "NB") + components).body)


def _answer(content: str, name: str = "GetAllDirectoryDataResponse") -> Envelope:
    head, tail = envelope_text(SOAP_12)
    text = head + container(name, content) + tail
    return read_answer("application/soap+xml", [text.encode()], (), "GetAllDirectoryData", BytesIO)


@pytest.mark.req("m11-3.5.5-a", component="node")
@pytest.mark.parametrize(
    "broken",
    [
        element("dversion", "9"),
        element("dversion", "many") + element("nodeCode", "NB"),
        element("dversion", "9") + element("nodeCode", "NC"),
        element("dversion", "9") + element("nodeCode", "NB") + "<components/>",
    ],
)
async def test_a_broken_reply_of_a_node_changes_nothing(trio: Trio, broken: str) -> None:
    held = await trio.told()
    assert trio.a.running is not None
    before, real = dict(trio.a.running.directory.components), trio.calls._client

    class Stub:
        async def call(self, urls: Any, authorise: Any, operation: str, *more: Any) -> Envelope:
            if tuple(urls) == (trio.b.url,) and operation == "GetAllDirectoryData":
                return _answer(broken)
            return await real.call(urls, authorise, operation, *more)

    trio.calls._client = Stub()  # type: ignore[assignment]
    try:
        told = await trio.told()
    finally:
        trio.calls._client = real
    assert told["NB"]["problem"]
    assert told["NB"]["dversion"] == held["NB"]["dversion"]
    assert told["NC"]["problem"] == ""
    assert trio.a.running.directory.components == before


@pytest.mark.req("m11-3.5.2-a", component="node")
@pytest.mark.req("m11-3.5.2-f", component="node")
async def test_a_node_takes_a_proxy_and_whichever_url_leads_to_the_other(tmp_path: Path) -> None:
    root, clock, proxy = TestRoot(tmp_path / "root"), SystemClock(), Proxy()
    b = TestNode(tmp_path / "B", "NB", root, clock=clock)  # type: ignore[arg-type]
    async with listening(proxy) as port, b.run():
        by_proxy = {"directory": {"proxy": f"http://127.0.0.1:{port}"}}
        a = TestNode(tmp_path / "A", "NA", root, clock=clock, options=by_proxy)  # type: ignore[arg-type]
        async with a.run() as running:
            dead = "https://127.0.0.1:1/mades/1"
            for urls in (f"{dead} {b.url}", f"{b.url} {dead}", f"{dead} {b.url}"):
                await a.ask("import-nodes", file=f"NB {urls}\n")
                (told,) = await a.ask("synchronise")
                assert told["problem"] == ""
            assert "NB" in running.directory.components
        assert f"127.0.0.1:{b.port}" in proxy.targets


@pytest.mark.req("m11-4.1.2-b", component="node")
@pytest.mark.req("m11-4.1.2-c", component="node")
@pytest.mark.req("m11-4.1.3-a", component="node")
@pytest.mark.req("m11-4.2.1-e", component="node")
@pytest.mark.req("m11-4.2.2-d", component="node")
async def test_a_node_of_the_next_version_serves_the_one_before(tmp_path: Path) -> None:
    root, clock = TestRoot(tmp_path / "root"), SystemClock()
    new = TestNode(tmp_path / "A", "NA", root, clock=clock)  # type: ignore[arg-type]
    old = TestNode(tmp_path / "B", "NB", root, clock=clock)  # type: ignore[arg-type]
    async with new.run(2) as running, old.run(1):
        calls = Recorder(running.synchroniser._client)
        running.synchroniser._client = calls  # type: ignore[assignment]
        one, two = await new.endpoint("E1", key_name="old 0"), await new.endpoint("E2", 2, "old 1")
        far = await old.endpoint("E3", key_name="peer 0")
        for node in (new, old):
            await node.ask("import-nodes", file=f"NA {new.url}\nNB {old.url}\n")
            (told,) = await node.ask("synchronise")
            assert told["problem"] == ""
        asked = calls.of("GetAllDirectoryData")
        assert asked
        assert all("<serviceMversion>1</serviceMversion>" in c.text for c in asked)
        first = one.session(mversion=1, service_mversion=1)
        second = two.session(mversion=2, service_mversion=2)
        away = two.session(old, mversion=2, service_mversion=1)
        messages = [await one.message(two), await two.message(one), await two.message(far)]
        for session, message in zip((first, second, away), messages, strict=True):
            assert (await session.upload([message])).uploaded == (message[0].message_id,)
        for session, message in ((second, messages[0]), (first, messages[1])):
            assert (await session.download())[0] == [message]
        # A token, and acceptance, for the versions 1 and 2 of this node; 0 and 3 get neither.
        for version in (0, 3):
            with pytest.raises(Refusal, match="AUTHENTICATION_ERROR"):
                await one.session(mversion=2, service_mversion=version).component("E1")
            with pytest.raises(Refusal, match="does not accept"):
                await one.session(mversion=version, service_mversion=2).connect()
        # An endpoint of another node is not accepted here, whatever its version.
        with pytest.raises(Refusal):
            await far.session(new, home=True).connect()
