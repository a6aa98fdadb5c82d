"""MADES 1.1 cl. 3.16.2, 3.16.3, 3.16.6.2, 3.16.7.2, 3.16.8: keys, their end, their renewal, and no lists."""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from gridpost.assembly import node_keys
from gridpost.assembly.clock import SystemClock
from gridpost.core.certificate import CertificateKind
from gridpost.core.node import KnownCertificate
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.old_network.network import OldNetwork
from gridpost.stores.keys import pkcs8
from gridpost.transports.https.tls import client_context
from gridpost.wire.x509 import Validity, read_certificate, to_pem
from gridpost.wire.xml_text import element
from support.directory_process import TestRoot
from support.https import listening, raw_tls
from support.odd_certificates import expired, self_signed, shown, with_crl
from support.old_endpoint import OldGridpost, write_papers
from support.old_network import CONTACT, KINDS, OldEndpoint, OldSigner, TestNode, issued
from support.old_raw import Raw
from support.old_site import ask, fetch
from support.pki import rsa_key, shared_pki
from support.soap import field
from support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

AUTHENTICATION, SIGNING, ENCRYPTION = KINDS


class Site:
    def __init__(self, folder: Path) -> None:
        clock: Any = SystemClock()
        self.folder = folder
        self.node = TestNode(folder / "N1", "N1", TestRoot(folder / "root"), clock=clock)
        self.grid: OldGridpost

    async def endpoint(self, key_name: str = "old 1") -> OldEndpoint:
        return await self.node.endpoint(f"E{uuid4().hex[:8]}", key_name=key_name)

    def gridpost(self, endpoint: OldEndpoint) -> OldGridpost:
        return OldGridpost(self.folder / endpoint.code, endpoint)


def network(endpoint: OldGridpost) -> OldNetwork:
    assert endpoint.running is not None
    found = endpoint.running.core.old
    assert found is not None
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    site = Site(tmp_path_factory.mktemp("site"))
    async with site.node.run():
        site.grid = site.gridpost(await site.endpoint("old 0"))
        async with site.grid.run():
            yield site


@pytest.mark.req("m11-3.16.2-a", component="endpoint")
@pytest.mark.req("m11-3.16.3.2-a", component="endpoint")
async def test_an_endpoint_has_three_keys_of_2048_bits_or_does_not_run(site: Site) -> None:
    held = network(site.grid).certificates()
    assert {c.kind for c in held} == set(KINDS)
    for certificate in held:
        key = x509.load_der_x509_certificate(certificate.der).public_key()
        assert isinstance(key, RSAPublicKey)
        assert key.key_size == 2048
    # Its home node publishes the one that it connects with.
    mine = site.grid.endpoint.certificates[AUTHENTICATION]
    peer = await site.endpoint("peer 0")
    found = await peer.session().certificate(site.grid.code, AUTHENTICATION, mine.certificate_id)
    assert found is not None
    assert found[0].der == mine.der
    weak, bare = [site.gridpost(await site.endpoint()) for _ in range(2)]
    small = rsa_key("small", 1024)
    papers = weak.folder / "papers"
    (papers / "signing.key").write_bytes(pkcs8.write(small, None))
    (papers / "signing.pem").write_bytes(to_pem(self_signed(weak.code, small)))
    (bare.folder / "papers" / "authentication.key").unlink()
    for broken in (weak, bare):
        with pytest.raises(Refusal) as refused:
            async with broken.run():
                pass
        assert refused.value.rule is Rule.BAD_KEY


def with_expired(endpoint: OldEndpoint, kind: CertificateKind) -> OldEndpoint:
    der = expired(endpoint.node, endpoint.certificates[kind].der)
    return replace(
        endpoint, certificates=endpoint.certificates | {kind: read_certificate(der, kind)}
    )


@pytest.mark.req("m11-3.16.3.2-d", component="endpoint")
async def test_an_endpoint_does_nothing_with_an_expired_authentication_certificate(
    site: Site,
) -> None:
    one = site.gridpost(await site.endpoint())
    write_papers(one.folder / "papers", with_expired(one.endpoint, AUTHENTICATION))
    async with one.run():
        with pytest.raises(Refusal) as refused:
            await network(one).home.collect()
        assert refused.value.rule is Rule.CERTIFICATE_EXPIRED
        assert network(one).home._token is None
        with pytest.raises(Refusal) as refused:
            await one.send(site.grid.code, b"x", "LATER")
        assert refused.value.rule is Rule.CERTIFICATE_EXPIRED
        # What is installed instead counts without a restart.
        write_papers(one.folder / "papers", one.endpoint)
        await network(one).refresh_keys()
        sent = await one.send(site.grid.code, b"x", "LATER")
        assert await site.grid.receive("LATER") == (sent, b"x")


@pytest.mark.req("m11-3.16.3.2-d", component="node")
async def test_a_node_takes_no_signature_of_an_expired_certificate(site: Site) -> None:
    one, running = await site.endpoint("peer 0"), site.node.running
    assert running is not None
    over = with_expired(one, AUTHENTICATION).certificates[AUTHENTICATION]
    await running.directory.add_certificates("test", one.code, [over])
    signer = OldSigner(over, one.keys[AUTHENTICATION])
    session = one.session(home=False)
    session._signer = lambda: signer
    with pytest.raises(Refusal, match="AUTHENTICATION_ERROR"):
        await session.component("N1")
    raw = Raw(one)
    last = await raw.last()
    for shows, taken in ((signer, False), (one.token_signer, True)):
        text = (
            "<endpoints>" + element("code", one.code) + element("signature", shows.sign(one.code))
            + element("certificateID", shows.certificate_id) + "</endpoints>"
        )  # fmt: skip
        if taken:
            await raw.call("DownloadMessages", text + last)
        else:
            assert await raw.refused("DownloadMessages", text + last) == "AUTHENTICATION_ERROR"
    # Nor does it let anybody in with it.
    credentials = replace(one.credentials(), chain=(over.der, site.node.keys.authorities[0].der))
    with pytest.raises(OSError):  # noqa: PT011 - of the handshake, or of the first byte after it
        async with raw_tls(site.node.port, client_context(credentials)) as (reader, writer):
            writer.write(b"GET /mades/1/MadesDirectoryService?wsdl HTTP/1.1\r\nhost: x\r\n\r\n")
            if not await reader.read():
                raise ConnectionError


@pytest.mark.req("m11-T3-c", component="endpoint")
@pytest.mark.req("m11-3.16.3.3-d", component="endpoint")
async def test_nothing_is_accepted_that_cannot_be_signed(site: Site) -> None:
    one = site.gridpost(await site.endpoint())
    write_papers(one.folder / "papers", with_expired(one.endpoint, SIGNING))
    async with one.run() as running:
        with pytest.raises(Refusal) as refused:
            await one.send(site.grid.code, b"x", "UNSIGNED")
        assert refused.value.rule is Rule.NO_SIGNING_CERTIFICATE
        told = await ask(
            one, "SendMessage",
            "<message>" + field("receiverCode", site.grid.code) + field("businessType", "UNSIGNED")
            + field("content", "eA==") + "</message>",
        )  # fmt: skip
        assert told.tag.endswith("SendMessageError")
        assert told.findtext("errorCode") == "INTERNAL_ERROR"
        assert "no valid signing certificate" in (told.findtext("errorMessage") or "")
        tally = await running.core.context.store.read(lambda work: work.box.tally())
        assert (sum(tally.statuses.values()), tally.queued) == (0, 0)


@pytest.mark.req("m11-3.16.3.3-d", component="endpoint")
async def test_nothing_is_encrypted_with_an_expired_certificate(site: Site) -> None:
    one, peer, running = site.grid, await site.endpoint("peer 0"), site.node.running
    assert running is not None
    over = with_expired(peer, ENCRYPTION).certificates[ENCRYPTION]
    component = running.directory.components[peer.code]
    held = tuple(
        KnownCertificate(over) if k.certificate.kind is ENCRYPTION else k
        for k in component.certificates
    )
    changed = replace(component, certificates=held)
    await running.directory.change(lambda unit: None, put=[changed])
    with pytest.raises(Refusal) as refused:
        await one.send(peer.code, b"x")
    assert refused.value.rule is Rule.NO_ENCRYPTION_CERTIFICATE
    # One that ends while it is still in the cache is not used either.
    directory, later = network(one).directory, datetime.now(UTC) + timedelta(hours=1)
    directory._certificates[peer.code, ENCRYPTION, ""] = over, later
    sent = await one.send(peer.code, b"x")
    async with asyncio.timeout(60):
        while [line.event.value for line in await one.trace(sent)][-1] != "TRANSFER_FAILED":
            await asyncio.sleep(0.05)
    assert "certificate" in (await one.trace(sent))[-1].detail
    assert await peer.session().download() == ([], 0)


@pytest.mark.req("m11-3.16.6.2-a", component="endpoint")
async def test_what_the_home_node_provides_is_trusted_whatever_ca_it_is_from(site: Site) -> None:
    one, now, code = site.grid, datetime.now(UTC), f"E{uuid4().hex[:8]}"
    validity = Validity(now - timedelta(days=1), now + timedelta(days=30))
    outside = shared_pki().component(code, validity=validity, key_name="outside")
    key = rsa_key("outside authentication")
    form = site.node.register_form(code, {AUTHENTICATION: key}) | {
        kind.value.lower(): {
            "is": "certificate", "der": b64encode(outside.certificate(kind).der).decode()
        }
        for kind in (SIGNING, ENCRYPTION)
    }  # fmt: skip
    told = await site.node.ask("register", **(form | CONTACT | {"code": code, "mversion": 1}))
    peer = OldEndpoint(code, site.node, outside.keys | {AUTHENTICATION: key}, issued(told))
    assert shared_pki().root not in network(one).roots()
    sent = await one.send(code, b"to the outside", "OUTSIDE")
    ((metadata, body),) = await fetch(peer)
    assert (await peer.opened(metadata, body, one.endpoint)).message.content == b"to the outside"
    await peer.session().upload([await peer.delivery_acknowledgement(metadata, body, one.endpoint)])
    await one.until(sent, "DELIVERED")
    metadata, body = await peer.message(one.endpoint, b"from there", message_type="OUTSIDE")
    await peer.session().upload([(metadata, body)])
    assert await one.receive("OUTSIDE") == (metadata.message_id, b"from there")


@pytest.mark.req("m11-3.16.7.2-d", component="endpoint")
@pytest.mark.req("m11-3.16.7.2-d", component="node")
async def test_a_new_certificate_is_installed_while_messages_flow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert node_keys.LOOK_SECONDS < 240
    monkeypatch.setattr(node_keys, "LOOK_SECONDS", 0.1)
    clock: Any = SystemClock()
    root = TestRoot(tmp_path / "root")
    node = TestNode(tmp_path / "N", "N1", root, clock=clock)
    async with node.run():
        one, two = [
            OldGridpost(tmp_path / code, await node.endpoint(code, key_name=f"old {n}"))
            for n, code in enumerate(("E1", "E2"))
        ]
        async with one.run(), two.run():
            sent: list[str] = []
            enough = asyncio.Event()

            async def flow() -> None:
                while not enough.is_set():
                    sent.append(await one.send("E2", b"%d" % len(sent), "FLOW"))
                    await asyncio.sleep(0.2)

            flowing = asyncio.create_task(flow())
            started = time.monotonic()
            # The node: a new INTEGRATED CA, as 'gridpost node init --import' leaves it.
            await asyncio.to_thread(root.certify, node.keys)
            newest = max(node.keys.authorities, key=lambda c: c.not_before).der

            async def served() -> bytes:
                context = client_context(one.endpoint.credentials())
                async with raw_tls(node.port, context) as (_, writer):
                    return shown(writer.get_extra_info("ssl_object"))[1]

            async with asyncio.timeout(120):
                while await served() != newest:
                    await asyncio.sleep(0.1)
            # The endpoint: a renewed certificate in its folder, as 'gridpost node renew' leaves it.
            key = rsa_key("renewed E1")
            told = await node.ask(
                "renew", code="E1", **node.register_form("E1", {AUTHENTICATION: key})
            )
            renewed = issued(told)[AUTHENTICATION]
            chain = to_pem(renewed.der, newest)
            papers = one.folder / "papers"
            write_papers(
                papers,
                replace(
                    one.endpoint,
                    keys=one.endpoint.keys | {AUTHENTICATION: key},
                    certificates=one.endpoint.certificates | {AUTHENTICATION: renewed},
                ),
            )
            (papers / "authentication.pem").write_bytes(chain)
            signer = network(one)._token_signer
            await eventually(lambda: signer().certificate_id == renewed.certificate_id)
            assert time.monotonic() - started < 300
            before = len(sent)
            await eventually(lambda: len(sent) > before + 2)
            enough.set()
            await flowing
            received = [(await two.receive("FLOW"))[0] for _ in sent]
            assert received == sent
            for message_id in sent:
                await one.until(message_id, "RECEIVED")


@pytest.mark.req("m11-3.16.8-c", component="endpoint")
@pytest.mark.req("m11-3.16.8-c", component="node")
async def test_nobody_asks_for_a_list_of_revoked_certificates(site: Site) -> None:
    asked = []

    async def lists(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.read(65536))

    running, one = site.node.running, site.grid
    assert running is not None
    async with listening(lists) as port:
        url = f"http://127.0.0.1:{port}/revoked.crl"
        peer = await site.endpoint("peer 0")
        marked = {
            kind: read_certificate(with_crl(site.node, peer.certificates[kind].der, url), kind)
            for kind in KINDS
        }
        await running.directory.add_certificates("test", peer.code, marked.values())
        peer = replace(peer, certificates=marked)
        # A node of which the endpoint could ask the same.
        (own,) = site.node.keys.own
        named = with_crl(site.node, own.der, url)
        site.node.keys._ring.install(read_certificate(named, AUTHENTICATION))
        await running.keys.look()
        await network(one).close()
        async with raw_tls(site.node.port, client_context(peer.credentials())) as (_, writer):
            assert shown(writer.get_extra_info("ssl_object"))[0] == named
        metadata, body = await peer.message(one.endpoint, b"x", message_type="LISTED")
        assert (await peer.session().upload([(metadata, body)])).uploaded
        assert await one.receive("LISTED") == (metadata.message_id, b"x")
        # Only the tag of the directory counts.
        kind = marked[SIGNING]
        await site.node.ask(
            "revoke", code=peer.code, certificate_id=kind.certificate_id, reason="lost"
        )
        refused = await peer.session().upload([await peer.message(one.endpoint)])
        assert [r.fatal for r in refused.refused] == [True]
    assert asked == []
