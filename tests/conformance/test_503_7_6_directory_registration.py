"""IEC 62325-503 cl. 7.6 and 4.4.3, in the directory: from an invitation to an entry and its extension."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gridpost.core.certificate import CertificateKind, of_kind
from gridpost.core.component import ComponentType
from gridpost.core.identifiers import ComponentCode
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.registration import PublicKey, RegistrationStatus
from gridpost.services.component_directory.settings import Extensions, Peer
from gridpost.wire.directory import (
    Query,
    decode_error,
    decode_response,
    encode_component,
    encode_query,
)
from gridpost.wire.x509 import Purpose, public_key, verify_chain
from support.component_directory import (
    BROKER_KINDS,
    TestDirectory,
    request_for,
)
from support.pki import ENDPOINT_KINDS, NOW, TestComponent, TestPki, rsa_key, spki

CD = "component-directory"


@pytest.fixture
async def directory() -> TestDirectory:
    return await TestDirectory().started()


@pytest.mark.req("503-7.1-c")
async def test_a_component_enters_only_through_an_approved_registration(
    directory: TestDirectory,
) -> None:
    kit = await directory.invited("E1")
    chain = (kit.certificate, kit.issuer)
    request, keys = request_for("E1")
    posted = decode_response((await directory.post(chain, request)).content)
    other = await directory.register("E2")
    body = encode_component(await directory.entry("E2"))
    refused = await directory.request("PUT", "/api/v1/endpoints/E1", body, chain=chain)
    assert refused.status_code == 403
    assert await directory.publication.find("E1") is None
    await directory.office.approve(posted.registration_id, by="alice")
    answer = await directory.outcome(posted.registration_id, chain)
    component = TestComponent(request.code, answer.certificates, keys, other.issuer)
    pushed = await directory.push(component, await directory.entry("E1"))
    assert pushed.status_code == 200


@pytest.mark.req("503-7.1-d", "503-7.6-j")
@pytest.mark.req("503-8.2-a", "503-8.2-b", "503-8.2-c", component=CD)
async def test_an_approval_brings_certificates_of_the_integrated_ca(
    directory: TestDirectory,
) -> None:
    component = await directory.register("E1")
    assert {c.kind for c in component.certificates} == set(ENDPOINT_KINDS)
    verified = verify_chain(component.chain, [directory.pki.root], NOW, Purpose.CLIENT)
    assert verified.issuer == directory.pki.integrated_ca
    published = (await directory.entry("E1")).certificates
    for certificate in component.certificates:
        assert public_key(certificate.der).key_size == 2048
        assert certificate.certificate_id.startswith("CN=CD-1 INTEGRATED CA")
        assert certificate.certificate_id[len("CN=CD-1 INTEGRATED CA") :].isdigit()
        assert certificate in published


@pytest.mark.req("503-8.2-b", component=CD)
@pytest.mark.parametrize("bits", [1024, 2056])
async def test_short_and_odd_keys_are_refused(directory: TestDirectory, bits: int) -> None:
    kit = await directory.invited("E1")
    request, _ = request_for("E1")
    odd = PublicKey(CertificateKind.AUTHENTICATION, spki(rsa_key("odd", bits)))
    response = await directory.post(
        (kit.certificate, kit.issuer),
        replace(request, public_keys=(odd, *request.public_keys[1:])),
    )
    assert response.status_code == 422
    assert str(bits) in decode_error(response.content).message


@pytest.mark.req("503-7.6-l")
async def test_on_approval_the_entry_is_created_and_published_and_not_before(
    directory: TestDirectory,
) -> None:
    witness = await directory.register("E2")
    kit = await directory.invited("E1")
    posted = decode_response(
        (await directory.post((kit.certificate, kit.issuer), request_for("E1")[0])).content
    )
    before = {c.code for c in (await directory.query(witness.chain)).answer.components}
    await directory.office.approve(posted.registration_id, by="alice")
    after = {c.code for c in (await directory.query(witness.chain)).answer.components}
    assert after - before == {"E1"}


@pytest.mark.req("503-7.8.2-e")
@pytest.mark.req("503-4.5.1-d", component=CD)
async def test_the_keys_say_what_registers(directory: TestDirectory) -> None:
    await directory.register("E1")
    await directory.register("B1", BROKER_KINDS)
    assert (await directory.entry("E1")).type is ComponentType.ENDPOINT
    broker = await directory.entry("B1")
    assert broker.type is ComponentType.BROKER
    assert {c.kind for c in broker.certificates} == {CertificateKind.AUTHENTICATION}
    kit = await directory.invited("E3")
    half = request_for("E3", (CertificateKind.AUTHENTICATION, CertificateKind.SIGNING))[0]
    response = await directory.post((kit.certificate, kit.issuer), half)
    assert response.status_code == 422


@pytest.mark.req("503-4.5.1-d", component=CD)
async def test_one_key_for_two_purposes_is_refused(directory: TestDirectory) -> None:
    kit = await directory.invited("E1")
    same = spki(rsa_key("one for all"))
    request = replace(
        request_for("E1")[0], public_keys=tuple(PublicKey(k, same) for k in ENDPOINT_KINDS)
    )
    response = await directory.post((kit.certificate, kit.issuer), request)
    assert response.status_code == 422


@pytest.mark.req("503-7.6-g", component=CD)
@pytest.mark.req("503-8.3.3-c", component=CD)
async def test_external_certificates_are_published_as_they_are_while_valid(
    directory: TestDirectory,
) -> None:
    outside = TestPki("EXT", root="PUBLIC").component("SOME-COMPANY")
    external = (outside.signing, outside.encryption)
    kit = await directory.invited("E1")
    chain = (kit.certificate, kit.issuer)
    request = request_for("E1", external=external)[0]
    posted = decode_response((await directory.post(chain, request)).content)
    await directory.office.approve(posted.registration_id, by="alice")
    entry = await directory.entry("E1")
    assert {c.der for c in entry.certificates} >= {c.der for c in external}
    assert of_kind(entry.certificates, CertificateKind.AUTHENTICATION)[0].der != outside.chain[0]

    directory.clock.forward(timedelta(days=400))
    directory.roots[:] = [directory.pki.root]
    late = await directory.invited("E2")
    expired = request_for("E2", external=external)[0]
    response = await directory.post((late.certificate, late.issuer), expired)
    assert response.status_code == 422


@pytest.mark.req("503-T18-a")
@pytest.mark.req("503-5.1-a")
async def test_a_code_that_exists_cannot_be_registered_again(directory: TestDirectory) -> None:
    kit = await directory.invited("E1")  # handed out before the code was taken
    component = await directory.register("E1")
    entry = await directory.entry("E1")
    for chain in ((kit.certificate, kit.issuer), (await directory.register("E2")).chain):
        response = await directory.post(chain, request_for("E1", key_name="thief")[0])
        assert response.status_code in (403, 409)
    with pytest.raises(Refusal) as refused:
        await directory.office.invite("E1", by="alice")
    assert refused.value.rule is Rule.REGISTRATION_CODE_TAKEN
    # Types share one space of codes: a broker cannot take it either.
    response = await directory.post(
        (await directory.register("B1", BROKER_KINDS)).chain,
        request_for("E1", BROKER_KINDS, key_name="thief")[0],
    )
    assert response.status_code == 409
    assert await directory.entry("E1") == entry
    assert component.code == "E1"


@pytest.mark.req("503-7.8.2-g")
async def test_a_rejection_carries_its_reason(directory: TestDirectory) -> None:
    kit = await directory.invited("E1")
    chain = (kit.certificate, kit.issuer)
    posted = decode_response((await directory.post(chain, request_for("E1")[0])).content)
    await directory.office.reject(posted.registration_id, "no contract", by="alice")
    answer = await directory.outcome(posted.registration_id, chain)
    assert (answer.status, answer.reason) == (RegistrationStatus.REJECTED, "no contract")
    assert await directory.publication.find("E1") is None
    for decide in (
        directory.office.approve(posted.registration_id, by="bob"),
        directory.office.reject(posted.registration_id, "again", by="bob"),
    ):
        with pytest.raises(Refusal) as refused:
            await decide
        assert refused.value.rule is Rule.REGISTRATION_DECIDED


@pytest.mark.req("503-7.6-q", "503-4.4.3-f")
@pytest.mark.parametrize(
    ("mode", "with_external", "status"),
    [
        (Extensions.MANUAL, False, RegistrationStatus.PENDING),
        (Extensions.ISSUED_HERE, False, RegistrationStatus.APPROVED),
        (Extensions.ISSUED_HERE, True, RegistrationStatus.PENDING),
        (Extensions.AUTOMATIC, True, RegistrationStatus.APPROVED),
    ],
)
async def test_extensions_are_approved_as_configured_and_first_registrations_never(
    mode: Extensions, with_external: bool, status: RegistrationStatus
) -> None:
    directory = await TestDirectory(extensions=mode).started()
    kit = await directory.invited("E1")
    first = await directory.post((kit.certificate, kit.issuer), request_for("E1")[0])
    assert decode_response(first.content).status is RegistrationStatus.PENDING
    component = await directory.register("E2")
    outside = TestPki("EXT", root="PUBLIC").component("SOME-COMPANY")
    external = (outside.signing, outside.encryption) if with_external else ()
    request = request_for("E2", key_name="E2 renewed", external=external)[0]
    response = await directory.post(component.chain, request)
    assert response.status_code == 201
    assert decode_response(response.content).status is status


@pytest.mark.req("503-7.6-r", component=CD)
async def test_the_validity_of_certificates_is_a_setting() -> None:
    directory = await TestDirectory(certificate_validity=timedelta(days=90)).started()
    component = await directory.register("E1")
    assert {c.not_after for c in component.certificates} == {NOW + timedelta(days=90)}


async def test_an_installation_certificate_opens_registrations_only(
    directory: TestDirectory,
) -> None:
    kit = await directory.invited("E1")
    chain = (kit.certificate, kit.issuer)
    asked = await directory.request("GET", "/api/v1/components", encode_query(Query()), chain=chain)
    assert asked.status_code == 403
    assert decode_error(asked.content).code == "AUTHENTICATION_ERROR"


async def test_an_installation_certificate_is_bound_to_its_code_short_lived_and_used_once(
    directory: TestDirectory,
) -> None:
    kit = await directory.invited("E1")
    chain = (kit.certificate, kit.issuer)
    assert (await directory.post(chain, request_for("E2")[0])).status_code == 403
    assert (await directory.post(chain, request_for("E1")[0])).status_code == 201
    registration = (await directory.office.search(None))[0]
    await directory.office.reject(registration.registration_id, "wrong keys", by="alice")
    again = await directory.post(chain, request_for("E1", key_name="again")[0])
    assert again.status_code == 403
    old = await directory.invited("E5")
    directory.clock.forward(timedelta(days=8))
    late = await directory.post((old.certificate, old.issuer), request_for("E5")[0])
    assert late.status_code == 401


async def test_a_newer_invitation_withdraws_an_unused_one(directory: TestDirectory) -> None:
    astray = await directory.invited("E1")
    kit = await directory.invited("E1")
    request = request_for("E1")[0]
    assert (await directory.post((astray.certificate, astray.issuer), request)).status_code == 403
    assert (await directory.post((kit.certificate, kit.issuer), request)).status_code == 201


async def test_an_installation_certificate_of_another_subsystem_says_nothing(
    directory: TestDirectory,
) -> None:
    other = await TestDirectory("CD-2").started()
    kit = await other.invited("E1")
    response = await directory.post((kit.certificate, kit.issuer), request_for("E1")[0])
    assert response.status_code == 401


async def test_a_key_that_is_certified_for_another_component_is_refused(
    directory: TestDirectory,
) -> None:
    await directory.register("E1")
    kit = await directory.invited("E2")
    before = await directory.state()
    response = await directory.post(
        (kit.certificate, kit.issuer), request_for("E2", key_name="E1")[0]
    )
    assert response.status_code == 409
    assert "E1" not in response.text
    assert await directory.state() == before


async def test_the_installation_key_itself_cannot_be_certified(directory: TestDirectory) -> None:
    kit = await directory.invited("E1")
    request = request_for("E1", BROKER_KINDS)[0]
    own = replace(request, public_keys=(PublicKey(CertificateKind.AUTHENTICATION, kit.key.spki),))
    response = await directory.post((kit.certificate, kit.issuer), own)
    assert response.status_code == 409


async def test_an_extension_cannot_change_the_type_of_a_component(
    directory: TestDirectory,
) -> None:
    component = await directory.register("E1")
    response = await directory.post(
        component.chain, request_for("E1", BROKER_KINDS, key_name="other")[0]
    )
    assert response.status_code == 422


async def test_a_second_request_waits_until_the_first_is_decided(
    directory: TestDirectory,
) -> None:
    directory.publication.settings = replace(directory.settings, extensions=Extensions.MANUAL)
    component = await directory.register("E1")
    one = await directory.post(component.chain, request_for("E1", key_name="renewal 1")[0])
    two = await directory.post(component.chain, request_for("E1", key_name="renewal 2")[0])
    assert (one.status_code, two.status_code) == (201, 409)


async def test_an_extension_of_a_component_revoked_meanwhile_is_not_approved(
    directory: TestDirectory,
) -> None:
    directory.publication.settings = replace(directory.settings, extensions=Extensions.MANUAL)
    component = await directory.register("E1")
    posted = await directory.post(component.chain, request_for("E1", key_name="renewal")[0])
    registration_id = decode_response(posted.content).registration_id
    await directory.office.revoke("E1", "key lost", by="alice")
    registration = await directory.office.show(registration_id)
    assert registration.status is RegistrationStatus.REJECTED
    assert await directory.publication.find("E1") is None


async def test_a_request_from_before_a_revocation_is_not_taken_for_a_repetition(
    directory: TestDirectory,
) -> None:
    old = await directory.register("E1")
    renewal = request_for("E1", key_name="renewal")[0]
    assert (await directory.post(old.chain, renewal)).status_code == 201
    await directory.office.revoke("E1", "compromised", by="alice")
    directory.clock.forward(timedelta(hours=1))
    again = await directory.register("E1", key_name="again")
    response = await directory.post(again.chain, renewal)
    assert response.status_code == 409
    assert "location" not in response.headers


async def test_the_code_of_a_configured_directory_is_taken(directory: TestDirectory) -> None:
    peer = Peer(ComponentCode("CD-2"), ("https://cd2.example",))
    directory.publication.reconfigure(replace(directory.settings, peers=(peer,)))
    with pytest.raises(Refusal) as refused:
        await directory.office.invite("CD-2", by="alice")
    assert refused.value.rule is Rule.REGISTRATION_CODE_TAKEN
