"""MADES 1.1 cl. 3 to 5 at the endpoint: states, transactions, replies of nodes, forms of messages."""

from __future__ import annotations

import asyncio
import binascii
import re
from base64 import b64encode
from dataclasses import replace
from datetime import timedelta
from io import BytesIO
from typing import Any
from uuid import uuid4

import pytest
from lxml import etree

from gridpost.core.certificate import CertificateKind
from gridpost.core.delivery import Side
from gridpost.core.holds import HoldKind
from gridpost.core.identifiers import MessageId
from gridpost.core.instant import Instant
from gridpost.core.journal import AcknowledgementRow, MessageRow, TransferRow
from gridpost.core.message import InternalType, Metadata
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.directory_client import node_soap
from gridpost.services.directory_client.node_session import NodeSession, UploadAnswer
from gridpost.services.directory_client.node_soap import read_answer
from gridpost.services.endpoint import arrival as arrivals
from gridpost.services.endpoint.old_network.arrival import OldArrival
from gridpost.services.endpoint.old_network.collecting import NetworkRejected
from gridpost.services.endpoint.old_network.network import OldNetwork
from gridpost.services.endpoint.old_network.settings import OldSettings
from gridpost.wire.mades11 import message as message_form
from gridpost.wire.mades11.forms import container
from gridpost.wire.mades11.services import DOWNLOADED_CONTENT, ENDPOINT
from gridpost.wire.soap.envelope import Envelope
from gridpost.wire.soap.fault import envelope_text
from gridpost.wire.soap.version import SOAP_12
from support.cutting_proxy import cutting_proxy
from support.old_endpoint import OldGridpost
from support.old_site import OldSite, ask, fetch, journal, lapse, record
from support.soap import field

pytestmark = pytest.mark.asyncio(loop_scope="session")


def network(endpoint: OldGridpost) -> OldNetwork:
    assert endpoint.running is not None
    found = endpoint.running.core.old
    assert found is not None
    return found


async def status(endpoint: OldGridpost, message_id: str) -> str:
    told = await ask(endpoint, "CheckMessageStatus", field("messageID", message_id))
    return told.findtext("messageStatus/state") or ""


def away(*_: Any) -> Any:
    raise Refusal(Rule.UNREACHABLE, "the node is away")


@pytest.mark.req("m11-T1-b", component="endpoint")
@pytest.mark.req("m11-T2-a", component="endpoint")
@pytest.mark.req("m11-T3-b", component="endpoint")
@pytest.mark.req("m11-3.8-c", component="endpoint")
@pytest.mark.req("m11-3.10.4-f", component="endpoint")
async def test_where_a_message_waits_is_its_state(
    old_site: OldSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, peer = old_site.one, await old_site.peer(1)
    old, type_, real = network(one), f"S{uuid4().hex[:8]}", NodeSession.upload
    tried: list[str] = []

    async def unreachable(session: NodeSession, messages: Any) -> UploadAnswer:
        if any(m.message_type == type_ for m, _ in messages):
            tried.append("away")
            raise Refusal(Rule.UNREACHABLE, "the node of the recipient is away")
        return await real(session, messages)

    async def lost(session: NodeSession, messages: Any) -> UploadAnswer:
        answer = await real(session, messages)
        if any(m.message_type == type_ for m, _ in messages):
            tried.append("lost")
            raise Refusal(Rule.UNREACHABLE, "the answer is lost")
        return answer

    # Nobody tells its certificate: VERIFYING.
    with monkeypatch.context() as silent:
        silent.setattr(NodeSession, "certificate", away)
        first = await one.send(peer.code, b"1", type_)
        assert await status(one, first) == "VERIFYING"
        monkeypatch.setattr(NodeSession, "upload", unreachable)
    # It is known, and the node of the recipient is away: ACCEPTED, at once from the cache as well.
    old.on_open()
    await one.until(first, "ACCEPTED")
    assert await status(one, first) == "ACCEPTED"
    with monkeypatch.context() as silent:
        silent.setattr(NodeSession, "certificate", away)
        silent.setattr(NodeSession, "component", away)
        second = await one.send(peer.code, b"2", type_)
        assert (await one.entry(second)).delivery.state == "ACCEPTED"
    # The node has it, but says so to nobody: the state stands still.
    monkeypatch.setattr(NodeSession, "upload", lost)
    async with asyncio.timeout(60):
        while "lost" not in tried:
            old.on_open()
            await asyncio.sleep(0.02)
    assert await status(one, first) == "ACCEPTED"
    ((metadata, body),) = await fetch(peer)
    assert metadata.message_id == first
    made = await peer.delivery_acknowledgement(metadata, body, one.endpoint)
    # Its recipient tells of it before its node does.
    monkeypatch.setattr(NodeSession, "upload", unreachable)
    await real(peer.session(old_site.nodes[0]), [made])
    await one.until(first, "DELIVERED")
    monkeypatch.undo()
    old.on_open()
    await one.until(second, "DELIVERING")
    assert await status(one, second) == "DELIVERING"
    assert (await one.entry(first)).delivery.state == "DELIVERED"
    states = [line.state.value for line in await one.trace(first) if line.moved]
    assert states == ["VERIFYING", "ACCEPTED", "DELIVERED"]


@pytest.mark.req("m11-T3-b", component="endpoint")
async def test_without_an_encryption_certificate_nothing_is_accepted(old_site: OldSite) -> None:
    peer = await old_site.peer(1)
    kind = CertificateKind.ENCRYPTION
    await old_site.nodes[1].ask(
        "revoke", code=peer.code, certificate_id=peer.certificate_id(kind), reason="lost"
    )
    await old_site.synchronise()
    with pytest.raises(Refusal) as refused:
        await old_site.one.send(peer.code, b"x")
    assert refused.value.rule is Rule.NO_ENCRYPTION_CERTIFICATE


@pytest.mark.req("m11-3.9-a", component="endpoint")
@pytest.mark.req("m11-3.9-b", component="endpoint")
@pytest.mark.req("m11-3.10.2-b", component="endpoint")
@pytest.mark.parametrize("good", [True, False])
async def test_a_message_and_the_news_of_it_are_one_transaction(
    old_site: OldSite, monkeypatch: pytest.MonkeyPatch, good: bool
) -> None:
    two, peer = old_site.two, await old_site.peer(0)
    metadata, body = await peer.message(two.endpoint, b"x", message_type="ATOM")
    if not good:
        body = body[:-1] + bytes([body[-1] ^ 1])

    def full(*_: Any) -> None:
        raise Refusal(Rule.STORE_FULL, "the disk is full")

    async def rows() -> list[Any]:
        found = [r for r in await journal(two, MessageRow) if r.message_id == metadata.message_id]
        return found + [
            r
            for r in await journal(two, AcknowledgementRow)
            if r.related_message_id == metadata.message_id
        ]

    with monkeypatch.context() as broken:
        broken.setattr(arrivals, "_send", full)
        with pytest.raises(Refusal, match="disk is full"):
            await OldArrival(network(two)).take(metadata, body)
    assert await rows() == []
    with pytest.raises(Refusal):
        await two.entry(metadata.message_id, Side.RECEIVED)
    await OldArrival(network(two)).take(metadata, body)
    ((answer, _),) = await fetch(peer)
    assert answer.related_message_id == metadata.message_id
    if good:
        assert answer.internal_type is InternalType.DELIVERY_ACKNOWLEDGEMENT
        assert (await two.receive("ATOM"))[0] == metadata.message_id
    else:
        assert answer.internal_type is InternalType.FAILURE_ACKNOWLEDGEMENT
    assert await rows()


@pytest.mark.req("m11-5.3.3.1-a", component="endpoint")
async def test_uploads_keep_their_limits(
    old_site: OldSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, peer = old_site.one, await old_site.peer(1)
    assert one.running is not None
    old, batches, real = network(one), [], NodeSession.upload

    async def upload(session: NodeSession, messages: Any) -> UploadAnswer:
        mine = [len(body) for m, body in messages if m.receiver_code == peer.code]
        if mine:
            batches.append(mine)
        return await real(session, messages)

    monkeypatch.setattr(NodeSession, "upload", upload)
    monkeypatch.setattr(old, "settings", replace(old.settings, max_messages=10, max_bytes=6_000))
    operating = one.running.core.operating
    await operating.pause(HoldKind.PARTNER, peer.code, "test", "until all are there")
    sizes = [100] * 20 + [2_500] * 4 + [9_000]
    for number, size in enumerate(sizes):
        await one.send(peer.code, b"x" * size, f"LIMIT{number}")
    await operating.resume(HoldKind.PARTNER, peer.code, "test")
    found = await fetch(peer, len(sizes))
    assert len(found) == len(sizes)
    assert sum(map(len, batches)) == len(sizes)
    assert all(len(batch) <= 10 for batch in batches)
    assert all(sum(batch) <= 6_000 or len(batch) == 1 for batch in batches)
    assert max(map(len, batches)) > 1
    assert max(map(max, batches)) >= 9_000


class Stub:
    """services.directory_client.node_soap.NodeSoapClient that always answers the same."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def call(self, urls: Any, authorise: Any, operation: str, *more: Any) -> Envelope:
        head, tail = envelope_text(SOAP_12)
        text = head + self._text + tail
        return read_answer(
            "application/soap+xml", [text.encode()], (DOWNLOADED_CONTENT,), operation, BytesIO
        )


async def _downloaded(session: NodeSession, messages: str, name: str = "DownloadMessages") -> Any:
    """What a session makes of such a reply; the refusal, if it takes nothing of it."""
    session._client = Stub(  # type: ignore[assignment]
        container(f"{name}Response", messages + "<waitingMessages>0</waitingMessages>")
    )
    try:
        return await session.collect()
    except Refusal as refusal:
        return refusal


def _form(metadata: Metadata, body: bytes) -> str:
    before, after = message_form.encode(metadata)
    return before + b64encode(body).decode() + after


@pytest.mark.req("m11-3.5.5-a", component="endpoint")
@pytest.mark.req("m11-3.5.5-b", component="endpoint")
@pytest.mark.req("m11-3.5.5-c", component="endpoint")
@pytest.mark.req("m11-T62-a", component="endpoint")
@pytest.mark.req("m11-T64-a", component="endpoint")
@pytest.mark.req("m11-T66-a", component="endpoint")
@pytest.mark.req("m11-T67-a", component="endpoint")
async def test_what_a_node_hands_over_is_checked(old_site: OldSite) -> None:
    two, peer = old_site.two.endpoint, await old_site.peer(0)
    metadata, body = await peer.message(two, b"x")
    good = _form(metadata, body)
    session = two.session()
    await session.connect()
    found = await _downloaded(session, good)
    assert [m for m, _ in found.messages] == [metadata]
    wrong = {}
    for name in ("messageID", "receiverCode", "businessType", "content", "generated",
                 "senderCode", "senderDescription", "internalType"):  # fmt: skip
        wrong[f"no {name}"] = re.sub(f"<{name}>[^<]*</{name}>", "", good, count=1)
    for name, value in (
        ("messageID", "4711"), ("receiverCode", "a b"), ("businessType", "a b"),
        ("generated", "yesterday"), ("expirationTime", "soon"), ("internalType", "OTHER"),
        ("internalType", "standard_message"), ("messageMversion", "one"),
        ("businessType", "A" * 300),
    ):  # fmt: skip
        wrong[f"{name} {value}"] = re.sub(f"<{name}>[^<]*<", f"<{name}>{value}<", good, count=1)
    wrong["no processorData"] = re.sub("<processorData>.*?</processorData>", "", good, count=1)
    wrong["no processorID"] = re.sub("<processorID>.*?</processorID>", "", good, count=1)
    for name in ("key", "type", "value"):
        wrong[f"no {name}"] = re.sub(f"<{name}>[^<]*</{name}>", "", good, count=1)
    wrong["type"] = good.replace("<type>BYTE_ARRAY<", "<type>OCTETS<", 1)
    wrong["no base64"] = re.sub(
        "<type>BYTE_ARRAY</type><value>[^<]*<", "<type>BYTE_ARRAY</type><value>*<", good, count=1
    )
    wrong["no boolean"] = re.sub(
        "<type>BYTE_ARRAY</type><value>[^<]*<", "<type>BOOLEAN</type><value>1<", good, count=1
    )
    wrong["no long"] = re.sub(
        "<type>BYTE_ARRAY</type><value>[^<]*<", "<type>LONG</type><value>x<", good, count=1
    )
    for why, text in wrong.items():
        assert text != good, why
        found = await _downloaded(session, text)
        assert isinstance(found, Refusal) or (not found.messages and found.unreadable), why
    # A reply of another name is no reply.
    assert isinstance(await _downloaded(session, good, "ConfirmDownload"), Refusal)
    # Entries may stand in any order.
    entries = re.findall("<entries>.*?</entries>", good)
    first = re.search("(<entries>.*?</entries>)+", good)
    assert first is not None
    parts = re.findall("<entries>.*?</entries>", first[0])
    assert len(parts) > 1
    assert len(entries) > len(parts)
    turned = good.replace(first[0], "".join(reversed(parts)), 1)
    found = await _downloaded(session, turned)
    ((other, content),) = found.messages
    assert (await two.opened(other, content, peer)).message.content == b"x"
    session_key = next(
        e.value for p in metadata.processors for e in p.entries if e.key == "Session key"
    )
    assert len(binascii.a2b_base64(session_key)) == 256


@pytest.mark.req("m11-3.5.5-a", component="endpoint")
@pytest.mark.req("m11-3.5.5-d", component="endpoint")
async def test_what_does_not_fit_together_is_logged_and_not_believed(old_site: OldSite) -> None:
    one, peer = old_site.one, await old_site.peer(1)
    sent = await one.send(peer.code, b"x", "FIT")
    ((metadata, _),) = await fetch(peer)
    await one.until(sent, "DELIVERING")
    about, content = peer.acknowledgement(metadata)
    for wrong in (replace(about, related_message_id=""), replace(about, related_message_id="x")):
        await OldArrival(network(one)).take(wrong, content)
    assert (await one.entry(sent)).delivery.state == "DELIVERING"
    events = [line.event.value for line in await one.trace(sent)]
    assert events == ["ACCEPT", "TRANSFERRED"]


@pytest.mark.req("m11-T63-a", component="endpoint")
@pytest.mark.req("m11-T61-a", component="endpoint")
@pytest.mark.req("m11-T61-c", component="endpoint")
@pytest.mark.req("m11-3.6-c", component="endpoint")
@pytest.mark.req("m11-3.16.2-b", component="endpoint")
@pytest.mark.req("m11-T55-a", component="endpoint")
async def test_messages_as_they_leave(old_site: OldSite) -> None:
    one, peer = old_site.one, await old_site.peer(1)
    lapse(one)
    calls = record(one)
    before = old_site.nodes[1].clock.now()
    sent = await one.send(peer.code, b"same " * 500, "ZIPOUT")
    ((packed, body),) = await fetch(peer)
    await ask(one, "ConnectivityTest", field("receiverCode", peer.code))
    ((tracing, _),) = await fetch(peer)
    metadata, sealed = await peer.message(one.endpoint, b"x", message_type="BACK")
    await peer.session(old_site.nodes[0]).upload([(metadata, sealed)])
    ((delivered, _),) = await fetch(peer)
    counts = [len(m.processors) for m in (packed, tracing, delivered)]
    assert counts == [3, 2, 1]
    assert {p.processor_id for p in packed.processors} == {"signature", "encryption", "compressor"}
    # Created in the sender's endpoint, and the same all along the way.
    entry = await one.entry(sent)
    assert packed.generated == entry.metadata.generated
    # It has milliseconds.
    assert before - timedelta(seconds=1) < packed.generated.at <= old_site.nodes[1].clock.now()
    verified = (await one.trace(metadata.message_id, Side.RECEIVED))[0]
    assert abs((delivered.generated.at - verified.at).total_seconds()) < 1
    # Every field that Table 61 requires, and nothing that is local to a component.
    upload = next(c.text for c in calls.of("UploadMessages") if sent in c.text)
    root = etree.fromstring(re.sub("^.*?(<messages>.*?</messages>).*$", r"\1", upload, flags=re.S))
    names = [str(e.tag) for e in root]
    for name in ("messageID", "receiverCode", "businessType", "content", "generated",
                 "expirationTime", "senderCode", "senderDescription", "internalType",
                 "messageMversion"):  # fmt: skip
        assert names.count(name) == 1, name
        assert name == "content" or (root.findtext(name) or "").strip(), name
    assert not {"state", "priority", "transferTimestamp"} & {n.lower() for n in names}
    assert entry.delivery.state == "DELIVERING"
    assert (await one.trace(sent))[0].at >= before
    # The certificate ID is the issuer and the serial number, wherever it is named.
    from cryptography import x509

    kind = CertificateKind.SIGNING
    certificate = x509.load_der_x509_certificate(one.endpoint.certificates[kind].der)
    expected = f"{certificate.issuer.rfc4514_string()}{certificate.serial_number}"
    named = {
        p.processor_id: e.value
        for p in packed.processors
        for e in p.entries
        if e.key == "Certificate ID"
    }
    assert named["signature"] == expected
    assert named["encryption"] == peer.certificate_id(CertificateKind.ENCRYPTION)
    asked = {m for c in calls.of("GetCertificate") for m in re.findall("<type>(.*?)<", c.text)}
    assert asked <= {"AUTHENTICATION", "ENCRYPTION", "SIGNING"}
    assert "ENCRYPTION" in asked
    assert body


@pytest.mark.req("m11-5.5-a", component="endpoint")
async def test_documents_travel_as_attachments(
    old_site: OldSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = old_site.one, old_site.two
    composed: list[tuple[str, int]] = []
    read: list[str] = []
    real_compose, real_read = node_soap.compose, node_soap.read_answer

    def compose(operation: str, *more: Any, **options: Any) -> tuple[str, Any]:
        media, body = real_compose(operation, *more, **options)
        if operation == "UploadMessages":
            composed.append((media, sum(map(len, body))))
        return media, body

    def read_reply(content_type: str, pieces: tuple[bytes, ...], *more: Any) -> Envelope:
        if sum(map(len, pieces)) > 1_000_000:
            read.append(content_type)
        return real_read(content_type, pieces, *more)

    monkeypatch.setattr(node_soap, "compose", compose)
    monkeypatch.setattr(node_soap, "read_answer", read_reply)
    document = bytes(range(256)) * 8_000
    sent = await one.send("E2", document, "MTOM")
    assert await two.receive("MTOM") == (sent, document)
    media, size = max(composed, key=lambda found: found[1])
    assert media.startswith("multipart/related")
    assert len(document) < size < 1.05 * len(document)
    assert read
    assert all(found.startswith("multipart/related") for found in read)


@pytest.mark.req("m11-2.6-b", component="endpoint")
async def test_both_endpoints_log_a_transfer(old_site: OldSite) -> None:
    one, two = old_site.one, old_site.two
    sent = await one.send("E2", b"x", "LOGGED")
    await two.receive("LOGGED")
    async with asyncio.timeout(60):
        # The recipient may have it before its sender has heard of the transfer.
        while not [r for r in await journal(one, TransferRow) if r.message_id == sent]:
            await asyncio.sleep(0.02)
    assert [r.outcome for r in await journal(one, TransferRow) if r.message_id == sent] == [
        "transferred"
    ]
    assert [r.message_id for r in await journal(two, MessageRow) if r.message_id == sent] == [sent]


@pytest.mark.req("m11-2.8-b", component="endpoint")
async def test_without_a_registration_nothing_is_handed_out(old_site: OldSite) -> None:
    node = old_site.nodes[0]
    peer = await node.endpoint(f"X{uuid4().hex[:8]}", key_name="peer 0")
    session = peer.session()
    assert await session.download() == ([], 0)
    await node.ask("remove", code=peer.code, reason="left")
    for asks in (session, peer.session()):
        with pytest.raises(Refusal, match="AUTHENTICATION_ERROR"):
            await asks.download()
    await old_site.synchronise()


@pytest.mark.req("m11-3.16.3.3-e", component="endpoint")
@pytest.mark.req("m11-3.16.3.3-a", component="endpoint")
async def test_the_certificate_of_a_sender_is_kept_as_evidence(old_site: OldSite) -> None:
    two, peer = old_site.two, await old_site.peer(0)
    for kind in (CertificateKind.ENCRYPTION, CertificateKind.SIGNING):
        found = await peer.session().certificate("E2", kind, two.endpoint.certificate_id(kind))
        assert found is not None
        assert found[0].der == two.endpoint.certificates[kind].der
    metadata, body = await peer.message(two.endpoint, b"x", message_type="KEEP")
    await peer.session(old_site.nodes[1]).upload([(metadata, body)])
    await two.receive("KEEP")
    await old_site.nodes[0].ask("remove", code=peer.code, reason="left")
    await old_site.synchronise()
    directory = network(two).directory
    directory._components.clear()
    directory._certificates.clear()
    directory._copy = None
    assert two.running is not None
    proof = (await two.running.core.evidence.export(Side.RECEIVED, metadata.message_id)).proof
    assert proof.sender_certificate == peer.certificates[CertificateKind.SIGNING]


@pytest.mark.req("m11-4.2.1-d", component="endpoint")
@pytest.mark.req("m11-4.1.4-c", component="endpoint")
async def test_an_endpoint_of_the_next_version(
    old_site: OldSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    two, peer = old_site.two, await old_site.peer(0)
    old = network(two)
    monkeypatch.setattr(old, "settings", replace(old.settings, mversion=2))
    monkeypatch.setattr(old, "_sessions", {})
    home = old._new_session(old.settings.node, old.settings.urls, home=True)
    assert home._service == 2
    known = await old.directory.component(peer.code)
    assert known is not None
    for theirs, service in ((1, 1), (2, 2), (3, 2)):
        there = replace(
            known, routing=replace(known.routing, node=f"N{theirs}X", node_mversion=theirs)
        )
        assert old._session(there)._service == service
    # Messages of both versions in one collection are taken.
    for version in (1, 2):
        metadata, body = await peer.message(
            two.endpoint, b"%d" % version, message_type="BOTHV", message_mversion=version
        )
        await OldArrival(old).take(metadata, body)
        assert await two.receive("BOTHV") == (metadata.message_id, b"%d" % version)


@pytest.mark.req("m11-4.1.2-a", component="system")
async def test_an_endpoint_is_not_upgraded_before_its_node(
    old_site: OldSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = old_site.nodes[0]
    endpoint = await node.endpoint(f"V{uuid4().hex[:8]}", key_name="old 0")
    real = OldSettings.__init__

    def newer(settings: OldSettings, **values: Any) -> None:
        real(settings, **(values | {"mversion": 2}))

    one = OldGridpost(old_site.folder / endpoint.code, endpoint)
    with monkeypatch.context() as upgraded:
        upgraded.setattr(OldSettings, "__init__", newer)
        with pytest.raises(BaseExceptionGroup) as ended:
            async with one.run() as running:
                await asyncio.wait([running.service], timeout=60)
                assert running.service.done()
                running.service.result()
    assert ended.group_contains(NetworkRejected)
    await old_site.synchronise()


@pytest.mark.req("m11-T68-a", component="endpoint")
async def test_the_states_that_the_interface_names() -> None:
    root = etree.fromstring(ENDPOINT.wsdl("https://x"))
    space = {"x": "http://www.w3.org/2001/XMLSchema"}
    found = root.xpath(
        "//x:simpleType[@name='MessageState']//x:enumeration/@value", namespaces=space
    )
    named = {str(value) for value in found}  # type: ignore[union-attr]
    states = {"VERIFYING", "ACCEPTED", "DELIVERING", "DELIVERED", "RECEIVED", "FAILED"}
    assert states <= named <= states | {"TRANSPORTED"}


@pytest.mark.req("m11-T6-b", component="endpoint")
@pytest.mark.req("m11-T6-c", component="endpoint")
async def test_an_acknowledgement_goes_once_or_never(
    old_site: OldSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    two, peer = old_site.two, await old_site.peer(0)
    metadata, body = await peer.message(two.endpoint, b"x", message_type="GONE1")
    await OldArrival(network(two)).take(metadata, body)
    ((answer, _),) = await fetch(peer)
    async with asyncio.timeout(60):
        while not [r for r in await journal(two, TransferRow) if r.message_id == answer.message_id]:
            await asyncio.sleep(0.02)
    (row,) = [r for r in await journal(two, TransferRow) if r.message_id == answer.message_id]
    assert row.outcome == "transferred"
    # One that can no longer be delivered is forgotten, and nobody hears of it.
    real, tried = NodeSession.upload, []

    async def unreachable(session: NodeSession, messages: Any) -> UploadAnswer:
        mine = [m.message_id for m, _ in messages if m.message_type == "GONE2"]
        if mine:
            tried.extend(mine)
            raise Refusal(Rule.UNREACHABLE, "the node is away")
        return await real(session, messages)

    monkeypatch.setattr(NodeSession, "upload", unreachable)
    metadata, body = await peer.message(two.endpoint, b"x", message_type="GONE2")
    await OldArrival(network(two)).take(metadata, body)
    async with asyncio.timeout(60):
        while not tried:
            await asyncio.sleep(0.02)
    assert two.running is not None
    store = two.running.core.context.store
    assert metadata.expiration_time is not None
    later = metadata.expiration_time.at
    assert await store.run(lambda work: work.box.drop_expired_transfers(later)) >= 1
    monkeypatch.undo()
    network(two).on_open()
    probe, body = await peer.message(two.endpoint, b"x", message_type="GONE3")
    await OldArrival(network(two)).take(probe, body)
    ((answer, _),) = await fetch(peer)
    assert answer.related_message_id == probe.message_id
    assert MessageId(tried[0]) not in {r.message_id for r in await journal(two, TransferRow)
                                       if r.outcome == "transferred"}  # fmt: skip


@pytest.mark.req("m11-3.5.5-e", component="endpoint")
async def test_what_is_larger_than_the_endpoint_keeps_is_answered_with_a_failure(
    old_site: OldSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    two, peer = old_site.two, await old_site.peer(0)
    old = network(two)
    monkeypatch.setattr(old.context, "settings", replace(old.context.settings, max_content=1000))
    for size, kind in (
        (1001, InternalType.FAILURE_ACKNOWLEDGEMENT),
        (1000, InternalType.DELIVERY_ACKNOWLEDGEMENT),
    ):
        metadata, body = await peer.message(two.endpoint, b"x" * size, message_type="SIZE")
        await OldArrival(old).take(metadata, body)
        ((answer, _),) = await fetch(peer)
        assert (answer.related_message_id, answer.internal_type) == (metadata.message_id, kind)
    assert await two.receive("SIZE") == (metadata.message_id, b"x" * 1000)


@pytest.mark.req("m11-3.13-d", component="endpoint")
async def test_an_acknowledgement_has_the_priority_of_its_message(
    old_site: OldSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = f"Q{uuid4().hex[:8]}"
    one = await old_site.gridpost(1, code, top='[priorities]\n"HIGH" = 5\n')
    peer, old = await old_site.peer(0), network(one)
    real, go, entered, batches = NodeSession.upload, asyncio.Event(), asyncio.Event(), []

    async def slow(session: NodeSession, messages: Any) -> UploadAnswer:
        if any(m.sender_code == code for m, _ in messages):
            batches.append([m.message_type for m, _ in messages])
            entered.set()
            await go.wait()
        return await real(session, messages)

    monkeypatch.setattr(NodeSession, "upload", slow)
    for number, type_ in enumerate(("FIRST", "LOW", "LOWER", "HIGH")):
        metadata, body = await peer.message(one.endpoint, b"x", message_type=type_)
        await OldArrival(old).take(metadata, body)
        if not number:
            # While this one is under way the others wait together.
            await asyncio.wait_for(entered.wait(), 60)
    waiting = {view.node: view for view in old.uploading.views()}
    async with asyncio.timeout(60):
        while waiting["N1"].waiting < 3:
            await asyncio.sleep(0.02)
            waiting = {view.node: view for view in old.uploading.views()}
    go.set()
    found = await fetch(peer, 4)
    assert {m.internal_type for m, _ in found} == {InternalType.DELIVERY_ACKNOWLEDGEMENT}
    assert batches == [["FIRST"], ["HIGH", "LOW", "LOWER"]]


@pytest.mark.req("m11-3.11.3-a", component="endpoint")
async def test_an_endpoint_finds_by_itself_what_has_expired(
    old_site: OldSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = f"X{uuid4().hex[:8]}"
    one = await old_site.gridpost(1, code, top='[expiration]\ndefault = "2s"\n')
    peer, real = await old_site.peer(0), NodeSession.upload

    async def unreachable(session: NodeSession, messages: Any) -> UploadAnswer:
        if any(m.sender_code == code for m, _ in messages):
            raise Refusal(Rule.UNREACHABLE, "the node is away")
        return await real(session, messages)

    monkeypatch.setattr(NodeSession, "upload", unreachable)
    sent = await one.send(peer.code, b"x", "SHORT")
    soon = Instant.of(old_site.nodes[1].clock.now() + timedelta(seconds=20))
    metadata, body = await peer.message(
        one.endpoint, b"x", message_type="SHORT", expiration_time=soon
    )
    await OldArrival(network(one)).take(metadata, body)
    assert one.running is not None
    store = one.running.core.context.store

    async def queued() -> int:
        return (await store.read(lambda work: work.box.tally())).queued

    # The message and the acknowledgement wait for their transfer, and then for nothing any more.
    await one.until(sent, "EXPIRED", "FAILED")
    assert [line.event.value for line in await one.trace(sent)][-1] == "EXPIRE"
    async with asyncio.timeout(90):
        while await queued():
            await asyncio.sleep(0.1)
    assert await status(one, sent) == "FAILED"


@pytest.mark.req("m11-3.5.2-f", component="endpoint")
async def test_whichever_url_of_the_node_gives_access_is_taken(old_site: OldSite) -> None:
    node, peer = old_site.nodes[0], await old_site.peer(0)
    endpoint = await node.endpoint(f"U{uuid4().hex[:8]}", key_name="old 0")
    async with cutting_proxy(node.port) as first, cutting_proxy(node.port) as second:
        urls = [f"https://127.0.0.1:{p.port}/mades/1" for p in (first, second)]
        one = OldGridpost(old_site.folder / endpoint.code, endpoint, {"urls": urls})
        async with one.run():
            for failing, working in ((first, second), (second, first), (first, second)):
                failing.refusing_new, working.refusing_new = True, False
                await network(one).close()  # what was open goes with the way that it took
                sent = await one.send(peer.code, b"x", "EITHER")
                await one.until(sent, "DELIVERING")
                assert [m.message_id for m, _ in await fetch(peer)] == [sent]
    await old_site.synchronise()
