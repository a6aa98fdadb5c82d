"""IEC 62325-503 cl. 8 in the component-directory: issuing, renewal with overlap, revocation."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gridpost.core.certificate import CertificateKind, of_kind
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.registration import RegistrationStatus
from gridpost.services.component_directory.authority import fingerprint
from gridpost.services.component_directory.watching import books
from gridpost.wire.directory import decode_error, decode_response
from gridpost.wire.x509 import Purpose, Validity, issue, verify_chain
from support.builders import endpoint, subsystem
from support.component_directory import BROKER_KINDS, TestDirectory, request_for
from support.pki import ENDPOINT_KINDS, NOW, TestComponent, TestPki, rsa_key, spki

CD = "component-directory"
DAY = timedelta(days=1)


@pytest.fixture
async def directory() -> TestDirectory:
    return await TestDirectory().started()


async def renew(directory: TestDirectory, old: TestComponent, name: str) -> TestComponent:
    request, keys = request_for(old.code, key_name=name)
    response = await directory.post(old.chain, request)
    assert response.status_code == 201, response.text
    answer = decode_response(response.content)
    assert answer.status is RegistrationStatus.APPROVED
    issuer = directory.authority.current(directory.clock.now()).certificate
    return TestComponent(old.code, answer.certificates, keys, issuer)


@pytest.mark.req("503-8.3.2-c")
@pytest.mark.req("503-8.3.2-d", component=CD)
async def test_the_directory_shows_a_certificate_of_its_own_ca_below_the_root(
    directory: TestDirectory,
) -> None:
    for purpose in (Purpose.SERVER, Purpose.CLIENT):
        verified = verify_chain(directory.own.chain, directory.roots, NOW, purpose)
        assert verified.issuer == directory.pki.integrated_ca
        assert verified.root == directory.pki.root


@pytest.mark.req("503-8.3.3-a", "503-8.3.3-b", component=CD)
async def test_each_endpoint_has_a_signing_and_an_encryption_certificate_published(
    directory: TestDirectory,
) -> None:
    component = await directory.register("E1")
    received = (await directory.query(component.chain)).answer.components
    entry = next(c for c in received if c.code == "E1")
    for kind in (CertificateKind.SIGNING, CertificateKind.ENCRYPTION):
        (published,) = of_kind(entry.certificates, kind)
        assert published.der == component.certificate(kind).der


@pytest.mark.req("503-8.5-b", component=CD)
@pytest.mark.req("503-8.5-g", component=CD)
@pytest.mark.req("503-8.5-c", "503-T18-g")
async def test_an_extension_renews_all_certificates_and_both_sets_are_published_and_accepted(
    directory: TestDirectory,
) -> None:
    old = await directory.register("E1")
    directory.clock.forward(200 * DAY)
    new = await renew(directory, old, "E1 renewed")
    entry = await directory.entry("E1")
    for kind in ENDPOINT_KINDS:
        published = {c.der for c in of_kind(entry.certificates, kind)}
        assert published == {old.certificate(kind).der, new.certificate(kind).der}
    for component in (old, new):
        assert (await directory.query_raw(component.chain)).status_code == 200


@pytest.mark.req("503-8.5-d")
async def test_an_expired_certificate_is_published_for_the_configured_time() -> None:
    directory = await TestDirectory(published_after_expiry=timedelta(hours=48)).started()
    old = await directory.register("E1")
    directory.clock.forward(290 * DAY)
    await renew(directory, old, "E1 renewed")
    end = old.signing.not_after
    directory.clock.at = end + timedelta(hours=47)
    before = await directory.content_id()
    assert old.signing in (await directory.entry("E1")).certificates
    directory.clock.at = end + timedelta(hours=49)
    assert old.signing not in (await directory.entry("E1")).certificates
    assert await directory.content_id() != before


@pytest.mark.req("503-8.3.2-e", "503-8.4.1-b", component=CD)
async def test_an_expired_certificate_authenticates_nobody(directory: TestDirectory) -> None:
    component = await directory.register("E1")
    directory.clock.at = component.authentication.not_after + timedelta(seconds=1)
    assert (await directory.query_raw(component.chain)).status_code == 401
    tampered = bytearray(component.chain[0])
    tampered[-1] ^= 1
    directory.clock.at = NOW
    assert (await directory.query_raw([bytes(tampered), component.chain[1]])).status_code == 401


@pytest.mark.req("503-8.4.1-a", "503-8.4.1-c", component=CD)
async def test_the_chain_must_be_complete_and_of_the_root(directory: TestDirectory) -> None:
    component = await directory.register("E1")
    other = TestPki("CD-1", root="OTHER").component("E1")
    for chain in (component.chain[:1], [component.chain[0], other.issuer], other.chain):
        assert (await directory.query_raw(chain)).status_code == 401


@pytest.mark.req("503-4.5.1-b", "503-7.4-b", component=CD)
async def test_only_the_published_authentication_certificate_of_a_registered_component_counts(
    directory: TestDirectory,
) -> None:
    component = await directory.register("E1")
    validity = Validity(NOW - DAY, NOW + DAY)
    key = spki(rsa_key("intruder"))
    bad = {
        "never registered": directory.pki.component("E7").chain,
        "signing certificate": [component.signing.der, component.issuer],
        "encryption certificate": [component.encryption.der, component.issuer],
        "right name, never published": [
            issue(CertificateKind.AUTHENTICATION, "E1", key, directory.pki.issuer, validity),
            directory.pki.integrated_ca,
        ],
        "right name, CA of another subsystem": TestPki("CD-2").component("E1").chain,
        "CA certificate itself": [directory.pki.integrated_ca, directory.pki.root],
        "no certificate": [],
        "no X.509": [b"certificate", b"issuer"],
    }
    before = await directory.state()
    for what, chain in bad.items():
        response = await directory.query_raw(chain)
        assert response.status_code == 401, what
        error = decode_error(response.content)
        rows = [r for r in await directory.refusals() if r.refusal_id == error.id]
        assert [r.security for r in rows] == [True], what
    assert await directory.state() == before


@pytest.mark.req("503-8.5-h", component=CD)
async def test_old_and_new_chains_are_both_accepted_while_the_root_is_renewed(
    directory: TestDirectory,
) -> None:
    old = await directory.register("E1")
    renewed = TestPki("CD-1", root="NEW ROOT", now=NOW + DAY)
    directory.roots.append(renewed.root)
    directory.clock.forward(2 * DAY)
    directory.authority.replace([directory.pki.issuer, renewed.issuer])
    await directory.publish_own()
    cas = of_kind((await directory.entry("CD-1")).certificates, CertificateKind.INTEGRATED_CA)
    assert {c.der for c in cas} == {directory.pki.integrated_ca, renewed.integrated_ca}
    new = await directory.register("E2")
    under_new_root = [new.authentication.der, renewed.integrated_ca]
    assert verify_chain(under_new_root, [renewed.root], NOW + 2 * DAY).root == renewed.root
    for shown in (old.chain, under_new_root):
        assert (await directory.query_raw(shown)).status_code == 200


@pytest.mark.req("503-8.6-a", "503-8.6-c")
async def test_a_component_is_revoked_at_once_and_for_good(directory: TestDirectory) -> None:
    witness = await directory.register("E2")
    broker = await directory.register("B1", BROKER_KINDS)
    component = await directory.register("E1")
    before = await directory.content_id()
    await directory.office.revoke("E1", "laptop stolen", by="alice")
    await directory.office.revoke("B1", "laptop stolen", by="alice")
    assert await directory.content_id() != before
    received = (await directory.query(witness.chain)).answer.components
    assert {c.code for c in received} == {"CD-1", "E2"}
    for gone in (component, broker):
        response = await directory.query_raw(gone.chain)
        assert response.status_code == 401
        assert fingerprint(gone.authentication.der) in directory.connections.closed
    with pytest.raises(Refusal) as refused:
        await directory.office.revoke("E1", "again", by="alice")
    assert refused.value.rule is Rule.COMPONENT_UNKNOWN


@pytest.mark.req("503-8.6-a")
async def test_neither_the_directory_nor_a_foreign_component_can_be_revoked(
    directory: TestDirectory,
) -> None:
    foreign = subsystem(endpoint("E9", home="CD-9"), home="CD-9", valid_until=NOW + DAY)
    await directory.store.run(lambda unit: unit.entries.put_replica(foreign))
    before = await directory.state()
    for code in ("E9", "CD-1"):
        with pytest.raises(Refusal) as refused:
            await directory.office.revoke(code, "dislike", by="alice")
        assert refused.value.rule is Rule.NOT_OUR_SUBSYSTEM
    assert await directory.state() == before


@pytest.mark.req("503-8.6-b")
async def test_a_revocation_needs_a_reason_and_is_journalled(directory: TestDirectory) -> None:
    await directory.register("E1")
    with pytest.raises(Refusal):
        await directory.office.revoke("E1", "  ", by="alice")
    await directory.office.revoke("E1", "key on a stolen laptop", by="alice")
    (row,) = [a for a in await directory.actions() if a.action == "component revoked"]
    assert (row.actor, row.target, row.reason) == ("alice", "E1", "key on a stolen laptop")


async def test_the_old_certificate_of_a_code_that_registered_again_is_nobodys(
    directory: TestDirectory,
) -> None:
    old = await directory.register("E1")
    await directory.office.revoke("E1", "compromised", by="alice")
    again = await directory.register("E1", key_name="E1 after revocation")
    assert (await directory.query_raw(old.chain)).status_code == 401
    assert (await directory.query_raw(again.chain)).status_code == 200


async def test_the_key_of_a_revoked_certificate_is_not_certified_again(
    directory: TestDirectory,
) -> None:
    await directory.register("E1")
    await directory.office.revoke("E1", "compromised", by="alice")
    kit = await directory.invited("E1")
    response = await directory.post((kit.certificate, kit.issuer), request_for("E1")[0])
    assert response.status_code == 409


@pytest.mark.req("503-10-k", component=CD)
async def test_certificates_that_end_soon_are_warned_of_in_health_and_metrics() -> None:
    directory = await TestDirectory(expiry_warning=30 * DAY).started()
    component = await directory.register("E1")
    directory.clock.at = component.signing.not_after - 31 * DAY
    assert not [e for e in (await directory.upkeep.look()).expiring if e.component == "E1"]
    directory.clock.at = component.signing.not_after - 29 * DAY
    health = await directory.upkeep.look()
    assert {e.kind for e in health.expiring if e.component == "E1"} == set(ENDPOINT_KINDS)
    assert health.status == "warning"
    async with directory.administration() as client:
        figures = (await client.get("/metrics")).text
        assert 'certificate_expiry_timestamp_seconds{component="E1",kind="SIGNING"}' in figures
        assert (await client.get("/health")).json()["status"] == "warning"


@pytest.mark.req("503-10-k", component=CD)
async def test_an_expired_certificate_is_warned_of_while_it_is_published() -> None:
    directory = await TestDirectory(expiry_warning=30 * DAY).started()
    component = await directory.register("E1")
    alerts = books(directory.upkeep, directory.clock, 30 * DAY, 30 * DAY)
    directory.clock.at = component.signing.not_after + timedelta(hours=1)
    told = [c for c in await alerts() if c.subject.startswith("E1")]
    assert len(told) == len(ENDPOINT_KINDS)
    assert all("has expired at" in c.text and c.severity == "critical" for c in told)
    directory.clock.at += directory.settings.published_after_expiry
    assert not [c for c in await alerts() if c.subject.startswith("E1")]
