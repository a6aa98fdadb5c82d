"""Participants that behave badly, over a real RabbitMQ: they harm themselves and nobody else."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from gridpost.capacity import AtcChanged
from gridpost.wire.cmm import AtcDataNtf, ErrorResp
from support.capacity_market import DK1, EON
from support.capacity_site import (
    capacity_csv,
    capacity_service,
    participant,
    periods,
    read,
    wanted,
)  # fmt: skip
from support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOM = 64 * 1024
ALLOWED = 60


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(rabbit, tmp_path_factory):
    async with capacity_service(
        rabbit,
        tmp_path_factory.mktemp("load"),
        limits={"requests": ALLOWED, "period": "1h"},
        queues={"max_bytes": ROOM, "expires": "10m", "message_ttl": "10m", "request_ttl": "10m"},
    ) as running:
        await running.publish((EON, DK1, 100_000), (DK1, EON, 100_000))
        yield running


async def counts(site, queue):
    """Figures of the management API come every few seconds."""
    return (await site.queues()).get(queue, {})


async def test_a_consumer_that_reads_nothing_loses_the_oldest_and_holds_nobody_up(site, soak):
    # Each broadcast is some 250 bytes: many times what the queue may hold.
    number = max(400, soak.scale(4_000))
    async with participant(site, "u10") as lazy, site.client() as busy:
        await lazy.login()
        for turn in range(number):
            text = capacity_csv((EON, DK1, 200_000 + turn), only=slice(0, 1))
            await site.act("adjust", file=text)
        await site.running.service.post.settled()
        last = 200_000 + number - 1

        def values():
            events = [e for e in busy._events if isinstance(e, AtcChanged)]
            return [e.lists[0].items[0].quantity for e in events]

        await eventually(lambda: values()[-1:] == [last], 120)
        # The one that reads has missed nothing, in order, and is answered.
        assert values() == list(range(200_000, 200_000 + number))
        assert (await busy.allocate([wanted(1, 20)])).confirmed == 1
        async with asyncio.timeout(60):
            while not (await counts(site, "cmm.broadcastQueue.u10")).get("message_bytes"):
                await asyncio.sleep(0.5)
        assert (await counts(site, "cmm.broadcastQueue.u10"))["message_bytes"] <= ROOM
        await lazy.subscribe()
        await eventually(
            lambda: any(
                message.lists[0].items[0].quantity == last
                for _, message in lazy.of_kind(AtcDataNtf)
            ),
            60,
        )
        kept = [m.lists[0].items[0].quantity for _, m in lazy.of_kind(AtcDataNtf)]
        told = [quantity for quantity in kept if quantity >= 200_000]
        soak.report(broadcasts=number, read=len(values()), kept_for_the_lazy_one=len(told))
        # What is left of the queue is its end, without a hole.
        assert told == list(range(told[0], last + 1))
        assert told[0] > 200_000


async def test_a_flood_of_requests_is_answered_with_back_off_and_others_are_served(site, soak):
    number = max(400, soak.scale(4_000))
    period = periods()[5]
    question = (
        f'<AtcDataReq date="{period.start:%Y-%m-%dT%H:%M:%S}.000Z">'
        f'<InterConnector area1="{EON}" area2="{DK1}"/></AtcDataReq>'
    )
    async with participant(site, "u.1") as flooding, site.client() as patient:
        await flooding.login()
        # Without confirms, as fast as the socket takes it.
        channel = await flooding.connection.channel(confirms=False)
        flooding.channel = channel
        names = []

        async def flood():
            for n in range(number):
                names.append(await flooding.send(question, f"flood-{n}"))

        flooded = asyncio.create_task(flood())
        answered = 0
        while not flooded.done() and answered < ALLOWED // 3:
            assert (await patient.allocate([wanted(1, 21)])).confirmed == 1
            answered += 1
        await flooded
        assert answered
        wanted_names = set(names)
        await eventually(
            lambda: wanted_names <= {r.properties.correlation_id for r in flooding.responses},
            180,
        )
        by_name = {r.properties.correlation_id: read(r) for r in flooding.responses}
        errors = [by_name[n] for n in names if isinstance(by_name[n], ErrorResp)]
        soak.report(
            requests=len(names), backed_off=len(errors), served_to_others_meanwhile=answered,
            unanswered=len(wanted_names - set(by_name)),
        )  # fmt: skip
        # Login was the first request of the period.
        assert len(names) - len(errors) == ALLOWED - 1
        assert all(f"limit {ALLOWED} requests" in error.message for error in errors)
        assert (await patient.allocate([wanted(1, 21)])).confirmed == 1
