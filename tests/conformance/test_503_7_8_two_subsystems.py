"""503 cl. 7.3.4, 7.6, 7.7.2, 8.3.2, 8.4.1: two subsystems under one ROOT CA, every component a process."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from gridpost.assembly.broker import PemCredentials, broker_parts
from gridpost.assembly.broker_configuration import read_broker_configuration
from gridpost.assembly.endpoint import endpoint_parts
from gridpost.assembly.endpoint_configuration import read_endpoint_configuration
from gridpost.core.https import TlsCredentials
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.x509 import to_pem
from support.network import Network, cli, until_status

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

PEER = """
[[synchronisation.peers]]
code = "{code}"
urls = ["https://127.0.0.1:{port}"]
"""
CYCLE = '[synchronisation]\ncycle = "500ms"\n'


class Subsystems:
    def __init__(self, folder: Path) -> None:
        self.one = Network(folder / "one")
        self.two = Network(folder / "two", "CD-2", folder / "one" / "root")

    async def open(self) -> None:
        for net in (self.one, self.two):
            net.folder.mkdir()
            await net.open()
        await self.one.broker("B1")
        soon = '[expiration.by_type]\n"SOON-*" = "4s"\n'
        await self.one.endpoint("E1", "INDIRECT:B1", direct=True, last=soon)
        await self.two.endpoint("E2", "INDIRECT:B1")
        await self.one.start()

    async def acquaint(self) -> None:
        """Each component-directory is told of the other; they need no restart."""
        for net, peer in ((self.one, self.two), (self.two, self.one)):
            more = CYCLE + PEER.format(code=peer.code, port=peer.directory_port)
            with net.directory.file.open("a", encoding="utf-8") as file:
                file.write(more)

    async def close(self) -> None:
        await self.two.close()
        await self.one.close()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def system(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Subsystems]:
    async with AsyncExitStack() as stack:
        made = Subsystems(tmp_path_factory.mktemp("subsystems"))
        stack.push_async_callback(made.close)
        await made.open()
        yield made


@pytest.mark.req("503-7.7.2-l")
@pytest.mark.req("503-8.4.1-d", component="endpoint")
@pytest.mark.req("503-7.6-m", component="endpoint")
async def test_a_message_crosses_subsystems_only_after_their_directories_have_met(
    system: Subsystems,
) -> None:
    async with system.one.api("E1") as api:
        with pytest.raises(Refusal) as refused:
            await api.send("E2", "A01", b"too early")
        assert refused.value.rule is Rule.RECIPIENT_UNKNOWN
    await system.acquaint()
    # E2 was registered and given a path, no more; it finds the broker of the other subsystem.
    for _ in range(200):
        if await _knows_broker(system):
            break
        await asyncio.sleep(0.2)
    await system.two.start("E2")
    await system.one.known("E1", "E2")
    await system.two.known("E2", "E1")
    async with system.one.api("E1") as one, system.two.api("E2") as two:
        message_id = await one.send("E2", "A01", b"across")
        await until_status(one, message_id, "DELIVERED")
        received = await two.receive("A01")
        assert received is not None
        assert received.content == b"across"
        await two.confirm(message_id)
        assert await until_status(one, message_id, "RECEIVED") == "RECEIVED"


async def _knows_broker(system: Subsystems) -> bool:
    found = await system.two.administer("components")
    return any(component["code"] == "B1" for component in found["components"])


@pytest.mark.req("503-T18-f")
async def test_nobody_dials_an_endpoint_that_has_no_urls(system: Subsystems) -> None:
    """E2 has none. After an exchange E1 is connected with the broker and with nobody else."""
    config = ("--config", str(system.one.components["E1"].file))
    peers = [row["peer"] for row in (await cli("endpoint", "connections", *config))["connections"]]
    assert peers == ["B1"]


async def _credentials(net: Network, code: str) -> TlsCredentials:
    """What a component that is stopped would show."""
    file = net.components[code].file
    if net.components[code].name == "broker":
        async with broker_parts(read_broker_configuration(file)) as broker:
            return broker.client.tls()
    async with endpoint_parts(read_endpoint_configuration(file)) as endpoint:
        return endpoint.client.tls()


def _context(own: TlsCredentials, purpose: int, folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(purpose)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=to_pem(*own.roots).decode())
    pem = PemCredentials(lambda: own)()
    file = folder / "shown.pem"
    file.touch(mode=0o600)
    file.write_bytes(pem.chain_pem + pem.key_pem)
    context.load_cert_chain(file)
    file.unlink()
    return context


def _shown(connection: ssl.SSLObject) -> list[bytes]:
    """The certificates that the peer sent, in their order."""
    chain = connection._sslobj.get_unverified_chain()  # type: ignore[attr-defined]
    return [certificate.public_bytes(ssl._ssl.ENCODING_DER) for certificate in chain]  # type: ignore[attr-defined]


@pytest.mark.req("503-8.3.2-d", "503-8.4.1-c", component="endpoint")
@pytest.mark.req("503-8.4.1-c", "503-8.3.2-d", component="broker")
async def test_a_component_shows_its_authentication_certificate_and_its_ca_on_both_sides_of_tls(
    system: Subsystems, tmp_path: Path
) -> None:
    """E1 as a server that we dial as E2; then E1 as the client of a server that we run as its broker."""
    e1, e2, b1 = (
        system.one.components["E1"],
        system.two.components["E2"],
        system.one.components["B1"],
    )
    await e2.stop()
    as_e2 = await _credentials(system.two, "E2")
    port = read_endpoint_configuration(e1.file).direct
    assert port is not None
    _, writer = await asyncio.open_connection(
        "127.0.0.1", port.port, ssl=_context(as_e2, ssl.PROTOCOL_TLS_CLIENT, tmp_path)
    )
    as_server = _shown(writer.get_extra_info("ssl_object"))
    writer.close()

    await b1.stop()
    as_b1 = await _credentials(system.one, "B1")
    asked: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not asked.done():
            asked.set_result(_shown(writer.get_extra_info("ssl_object")))
        writer.close()

    server = await asyncio.start_server(
        serve,
        "127.0.0.1",
        system.one.ports["B1"],
        ssl=_context(as_b1, ssl.PROTOCOL_TLS_SERVER, tmp_path),
    )
    async with server:
        as_client = await asyncio.wait_for(asked, 60)
    await e1.stop()
    own = await _credentials(system.one, "E1")
    # Leaf first, then the INTEGRATED CA that certified it, and nothing of another order.
    assert as_server[:2] == as_client[:2] == list(own.chain[:2])
    await b1.start()
    await e1.start()
    await e2.start()


@pytest.mark.req("503-7.3.4-a")
async def test_while_copies_differ_an_accepted_message_may_fail_and_nothing_hangs(
    system: Subsystems,
) -> None:
    """The broker is restricted while no component-directory can tell anybody."""
    await system.one.known("E1", "E2")
    await system.one.directory.stop()
    await system.two.directory.stop()
    broker = system.one.components["B1"].file
    broker.write_text(broker.read_text() + '[restriction]\nmessage_types = ["ONLY-*"]\n')
    async with system.one.api("E1") as api:
        for _ in range(20):
            # Accepted by what E1 knows; refused by the broker, which may only not have heard yet.
            message_id = await api.send("E2", "SOON-1", b"no longer allowed")
            status = await until_status(api, message_id, "DELIVERED", "FAILED", seconds=60)
            # One that was in the queue when the broker began anew may only expire there.
            trace = await api.trace(message_id)
            if any("SOON-1" in line.detail for line in trace):
                break
    assert status == "FAILED"
    assert any("SOON-1" in line.detail for line in trace), trace
