"""What the client puts on the wire, and what waits too long in a queue (CMM 2.2, 3.2.2, 5.2)."""

from __future__ import annotations

import asyncio
import gzip
from datetime import timedelta

import pytest
import pytest_asyncio
from pamqp.commands import Basic

from gridpost.capacity import AllocationType, Wanted
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.cmm import AllocationDataReq, AllocationReq, AtcDataNtf, AtcDataReq, Login
from support.capacity_market import DK1, EON, GROUP, RTE, RWE
from support.capacity_site import (
    BORDERS,
    SERVICE,
    capacity_service,
    participant,
    periods,
    read,
    wanted,
)
from support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(rabbit, tmp_path_factory):
    borders = [
        {**border, "common_atc": False} if border["name"] == "DE-FR" else border
        for border in BORDERS
    ]
    async with capacity_service(
        rabbit, tmp_path_factory.mktemp("interface"), borders=borders,
        limits={"prefetch": 1, "items": 3}, queues={"request_ttl": "8s"},
    ) as running:  # fmt: skip
        await running.publish()
        await running.publish((RWE, RTE, 900), (EON, RTE, 800))
        yield running


@pytest.mark.req("cmm-1.1-a", component="client")
@pytest.mark.req("cmm-2.2-c", component="client")
@pytest.mark.req("cmm-2.2-c", component="rabbitmq-topology")
@pytest.mark.req("cmm-2.2-e", component="client")
@pytest.mark.req("cmm-2.2-e", component="service")
@pytest.mark.req("cmm-2.2-f", component="client")
@pytest.mark.req("cmm-2.2-f", component="service")
async def test_connections_are_external_with_heartbeats(site):
    async with site.client():
        seen: dict = {}

        async def both() -> bool:
            answer = await asyncio.to_thread(site.node.api, "GET", "connections")
            seen.update(
                {
                    row["user"]: row
                    for row in answer.json()
                    if row.get("vhost") == site.virtual_host and "auth_mechanism" in row
                }
            )
            return {"u1", SERVICE} <= set(seen)

        async with asyncio.timeout(60):
            while not await both():
                await asyncio.sleep(0.5)
        for user in ("u1", SERVICE):
            assert seen[user]["auth_mechanism"] == "EXTERNAL"
            assert seen[user]["protocol"] == "AMQP 0-9-1"
            assert seen[user]["peer_cert_subject"] == f"CN={user}"
            assert 30 <= seen[user]["timeout"] <= 60
    with pytest.raises(Refusal):
        async with site.client(password="anything"):
            pass


@pytest.mark.req("cmm-2.2-d")
async def test_a_client_names_its_user_and_is_known_by_its_certificate_without(site):
    async with site.client("u1") as client:
        under = client._keeper.connection._connection
        assert under.url.user == "u1"
        assert under.url.query["auth"] == "external"
    # Nobody is named: the certificate is enough.
    connection = await site.node.client("u1", site.virtual_host).connect()
    assert connection._connection.url.user is None
    await connection.close()


@pytest.mark.req("cmm-3.2.2-e")
async def test_no_request_of_a_client_is_immediate(site, monkeypatch):
    frames = []
    marshal = Basic.Publish.marshal

    def written(frame):
        if frame.exchange.startswith("cmm.request."):
            frames.append((frame.mandatory, frame.immediate))
        return marshal(frame)

    monkeypatch.setattr(Basic.Publish, "marshal", written)
    async with site.client() as client:
        await client.allocate([wanted(1, 2)])
        await client.atc(periods()[0].start, EON, DK1)
        await client.allocations(GROUP, periods()[0].start, periods()[1].start, EON, DK1)
    assert frames == [(True, False)] * 4


@pytest.mark.req("cmm-3.2.3-d")
async def test_a_response_of_another_schema_version_is_named_and_not_misread(site, monkeypatch):
    async with site.client() as client:
        with monkeypatch.context() as newer:
            newer.setattr("gridpost.services.capacity.post.CONTENT_TYPE", "text/xml;v=9.9")
            with pytest.raises(Refusal) as refused:
                await client.atc(periods()[0].start, EON, DK1)
        assert refused.value.rule is Rule.SCHEMA_INVALID
        assert "'text/xml;v=9.9'" in refused.value.message
        assert "text/xml;v=1.0" in refused.value.message
        assert await client.atc(periods()[0].start, EON, DK1)


@pytest.mark.req("cmm-3.2.2-d")
@pytest.mark.req("cmm-3.2.2-g")
@pytest.mark.req("cmm-3.2.2-h")
@pytest.mark.req("cmm-3.2.2-c")
@pytest.mark.req("cmm-3.2.1-e")
@pytest.mark.req("cmm-5.1.3-a", component="client")
@pytest.mark.req("cmm-5.1.4-a", component="client")
@pytest.mark.req("cmm-5.1.4-c", component="client")
@pytest.mark.req("cmm-5.2-a", component="client")
@pytest.mark.req("cmm-5.2-b", component="client")
@pytest.mark.req("cmm-5-a", component="client")
@pytest.mark.req("cmm-2.4-a", component="client")
@pytest.mark.req("cmm-5.2.2-b", component="client")
@pytest.mark.req("cmm-5.2.2-b", component="service")
@pytest.mark.req("cmm-5.2.2-c", component="client")
@pytest.mark.req("cmm-5.2.3-a", component="client")
@pytest.mark.req("cmm-5.2.4-a", component="client")
@pytest.mark.req("cmm-3.2.1.1.2-b", component="client")
@pytest.mark.parametrize("zipped", [False, True])
async def test_every_request_of_the_client_is_what_the_document_asks_for(site, zipped):
    connection = await site.node.client(SERVICE, site.virtual_host).connect()
    tap = []
    try:
        channel = await connection.channel()
        await channel.declare_queue("cmm.tap", durable=False, auto_delete=True)
        await channel.bind("cmm.tap", "cmm.request.u1")
        await channel.consume("cmm.tap", tap.append, no_ack=True)
        expiration = timedelta(seconds=20) if zipped else None
        async with site.client(zipped=zipped, expiration=expiration) as client:
            for kind in AllocationType:
                assert (await client.allocate([wanted(1, 2)], kind)).confirmed == 1
            two = [wanted(1, 3), wanted(1, 4, (DK1, EON))]
            assert len((await client.allocate(two)).items) == 2
            await client.atc(periods()[0].start, EON, DK1)
            await client.allocations(GROUP, periods()[0].start, periods()[1].start, EON, DK1)
            await eventually(lambda: len(tap) >= 7, 60)
            with pytest.raises(Refusal) as refused:
                await client.allocate([Wanted("", DK1, *_times(), 1)])
            assert refused.value.rule is Rule.SCHEMA_INVALID
            await asyncio.sleep(0.2)
    finally:
        await connection.close()
    kinds = [type(read(incoming)) for incoming in tap]
    wanted_kinds = [Login, *[AllocationReq] * 4, AtcDataReq, AllocationDataReq]
    assert kinds == wanted_kinds
    keys = [incoming.routing_key for incoming in tap]
    assert keys[1:5] == ["cmm.request.management"] * 4
    assert keys[5:] == ["cmm.request.inquiry"] * 2
    for incoming in tap:
        properties = incoming.properties
        assert incoming.exchange == "cmm.request.u1"
        assert properties.content_type == "text/xml;v=1.0"
        assert properties.reply_to == "cmm.responseQueue.u1"
        assert properties.content_encoding == ("gzip" if zipped else None)
        assert (incoming.body[:2] == b"\x1f\x8b") == zipped
        assert properties.expiration == expiration
        text = gzip.decompress(incoming.body) if zipped else incoming.body
        assert b"+0" not in text
    assert len({incoming.properties.correlation_id for incoming in tap}) == 7


def _times():
    return periods()[0].start, periods()[0].end


@pytest.mark.req("cmm-5.3.5-a", component="client")
async def test_an_error_response_reaches_the_one_who_caused_it(site):
    async with site.client() as client:
        good, bad = await asyncio.gather(
            client.atc(periods()[0].start, EON, DK1),
            client.allocate([wanted(1, n) for n in range(4)]),
            return_exceptions=True,
        )
        assert len(good) == 2
        assert isinstance(bad, Refusal)
        assert "3 items" in bad.message


@pytest.mark.req("cmm-5.4.2-h")
async def test_interconnectors_without_common_atc_are_broadcast_apart(site):
    async with participant(site, "u1") as u1:
        await u1.login("X_Border:DE-FR")
        await u1.subscribe()
        await site.publish((RWE, RTE, 901), (EON, RTE, 801))
        await eventually(lambda: len(u1.of_kind(AtcDataNtf)) >= 4, 60)
        values = {
            (m.lists[0].out_area, m.lists[0].in_area): m.lists[0].items[0].quantity
            for _, m in u1.of_kind(AtcDataNtf)
        }
        assert values[RWE, RTE] == 901
        assert values[EON, RTE] == 801


@pytest.mark.req("cmm-3.2.2.1-a", component="service")
@pytest.mark.req("cmm-3.2.2.1-a", component="rabbitmq-topology")
@pytest.mark.req("cmm-3.2.5.2-a", component="service")
async def test_a_request_that_waited_too_long_is_never_executed(site):
    counter = site.running.service._window._counter
    answer, begun, go = counter.answer, asyncio.Event(), asyncio.Event()

    async def busy(questions):
        begun.set()
        await go.wait()
        return await answer(questions)

    question = f'<AtcDataReq date="{periods()[0].start.isoformat()}"><InterConnector area1="{EON}" area2="{DK1}"/></AtcDataReq>'  # noqa: E501
    async with participant(site, "u1") as u1:
        await u1.login()
        for expiration, pause, expected in (
            (timedelta(milliseconds=300), 1.0, False),
            (None, 0.5, True),
            (None, 9.0, False),
        ):
            begun.clear()
            go.clear()
            counter.answer = busy
            first = await u1.send(question)
            await asyncio.wait_for(begun.wait(), 60)
            # The service is at its limit of requests under way: the next one waits at the broker.
            second = await u1.send(question, expiration=expiration)
            await asyncio.sleep(pause)
            go.set()
            counter.answer = answer
            assert read(await u1.response(first)).success
            assert read(await u1.response(await u1.send(question))).success
            ids = [r.properties.correlation_id for r in u1.responses]
            assert (second in ids) == expected
