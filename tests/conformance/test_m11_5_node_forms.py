"""MADES 1.1 cl. 2.9, 3.6, 3.10 to 3.13, 4.2.2, 5 at the node: forms, states, priorities, expiry."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import uuid4
from zipfile import ZipFile

import pytest
import pytest_asyncio
from lxml import etree

from gridpost.core.message import InternalType
from gridpost.core.refusal import Refusal
from gridpost.services.directory_client.node_soap import read_answer
from gridpost.services.node import archive as archiving
from gridpost.services.node import directory as node_directory
from gridpost.services.node import operations as node_operations
from gridpost.services.node import upkeep as node_upkeep
from gridpost.wire.mades11 import message as message_form
from gridpost.wire.mades11.forms import container
from gridpost.wire.mades11.services import ENDPOINT, NAMESPACE, NODE_INTERFACES
from gridpost.wire.soap.envelope import Envelope
from gridpost.wire.soap.fault import envelope_text
from gridpost.wire.soap.version import SOAP_12
from gridpost.wire.xml_text import element
from support.directory_process import TestRoot
from support.old_network import OldEndpoint, TestNode
from support.old_raw import Raw

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Site:
    node: TestNode
    one: OldEndpoint
    two: OldEndpoint

    @property
    def raw(self) -> Raw:
        return Raw(self.one)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TestNode]:
    node = TestNode(
        tmp_path_factory.mktemp("N1"),
        "N1",
        TestRoot(tmp_path_factory.mktemp("root")),
        options={
            "messages": {"upkeep_cycle": "100ms"},
            "messages.priorities": {"URGENT": 5},
        },
    )
    async with node.run():
        yield node


@pytest_asyncio.fixture(loop_scope="module")
async def site(node: TestNode) -> Site:
    node.clock.at = datetime.now(UTC)
    codes = [f"E{uuid4().hex[:8]}" for _ in range(2)]
    one, two = [await node.endpoint(code, key_name=f"E{n}") for n, code in enumerate(codes)]
    return Site(node, one, two)


@pytest.mark.req("m11-T35-a", component="node")
@pytest.mark.req("m11-5.6.3.2-d", component="node")
async def test_an_upload_is_complete(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    raw, last = site.raw, await site.raw.last()
    metadata, content = await site.one.message(site.two)
    before, after = message_form.encode(metadata)
    version = last.removeprefix(re.sub("<serviceMversion>.*", "", last))
    assert version
    # The description lets the version of the service be left out (REPAIRS, tables vs WSDL).
    for head, tail in (("", last), (before + "eA==" + after, version)):
        try:
            answer = await raw.call("UploadMessages", head + tail)
        except Refusal as refusal:
            assert refusal.message.split(": ")[1] == "INVALID_PARAMETERS"
        else:
            assert answer.body.find("uploadedMessages") is None, (head, tail)
    # What Table 61 requires although the description does not: taken, and logged.
    logged: list[dict[str, Any]] = []

    class Log:
        def warning(self, event: str, **fields: Any) -> None:
            logged.append(fields)

        info = warning

    monkeypatch.setattr(node_operations, "log", Log())
    for name in ("expirationTime", "messageMversion"):
        metadata, content = await site.one.message(site.two)
        before, after = message_form.encode(metadata)
        bare = re.sub(f"<{name}>[^<]*</{name}>", "", after)
        assert bare != after
        answer = await raw.call("UploadMessages", before, bare + last, contents=(content,))
        assert answer.body.findtext("uploadedMessages") == metadata.message_id
        assert logged.pop() == {"message_id": metadata.message_id, "missing": [name]}
        down = await _raw_download(site)
        (item,) = down.body.iterfind("messages")
        assert item.findtext("messageMversion") == "1"
        emitted = item.find("expirationTime")
        assert emitted is not None
        nil = emitted.get("{http://www.w3.org/2001/XMLSchema-instance}nil")
        assert (nil == "true", emitted.text is None) == ((name == "expirationTime"),) * 2
        # Whoever reads it understands it.
        ((read, _),), _ = await site.two.session().download()
        assert (read.expiration_time is None) is (name == "expirationTime")
        await site.two.session().confirm([metadata.message_id])
    assert logged == []
    good = await site.one.message(site.two)
    assert (await site.one.session().upload([good])).uploaded == (good[0].message_id,)
    down = await _raw_download(site)
    (item,) = down.body.iterfind("messages")
    # Always emitted.
    assert item.findtext("expirationTime")
    assert item.findtext("messageMversion") == "1"


async def _raw_download(site: Site) -> Envelope:
    two = Raw(site.two)
    signer = site.two.token_signer
    request = (
        "<endpoints>"
        + element("code", site.two.code)
        + element("signature", signer.sign(site.two.code))
        + element("certificateID", signer.certificate_id)
        + "</endpoints>"
        + await two.last()
    )
    return await two.call("DownloadMessages", request)


@pytest.mark.req("m11-T41-a", component="node")
async def test_every_part_of_an_acceptance_request_is_needed(site: Site) -> None:
    raw, last, signer = site.raw, await site.raw.last(), site.one.token_signer
    token = re.sub("<serviceMversion>.*", "", last)
    parts = [
        element("componentCode", site.one.code),
        element("signature", signer.sign(site.one.code)),
        element("certificateID", signer.certificate_id),
        element("componentMVersion", "1"),
        token,
    ]
    answer = await raw.call("SetComponentMversion", "".join(parts))
    assert answer.body.findtext("acceptance") == "true"
    for number in range(len(parts)):
        text = "".join(parts[:number] + parts[number + 1 :])
        assert await raw.refused("SetComponentMversion", text) == "INVALID_PARAMETERS", number


@pytest.mark.req("m11-T40-a", component="node")
@pytest.mark.req("m11-T72-a", component="node")
async def test_the_lists_of_a_confirmation_are_there_and_unused(site: Site) -> None:
    message = await site.one.message(site.two)
    await site.one.session().upload([message])
    raw = Raw(site.two)
    ids = element("messageIDs", message[0].message_id)
    answer = await raw.call("ConfirmDownload", ids + await raw.last())
    assert len(answer.body) == 0
    # A client reads a reply that has them all the same.
    item = (
        "<notConfirmedMessages>"
        + element("messageID", message[0].message_id)
        + element("errorCode", "INTERNAL_ERROR")
        + element("errorID", "4711")
        + element("errorMessage", "no")
        + "</notConfirmedMessages>"
    )
    session = site.two.session()
    await session.connect()
    for content in ("", element("confirmedMessages", message[0].message_id), item):
        session._client = _Stub(container("ConfirmDownloadResponse", content))  # type: ignore[assignment]
        await session.confirm([message[0].message_id])


class _Stub:
    def __init__(self, text: str) -> None:
        self._text = text

    async def call(self, urls: Any, authorise: Any, operation: str, *more: Any) -> Envelope:
        head, tail = envelope_text(SOAP_12)
        text = head + self._text + tail
        return read_answer("application/soap+xml", [text.encode()], (), operation, BytesIO)


@pytest.mark.req("m11-5.6.1-b", component="node")
async def test_namespaces_of_the_descriptions(site: Site) -> None:
    assert len(NODE_INTERFACES) == 4
    for interface in (*NODE_INTERFACES.values(), ENDPOINT):
        root = etree.fromstring(interface.wsdl("https://x"))
        assert root.tag == "{http://schemas.xmlsoap.org/wsdl/}definitions"
        assert root.get("targetNamespace") == root.nsmap.get("mades") == NAMESPACE
        assert not {"ecp", "eCP", "wSDL"} & {str(prefix) for prefix in root.nsmap}
    raw = site.raw
    with pytest.raises(Refusal) as refused:
        await raw.call("GetNodeMversion", element("mversion", "1").replace("mversion", "x"))
    assert "INVALID_PARAMETERS" in refused.value.message
    head, tail = envelope_text(SOAP_12)
    elsewhere = container("GetNodeMversionRequest", element("mversion", "1")).replace(
        NAMESPACE, "http://ecp.entsoe.eu/"
    )
    assert NAMESPACE not in elsewhere
    from gridpost.core.https import HttpRequest
    from gridpost.services.directory_client.node_soap import belongs_to

    answer = await raw.caller.request(
        HttpRequest("POST", "", (head + elsewhere + tail).encode(), "application/soap+xml"),
        urls=[site.node.url],
        authorise=belongs_to("N1"),
    )
    assert b"Fault" in answer.body


@pytest.mark.req("m11-2.9-a", component="node")
async def test_a_node_has_its_own_services_and_no_others(site: Site, tmp_path: Path) -> None:
    running = site.node.running
    assert running is not None
    session = site.one.session()
    message = await site.one.message(site.one)
    await session.upload([message])
    await session.download()
    await session.confirm([message[0].message_id])
    await session.component("N1")
    kind = next(iter(site.one.certificates))
    await session.certificate(site.one.code, kind, site.one.certificate_id(kind))
    other = TestNode(tmp_path / "N2", "N2", site.node.root)
    async with other.run():
        await other.ask("import-nodes", file=f"N1 {site.node.url}\n")
        (told,) = await other.ask("synchronise")
        assert told["problem"] == ""
    answered = {operation for operation, how in running.api.counts if how == "answered"}
    assert answered == {o.name for i in NODE_INTERFACES.values() for o in i.operations}
    for operation in ENDPOINT.operations:
        with pytest.raises(Refusal, match="was answered with a fault"):
            await site.raw.call(operation.name, element("messageID", str(uuid4())))


@pytest.mark.req("m11-3.13-d", component="node")
@pytest.mark.req("m11-3.6-c", component="node")
@pytest.mark.req("m11-3.14.3-a", component="node")
async def test_an_acknowledgement_has_the_priority_of_its_type(site: Site) -> None:
    one, two = site.one, site.two
    sender, receiver = one.session(), two.session()
    low, high = [await one.message(two, message_type=t) for t in ("A01", "URGENT")]
    await sender.upload([low, high])
    answers = [two.acknowledgement(m) for m, _ in (low, high)]
    signed = await two.delivery_acknowledgement(*high, one)
    await receiver.upload([*answers, signed])
    found, _ = await sender.download()
    assert [m.message_type for m, _ in found] == ["URGENT", "URGENT", "A01"]
    # Handed on as they came: nothing is signed here, and nothing local is shown.
    assert {m.message_id: (m, c) for m, c in found} == {
        m.message_id: (m, c) for m, c in (*answers, signed)
    }
    running = site.node.running
    assert running is not None
    entry = await running.store.read(lambda unit: unit.entry(low[0].message_id))
    assert entry is not None
    assert (entry.state, entry.transferred_at) == ("RECEIVED", site.node.clock.now())
    assert running.directory.settings.priorities.of("URGENT") == 5
    assert running.directory.settings.priorities.of("A01") == 0


@pytest.mark.req("m11-3.10.4-f", component="node")
async def test_news_may_come_before_the_confirmation(site: Site) -> None:
    one, two = site.one, site.two
    message = await one.message(two)
    await one.session().upload([message])
    message_id = message[0].message_id
    for kind, state in (
        (InternalType.DELIVERY_ACKNOWLEDGEMENT, "DELIVERED"),
        (InternalType.RECEIVE_ACKNOWLEDGEMENT, "RECEIVED"),
    ):
        made = (
            two.acknowledgement(message[0])
            if kind is InternalType.RECEIVE_ACKNOWLEDGEMENT
            else await two.delivery_acknowledgement(*message, one)
        )
        await two.session().upload([made])
        assert (await site.node.states(one.code))[message_id] == state
    await two.session().confirm([message_id])
    assert (await site.node.states(one.code))[message_id] == "RECEIVED"


@pytest.mark.req("m11-3.11.3-a", component="node")
@pytest.mark.req("m11-3.11.3-c", component="node")
async def test_what_expires_is_found_by_itself_and_logged(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = site.one, site.two
    message = await one.message(two)
    await one.session().upload([message])
    sent = message[0]
    assert sent.expiration_time is not None
    logged: list[dict[str, Any]] = []

    class Log:
        def warning(self, event: str, **fields: Any) -> None:
            logged.append({"event": event} | fields)

        def error(self, event: str, **fields: Any) -> None: ...

    monkeypatch.setattr(node_upkeep, "log", Log())
    site.node.clock.forward(timedelta(hours=2))
    async with asyncio.timeout(60):
        while (await site.node.states(one.code))[sent.message_id] != "FAILED":
            await asyncio.sleep(0.02)
    async with asyncio.timeout(60):
        while not [line for line in logged if line["message_id"] == sent.message_id]:
            await asyncio.sleep(0.02)
    (line,) = [line for line in logged if line["message_id"] == sent.message_id]
    assert (line["event"], line["sender"], line["recipient"]) == (
        "message expired", one.code, two.code,
    )  # fmt: skip
    assert line["expired"] == str(sent.expiration_time.at)
    assert line["sent"]
    # Nobody is told.
    assert await one.session().download() == ([], 0)


@pytest.mark.req("m11-3.6-f", component="node")
async def test_what_was_not_archived_stays(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [await site.one.message(site.two) for _ in range(3)]
    ids = [m.message_id for m, _ in messages]
    await site.one.session().upload(messages)
    await site.two.session().confirm(ids)
    site.node.clock.forward(timedelta(seconds=1))
    real = archiving._write

    def broken(file: Path, batch: Any) -> None:
        real(file, batch)
        raise OSError("the archive is full")

    with monkeypatch.context() as full:
        full.setattr(archiving, "_write", broken)
        with pytest.raises(OSError, match="archive is full"):
            await site.node.ask("archive")
    assert set(ids) <= set(await site.node.states(site.one.code))
    site.node.clock.forward(timedelta(seconds=1))
    told = await site.node.ask("archive")
    with ZipFile(told["file"]) as archive:
        for metadata, content in messages:
            assert archive.read(f"{metadata.message_id}.content") == content
            assert metadata.message_id.encode() in archive.read(f"{metadata.message_id}.xml")
    assert not set(ids) & set(await site.node.states(site.one.code))


@pytest.mark.req("m11-4.2.2-f", component="node")
async def test_changes_and_rejections_of_versions_are_logged(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[str] = []

    class Log:
        def info(self, event: str, **fields: Any) -> None:
            logged.append(event)

        warning = info

    monkeypatch.setattr(node_directory, "log", Log())
    monkeypatch.setattr(node_operations, "log", Log())
    fresh = await site.node.endpoint(f"E{uuid4().hex[:8]}", mversion=None, key_name="E0")
    await fresh.session().connect()
    await fresh.session().connect()
    assert logged == ["Mversion changed"]
    with pytest.raises(Refusal, match="does not accept"):
        await fresh.session(mversion=2).connect()
    assert logged == ["Mversion changed", "endpoint rejected"]
