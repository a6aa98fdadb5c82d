"""Every kind of component exports its journal by itself; the broker's own test has the rest of the story."""

from __future__ import annotations

import asyncio

import pytest

from gridpost.core.amqp091 import Properties
from gridpost.transports.free_port import free_port
from support.bus_site import CONTEXT
from support.directory_process import TestRoot
from support.exporting import JOURNAL, follows, started
from support.network import Running, network
from support.node_process import NodeProcess
from support.rabbitmq import EDGE, Rabbit

pytestmark = pytest.mark.timeout(600)


async def test_a_directory_and_an_endpoint_export_their_journals_by_themselves(tmp_path):
    async with network(tmp_path, JOURNAL.format("landed-cd")) as net:
        endpoint = await net.endpoint("E1", last=JOURNAL.format("landed-e1"))
        await net.start("E1")
        await follows(endpoint, tmp_path / "E1", tmp_path / "landed-e1", net.ports["E1 operations"])
        await follows(
            net.directory,
            tmp_path / "cd",
            tmp_path / "landed-cd",
            net.administration_port,
            net.token,
        )


async def test_a_node_exports_its_journal_by_itself(tmp_path):
    options = {"journal": {"landing": "landed", "export_every": "100ms"}}
    node = await asyncio.to_thread(
        NodeProcess, tmp_path / "node", "N1", TestRoot(tmp_path / "root"), options=options
    )
    async with started(Running("node", node.file)) as running:
        await asyncio.to_thread(node.new_endpoint, "E1")
        await follows(
            running, tmp_path / "node/data", tmp_path / "node/landed", node.operations_port
        )


async def test_a_bus_exports_its_journal_by_itself(rabbitmq: Rabbit, tmp_path):
    virtual_host, port = rabbitmq.virtual_host(), free_port()
    certificate = rabbitmq.certificate(EDGE)
    file = tmp_path / "bus.toml"
    file.write_text(
        f"""component = "bus"
code = "MDM"
home = "home"
contexts = ["{CONTEXT}"]
reference_handlers = true
[operations]
port = {port}
[rabbitmq]
urls = ["{rabbitmq.url}"]
virtual_host = "{virtual_host}"
roots = "{certificate / "root.pem"}"
certificate = "{certificate / "chain.pem"}"
key = "{certificate / "key.pem"}"
"""
        + JOURNAL.format("landed")
    )
    async with started(Running("bus", file, ready="serving")) as running:
        connection = await rabbitmq.client(virtual_host=virtual_host).connect()
        channel = await connection.channel()
        # No envelope at all: what is refused is journalled too.
        await channel.publish(
            b"<nothing/>",
            Properties(),
            routing_key=f"{CONTEXT}.REQUESTS.EndDeviceControls.create",
        )
        await connection.close()
        await follows(running, tmp_path / "home", tmp_path / "landed", port)
