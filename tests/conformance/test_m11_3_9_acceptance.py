"""MADES 1.1 cl. 3.9 to 3.11 at the endpoint: what is accepted, what is answered, and what expires."""

from __future__ import annotations

import asyncio
import binascii
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gridpost.core.certificate import CertificateKind
from gridpost.core.delivery import Side
from gridpost.core.identifiers import MessageId
from gridpost.core.instant import Instant
from gridpost.core.journal import AcknowledgementRow, RefusalRow, TrackingRow
from gridpost.core.message import SIGNATURE, InternalMessage, InternalType, Metadata
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.keys.rsa_operations import KeySigner
from gridpost.wire.seal.signing import sign
from support.old_endpoint import OldGridpost
from support.old_network import OldEndpoint
from support.old_site import OldSite, ask, fetch, journal
from support.soap import field

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def refusals(endpoint: OldGridpost, message_id: str) -> list[str]:
    return [r.rule for r in await journal(endpoint, RefusalRow) if r.message_id == message_id]


async def answer(peer: OldEndpoint, to: Metadata) -> tuple[Metadata, bytes]:
    (found,) = await fetch(peer)
    assert found[0].related_message_id == to.message_id
    return found


@pytest.mark.req("m11-T4-d", component="endpoint")
@pytest.mark.req("m11-T4-e", component="endpoint")
@pytest.mark.req("m11-T4-f", component="endpoint")
@pytest.mark.req("m11-3.10.1-a", component="endpoint")
@pytest.mark.req("m11-3.10.1-c", component="endpoint")
@pytest.mark.req("m11-3.10.1-d", component="endpoint")
@pytest.mark.req("m11-3.10.2-a", component="endpoint")
@pytest.mark.req("m11-3.11.2-c", component="endpoint")
@pytest.mark.req("m11-T61-b", component="endpoint")
@pytest.mark.req("m11-T61-e", component="endpoint")
@pytest.mark.req("m11-3.14.3-a", component="endpoint")
@pytest.mark.req("m11-4.1.4-b", component="endpoint")
@pytest.mark.req("m11-3.7-b", component="endpoint")
@pytest.mark.req("m11-5.6.3.2-c", component="endpoint")
@pytest.mark.req("m11-5.6.3.2-d", component="endpoint")
async def test_acknowledgements_of_an_accepted_message(old_site: OldSite) -> None:
    two, peer = old_site.two, await old_site.peer(0)
    metadata, body = await peer.message(
        two.endpoint, b"good", message_type="ACKED", ba_message_id="4711"
    )
    await peer.session(old_site.nodes[1]).upload([(metadata, body)])
    delivered, content = await answer(peer, metadata)
    assert delivered.internal_type is InternalType.DELIVERY_ACKNOWLEDGEMENT
    opened = await two.endpoint.opened(metadata, body, peer)
    assert binascii.a2b_base64(content) == opened.fingerprint
    assert [p.processor_id for p in delivered.processors] == [SIGNATURE]
    assert (await two.entry(metadata.message_id, Side.RECEIVED)).delivery.state == "WAITING"
    assert await two.receive("ACKED") == (metadata.message_id, b"good")
    received, content = await answer(peer, metadata)
    assert received.internal_type is InternalType.RECEIVE_ACKNOWLEDGEMENT
    assert content
    assert received.processors == ()
    for found in (delivered, received):
        assert (found.receiver_code, found.sender_code) == (peer.code, "E2")
        assert found.sender_description == "Grid of Examplia"
        assert found.message_type == "ACKED"
        assert found.message_mversion == 1
        assert found.expiration_time is not None
        assert found.expiration_time == metadata.expiration_time
        assert found.ba_message_id == found.sender_application == ""


@pytest.mark.req("m11-T4-g", component="endpoint")
@pytest.mark.req("m11-T2-c", component="endpoint")
@pytest.mark.req("m11-T3-g", component="endpoint")
@pytest.mark.req("m11-T3-h", component="endpoint")
@pytest.mark.req("m11-3.14.3-b", component="endpoint")
@pytest.mark.req("m11-3.14.3-i", component="endpoint")
@pytest.mark.req("m11-3.14.4-e", component="endpoint")
@pytest.mark.req("m11-2.10.1-c", component="system")
@pytest.mark.req("m11-5.3.3.2-a", component="endpoint")
@pytest.mark.req("m11-5.3.3.2-c", component="endpoint")
@pytest.mark.req("m11-3.4-a", component="system")
async def test_what_does_not_open_or_verify_is_answered_with_a_failure(old_site: OldSite) -> None:
    two, peer = old_site.two, await old_site.peer(0)
    node = old_site.nodes[1]
    good, body = await peer.message(two.endpoint, b"good", message_type="BAD")
    foreign = old_site.one.endpoint.certificate_id(CertificateKind.ENCRYPTION)
    for number, (metadata, spoiled) in enumerate(
        [
            (good, body[:-1] + bytes([body[-1] ^ 1])),
            (replace(good, message_type="BAD2"), body),
            (_with(good, "encryption", "Session key", binascii.b2a_base64(b"x" * 256).decode()), body),
        ]
    ):  # fmt: skip
        bad = replace(
            metadata, message_id=MessageId(f"{number}1111111-1111-4111-8111-111111111111")
        )
        await peer.session(node).upload([(bad, spoiled)])
        failure, reason = await answer(peer, bad)
        assert failure.internal_type is InternalType.FAILURE_ACKNOWLEDGEMENT
        assert b"could not be decrypted and verified" in reason
        assert failure.processors == ()
        assert await refusals(two, bad.message_id)
        tracked = await journal(two, TrackingRow)
        assert [r.state for r in tracked if r.message_id == bad.message_id] == ["REFUSED"]
        async with asyncio.timeout(60):
            # The answer is on its way before the download is confirmed.
            while (await node.states(peer.code))[bad.message_id] != "DELIVERED":
                await asyncio.sleep(0.02)
    assert two.running is not None
    for type_ in ("BAD", "BAD2"):
        assert (await two.running.core.handover.receive(type_)).entry is None
    # The node itself knows whose certificate it is.
    stolen = replace(
        _with(good, "encryption", "Certificate ID", foreign),
        message_id=MessageId("41111111-1111-4111-8111-111111111111"),
    )
    told = await peer.session(node).upload([(stolen, body)])
    assert [r.fatal for r in told.refused] == [True]


def _with(metadata: Metadata, processor_id: str, key: str, value: str) -> Metadata:
    return metadata.with_processors(
        replace(
            p,
            entries=tuple(
                replace(e, value=value.strip()) if e.key == key else e for e in p.entries
            ),
        )
        if p.processor_id == processor_id
        else p
        for p in metadata.processors
    )


@pytest.mark.req("m11-T3-i", component="endpoint")
@pytest.mark.req("m11-2.10.4.3-a", component="endpoint")
@pytest.mark.req("m11-3.9-c", component="endpoint")
@pytest.mark.req("m11-3.10.4-a", component="endpoint")
@pytest.mark.req("m11-3.10.4-b", component="endpoint")
@pytest.mark.req("m11-3.10.4-c", component="endpoint")
@pytest.mark.req("m11-2.10.4.3-b", component="endpoint")
@pytest.mark.req("m11-T2-b", component="endpoint")
async def test_only_the_signed_fingerprint_of_the_recipient_proves_a_delivery(
    old_site: OldSite,
) -> None:
    one, peer, thief = old_site.one, await old_site.peer(1), await old_site.peer(1)
    sent = await one.send(peer.code, b"to be proven", "PROOF")
    ((metadata, body),) = await fetch(peer)
    await one.until(sent, "DELIVERING")
    good = await peer.delivery_acknowledgement(metadata, body, one.endpoint)
    unsigned = replace(
        good[0].with_processors(()), message_id=MessageId("1" * 8 + good[0].message_id[8:])
    )
    spoiled = replace(good[0], message_id=MessageId("2" * 8 + good[0].message_id[8:]))
    third = thief.acknowledgement(metadata, InternalType.DELIVERY_ACKNOWLEDGEMENT)
    home = old_site.nodes[0]
    third = await signed_by(thief, third, good[1])
    forged = [(unsigned, good[1]), (spoiled, b"A" * 88), third]
    for by, messages in ((peer, forged[:2]), (thief, forged[2:])):
        assert not (await by.session(home).upload(messages)).refused
    # The first one goes no further than the node, which knows that it must be signed.
    assert (await home.states(peer.code))[unsigned.message_id] == "FAILED"
    for bad, _ in forged[1:]:
        await eventually_refused(one, bad.message_id)
    assert (await one.entry(sent)).delivery.state == "DELIVERING"
    rows = {r.message_id for r in await journal(one, AcknowledgementRow)}
    assert {bad.message_id for bad, _ in forged[1:]} <= rows
    await peer.session(home).upload([good])
    await one.until(sent, "DELIVERED")
    assert one.running is not None
    proof = (await one.running.core.evidence.export(Side.SENT, sent)).proof
    assert proof.message.content == b"to be proven"
    assert proof.acknowledgement is not None
    assert proof.acknowledgement.metadata.message_id == good[0].message_id
    assert proof.recipient_certificate == peer.certificates[CertificateKind.SIGNING]
    await peer.session(home).upload([peer.acknowledgement(metadata)])
    await one.until(sent, "RECEIVED")


async def signed_by(
    peer: OldEndpoint, found: tuple[Metadata, bytes], content: bytes
) -> tuple[Metadata, bytes]:
    kind = CertificateKind.SIGNING
    signer = KeySigner(peer.keys[kind], peer.certificates[kind])
    signed = await sign(InternalMessage(found[0], content), signer)
    return signed.metadata, signed.content


async def eventually_refused(endpoint: OldGridpost, message_id: str) -> None:
    async with asyncio.timeout(60):
        while not await refusals(endpoint, message_id):
            await asyncio.sleep(0.02)


@pytest.mark.req("m11-T1-f", component="endpoint")
@pytest.mark.req("m11-T73-b", component="endpoint")
@pytest.mark.req("m11-5.3.3.2-b", component="endpoint")
async def test_what_a_node_refuses_for_good_has_failed(old_site: OldSite) -> None:
    one, peer = old_site.one, await old_site.peer(1)
    # It is still in the directory of N1 when N2 has forgotten it.
    await old_site.nodes[1].ask("remove", code=peer.code, reason="moved")
    sent = await one.send(peer.code, b"x", "FATAL")
    await one.until(sent, "FAILED")
    trace = await one.trace(sent)
    assert [line.event.value for line in trace] == ["ACCEPT", "REJECTED"]
    assert "not an endpoint registered with this node" in trace[-1].detail
    told = await ask(one, "CheckMessageStatus", field("messageID", sent))
    assert told.findtext("messageStatus/state") == "FAILED"
    await old_site.synchronise()


@pytest.mark.req("m11-T3-a", component="endpoint")
@pytest.mark.req("m11-T15-c", component="endpoint")
async def test_a_recipient_that_nobody_knows_is_refused(old_site: OldSite) -> None:
    with pytest.raises(Refusal) as refused:
        await old_site.one.send("NOBODY", b"x")
    assert refused.value.rule is Rule.RECIPIENT_UNKNOWN
    assert refused.value.code == "VALIDATION_ERROR"
    told = await ask(
        old_site.one,
        "SendMessage",
        "<message>" + field("receiverCode", "NOBODY") + field("businessType", "A01")
        + field("content", "eA==") + "</message>",
    )  # fmt: skip
    assert told.findtext("errorCode") == "VALIDATION_ERROR"


@pytest.mark.req("m11-3.8-i", component="endpoint")
@pytest.mark.req("m11-3.8-d", component="endpoint")
async def test_what_arrives_twice_is_stored_once_and_confirmed_again(old_site: OldSite) -> None:
    two, peer = old_site.two, await old_site.peer(0)
    metadata, body = await peer.message(two.endpoint, b"once", message_type="TWICE")
    assert two.running is not None
    old = two.running.core.old
    assert old is not None
    from gridpost.services.endpoint.old_network.arrival import OldArrival

    arrival = OldArrival(old)
    await arrival.take(metadata, body)
    await arrival.take(metadata, body)
    trace = await two.trace(metadata.message_id, Side.RECEIVED)
    assert [line.event.value for line in trace] == ["VERIFIED", "ARRIVED_AGAIN"]
    assert await two.receive("TWICE") == (metadata.message_id, b"once")
    assert two.running is not None
    assert (await two.running.core.handover.receive("TWICE")).entry is None
    kinds = [m.internal_type for m, _ in await fetch(peer, 2)]
    assert kinds == ["DELIVERY_ACKNOWLEDGEMENT", "RECEIVE_ACKNOWLEDGEMENT"]


@pytest.mark.req("m11-3.11.3-c", component="endpoint")
async def test_what_arrives_expired_is_only_logged(old_site: OldSite) -> None:
    two, peer = old_site.two, await old_site.peer(0)
    soon = Instant.of(old_site.nodes[0].clock.now() - timedelta(seconds=1))
    metadata, body = await peer.message(
        two.endpoint, b"late", message_type="LATE", expiration_time=soon
    )
    await _take(two, metadata, body)
    assert await refusals(two, metadata.message_id) == ["MESSAGE_EXPIRED"]
    assert two.running is not None
    assert (await two.running.core.handover.receive("LATE")).entry is None
    assert await peer.session().download() == ([], 0)


async def _take(endpoint: OldGridpost, metadata: Metadata, body: bytes) -> None:
    from gridpost.services.endpoint.old_network.arrival import OldArrival

    assert endpoint.running is not None
    old: Any = endpoint.running.core.old
    await OldArrival(old).take(metadata, body)


@pytest.mark.req("m11-4.1.4-f", component="endpoint")
async def test_a_message_of_an_unknown_version_is_answered_with_a_failure(
    old_site: OldSite,
) -> None:
    two, peer = old_site.two, await old_site.peer(0)
    metadata, body = await peer.message(two.endpoint, b"new", message_mversion=3)
    await _take(two, metadata, body)
    failure, reason = await answer(peer, metadata)
    assert failure.internal_type is InternalType.FAILURE_ACKNOWLEDGEMENT
    assert b"version 3" in reason
    assert await refusals(two, metadata.message_id) == ["MESSAGE_VERSION_UNSUPPORTED"]


@pytest.mark.req("m11-4.1.5-c", component="endpoint")
async def test_a_business_type_can_demand_a_newer_version(old_site: OldSite) -> None:
    with pytest.raises(Refusal) as refused:
        await old_site.one.send("E2", b"x", "NEWTYPE")
    assert refused.value.rule is Rule.BUSINESS_TYPE_VERSION
    sent = await old_site.one.send("E2", b"x", "OLDTYPE")
    assert (await old_site.two.receive("OLDTYPE"))[0] == sent
