"""MADES 1.1 cl. 2, 3.1 to 3.8 at the endpoint: the way of a message through nodes, and its status."""

from __future__ import annotations

import asyncio
import os
from typing import Any
from uuid import UUID

import pytest
from lxml import etree

from gridpost.core.delivery import Side
from gridpost.core.holds import HoldKind
from gridpost.core.journal import TransferRow
from gridpost.core.message import COMPRESSOR, SIGNATURE, InternalType
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.directory_client.node_session import NodeSession, Refused, UploadAnswer
from gridpost.services.endpoint.submission import Document
from gridpost.wire import proof_file
from gridpost.wire.mades11.compression import expand
from gridpost.wire.seal.proof import verify_proof
from gridpost.wire.seal.signing import verify
from support.old_network import TestNode
from support.old_site import OldSite, ask, fetch, journal, lapse, record
from support.soap import field

pytestmark = pytest.mark.asyncio(loop_scope="session")


def states(answer: etree._Element) -> list[str]:
    return [e.text or "" for e in answer.iterfind("messageStatus/trace/trace/state")]


@pytest.mark.req("m11-3.1-a", component="system")
@pytest.mark.req("m11-2.8-c", component="endpoint")
@pytest.mark.req("m11-3.2-b", component="endpoint")
@pytest.mark.req("m11-2.10.1-a", component="endpoint")
@pytest.mark.req("m11-2.10.1-b", component="system")
@pytest.mark.req("m11-T4-c", component="endpoint")
@pytest.mark.req("m11-3.10.4-e", component="node")
@pytest.mark.req("m11-3.10.1-b", component="endpoint")
@pytest.mark.req("m11-3.10.1-b", component="node")
@pytest.mark.req("m11-3.5.2-c", component="endpoint")
async def test_a_document_goes_by_the_node_of_its_recipient_and_its_news_by_that_of_its_sender(
    old_site: OldSite,
) -> None:
    one, two = old_site.one, old_site.two
    lapse(one)
    calls = record(one)
    secret = b"\0a secret document\xff"
    sent = await one.send("E2", secret, "WAY")
    assert await two.receive("WAY") == (sent, secret)
    entry = await one.until(sent, "RECEIVED")
    assert (await two.entry(sent, Side.RECEIVED)).metadata.sender_code == "E1"
    assert str(entry.route) == "MADES-1.1"
    trace = await one.trace(sent)
    assert [line.event.value for line in trace] == [
        "ACCEPT", "TRANSFERRED", "DELIVERY_ACKNOWLEDGED", "RECEIVE_ACKNOWLEDGED"
    ]  # fmt: skip
    assert trace[0].detail == "network MADES 1.1, node N2"
    assert trace[1].detail == "MADES-1.1:N2"

    async def at(node: TestNode) -> dict[str, str]:
        found = [m for m in await node.ask("messages") if m["business_type"] == "WAY"]
        return {m["message_id"]: m["state"] for m in found}

    async with asyncio.timeout(60):
        # The node of the sender hears with the next call that its endpoint has taken the news.
        while sorted((await at(old_site.nodes[0])).values()) != ["DELIVERED", "DELIVERED"]:
            await asyncio.sleep(0.05)
    assert await at(old_site.nodes[1]) == {sent: "DELIVERED"}
    stored = b"".join(
        file.read_bytes()
        for file in (old_site.nodes[1].home / "data").rglob("*")
        if file.is_file() and "keys" not in file.parts
    )
    assert sent.encode() in stored
    assert b"a secret document" not in stored
    uploads = [c for c in calls.of("UploadMessages") if sent in c.text]
    assert [c.urls for c in uploads] == [(old_site.nodes[1].url,)]
    assert {c.urls for c in calls.of("DownloadMessages")} == {(old_site.nodes[0].url,)}
    asked = [c.operation for c in calls.calls if c in uploads or ">E2<" in c.text]
    assert asked.index("GetComponent") < asked.index("UploadMessages")
    transfers = [r for r in await journal(one, TransferRow) if r.message_id == sent]
    assert [r.outcome for r in transfers] == ["transferred"]


@pytest.mark.req("m11-2.5.2-a", component="endpoint")
@pytest.mark.req("m11-3.4-b", component="endpoint")
@pytest.mark.req("m11-T1-c", component="endpoint")
@pytest.mark.req("m11-T1-d", component="endpoint")
@pytest.mark.req("m11-T1-e", component="endpoint")
@pytest.mark.req("m11-T4-a", component="endpoint")
@pytest.mark.req("m11-3.10.4-d", component="endpoint")
@pytest.mark.req("m11-T70-a", component="endpoint")
@pytest.mark.req("m11-T71-a", component="endpoint")
@pytest.mark.req("m11-3.7-c", component="endpoint")
@pytest.mark.req("m11-3.2-c", component="endpoint")
async def test_an_application_follows_each_step_of_a_delivery(old_site: OldSite) -> None:
    one, peer = old_site.one, await old_site.peer(1)
    sent = await one.send(peer.code, b"x", "STEPS")
    UUID(sent)
    await one.until(sent, "DELIVERING")
    told = await ask(one, "CheckMessageStatus", field("messageID", sent))
    assert told.findtext("messageStatus/state") == "DELIVERING"
    assert states(told) == ["VERIFYING", "ACCEPTED", "TRANSPORTED"]
    assert told.findtext("messageStatus/receiveTimestamp") is None
    ((metadata, body),) = await fetch(peer)
    made = await peer.delivery_acknowledgement(metadata, body, old_site.one.endpoint)
    home = old_site.nodes[0]
    await peer.session(home).upload([made])
    await one.until(sent, "DELIVERED")
    told = await ask(one, "CheckMessageStatus", field("messageID", sent))
    assert told.findtext("messageStatus/state") == "DELIVERED"
    assert told.findtext("messageStatus/receiveTimestamp") == made[0].generated.text
    await peer.session(home).upload([peer.acknowledgement(metadata)])
    await one.until(sent, "RECEIVED")
    told = await ask(one, "CheckMessageStatus", field("messageID", sent))
    assert told.findtext("messageStatus/state") == "RECEIVED"
    assert states(told) == ["VERIFYING", "ACCEPTED", "TRANSPORTED", "DELIVERED", "RECEIVED"]
    where = [e.text for e in told.iterfind("messageStatus/trace/trace/component")]
    assert where == ["E1", "E1", "N2", peer.code, peer.code]
    names = [e.text for e in told.iterfind("messageStatus/trace/trace/componentDescription")]
    assert names[0] == names[-1] == "Grid of Examplia"


@pytest.mark.req("m11-2.5.1-a", component="endpoint")
@pytest.mark.req("m11-3.4-c", component="endpoint")
@pytest.mark.req("m11-3.1-b", component="endpoint")
@pytest.mark.req("m11-3.3-c", component="endpoint")
async def test_any_bytes_arrive_as_they_were_and_nothing_else_does(old_site: OldSite) -> None:
    one, two = old_site.one, old_site.two
    documents = [b"<broken", b"PK\3\4" + os.urandom(3000), b"\0" * 100, os.urandom(700_000)]
    sent = [await one.send("E2", document, "BYTES") for document in documents]
    other = await one.send("E2", b"other", "OTHER")
    got = [await two.receive("BYTES") for _ in documents]
    assert got == list(zip(sent, documents, strict=True))
    for message_id in sent:
        await one.until(message_id, "RECEIVED")
    assert one.running is not None
    assert two.running is not None
    # Acknowledgements have the business-type of their message, and are no documents.
    assert (await one.running.core.handover.receive("BYTES")).entry is None
    assert (await two.running.core.handover.receive("BYTES")).entry is None
    assert await two.receive("OTHER") == (other, b"other")


@pytest.mark.req("m11-3.6-b", component="endpoint")
@pytest.mark.req("m11-3.14.2-a", component="endpoint")
@pytest.mark.req("m11-T3-j", component="endpoint")
@pytest.mark.req("m11-3.14.4-a", component="endpoint")
@pytest.mark.req("m11-2.10.4.2-a", component="endpoint")
async def test_what_is_packed_is_stored_packed_signed_so_and_handed_over_unpacked(
    old_site: OldSite,
) -> None:
    one, two = old_site.one, old_site.two
    document = b"<Document>" + b"same " * 10_000 + b"</Document>"
    sent = await one.send("E2", document, "ZIPPED")
    assert await two.receive("ZIPPED") == (sent, document)
    assert two.running is not None
    for endpoint, side in ((one, Side.SENT), (two, Side.RECEIVED)):
        assert endpoint.running is not None
        entry = await endpoint.entry(sent, side)
        store = endpoint.running.core.context.store
        content = await store.read(lambda work, s=side: work.box.content(s, sent))
        assert content is not None
        assert content.startswith(b"PK")
        assert entry.size == len(content) < 2_000
        assert {p.processor_id for p in entry.metadata.processors} == {COMPRESSOR, SIGNATURE}
        evidence = endpoint.running.core.evidence
        await one.until(sent, "RECEIVED")
        proof = (await evidence.export(side, sent)).proof
        assert proof.sender_certificate is not None
        verify(proof.message, [proof.sender_certificate])
        # As a file, and offline, with nothing but the ROOT CA of this network.
        exported = proof_file.encode(await evidence.export(side, sent))
        verdict = verify_proof(proof_file.decode(exported).proof, [old_site.root.certificate], [])
        assert verdict.origin.proven, verdict.origin
        assert verdict.receipt.proven is (side is Side.SENT)
    again = await one.send("E2", document, "PLAIN")
    await two.receive("PLAIN")
    assert not (await two.entry(again, Side.RECEIVED)).metadata.processors_named(COMPRESSOR)


async def test_a_packed_document_that_is_sent_again_is_packed_once(old_site: OldSite) -> None:
    one, peer = old_site.one, await old_site.peer(1)
    assert one.running is not None
    document = b"same " * 1000
    sent = await one.send(peer.code, document, "ZIPPED")
    ((metadata, _),) = await fetch(peer)
    failed = peer.acknowledgement(metadata, InternalType.FAILURE_ACKNOWLEDGEMENT)
    await peer.session(old_site.nodes[0]).upload([failed])
    await one.until(sent, "FAILED")
    again = await one.running.core.operating.resend(sent, "test")
    ((metadata, body),) = await fetch(peer)
    assert metadata.message_id == again
    opened = await peer.opened(metadata, body, one.endpoint)
    assert expand(opened.message, 10_000) == document


async def test_a_conversation_that_is_repeated_finds_its_packed_message(old_site: OldSite) -> None:
    one = old_site.one
    assert one.running is not None
    submission = one.running.core.submission
    document = Document("E2", "ZIPPED", b"same " * 1000, conversation_id="C-1")
    first = await submission.send("soap:app", document)
    assert await submission.send("soap:app", document) == first
    assert (await old_site.two.receive("ZIPPED"))[0] == first


@pytest.mark.req("m11-3.12-a", component="endpoint")
@pytest.mark.req("m11-3.12-b", component="endpoint")
@pytest.mark.req("m11-3.12-c", component="endpoint")
@pytest.mark.req("m11-3.12-d", component="endpoint")
@pytest.mark.req("m11-3.12-e", component="endpoint")
@pytest.mark.req("m11-3.12-e", component="node")
async def test_a_connectivity_test_is_a_tracing_message(old_site: OldSite) -> None:
    one, two = old_site.one, old_site.two
    answer = await ask(one, "ConnectivityTest", field("receiverCode", "E2"))
    sent = answer.findtext("messageID") or ""
    entry = await one.until(sent, "TRACED")
    assert entry.metadata.internal_type is InternalType.TRACING_MESSAGE
    assert entry.metadata.message_type
    assert entry.size > 0
    told = await ask(one, "CheckMessageStatus", field("messageID", sent))
    assert told.findtext("messageStatus/state") == "DELIVERED"
    assert (await old_site.nodes[1].states("E2"))[sent] == "DELIVERED"
    assert two.running is not None
    assert (await two.running.core.handover.receive(entry.metadata.message_type)).entry is None
    peer = await old_site.peer(1)
    await ask(one, "ConnectivityTest", field("receiverCode", peer.code))
    ((metadata, body),) = await fetch(peer)
    assert metadata.internal_type is InternalType.TRACING_MESSAGE
    assert {p.processor_id for p in metadata.processors} == {"signature", "encryption"}
    assert body


@pytest.mark.req("m11-3.3-b", component="endpoint")
async def test_messages_of_one_type_arrive_in_the_order_of_their_acceptance(
    old_site: OldSite,
) -> None:
    one, two = old_site.one, old_site.two
    # A large one takes longer to seal than those behind it.
    documents = [b"%d " % n * (200_000 if n % 7 == 0 else 10) for n in range(25)]
    sent = [await one.send("E2", document, "ORDER") for document in documents]
    received = [await two.receive("ORDER") for _ in documents]
    assert received == list(zip(sent, documents, strict=True))
    await asyncio.gather(*(one.until(message_id, "RECEIVED") for message_id in sent))


@pytest.mark.req("m11-3.3-b", component="endpoint")
async def test_nothing_overtakes_a_message_that_the_node_refuses_for_now(
    old_site: OldSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Table 73, fatal=false, although everything waited together; another type goes by."""
    one, two = old_site.one, old_site.two
    assert one.running is not None
    real, refused = NodeSession.upload, []

    async def upload(session: NodeSession, messages: Any) -> UploadAnswer:
        # How many go in one request depends on how long each takes to seal.
        mine = [m.message_id for m, _ in messages if m.message_type == "NOTYET"]
        if not mine or refused:
            return await real(session, messages)
        first = mine[0]
        refused.append(first)
        others = [m for m in messages if m[0].message_id != first]
        answer = await real(session, others) if others else UploadAnswer((), ())
        busy = Refused(first, False, "INTERNAL_ERROR", "E-1", "no room for this one now")
        return UploadAnswer(answer.uploaded, (*answer.refused, busy))

    monkeypatch.setattr(NodeSession, "upload", upload)
    await one.running.core.operating.pause(HoldKind.PARTNER, "E2", "test", "until all are there")
    sent = [await one.send("E2", b"%d" % n, "NOTYET") for n in range(4)]
    free = await one.send("E2", b"free", "FREE")
    await one.running.core.operating.resume(HoldKind.PARTNER, "E2", "test")
    assert (await two.receive("FREE"))[0] == free
    assert [(await two.receive("NOTYET"))[0] for _ in sent] == sent
    assert refused == sent[:1]
    events = [line.event.value for line in await one.trace(sent[0])]
    assert events[:3] == ["ACCEPT", "TRANSFER_FAILED", "TRANSFERRED"]


async def test_nothing_overtakes_a_message_that_is_tried_again(
    old_site: OldSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = old_site.one, old_site.two
    real, lost = NodeSession.upload, []

    async def upload(session: NodeSession, messages: Any) -> UploadAnswer:
        if not lost and any(m.message_type == "AGAIN" for m, _ in messages):
            lost.append(messages[0][0].message_id)
            raise Refusal(Rule.UNREACHABLE, "the connection is gone")
        return await real(session, messages)

    monkeypatch.setattr(NodeSession, "upload", upload)
    first = await one.send("E2", b"1", "AGAIN")
    async with asyncio.timeout(60):
        while not lost:
            await asyncio.sleep(0.01)
    later = [await one.send("E2", b"%d" % n, "AGAIN") for n in (2, 3)]
    received = [(await two.receive("AGAIN"))[0] for _ in range(3)]
    assert received == [first, *later]
    events = [line.event.value for line in await one.trace(first)]
    assert events[:3] == ["ACCEPT", "TRANSFER_FAILED", "TRANSFERRED"]
