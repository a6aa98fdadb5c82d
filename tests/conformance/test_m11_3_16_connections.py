"""MADES 1.1 cl. 2.10.2, 3.16.3.2, 3.16.6.1, 3.16.7.1: who connects to whom, and what each side shows."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gridpost.assembly.clock import SystemClock
from gridpost.core.certificate import CertificateKind
from gridpost.core.https import TlsCredentials
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.directory_client.node_soap import NodeSoapClient, belongs_to
from gridpost.services.endpoint.old_network.network import OldNetwork
from gridpost.stores.keys.rsa_operations import to_pkcs8
from gridpost.transports.https import ClientTls, HttpsClient
from gridpost.transports.https.tls import ClientCertificate, client_context, server_context
from gridpost.wire.mades11.forms import container
from gridpost.wire.x509 import Purpose, verify_chain
from gridpost.wire.xml_text import element
from support.directory_process import TestRoot
from support.https import ended, listening, raw_tls
from support.odd_certificates import certified, not_trusted, shown
from support.old_endpoint import OldGridpost
from support.old_network import OldEndpoint, TestNode, issued
from support.pki import rsa_key

pytestmark = pytest.mark.asyncio(loop_scope="module")

AUTHENTICATION = CertificateKind.AUTHENTICATION


def made(folder: Path, code: str, root: TestRoot, **more: Any) -> TestNode:
    clock: Any = SystemClock()
    return TestNode(folder / code, code, root, clock=clock, **more)


class Site:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.node = made(folder, "N1", TestRoot(folder / "root"))
        self.one: OldEndpoint
        self.grid: OldGridpost

    @property
    def old(self) -> OldNetwork:
        assert self.grid.running is not None
        found = self.grid.running.core.old
        assert found is not None
        return found

    def authority(self) -> bytes:
        return max(self.node.keys.authorities, key=lambda c: c.not_before).der


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """One node, one endpoint that is a client of a test, and one Gridpost endpoint."""
    site = Site(tmp_path_factory.mktemp("site"))
    async with site.node.run():
        site.one = await site.node.endpoint("E1", key_name="peer 0")
        mine = await site.node.endpoint("G1", key_name="old 0")
        site.grid = OldGridpost(site.folder / "G1", mine)
        async with site.grid.run():
            yield site


async def version_of(node: TestNode, credentials: TlsCredentials) -> str:
    """GetNodeMversion: what needs nothing but a connection."""
    client = NodeSoapClient(HttpsClient(ClientTls(lambda: credentials)))
    request = container("GetNodeMversionRequest", element("mversion", "1"))
    answer = await client.call([node.url], belongs_to(node.code), "GetNodeMversion", [request])
    return answer.body.findtext("nodeCode") or ""


async def answers(old: OldNetwork) -> None:
    """The home node, to a download; while the endpoint downloads by itself it may have to wait."""
    async with asyncio.timeout(60):
        while True:
            try:
                await old.home.collect()
                return
            except Refusal as refusal:
                if "CONCURRENT_ERROR" not in refusal.message:
                    raise
                await asyncio.sleep(0.05)


def own(node: TestNode) -> TlsCredentials:
    return node.keys.credentials(node.clock.now)()


class Door:
    """A TLS server in the place of a node: what clients showed, and what they said."""

    def __init__(self) -> None:
        self.chains: list[list[bytes]] = []
        self.said = b""
        self.came = asyncio.Event()

    @asynccontextmanager
    async def open(self, credentials: TlsCredentials) -> AsyncIterator[str]:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.chains.append(shown(writer.get_extra_info("ssl_object")))
            self.came.set()
            self.said += await reader.read(65536)

        context = server_context(credentials, ClientCertificate.REQUIRED)
        async with listening(handle, context) as port:
            yield f"https://127.0.0.1:{port}/mades/1"


@pytest.mark.req("m11-3.16.6.1-b", component="node")
@pytest.mark.req("m11-3.16.6.1-b", component="endpoint")
@pytest.mark.req("m11-3.16.3.2-a", component="node")
@pytest.mark.req("m11-3.16.3.2-b", component="system")
@pytest.mark.req("m11-3.16.3.2-c", component="node")
async def test_each_side_shows_its_certificate_and_the_ca_that_the_root_signed(site: Site) -> None:
    node, roots, now = site.node, site.node.configuration.trusted_roots(), site.node.clock.now()
    # The node as a server.
    async with raw_tls(node.port, client_context(site.one.credentials())) as (_, writer):
        served = shown(writer.get_extra_info("ssl_object"))
    (mine,) = node.keys.own
    assert served == [mine.der, site.authority()]
    # Its directory publishes it.
    found = await site.one.session().certificate("N1", AUTHENTICATION, mine.certificate_id)
    assert found is not None
    assert found[0].der == mine.der
    # The node as a client, of a node that only listens.
    other, door = made(site.folder, "NX", node.root), Door()
    async with made_node(other):
        pass
    async with door.open(own(other)) as url:
        await node.ask("import-nodes", file=f"NX {url}\n")
        await node.ask("synchronise")
        await node.ask("import-nodes", file="\n")
    assert door.chains[0] == served
    # The endpoint as a client of its home node.
    door, before = Door(), site.old.home._urls
    async with door.open(own(node)) as url:
        site.old.home._urls = (url,)
        try:
            with pytest.raises(Refusal):
                await site.old.home.collect()
        finally:
            site.old.home._urls = before
    endpoint = site.grid.endpoint.certificates[AUTHENTICATION]
    assert door.chains[0] == [endpoint.der, site.authority()]
    assert door.said.startswith(b"POST /mades/1 ")
    # From the ROOT CA of the organisation by the INTEGRATED CA of the node to whom it registered.
    for chain, purpose in ((served, Purpose.SERVER), (door.chains[0], Purpose.CLIENT)):
        verify_chain(chain, roots, now, purpose)
        foreign = [chain[0], own(other).chain[1]]
        with pytest.raises(Refusal):
            verify_chain(foreign, roots, now, purpose)


@asynccontextmanager
async def made_node(node: TestNode) -> AsyncIterator[None]:
    """It has started once, so that it has a certificate of its own."""
    async with node.run():
        yield


@pytest.mark.req("m11-2.10.2-b", component="node")
@pytest.mark.req("m11-3.16.6.1-a", component="node")
async def test_a_node_serves_no_client_that_it_cannot_verify(site: Site) -> None:
    running = site.node.running
    assert running is not None
    before = Counter(running.api.counts)
    bad = not_trusted(site.node, "E1")
    for why, credentials in bad.items():
        with pytest.raises(Refusal) as refused:
            await version_of(site.node, credentials)
        assert refused.value.rule is Rule.UNREACHABLE, why
    context = client_context(site.one.credentials())
    nobody = type(context)(context.protocol)
    nobody.check_hostname = False
    nobody.load_verify_locations(site.node.root.file)
    try:
        async with raw_tls(site.node.port, nobody) as (reader, writer):
            writer.write(b"GET /mades/1/MadesDirectoryService?wsdl HTTP/1.1\r\nhost: x\r\n\r\n")
            assert await ended(reader) == b""
    except OSError:
        pass  # the handshake itself says so in older versions of TLS
    assert (
        running.api.counts["GetNodeMversion", "answered"] == before["GetNodeMversion", "answered"]
    )
    assert await version_of(site.node, site.one.credentials()) == "N1"
    # A certificate of the right CA is enough for a connection, and for nothing else.
    key = rsa_key("odd")
    stranger = TlsCredentials(
        (certified(site.node, "STRANGER", key), site.authority()), to_pkcs8(key),
        site.node.configuration.trusted_roots(),
    )  # fmt: skip
    assert await version_of(site.node, stranger) == "N1"


@pytest.mark.req("m11-2.10.2-b", component="endpoint")
@pytest.mark.req("m11-3.16.6.1-a", component="endpoint")
async def test_an_endpoint_says_nothing_to_a_node_that_it_cannot_verify(site: Site) -> None:
    before, old = site.old.home._urls, site.old
    cases = not_trusted(site.node, "N1")
    key = rsa_key("odd")
    # Of the right CA, but of another component.
    cases["another node"] = TlsCredentials(
        (certified(site.node, "N2", key), site.authority()), to_pkcs8(key),
        site.node.configuration.trusted_roots(),
    )  # fmt: skip
    for why, credentials in cases.items():
        door = Door()
        async with door.open(credentials) as url:
            old.home._urls = (url,)
            old.home._token = None
            try:
                with pytest.raises(Refusal) as refused:
                    await old.home.collect()
            finally:
                old.home._urls = before
        assert refused.value.rule in (
            Rule.CHAIN_NOT_TRUSTED, Rule.CERTIFICATE_NOT_OF_COMPONENT, Rule.PEER_UNKNOWN,
        ), (why, refused.value)  # fmt: skip
        assert door.said == b"", why
    await answers(old)


@pytest.mark.req("m11-3.16.7.1-a", component="endpoint")
@pytest.mark.req("m11-3.16.7.1-a", component="node")
async def test_a_renewed_ca_needs_no_change_at_its_peers(tmp_path: Path) -> None:
    root = TestRoot(tmp_path / "root")
    a, b = made(tmp_path, "NA", root), made(tmp_path, "NB", root)
    async with a.run() as running, b.run():
        one = OldGridpost(tmp_path / "E1", await a.endpoint("E1", key_name="old 0"))
        two = await b.endpoint("E2", key_name="peer 0")
        for node in (a, b):
            await node.ask("import-nodes", file=f"NA {a.url}\nNB {b.url}\n")
            await node.ask("synchronise")
        async with one.run():
            before = own(a).chain
            root.certify(a.keys)
            await running.keys.look()
            after = own(a).chain
            assert before[1] != after[1]
            async with raw_tls(a.port, client_context(two.credentials())) as (_, writer):
                assert tuple(shown(writer.get_extra_info("ssl_object"))) == after
            # The endpoint knows nothing of it, and goes on; so does the other node.
            old = one.running and one.running.core.old
            assert old is not None
            await old.close()  # what was kept has been verified before
            await answers(old)
            (told,) = await b.ask("synchronise")
            assert told["problem"] == ""
        # And the endpoint gets a certificate of the new CA, which both nodes take as it is.
        key = rsa_key("renewed E1")
        form = a.register_form("E1", {AUTHENTICATION: key})
        renewed = issued(await a.ask("renew", code="E1", **form))[AUTHENTICATION]
        await b.ask("synchronise")
        credentials = TlsCredentials(
            (renewed.der, after[1]), to_pkcs8(key), a.configuration.trusted_roots()
        )
        verify_chain(credentials.chain, credentials.roots, a.clock.now(), Purpose.CLIENT)
        for node in (a, b):
            assert await version_of(node, credentials) == node.code


@pytest.mark.req("m11-3.16.7.1-b", component="endpoint")
@pytest.mark.req("m11-3.16.7.1-b", component="node")
async def test_two_root_cas_are_trusted_while_one_follows_the_other(tmp_path: Path) -> None:
    first, second, third = [TestRoot(tmp_path / f"root {n}") for n in range(3)]
    a = made(tmp_path, "NA", first, more_roots=[second])
    b = made(tmp_path, "NB", second, more_roots=[first])
    c = made(tmp_path, "NC", third, more_roots=[first])
    async with a.run(), b.run(), c.run():
        for node in (a, b):
            await node.ask("import-nodes", file=f"NA {a.url}\nNB {b.url}\nNC {c.url}\n")
        told = {n["code"]: n["problem"] for n in await a.ask("synchronise")}
        assert told["NB"] == ""
        assert "not trusted" in told["NC"]
        await b.ask("synchronise")
        mine = await a.endpoint("E1", key_name="old 0")
        other, far = await b.endpoint("E2", key_name="peer 0"), await c.endpoint("E3")
        for node, other_node in ((a, b), (b, a)):
            told = {n["code"]: n["problem"] for n in await node.ask("synchronise")}
            assert told[other_node.code] == ""
        # Nodes take clients of both chains, and no third one.
        for node in (a, b):
            for client in (mine, other):
                assert await version_of(node, client.credentials()) == node.code
            outside = far.credentials()
            trusting = TlsCredentials(
                outside.chain, outside.private_key, node.configuration.trusted_roots()
            )
            with pytest.raises(Refusal):
                await version_of(node, trusting)
        # An endpoint takes nodes of both chains: its own one, and that of its recipient.
        one = OldGridpost(tmp_path / "E1", mine)
        roots = (tmp_path / "E1" / "papers" / "roots.pem").read_bytes()
        assert roots.count(b"BEGIN CERTIFICATE") == 2
        async with one.run():
            sent = await one.send("E2", b"x")
            await one.until(sent, "DELIVERING")
            old = one.running and one.running.core.old
            assert old is not None
            home, old.home._urls = old.home._urls, (c.url,)
            with pytest.raises(Refusal):
                await old.home.collect()
            old.home._urls = home
        found, _ = await other.session().download()
        assert [m.message_id for m, _ in found] == [sent]


_connected: list[tuple[str, int]] | None = None


def _watch(event: str, args: tuple[Any, ...]) -> None:
    if event == "socket.connect" and _connected is not None and isinstance(args[1], tuple):
        _connected.append(args[1][:2])


@pytest.mark.req("m11-2.10.2-c", component="endpoint")
@pytest.mark.req("m11-2.10.2-c", component="node")
async def test_nobody_ever_connects_to_an_endpoint(site: Site, tmp_path: Path) -> None:
    global _connected
    root = TestRoot(tmp_path / "root")
    a, b = made(tmp_path, "NA", root), made(tmp_path, "NB", root)
    async with a.run(), b.run():
        one = OldGridpost(tmp_path / "E1", await a.endpoint("E1", key_name="old 0"))
        two = OldGridpost(tmp_path / "E2", await b.endpoint("E2", key_name="old 1"))
        for node in (a, b):
            await node.ask("import-nodes", file=f"NA {a.url}\nNB {b.url}\n")
            await node.ask("synchronise")
        sys.addaudithook(_watch)  # it cannot be taken away, but it is deaf afterwards
        _connected = []
        try:
            async with one.run() as first, two.run() as second:
                assert (first.direct_port, second.direct_port) == (None, None)
                for sender, recipient in ((one, two), (two, one)):
                    sent = await sender.send(recipient.code, b"x", "BOTH")
                    assert await recipient.receive("BOTH") == (sent, b"x")
                    await sender.until(sent, "RECEIVED")
        finally:
            seen, _connected = _connected, None
        # The endpoint of the other tests goes on asking its own node.
        assert {port for _, port in seen} - {site.node.port} == {a.port, b.port}


@pytest.mark.req("m11-2.10.2-a", component="endpoint")
async def test_an_endpoint_speaks_https_only(site: Site, tmp_path: Path) -> None:
    heard = bytearray()

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.read(65536))

    async with listening(plain) as port:
        url = f"http://127.0.0.1:{port}/mades/1"
        mine = await site.node.endpoint("G2", key_name="old 1")
        with pytest.raises(Refusal, match="https"):
            async with OldGridpost(tmp_path / "G2", mine, {"urls": [url]}).run():
                pass
        # And whatever a directory may say later.
        before, site.old.home._urls = site.old.home._urls, (url,)
        try:
            with pytest.raises(Refusal) as refused:
                await site.old.home.collect()
        finally:
            site.old.home._urls = before
        assert refused.value.rule is Rule.INCONSISTENT_CONFIGURATION
        # To a server that does not encrypt it says nothing but the beginning of a handshake.
        site.old.home._urls = (url.replace("http:", "https:"),)
        try:
            with pytest.raises(Refusal):
                await site.old.home.collect()
        finally:
            site.old.home._urls = before
    assert b"HTTP" not in heard
    assert heard[:1] == b"\x16"
    await answers(site.old)
