"""503 Tables 18 to 20 and 25 as an endpoint or broker fulfils them: what it publishes and what it reads.

Against a directory over real TLS that keeps every document as it came.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from cryptography import x509
from lxml import etree

from gridpost.core.component import Component, ComponentType, Implementation
from gridpost.core.identifiers import ComponentCode
from gridpost.core.message_path import Restriction
from gridpost.core.refusal import Refusal, Rule
from support.builders import broker, endpoint, path
from support.directory_client import NAMES, Machine, both
from support.fake_directory import FakeDirectory

NAMESPACE = "http://mades.entsoe.eu/componentDirectory"
URLS = ("amqps://second.example:5671", "amqps://first.example:5671")


def complete(machine: Machine) -> Component:
    component = replace(machine.component(), urls=URLS)
    contact = replace(component.contact, email="a@x.example, b@x.example", person="A; B")
    if machine.kind is ComponentType.ENDPOINT:
        return replace(component, contact=contact, paths=(path("A01", "INDIRECT:B1"),))
    return replace(
        component, contact=contact, restriction=Restriction(frozenset({ComponentCode("E1")}))
    )


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            kind,
            id=name,
            marks=[
                *(
                    pytest.mark.req(f"503-{row}", component=name)
                    for row in ("T18-c", "T18-d", "T18-l", "T18-m", "T20-a")
                ),
                pytest.mark.req(
                    "503-T25-e" if kind is ComponentType.ENDPOINT else "503-T25-g", component=name
                ),
            ],
        )
        for kind, name in NAMES.items()
    ],
)
async def test_a_component_pushes_its_own_entry_as_table_18_has_it(kind: ComponentType) -> None:
    directory, machine = FakeDirectory(), Machine(kind)
    async with directory.running():
        client = await machine.enrolled(directory)
        await client.configuration.change(complete(machine), by="administrator")
        await client.configuration.attempt()
        await client.synchroniser.round()
        assert not client.configuration.state.pending
        found = client.directory().find(machine.code, machine.clock.now())
    (put,) = directory.of("PUT")
    name = NAMES[kind]
    assert put.path == f"/api/v1/{name}s/{machine.code}"
    document = etree.fromstring(put.body)
    assert document.tag == f"{{{NAMESPACE}}}{name}"
    for field in ("organization", "person", "email", "phone"):
        assert document.findtext(field)
    assert document.findtext("email") == "a@x.example, b@x.example"
    assert document.findtext("type") == kind.value
    assert [e.text for e in document.findall("urls/url")] == list(URLS)
    implementation = document.find("madesImplementation")
    assert implementation is not None
    assert implementation.get("madesVersion") == "2"
    own, other = ("paths", "restriction")[:: 1 if kind is ComponentType.ENDPOINT else -1]
    assert document.find(own) is not None
    assert document.find(other) is None
    # The order of the URLs survives the way through the directory and back.
    assert found is not None
    assert found.urls == URLS


@both("503-T18-c", "503-T18-m")
async def test_an_entry_that_table_18_forbids_is_refused_before_it_is_pushed(
    kind: ComponentType,
) -> None:
    directory, machine = FakeDirectory(), Machine(kind)
    async with directory.running():
        client = await machine.enrolled(directory)
        good = complete(machine)
        wrong = [
            replace(good, contact=replace(good.contact, **{field: " "}))
            for field in ("organization", "person", "email", "phone")
        ]
        if kind is ComponentType.ENDPOINT:
            wrong.append(replace(good, restriction=Restriction()))
        else:
            wrong += [replace(good, restriction=None), replace(good, paths=(path("A01"),))]
        for component in wrong:
            with pytest.raises(Refusal) as refused:
                await client.configuration.change(component, by="administrator")
            assert refused.value.rule is Rule.INCONSISTENT_CONFIGURATION
        await client.configuration.attempt()
    assert directory.of("PUT") == []


@both("503-T19-a", "503-T20-b")
async def test_what_others_publish_is_read_as_tables_19_and_20_have_it(kind: ComponentType) -> None:
    directory, machine = FakeDirectory(), Machine(kind)
    odd = Implementation("2", "", "", "2; and ???")
    directory.others["E7"] = replace(endpoint("E7"), implementation=Implementation("2"))
    directory.others["E8"] = replace(endpoint("E8"), implementation=odd)
    async with directory.running():
        client = await machine.enrolled(directory)
        await client.synchroniser.round()
        known = {c.code: c for s in client.directory().subsystems.values() for c in s.components}
    assert known["E7"].implementation == Implementation("2")
    assert known["E8"].implementation.compatible_versions == "2; and ???"
    # Its own certificates, as a program of others reads the elements of its registration's answer.
    for held in machine.keys.certificates():
        parsed = x509.load_der_x509_certificate(held.der)
        assert held.certificate_id.endswith(str(parsed.serial_number))
        assert held.der in {c.der for c in known[machine.code].certificates}
    for certificate in known[machine.code].certificates:
        parsed = x509.load_der_x509_certificate(certificate.der)
        assert certificate.certificate_id.endswith(str(parsed.serial_number))
        assert not certificate.der.startswith(b"-----BEGIN")


@both("503-T25-i")
async def test_a_synchronisation_is_a_get_with_a_body(kind: ComponentType) -> None:
    directory, machine = FakeDirectory(), Machine(kind)
    directory.others["E7"] = endpoint("E7")
    async with directory.running():
        client = await machine.enrolled(directory)
        directory.seen.clear()
        await client.synchroniser.round()
        first = dict(client.directory().subsystems)
        await client.synchroniser.round()
        assert client.directory().find("E7", machine.clock.now()) is not None
        assert {s.content_id for s in client.directory().subsystems.values()} == {
            s.content_id for s in first.values()
        }
    one, two = directory.of("GET")
    for seen in (one, two):
        assert seen.path == "/api/v1/components"
        assert seen.media_type.startswith("application/xml")
        assert etree.fromstring(seen.body).tag == f"{{{NAMESPACE}}}componentsQuery"
    # What is known is named, so that it need not come again.
    assert directory.subsystem().content_id.encode() in two.body


@pytest.mark.req("503-7.8.1-j", component="broker")
async def test_a_broker_reads_the_message_paths_of_others() -> None:
    directory, machine = FakeDirectory(), Machine(ComponentType.BROKER)
    directory.others["E7"] = endpoint(
        "E7", path("A01", "INDIRECT:B1", senders=["E2"]), path("B*", "DIRECT")
    )
    directory.others["B7"] = broker("B7")
    async with directory.running():
        client = await machine.enrolled(directory)
        await client.synchroniser.round()
        found = client.directory().find("E7", machine.clock.now())
    assert found is not None
    assert [(p.message_type, str(p.route), p.senders) for p in found.paths] == [
        ("A01", "INDIRECT:B1", {"E2"}),
        ("B*", "DIRECT", None),
    ]
    assert found.paths[0].valid_until is None
