"""Requests that nobody waits for are kept by the transport while their service or the broker is down."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gridpost.core.amqp091 import Properties
from gridpost.core.bus import BusUnit
from gridpost.envelope import RequestMessage, Sender, encode
from gridpost.services.bus.service import BusService
from support.bus_site import CONTEXT, bus_site
from support.rabbitmq import rabbitmq_node
from support.waiting import eventually

TOPIC = f"{CONTEXT}.REQUESTS.Counts.create"


@pytest.mark.timeout(300)
@pytest.mark.req("100-3.3.17-a", component="transport")
@pytest.mark.req("100-5.2.3-c", component="transport")
async def test_a_one_way_request_on_a_topic_outlives_its_service_and_the_broker(
    tmp_path: Path,
) -> None:
    done: list[str | None] = []

    def register(service: BusService) -> None:
        @service.handles("create", "Counts")
        def count(request: RequestMessage, unit: BusUnit) -> None:
            done.append(request.header.message_id)

    request = Sender("EMS", CONTEXT).request(
        "create", "Counts", '<c:Counts xmlns:c="urn:counts"/>', one_way=True
    )
    (tmp_path / "node").mkdir()
    with rabbitmq_node(tmp_path / "node") as rabbit:
        host = rabbit.virtual_host()
        # The subscription of the bus is durable; that of another service goes with the service.
        async with bus_site(rabbit, tmp_path / "bus", register, virtual_host=host) as site:
            other, _ = await site.channel.declare_queue(
                durable=False, exclusive=True, auto_delete=True
            )
            await site.channel.bind(other, CONTEXT, TOPIC)
        connection = await rabbit.client(virtual_host=host).connect()
        channel = await connection.channel()
        await channel.publish(encode(request), Properties(), exchange=CONTEXT, routing_key=TOPIC)
        await connection.close()
        await asyncio.to_thread(rabbit.node.kill)
        await asyncio.to_thread(rabbit.node.start)
        assert done == []
        async with bus_site(rabbit, tmp_path / "bus", register, virtual_host=host) as site:
            await eventually(lambda: bool(done), 60)
            missed, _ = await site.channel.declare_queue(
                durable=False, exclusive=True, auto_delete=True
            )
            await site.channel.bind(missed, CONTEXT, TOPIC)
            assert await site.count(missed) == 0
        # Acknowledged: it does not come again.
        async with bus_site(rabbit, tmp_path / "bus", register, virtual_host=host):
            pass
    assert done == [request.header.message_id]
