"""MADES 1.1 cl. 3.15, 3.16, 4.2, 5.3.4, 5.3.5, 5.4: directory, versions and nodes among themselves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gridpost.core.certificate import CertificateKind
from gridpost.core.component import Contact
from gridpost.core.node import KnownCertificate, NodeComponent, NodeComponentType, Routing
from gridpost.core.node_list import parse_node_list
from gridpost.core.node_rules import choose_certificate
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.x509 import Validity
from support.directory_process import TestRoot
from support.old_network import TestNode, node_list
from support.pki import NOW, shared_pki

AUTHENTICATION, ENCRYPTION, SIGNING = (
    CertificateKind.AUTHENTICATION,
    CertificateKind.ENCRYPTION,
    CertificateKind.SIGNING,
)


def component() -> NodeComponent:
    """With an expired, a revoked and two valid certificates of each kind."""
    pki, day = shared_pki(), timedelta(days=1)
    made = []
    for number, (start, end, revoked) in enumerate(
        [(-9, -1, False), (-9, 8, True), (-9, 9, False), (-9, 20, False)]
    ):
        validity = Validity(NOW + start * day, NOW + end * day)
        found = pki.component("E1", validity=validity, key_name=f"E1 {number}")
        made += [KnownCertificate(c, revoked) for c in found.certificates]
    routing = Routing("N1", "https://n1.example", "", 1)
    contact = Contact("O", "P", "E", "T")
    return NodeComponent("E1", NodeComponentType.ENDPOINT, contact, routing, 1, tuple(made))


def ids(of: NodeComponent, kind: CertificateKind) -> list[str]:
    return [k.certificate.certificate_id for k in of.certificates if k.certificate.kind is kind]


@pytest.mark.req("m11-T44-a", component="node")
@pytest.mark.req("m11-T45-a", component="node")
@pytest.mark.req("m11-T45-b", component="node")
@pytest.mark.req("m11-T45-c", component="node")
@pytest.mark.req("m11-T45-d", component="node")
def test_which_certificate_is_handed_out() -> None:
    found = component()
    for kind in (AUTHENTICATION, SIGNING):
        with pytest.raises(Refusal) as refused:
            choose_certificate(found, kind, "", NOW)
        assert refused.value.rule is Rule.FIELD_MISSING
    _, _, first, second = ids(found, AUTHENTICATION)
    shown = [choose_certificate(found, AUTHENTICATION, i, NOW) for i in ids(found, AUTHENTICATION)]
    assert [c.certificate_id if c else None for c in shown] == [None, None, first, second]
    for kind in (ENCRYPTION, SIGNING):
        for wanted in ids(found, kind):
            got = choose_certificate(found, kind, wanted, NOW)
            assert got is not None
            assert got.certificate_id == wanted
    expired, _, first, second = ids(found, ENCRYPTION)
    got = choose_certificate(found, ENCRYPTION, "", NOW)
    assert got is not None
    assert got.certificate_id == first
    got = choose_certificate(found.revoking(first), ENCRYPTION, "", NOW)
    assert got is not None
    assert got.certificate_id == second
    assert choose_certificate(found, ENCRYPTION, "", NOW + timedelta(days=30)) is None
    assert choose_certificate(None, ENCRYPTION, "", NOW) is None
    assert choose_certificate(found, SIGNING, expired, NOW) is None


def test_at_most_two_certificates_of_a_kind() -> None:
    found = component()
    more = shared_pki().component("E1", key_name="E1 more").certificates
    with pytest.raises(Refusal, match="two"):
        found.with_certificates(more, NOW)


@pytest.mark.req("m11-5.4-a", component="node")
@pytest.mark.req("m11-T52-a", component="node")
def test_node_list_file() -> None:
    data = b"N1 https://n1.example\nN2 https://a.example/x https://b.example:8450/y\nME https://m\n"
    nodes = parse_node_list(data, "ME")
    assert [(n.code, n.urls) for n in nodes] == [
        ("N1", ("https://n1.example",)),
        ("N2", ("https://a.example/x", "https://b.example:8450/y")),
    ]
    assert parse_node_list(node_list(nodes), "ME") == nodes
    for bad in (
        b"N1\n",
        b"N1 https://a https://b https://c\n",
        b"N1\thttps://a\n",
        b"N1  https://a\n",
        b"N1 ftp://a\n",
        b"N1 https://a\nN1 https://b\n",
        b"N1 https://\xe9.example\n",
        b"N_1 https://a\n",
        b"N1 https://a\r\n",
    ):
        with pytest.raises(Refusal) as refused:
            parse_node_list(bad, "ME")
        assert refused.value.rule is Rule.INCONSISTENT_CONFIGURATION


@pytest.mark.req("m11-2.8-b", component="node")
@pytest.mark.req("m11-3.15.2-a", component="node")
@pytest.mark.req("m11-3.15.2-d", component="node")
@pytest.mark.req("m11-3.15.2-f", component="node")
@pytest.mark.req("m11-3.15.2-g", component="node")
@pytest.mark.req("m11-3.15.3-b", component="node")
@pytest.mark.req("m11-3.15.3-c", component="node")
@pytest.mark.req("m11-3.16.4.1-a", component="node")
@pytest.mark.req("m11-3.16.8-b", component="node")
@pytest.mark.req("m11-4.2.1-b", component="node")
@pytest.mark.req("m11-4.1.4-a", component="node")
@pytest.mark.req("m11-3.2-a")
@pytest.mark.req("m11-3.5.4-a", component="node")
@pytest.mark.req("m11-3.5.4-b", component="node")
@pytest.mark.req("m11-T47-a", component="node")
@pytest.mark.req("m11-T51-a", component="node")
@pytest.mark.req("m11-T51-b", component="node")
@pytest.mark.req("m11-T58-a", component="node")
@pytest.mark.req("m11-T75-a", component="node")
@pytest.mark.req("m11-3.16.6.1-c", component="node")
async def test_two_nodes(tmp_path: Path) -> None:
    root = TestRoot(tmp_path / "root")
    a, b = TestNode(tmp_path / "A", "NA", root), TestNode(tmp_path / "B", "NB", root)
    async with a.run() as running_a:
        async with b.run() as running_b:
            one, two = await a.endpoint("E1"), await b.endpoint("E2")
            with pytest.raises(Refusal):
                await a.endpoint("E1")
            listed = f"NA {a.url}\nNB {b.url}\n"
            for node in (a, b):
                assert len((await node.ask("import-nodes", file=listed))["nodes"]) == 1
                (told,) = await node.ask("synchronise")
                assert (told["problem"], told["mversion"]) == ("", 1)
                assert told["last_success"]
            assert set(running_a.directory.components) == {"NA", "NB", "E1", "E2"}
            mirrored = running_a.directory.components["E2"]
            assert mirrored == running_b.directory.components["E2"]
            # A bad file changes nothing.
            before, known_before = await a.ask("nodes"), dict(running_a.directory.components)
            for bad in (
                listed + "NC\n",
                listed + "NC https://c\nNC https://d\n",
                "E1 https://127.0.0.1:1/\n",
            ):
                with pytest.raises(Refusal):
                    await a.ask("import-nodes", file=bad)
            assert await a.ask("nodes") == before
            assert running_a.directory.components == known_before
            # Its own entry in the list is left out, whatever it says.
            assert running_a.directory.components["NA"].routing.primary_url == a.url
            # A registered endpoint asks its own node about the other side, and uploads there.
            session = one.session()
            found = await session.component("E2")
            assert found is not None
            shown, until = found
            assert shown.routing == Routing("NB", b.url, "", 1)
            assert (shown.mversion, shown.contact.organization) == (1, "Grid of Examplia")
            assert until.at > datetime.now(UTC)
            assert await session.component("NOBODY") is None
            certificate = await session.certificate("E2", ENCRYPTION)
            assert certificate is not None
            assert certificate[0].der == two.certificates[ENCRYPTION].der
            away = one.session(b)
            message = await one.message(two)
            assert (await away.upload([message])).uploaded == (message[0].message_id,)
            assert (await two.session().download())[0] == [message]
            assert await a.states() == {}
            with pytest.raises(Refusal, match="AUTHENTICATION_ERROR"):
                await away.download()
            with pytest.raises(Refusal, match="AUTHENTICATION_ERROR"):
                await away.component("E2")
            # Revocation travels; what is known already does not come again.
            await b.ask(
                "revoke", code="E2", certificate_id=two.certificate_id(SIGNING), reason="test"
            )
            (told,) = await a.ask("synchronise")
            assert told["dversion"] == running_b.directory.dversion
            known = running_a.directory.components["E2"].find(SIGNING, two.certificate_id(SIGNING))
            assert known is not None
            assert known.revoked
            # The same code in two places is refused as a whole.
            await b.endpoint("E9")
            await a.endpoint("E9", key_name="E9")
            (told,) = await a.ask("synchronise")
            assert "exists at NA already" in told["problem"]
            assert running_a.directory.components["E9"].routing.node == "NA"
        # Nodes that are two versions apart stop; one apart go on.
        for version, problem in ((3, "do not synchronise"), (2, "")):
            async with b.run(version):
                running_a.synchroniser._versions.clear()
                await a.ask("remove", code="E9", reason="test") if not problem else None
                (told,) = await a.ask("synchronise")
                assert problem in told["problem"]
                assert told["mversion"] == version
                assert bool(told["problem"]) == bool(problem)


@pytest.mark.req("m11-T42-a", component="node")
@pytest.mark.req("m11-4.2.2-e", component="node")
@pytest.mark.req("m11-4.2.2-g", component="node")
async def test_acceptance_by_version(tmp_path: Path) -> None:
    node = TestNode(tmp_path / "N", "N1", TestRoot(tmp_path / "root"))
    async with node.run(3) as running:
        one = await node.endpoint("E1", mversion=None)
        before = running.directory.dversion
        for version in (1, 4):
            with pytest.raises(Refusal, match="does not accept"):
                await one.session(mversion=version, service_mversion=3).connect()
        assert running.directory.dversion == before
        assert running.directory.components["E1"].mversion is None
        for version, rises in ((2, 1), (2, 1), (3, 2)):
            session = one.session(mversion=version, service_mversion=3)
            await session.connect()
            assert session.node_mversion == 3
            assert running.directory.dversion == before + rises
        with pytest.raises(Refusal, match="no service of version 1"):
            await one.session(mversion=3, service_mversion=1).component("E1")
        kept = one.session(mversion=3, service_mversion=3)
        await kept.connect()
    async with node.run(2):
        # Cl. 4.2.2: nobody is known after another version was installed.
        with pytest.raises(Refusal, match="AUTHENTICATION_ERROR"):
            await kept.component("E1")
