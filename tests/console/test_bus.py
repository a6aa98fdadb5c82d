"""What operators of a bus do in its console, in a real browser, judged by axe."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from console.conftest import _HASH, PEOPLE, Site, drive
from gridpost.assembly.bus import running_bus
from gridpost.core.amqp091 import Properties
from gridpost.core.journal import EnvelopeRow
from gridpost.envelope import Result, Sender
from gridpost.envelope.client import BusClient
from support.bus_site import CONTEXT, configuration
from support.bus_web import NOTE
from support.postgres import PostgresServer
from support.rabbitmq import Rabbit

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(500)]

FLOWS = ("bus overview", "bus envelopes", "bus services", "bus audit", "bus viewer")
SUBSCRIBER = {
    "name": "files",
    "noun": "Nothing",
    "to": "sftp://user:hidden-word@files.example/in",
    "known_hosts": Path("known_hosts"),
}


def write_certificate(folder: Path) -> None:
    """With an RSA key, as every console of Gridpost has one."""
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=30))
        .sign(key, hashes.SHA256())
    )
    (folder / "console.pem").write_bytes(made.public_bytes(Encoding.PEM))
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "console.key").write_bytes(private)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["sqlite", "postgres"])
async def flows(
    rabbitmq: Rabbit,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> AsyncIterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("bus-console")
    store: dict[str, Any] = {"store": request.param}
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        store["postgres"] = server.create_database().section(folder)
    virtual_host = rabbitmq.virtual_host()
    write_certificate(folder)
    console = {
        "port": 0,
        "certificate": folder / "console.pem",
        "key": folder / "console.key",
        "users": {name: {"role": role, "password": _HASH} for name, role in PEOPLE.items()},
    }
    values = configuration(
        rabbitmq,
        virtual_host,
        folder / "bus",
        console=console,
        handlers=("support.bus_handlers",),
        subscribers=(SUBSCRIBER,),
        alerts={"cycle": timedelta(milliseconds=200)},
        **store,
    )
    async with running_bus(values) as bus:
        connection = await rabbitmq.client(virtual_host=virtual_host).connect()
        client = await BusClient(connection, CONTEXT, within=timedelta(seconds=60)).open()
        request = Sender("EMS", CONTEXT).request("create", "Notes", NOTE.format("one"))
        assert (await client.call(request)).reply.result is Result.OK
        channel = await connection.channel()
        queue = f"{CONTEXT}.REQUESTS.Notes.create"
        await channel.publish(b"no envelope", Properties(), routing_key=queue)

        async def unreadable() -> list[str]:
            found = await bus.ledger.read(lambda u: u.journal.latest(EnvelopeRow.KIND, 100))
            rows = [recorded.row for recorded in found if isinstance(recorded.row, EnvelopeRow)]
            return [row.codes for row in rows if row.message_kind == "unreadable"]

        async with asyncio.timeout(60):
            while not (codes := await unreadable()):
                await asyncio.sleep(0.05)
        async with asyncio.timeout(60), httpx.AsyncClient(trust_env=False) as web:
            told = ""
            while "dead_letters" not in told:
                told = (await web.get(f"http://127.0.0.1:{bus.operations_port}/health")).text
        site = Site(folder, None)  # type: ignore[arg-type]
        assert bus.console_port is not None
        site.ports["MDM"] = bus.console_port
        yield await drive(
            site,
            "bus",
            message=request.header.message_id,
            dead=f"{CONTEXT}.DEAD",
            code=codes[0],
        )
        await connection.close()


@pytest.mark.parametrize("name", FLOWS)
async def test_a_flow_of_a_bus_in_the_browser(flows: dict[str, str], name: str) -> None:
    assert flows[name] == ""


async def test_every_flow_of_a_bus_is_listed_here(flows: dict[str, str]) -> None:
    assert set(flows) == set(FLOWS)
