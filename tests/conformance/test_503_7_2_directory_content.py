"""IEC 62325-503 cl. 7.1 to 7.3, Tables 18 to 20: what stands in the directory, and who may change it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from lxml import etree

from gridpost.core.certificate import CertificateKind
from gridpost.core.component import Component, ComponentType, Contact, Implementation
from gridpost.core.identifiers import ComponentCode
from gridpost.core.message_path import Restriction
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.directory import encode_component
from gridpost.wire.x509 import certificate_id
from support.builders import path
from support.component_directory import BROKER_KINDS, CONTACT, TestDirectory
from support.pki import TestComponent

CD = "component-directory"


@pytest.fixture
async def directory() -> TestDirectory:
    return await TestDirectory().started()


@pytest.fixture
async def endpoint(directory: TestDirectory) -> TestComponent:
    return await directory.register("E1")


async def raw_push(
    directory: TestDirectory, component: TestComponent, body: bytes, resource: str = "endpoints"
) -> int:
    response = await directory.request(
        "PUT", f"/api/v1/{resource}/{component.code}", body, chain=component.chain
    )
    return response.status_code


@pytest.mark.req("503-7.2-a")
@pytest.mark.req("503-T18-h", "503-T18-k")
@pytest.mark.req("503-9.1-a", "503-9.2-a", "503-4.4.3-a", component=CD)
async def test_one_entry_per_component_and_one_of_the_directory_itself(
    directory: TestDirectory, endpoint: TestComponent
) -> None:
    await directory.register("E2")
    await directory.register("B1", BROKER_KINDS)
    entries = list((await directory.publication.directory()).components(directory.clock.now()))
    assert sorted(c.code for c in entries) == ["B1", "CD-1", "E1", "E2"]
    kinds = {c.code: {k.kind for k in c.certificates} for c in entries}
    K = CertificateKind
    assert kinds == {
        "B1": {K.AUTHENTICATION},
        "CD-1": {K.AUTHENTICATION, K.INTEGRATED_CA},
        "E1": {K.AUTHENTICATION, K.SIGNING, K.ENCRYPTION},
        "E2": {K.AUTHENTICATION, K.SIGNING, K.ENCRYPTION},
    }
    assert {c.component_directory for c in entries} == {"CD-1"}
    assert {c.implementation.mades_version for c in entries} == {"2"}
    assert [c.code for c in entries if c.type is ComponentType.COMPONENT_DIRECTORY] == ["CD-1"]


@pytest.mark.req("503-7.2-b", "503-T18-i", "503-T18-j")
async def test_a_push_changes_what_the_component_owns_and_nothing_else(
    directory: TestDirectory, endpoint: TestComponent
) -> None:
    before = await directory.entry("E1")
    directory.clock.forward(timedelta(hours=1))
    thief = await directory.register("E2")
    forged = replace(
        before,
        contact=Contact("New owner", "P", "e", "1"),
        component_directory=ComponentCode("CD-9"),
        certificates=thief.certificates,
        created=None,
        paths=(path("BP1"),),
    )
    assert (await directory.push(endpoint, forged)).status_code == 200
    after = await directory.entry("E1")
    assert after.contact.organization == "New owner"
    assert after.paths == forged.paths
    assert after.certificates == before.certificates
    assert after.component_directory == "CD-1"
    assert after.created == before.created
    assert after.modified is not None
    assert before.modified is not None
    assert after.modified > before.modified
    typed = encode_component(forged).replace(b"<type>ENDPOINT<", b"<type>BROKER<")
    assert await raw_push(directory, endpoint, typed) == 200
    assert (await directory.entry("E1")).type is ComponentType.ENDPOINT
    # The same content again, and a synchronisation, are no modification.
    directory.clock.forward(timedelta(hours=1))
    await directory.push(endpoint, after)
    await directory.query(endpoint.chain)
    assert (await directory.entry("E1")).modified == after.modified


@pytest.mark.req("503-T18-c", component=CD)
async def test_contacts_are_mandatory_and_may_name_several(
    directory: TestDirectory, endpoint: TestComponent
) -> None:
    entry = await directory.entry("E1")
    body = encode_component(entry)
    assert await raw_push(directory, endpoint, body.replace(b"<email>", b"<mail>")) == 400
    without = body.replace(f"<email>{CONTACT.email}</email>".encode(), b"")
    assert await raw_push(directory, endpoint, without) == 422
    empty = encode_component(replace(entry, contact=replace(CONTACT, email=" ")))
    assert await raw_push(directory, endpoint, empty) == 422
    assert await directory.entry("E1") == entry
    two = replace(CONTACT, email="a@grid.example, b@grid.example")
    assert (await directory.push(endpoint, replace(entry, contact=two))).status_code == 200
    assert (await directory.entry("E1")).contact == two
    own = await directory.entry("CD-1")
    assert all((own.contact.organization, own.contact.person, own.contact.email, own.contact.phone))


@pytest.mark.req("503-T18-d", "503-T18-e", component=CD)
async def test_urls_keep_their_order_and_have_the_scheme_of_their_type(
    directory: TestDirectory, endpoint: TestComponent
) -> None:
    entry = await directory.entry("E1")
    urls = ("amqps://second.example:5671", "amqps://first.example:5671")
    assert (await directory.push(endpoint, replace(entry, urls=urls))).status_code == 200
    received = (await directory.query(endpoint.chain)).answer.components
    assert next(c for c in received if c.code == "E1").urls == urls
    wrong = await directory.push(endpoint, replace(entry, urls=("https://e1.example",)))
    assert wrong.status_code == 422
    broker = await directory.register("B1", BROKER_KINDS)
    b1 = await directory.entry("B1")
    wrong = await directory.push(broker, replace(b1, urls=("https://b1.example",)))
    assert wrong.status_code == 422
    directory.publication.settings = replace(directory.settings, urls=("amqps://cd.example",))
    with pytest.raises(Refusal) as refused:
        await directory.publish_own()
    assert refused.value.rule is Rule.INCONSISTENT_CONFIGURATION


@pytest.mark.req("503-T18-l", "503-T20-a", "503-T20-b", component=CD)
async def test_the_implementation_is_mandatory_and_names_a_version(
    directory: TestDirectory, endpoint: TestComponent
) -> None:
    entry = await directory.entry("E1")
    body = encode_component(entry)
    without = etree.fromstring(body)
    without.remove(without.find("madesImplementation"))
    assert await raw_push(directory, endpoint, etree.tostring(without)) == 422
    versionless = body.replace(b' madesVersion="2"', b"")
    assert await raw_push(directory, endpoint, versionless) == 422
    odd = replace(entry, implementation=Implementation("2", compatible_versions=",,1;;x"))
    assert (await directory.push(endpoint, odd)).status_code == 200
    bare = replace(entry, implementation=Implementation("2"))
    assert (await directory.push(endpoint, bare)).status_code == 200


@pytest.mark.req("503-T18-m", component=CD)
async def test_paths_are_for_endpoints_and_restrictions_for_brokers(
    directory: TestDirectory, endpoint: TestComponent
) -> None:
    broker = await directory.register("B1", BROKER_KINDS)
    body = encode_component(await directory.entry("B1"))
    with_paths = body.replace(b"<restriction>", b"<paths/><restriction>")
    assert await raw_push(directory, broker, with_paths, "brokers") == 422
    tree = etree.fromstring(body)
    tree.remove(tree.find("restriction"))
    assert await raw_push(directory, broker, etree.tostring(tree), "brokers") == 422
    entry = encode_component(await directory.entry("E1"))
    restricted = entry.replace(b"</cd:endpoint>", b"<restriction/></cd:endpoint>")
    assert await raw_push(directory, endpoint, restricted) == 422


@pytest.mark.req("503-T19-a", component=CD)
async def test_certificates_are_published_in_der_under_their_certificate_id(
    directory: TestDirectory, endpoint: TestComponent
) -> None:
    for component in (await directory.query(endpoint.chain)).answer.components:
        for certificate in component.certificates:
            assert certificate.certificate_id == certificate_id(certificate.der)


@pytest.mark.req("503-5.3-b", "503-5.3-c", "503-5.3-e", "503-5.3-h", component=CD)
async def test_pushed_paths_are_published_as_they_are(
    directory: TestDirectory, endpoint: TestComponent
) -> None:
    now = directory.clock.now()
    change = now + timedelta(days=7)
    paths = (
        path("BP1", "INDIRECT:B1", end=change, senders=["E2"]),
        path("BP1", "INDIRECT:B2", start=change),
        path("BP2-*", "DIRECT", senders=[]),
    )
    entry = await directory.entry("E1")
    urls = ("amqps://e1.example",)
    assert (await directory.push(endpoint, replace(entry, paths=paths, urls=urls))).is_success
    received = (await directory.query(endpoint.chain)).answer.components
    assert next(c for c in received if c.code == "E1").paths == paths


@pytest.mark.req("503-5.3-c", "503-5.3-d", component=CD)
@pytest.mark.parametrize(
    ("written", "status"),
    [
        (b"<path>DIRECT:</path>", 200),
        (b"<path>INDIRECT:B1</path>", 200),
        (b"<path>INDIRECT</path>", 422),
        (b"<path>INDIRECT:</path>", 422),
        (b"<messageType>A*C</messageType>", 422),
        (b"<messageType>*</messageType>", 200),
    ],
)
async def test_the_forms_of_paths_and_message_types(
    directory: TestDirectory, endpoint: TestComponent, written: bytes, status: int
) -> None:
    entry = replace(
        await directory.entry("E1"), urls=("amqps://e1.example",), paths=(path("ABC", "DIRECT"),)
    )
    body = encode_component(entry)
    old = b"<path>DIRECT</path>" if b"DIRECT" in written else b"<messageType>ABC</messageType>"
    assert old in body
    assert await raw_push(directory, endpoint, body.replace(old, written)) == status


@pytest.mark.req("503-5.4-c", component=CD)
async def test_a_pushed_restriction_is_published(
    directory: TestDirectory, endpoint: TestComponent
) -> None:
    broker = await directory.register("B1", BROKER_KINDS)
    restriction = Restriction(frozenset({ComponentCode("E1")}))
    entry: Component = replace(await directory.entry("B1"), restriction=restriction)
    await directory.push(broker, entry)
    received = (await directory.query(endpoint.chain)).answer.components
    assert next(c for c in received if c.code == "B1").restriction == restriction


@pytest.mark.req("503-7.3.2-b", "503-7.3.2-c", component=CD)
async def test_references_to_nobody_and_useless_paths_are_stored(
    directory: TestDirectory, endpoint: TestComponent
) -> None:
    closed = await directory.register("B1", BROKER_KINDS)
    nobody = Restriction(frozenset({ComponentCode("NOBODY")}))
    assert (
        await directory.push(closed, replace(await directory.entry("B1"), restriction=nobody))
    ).is_success
    paths = (path("BP1", "INDIRECT:NOPE", senders=["GHOST"]), path("BP2", "INDIRECT:B1"))
    entry = replace(await directory.entry("E1"), paths=paths)
    assert (await directory.push(endpoint, entry)).is_success
    assert (await directory.entry("E1")).paths == paths
