"""MADES 1.1 cl. 3.5, 3.8, 3.16, 4 at the endpoint: tokens, directory cache, a silent node, renewal."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from gridpost.assembly.clock import SystemClock
from gridpost.core.certificate import CertificateKind
from gridpost.core.identifiers import ComponentCode
from gridpost.core.message import Metadata
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.old_network.arrival import OldArrival
from gridpost.services.endpoint.old_network.collecting import NetworkRejected
from gridpost.wire.mades11.token_signature import check_text
from support.directory_process import TestRoot
from support.https import Proxy, listening
from support.old_endpoint import OldGridpost, write_papers
from support.old_network import KINDS, OldEndpoint, TestNode, issued
from support.old_site import OldSite, ask, fetch, lapse, record
from support.pki import rsa_key
from support.soap import field

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.req("m11-3.16.5-a", component="endpoint")
@pytest.mark.req("m11-3.16.5-c", component="endpoint")
@pytest.mark.req("m11-3.16.4.2-a", component="endpoint")
@pytest.mark.req("m11-3.14.3-g", component="endpoint")
@pytest.mark.req("m11-4.2.2-a", component="endpoint")
async def test_the_directory_is_asked_once_until_its_answer_expires(old_site: OldSite) -> None:
    one, two, peer = old_site.one, old_site.two, await old_site.peer(1)
    calls = record(one)
    at_two = record(two)
    for _ in range(10):
        await one.send(peer.code, b"x", "CACHE")

    def asked(operation: str) -> list[Any]:
        return [c for c in calls.of(operation) if f">{peer.code}<" in c.text]

    assert len(asked("GetComponent")) == 1
    assert len(asked("GetCertificate")) == 1
    lapse(one)
    await one.send(peer.code, b"x", "CACHE")
    assert len(asked("GetComponent")) == 2
    directory = calls.of("GetComponent", "GetCertificate", "SetComponentMversion")
    assert {c.urls for c in directory} == {(old_site.nodes[0].url,)}
    assert all("<serviceMversion>1</serviceMversion>" in c.text for c in directory)
    lapse(one)
    lapse(two)
    sent = [await one.send("E2", b"x", "CACHE") for _ in range(3)]
    for _ in sent:
        await two.receive("CACHE")
    signing = [c for c in at_two.of("GetCertificate") if "SIGNING" in c.text and ">E1<" in c.text]
    assert len(signing) == 1
    assert "<certificateID>" in signing[0].text


async def test_an_answer_that_expires_while_a_message_is_opened_costs_no_message(
    old_site: OldSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, learn = old_site.one, old_site.two, OldArrival._learn

    async def slow(arrival: OldArrival, metadata: Metadata) -> None:
        await learn(arrival, metadata)
        lapse(one)
        lapse(two)

    monkeypatch.setattr(OldArrival, "_learn", slow)
    sent = await one.send("E2", b"just in time", "SLOW")
    assert await two.receive("SLOW") == (sent, b"just in time")
    await one.until(sent, "RECEIVED")


@pytest.mark.req("m11-1.2-a", component="system")
@pytest.mark.req("m11-4.1.2-d", component="endpoint")
@pytest.mark.req("m11-T33-a", component="endpoint")
@pytest.mark.req("m11-T41-b", component="endpoint")
@pytest.mark.req("m11-T53-a", component="endpoint")
@pytest.mark.req("m11-T60-a", component="endpoint")
@pytest.mark.req("m11-5.1.3-b", component="endpoint")
@pytest.mark.req("m11-5.6.3.2-b", component="endpoint")
@pytest.mark.req("m11-3.5.3-e", component="endpoint")
@pytest.mark.req("m11-3.5.3-b", component="endpoint")
@pytest.mark.req("m11-3.5.3-f", component="endpoint")
@pytest.mark.req("m11-4.2.2-b", component="endpoint")
@pytest.mark.req("m11-T35-a", component="endpoint")
@pytest.mark.req("m11-T37-a", component="endpoint")
@pytest.mark.req("m11-T39-a", component="endpoint")
@pytest.mark.req("m11-T41-a", component="endpoint")
@pytest.mark.req("m11-T43-a", component="endpoint")
@pytest.mark.req("m11-T46-a", component="endpoint")
@pytest.mark.req("m11-5.6.3.3-c", component="endpoint")
@pytest.mark.req("m11-5.6.3.2-e", component="endpoint")
@pytest.mark.req("m11-4.1.3-a", component="endpoint")
async def test_every_request_but_the_first_carries_the_signed_token(old_site: OldSite) -> None:
    two, peer = old_site.two, await old_site.peer(0)
    calls = record(two)
    assert two.running is not None
    old = two.running.core.old
    assert old is not None
    old.home._token = None
    metadata, body = await peer.message(two.endpoint, b"x", message_type="TOKEN")
    await peer.session(old_site.nodes[1]).upload([(metadata, body)])
    await two.receive("TOKEN")
    await fetch(peer, 2)
    # What is left of earlier tests may go to other nodes meanwhile.
    at_home = [c for c in calls.calls if c.urls == (old_site.nodes[1].url,)]
    first = next(n for n, c in enumerate(at_home) if c.operation == "GetAuthenticationToken")
    assert at_home[first + 1].operation == "SetComponentMversion"
    assert "<componentCode>E2</componentCode>" in at_home[first].text
    kinds = {c.operation for c in calls.calls}
    assert kinds >= {
        "DownloadMessages", "ConfirmDownload", "UploadMessages", "GetComponent", "GetCertificate"
    }  # fmt: skip
    mine = two.endpoint.certificate_id(CertificateKind.AUTHENTICATION)
    for call in calls.calls:
        if call.operation != "GetAuthenticationToken":
            assert re.search(
                r"<authToken><token>[^<]+</token><signature>[^<]+</signature>"
                r"<certificateID>[^<]+</certificateID></authToken>"
                r"<serviceMversion>1</serviceMversion></mades:\w+>$",
                call.text,
            ), call
            assert mine.replace("<", "&lt;") in call.text
    assert all(c.text.count("<endpoints>") == 1 for c in calls.of("DownloadMessages"))
    (confirmed,) = [c for c in calls.of("ConfirmDownload") if metadata.message_id in c.text]
    assert confirmed.text.count("<messageIDs>") == 1
    der = two.endpoint.certificates[CertificateKind.AUTHENTICATION].der
    for call in calls.calls:
        shown = re.search("<token>([^<]+)</token><signature>([^<]+)<", call.text)
        if shown is not None:
            check_text(shown[1], shown[2], der, "token")
    for call in calls.of("DownloadMessages", "SetComponentMversion"):
        shown = re.search("<(?:code|componentCode)>([^<]+)<[^>]*><signature>([^<]+)<", call.text)
        assert shown is not None
        assert shown[1] == "E2"
        check_text(shown[1], shown[2], der, "component ID")
    upload = next(c.text for c in calls.of("UploadMessages") if metadata.message_id in c.text)
    assert re.search("<generated>[0-9-]{10}T[0-9:.]+Z</generated>", upload)
    assert re.search("<expirationTime>[0-9]{13}</expirationTime>", upload)
    assert "<messageMversion>1</messageMversion></messages>" in upload
    elements = ["messageID", "receiverCode", "businessType", "content", "generated"]
    elements += ["expirationTime", "senderCode", "senderDescription", "internalType"]
    elements += ["relatedMessageID", "metadata", "messageMversion"]
    places = [upload.index(f"<{name}>") for name in elements]
    assert places == sorted(places)
    assert old.home.node_mversion == 1
    assert "<componentMVersion>1</componentMVersion>" in calls.of("SetComponentMversion")[0].text
    # A token that ends is replaced before it does, and acceptance is asked for again.
    assert old.home._token is not None
    before = old.home._token[0]
    old.home._token = (before, old_site.nodes[1].clock.now())
    again, body = await peer.message(two.endpoint, b"y", message_type="TOKEN")
    await peer.session(old_site.nodes[1]).upload([(again, body)])
    assert await two.receive("TOKEN") == (again.message_id, b"y")
    assert old.home._token[0] != before
    assert len(calls.of("SetComponentMversion")) == 2
    order = ["componentCode", "signature", "certificateID", "componentMVersion", "authToken"]
    (asked,) = calls.of("SetComponentMversion")[:1]
    places = [asked.text.index(f"<{name}>") for name in order]
    assert places == sorted(places)


@pytest.mark.req("m11-5.3.3.5-a", component="endpoint")
@pytest.mark.req("m11-3.8-a", component="endpoint")
@pytest.mark.req("m11-3.8-e", component="endpoint")
async def test_all_of_a_download_is_confirmed_or_nothing(
    old_site: OldSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    two, peer = old_site.two, await old_site.peer(0)
    messages = [await peer.message(two.endpoint, b"%d" % n, message_type="ALL") for n in range(3)]
    messages.append(peer.acknowledgement(replace(messages[0][0], sender_code=ComponentCode("E2"))))
    ids = [metadata.message_id for metadata, _ in messages]
    calls, failed, taken = record(two), [], OldArrival.take

    async def take(arrival: OldArrival, metadata: Metadata, body: bytes) -> None:
        if metadata.message_id == ids[1] and not failed:
            failed.append(metadata.message_id)
            raise Refusal(Rule.STORE_FULL, "the disk is full")
        await taken(arrival, metadata, body)

    monkeypatch.setattr(OldArrival, "take", take)
    await peer.session(old_site.nodes[1]).upload(messages)
    assert [(await two.receive("ALL"))[0] for _ in range(3)] == ids[:3]
    assert failed
    confirmed = [c for c in calls.of("ConfirmDownload") if any(i in c.text for i in ids)]
    while not confirmed:
        await asyncio.sleep(0.02)
        confirmed = [c for c in calls.of("ConfirmDownload") if any(i in c.text for i in ids)]
    assert [all(i in c.text for i in ids) for c in confirmed] == [True]


class Alone:
    """A node of its own, that a test may stop and change, and an endpoint that lives there alone."""

    def __init__(self, folder: Path, **options: Any) -> None:
        clock: Any = SystemClock()
        self.folder = folder
        self.node = TestNode(
            folder / "node", "N9", TestRoot(folder / "root"), clock=clock,
            options={"directory": {"ttl": "1s"}} | options,
        )  # fmt: skip

    async def register(self) -> tuple[OldEndpoint, OldEndpoint]:
        async with self.node.run():
            return await self.node.endpoint("A1", key_name="old 0"), await self.node.endpoint(
                "A2", key_name="peer 0"
            )


@pytest.mark.req("m11-T1-a", component="endpoint")
@pytest.mark.req("m11-3.8-b", component="endpoint")
@pytest.mark.req("m11-3.8-g", component="endpoint")
@pytest.mark.req("m11-3.8-h", component="endpoint")
async def test_a_message_waits_in_verifying_until_the_node_answers(tmp_path: Path) -> None:
    site = Alone(tmp_path)
    mine, other = await site.register()
    one = OldGridpost(tmp_path / "A1", mine)
    async with one.run():
        sent = [await one.send("A2", b"%d" % n, "WAIT") for n in range(5)]
        for message_id in sent:
            assert (await one.entry(message_id)).delivery.state == "VERIFYING"
        told = await ask(one, "CheckMessageStatus", field("messageID", sent[0]))
        assert told.findtext("messageStatus/state") == "VERIFYING"
        assert [e.text for e in told.iterfind(".//trace/trace/state")] == ["VERIFYING"]
        assert one.running is not None
        explained = await one.running.core.explaining.explain(
            (await one.entry(sent[0])).delivery.side, sent[0]
        )
        assert "N9 cannot be reached" in explained.summary
        async with site.node.run():
            for message_id in sent:
                await one.until(message_id, "DELIVERING")
            found = await fetch(other, 5)
            assert [m.message_id for m, _ in found] == sent
            later = await one.send("A2", b"x", "WAIT")
            await one.until(later, "DELIVERING")
        # The answers are still in the cache: accepted, though nothing can be transferred.
        last = await one.send("A2", b"y", "WAIT")
        states = [line.state for line in await one.trace(last)]
        assert states[0] in ("ACCEPTED", "VERIFYING")
        assert (await one.entry(last)).delivery.state in ("ACCEPTED", "VERIFYING")
        events = [line.event.value for line in await one.trace(sent[0])]
        assert events[0] == "VERIFY"
        assert events[-2:] == ["ACCEPT", "TRANSFERRED"]
        told = await ask(one, "CheckMessageStatus", field("messageID", sent[0]))
        assert told.findtext("messageStatus/state") == "DELIVERING"


@pytest.mark.req("m11-4.2.2-c", component="endpoint")
async def test_an_endpoint_that_the_network_rejects_stops(tmp_path: Path) -> None:
    site = Alone(tmp_path)
    mine, _ = await site.register()
    one = OldGridpost(tmp_path / "A1", mine)
    # A node of version 3 accepts endpoints of 2 and 3 only.
    async with site.node.run(mversion=3):
        with pytest.raises(BaseExceptionGroup) as ended:
            async with one.run() as running:
                await asyncio.wait([running.service], timeout=60)
                assert running.service.done()
                running.service.result()
        assert ended.group_contains(NetworkRejected)


@pytest.mark.req("m11-3.16.7.2-c", component="endpoint")
@pytest.mark.req("m11-3.14.1-c", component="endpoint")
async def test_documents_for_the_old_and_for_the_new_certificate_are_opened(
    old_site: OldSite,
) -> None:
    node, peer = old_site.nodes[0], await old_site.peer(0)
    code = f"R{uuid4().hex[:8]}"
    first = await node.endpoint(code, key_name="old 1")
    keys = {kind: rsa_key(f"renewed {kind}") for kind in KINDS}
    told = await node.ask("renew", code=code, **node.register_form(code, keys))
    renewed = OldEndpoint(code, node, keys, issued(told))
    papers = write_papers(old_site.folder / code / "renewed", renewed)
    one = OldGridpost(old_site.folder / code, first, {"papers": ["papers", str(papers)]})
    async with one.run():
        for endpoint in (first, renewed):
            metadata, body = await peer.message(endpoint, b"for one of two", message_type="TWO")
            await peer.session().upload([(metadata, body)])
            assert await one.receive("TWO") == (metadata.message_id, b"for one of two")
    await old_site.synchronise()


@pytest.mark.req("m11-3.5.2-b", component="endpoint")
@pytest.mark.req("m11-3.5.2-a", component="endpoint")
async def test_the_second_url_and_a_proxy(old_site: OldSite) -> None:
    node, peer = old_site.nodes[0], await old_site.peer(0)
    endpoint = await node.endpoint(f"U{uuid4().hex[:8]}", key_name="old 0")
    proxy = Proxy()
    async with listening(proxy) as port:
        one = OldGridpost(
            old_site.folder / endpoint.code,
            endpoint,
            {
                "urls": ["https://127.0.0.1:1/mades/1", node.url],
                "proxy": f"http://127.0.0.1:{port}",
            },
        )
        async with one.run():
            sent = await one.send(peer.code, b"x", "SECOND")
            await one.until(sent, "DELIVERING")
            ((found, _),) = await fetch(peer)
            assert found.message_id == sent
        assert proxy.targets
        assert f"127.0.0.1:{node.port}" in proxy.targets
