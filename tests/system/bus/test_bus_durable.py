"""Requests that must not be lost: the service is away, and then the broker as well."""

from __future__ import annotations

from pathlib import Path

import pytest

from gridpost.core.amqp091 import Properties
from gridpost.core.bus import BusUnit
from gridpost.envelope import RequestMessage, Sender, encode
from gridpost.services.bus.service import BusService
from support.bus_site import CONTEXT, bus_site
from support.rabbitmq import rabbitmq_node
from support.waiting import eventually

ORDER = '<o:Orders xmlns:o="urn:o"/>'
NAME = f"{CONTEXT}.REQUESTS.Orders.create"


@pytest.mark.timeout(900)
@pytest.mark.req("100-5.2.3-c", component="transport")
@pytest.mark.req("100-3.3.17-a", component="transport")
async def test_a_one_way_request_waits_for_its_service_though_the_broker_ends(
    tmp_path: Path,
) -> None:
    """The subscription of a service to the topic of its requests is durable, and so are requests."""
    done: list[str] = []

    def register(service: BusService) -> None:
        @service.handles("create", "Orders")
        def create(request: RequestMessage, unit: BusUnit) -> None:
            done.append(request.header.message_id or "")

    agreed = {"slas": ({"within": "1h"},)}
    with rabbitmq_node(tmp_path / "rabbit") as rabbit:
        virtual_host = rabbit.virtual_host()
        place = {"virtual_host": virtual_host, **agreed}
        async with bus_site(rabbit, tmp_path / "bus", register, **place):
            pass
        connection = await rabbit.client(virtual_host=virtual_host).connect()
        channel = await connection.channel()
        passing, _ = await channel.declare_queue(durable=False, auto_delete=False)
        await channel.bind(passing, CONTEXT, NAME)
        request = Sender("EMS", CONTEXT).request("create", "Orders", ORDER, one_way=True)
        await channel.publish(encode(request), Properties(), exchange=CONTEXT, routing_key=NAME)
        await connection.close()
        assert done == []
        rabbit.node.kill()
        rabbit.node.start()
        async with bus_site(rabbit, tmp_path / "bus", register, **place) as site:
            await eventually(lambda: done == [request.header.message_id])
            # Whoever subscribed for the moment has missed it.
            queues = rabbit.api("GET", f"queues/{virtual_host}").json()
            assert passing not in {queue["name"] for queue in queues}
            assert NAME in {queue["name"] for queue in queues}
            assert await site.count(f"{CONTEXT}.DEAD") == 0
