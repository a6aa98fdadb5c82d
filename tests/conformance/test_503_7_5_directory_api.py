"""IEC 62325-503 cl. 7.5, Tables 23 to 25: the REST API, who may use it, and how it answers."""

from __future__ import annotations

import re
from dataclasses import replace
from uuid import uuid4

import pytest
from starlette.responses import Response

from gridpost.core.component import Component, ComponentType
from gridpost.core.identifiers import ComponentCode
from gridpost.core.instant import Instant
from gridpost.core.message_path import Restriction
from gridpost.core.registration import RegistrationStatus
from gridpost.wire.directory import (
    Query,
    decode_entry,
    decode_error,
    decode_response,
    encode_component,
    encode_query,
    encode_request,
)
from gridpost.wire.xml import load_schema, parse
from support.builders import path
from support.component_directory import BROKER_KINDS, TestDirectory, request_for
from support.pki import NOW, TestComponent, TestPki

CD = "component-directory"


@pytest.fixture
async def directory() -> TestDirectory:
    return await TestDirectory().started()


@pytest.fixture
async def endpoint(directory: TestDirectory) -> TestComponent:
    return await directory.register("E1")


@pytest.fixture
async def broker(directory: TestDirectory) -> TestComponent:
    return await directory.register("B1", BROKER_KINDS)


async def entry_of(directory: TestDirectory, code: str) -> Component:
    return await directory.entry(code)


@pytest.mark.req("503-T25-a", "503-T24-b")
@pytest.mark.req("503-7.6-h")
async def test_a_registration_is_created_and_its_url_is_in_the_header(
    directory: TestDirectory,
) -> None:
    kit = await directory.invited("E9")
    chain = (kit.certificate, kit.issuer)
    response = await directory.post(chain, request_for("E9")[0])
    assert response.status_code == 201
    answer = decode_response(response.content)
    assert answer.registration_id
    assert answer.status is RegistrationStatus.PENDING
    located = await directory.request("GET", response.headers["location"], chain=chain)
    assert decode_response(located.content).registration_id == answer.registration_id


@pytest.mark.req("503-T25-b")
async def test_a_component_directory_cannot_register(directory: TestDirectory) -> None:
    response = await directory.post(directory.own.chain, request_for("CD-1")[0])
    assert response.status_code == 403


@pytest.mark.req("503-T25-c")
async def test_a_registration_is_read_while_pending_and_when_decided(
    directory: TestDirectory,
) -> None:
    kit = await directory.invited("E9")
    chain = (kit.certificate, kit.issuer)
    posted = decode_response((await directory.post(chain, request_for("E9")[0])).content)
    pending = await directory.outcome(posted.registration_id, chain)
    assert (pending.status, pending.certificates) == (RegistrationStatus.PENDING, ())
    await directory.office.approve(posted.registration_id, by="alice")
    decided = await directory.outcome(posted.registration_id, chain)
    assert decided.status is RegistrationStatus.APPROVED
    assert len(decided.certificates) == 3


@pytest.mark.req("503-T25-d")
async def test_a_registration_is_shown_to_its_component_only(
    directory: TestDirectory, endpoint: TestComponent
) -> None:
    kit = await directory.invited("E9")
    posted = await directory.post((kit.certificate, kit.issuer), request_for("E9")[0])
    response = await directory.request("GET", posted.headers["location"], chain=endpoint.chain)
    assert response.status_code == 403
    assert "E9" not in response.text


@pytest.mark.req("503-T25-e", component=CD)
@pytest.mark.req("503-T24-a")
async def test_an_endpoint_pushes_its_entry_and_gets_it_back(
    directory: TestDirectory, endpoint: TestComponent
) -> None:
    entry = replace(await directory.entry("E1"), urls=("amqps://e1.example:5671",))
    response = await directory.push(endpoint, entry)
    assert response.status_code == 200
    answered, warnings = decode_entry(response.content, ComponentType.ENDPOINT)
    assert not warnings
    assert answered.urls == ("amqps://e1.example:5671",)
    assert await directory.entry("E1") == answered


@pytest.mark.req("503-T25-f", "503-T24-f")
async def test_nobody_pushes_the_entry_of_another_endpoint(
    directory: TestDirectory, endpoint: TestComponent, broker: TestComponent
) -> None:
    await directory.register("E2")
    before = await directory.state()
    body = encode_component(await directory.entry("E2"))
    for other in (endpoint, broker):
        response = await directory.request("PUT", "/api/v1/endpoints/E2", body, chain=other.chain)
        assert response.status_code == 403
    unlike = await directory.request("PUT", "/api/v1/endpoints/E1", body, chain=endpoint.chain)
    assert unlike.status_code == 422
    assert await directory.state() == before


@pytest.mark.req("503-T25-g", component=CD)
async def test_a_broker_pushes_its_entry_and_gets_it_back(
    directory: TestDirectory, broker: TestComponent
) -> None:
    entry = replace(
        await directory.entry("B1"), restriction=Restriction(frozenset({ComponentCode("E1")}))
    )
    response = await directory.push(broker, entry)
    assert response.status_code == 200
    answered, _ = decode_entry(response.content, ComponentType.BROKER)
    assert answered.restriction == entry.restriction


@pytest.mark.req("503-T25-h")
async def test_nobody_pushes_the_entry_of_another_broker(
    directory: TestDirectory, endpoint: TestComponent, broker: TestComponent
) -> None:
    other = await directory.register("B2", BROKER_KINDS)
    body = encode_component(await directory.entry("B1"))
    for stranger in (endpoint, other):
        response = await directory.request("PUT", "/api/v1/brokers/B1", body, chain=stranger.chain)
        assert response.status_code == 403
    # Its own code under the resource of the other type.
    response = await directory.request("PUT", "/api/v1/brokers/E1", body, chain=endpoint.chain)
    assert response.status_code == 403


@pytest.mark.req("503-T25-i", component=CD)
async def test_the_query_in_the_body_of_the_get_is_honoured(
    directory: TestDirectory, endpoint: TestComponent
) -> None:
    first = await directory.query(endpoint.chain)
    assert {c.code for c in first.answer.components} == {"CD-1", "E1"}
    (grant,) = first.answer.grants
    held = Query((await directory.publication.directory()).couples())
    second = await directory.query(endpoint.chain, held)
    assert second.answer.components == ()
    assert second.answer.grants == (grant,)


@pytest.mark.req("503-T25-j")
async def test_any_registered_component_may_synchronise_and_nobody_else(
    directory: TestDirectory, endpoint: TestComponent, broker: TestComponent
) -> None:
    for chain in (endpoint.chain, broker.chain, directory.own.chain):
        assert (await directory.query(chain)).answer.components
    stranger = TestPki("CD-9", root="OTHER").component("E1")
    body = encode_query(Query())
    for chain in (stranger.chain, [], directory.pki.component("E77").chain):
        response = await directory.request("GET", "/api/v1/components", body, chain=chain)
        assert response.status_code == 401


@pytest.mark.req("503-7.5-a", "503-9.1-e", "503-9.2-h")
async def test_the_four_resources_live_under_version_one_and_others_do_not_exist(
    directory: TestDirectory, endpoint: TestComponent, broker: TestComponent
) -> None:
    assert (await directory.query(endpoint.chain)).answer.grants
    assert (await directory.push(endpoint, await directory.entry("E1"))).status_code == 200
    assert (await directory.push(broker, await directory.entry("B1"))).status_code == 200
    filed = (await directory.office.search(None))[0]
    shown = await directory.request(
        "GET", f"/api/v1/registrations/{filed.registration_id}", chain=broker.chain
    )
    assert shown.status_code == 200
    for unknown in ("/api/v2/components", "/api/v1/nodes", "/", "/api/v1/components/", "/x"):
        response = await directory.request("GET", unknown, chain=endpoint.chain)
        assert response.status_code == 404, unknown


@pytest.mark.req("503-T23-a")
async def test_a_get_changes_nothing_and_other_methods_are_refused(
    directory: TestDirectory, endpoint: TestComponent
) -> None:
    before = await directory.state()
    await directory.query(endpoint.chain)
    assert await directory.state() == before
    for method in ("POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"):
        response = await directory.request(method, "/api/v1/components", chain=endpoint.chain)
        assert response.status_code == 405
        assert response.headers["allow"] == "GET"
    assert await directory.state() == before


async def test_every_success_has_content_so_none_is_an_empty_200(
    directory: TestDirectory, endpoint: TestComponent
) -> None:
    pushed = await directory.push(endpoint, await directory.entry("E1"))
    asked = await directory.request(
        "GET", "/api/v1/components", encode_query(Query()), chain=endpoint.chain
    )
    for response in (pushed, asked):
        assert response.status_code == 200
        assert response.content


@pytest.mark.req("503-T24-c")
async def test_success_has_content_or_is_204(
    directory: TestDirectory,
    endpoint: TestComponent,
    broker: TestComponent,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kit = await directory.invited("E9")
    newcomer = (kit.certificate, kit.issuer)
    posted = await directory.post(newcomer, request_for("E9")[0])
    entries = {code: encode_component(await directory.entry(code)) for code in ("E1", "B1")}
    asked = ("GET", posted.headers["location"], b"", newcomer)
    operations = (
        asked,
        ("PUT", "/api/v1/endpoints/E1", entries["E1"], endpoint.chain),
        ("PUT", "/api/v1/brokers/B1", entries["B1"], broker.chain),
        ("GET", "/api/v1/components", encode_query(Query()), endpoint.chain),
    )
    answers = [posted]
    for method, path_, body, chain in operations:
        answers.append(await directory.request(method, path_, body, chain=chain))
    # Every operation of Table 25 answers with an element, also when nothing has changed.
    assert [answer.status_code for answer in answers] == [201, 200, 200, 200, 200]
    assert len(answers) == len(directory.api._resources)
    for answer in answers:
        parse(answer.content)

    async def nothing_to_say(*_: object) -> Response:
        return Response(b"", 200, media_type="application/xml")

    monkeypatch.setattr(
        directory.api,
        "_resources",
        [replace(resource, handler=nothing_to_say) for resource in directory.api._resources],
    )
    for method, path_, body, chain in operations:
        answer = await directory.request(method, path_, body, chain=chain)
        assert (answer.status_code, answer.content) == (204, b"")
        assert "content-type" not in answer.headers


@pytest.mark.req("503-T24-d")
@pytest.mark.parametrize("body", [b"<broken", b"", b"{}", b"\xff\xfe<a/>"])
async def test_a_body_that_cannot_be_parsed_is_a_bad_request(
    directory: TestDirectory, endpoint: TestComponent, body: bytes
) -> None:
    response = await directory.request("PUT", "/api/v1/endpoints/E1", body, chain=endpoint.chain)
    assert response.status_code == 400
    assert decode_error(response.content).message


@pytest.mark.req("503-T24-e")
async def test_without_an_acceptable_certificate_the_answer_is_401(
    directory: TestDirectory, endpoint: TestComponent
) -> None:
    response = await directory.request("GET", "/api/v1/components", b"<x/>", chain=[])
    assert response.status_code == 401
    assert decode_error(response.content).code == "AUTHENTICATION_ERROR"


@pytest.mark.req("503-T24-g")
async def test_an_unknown_registration_is_not_found(
    directory: TestDirectory, endpoint: TestComponent
) -> None:
    for unknown in ("unknown", str(uuid4()), "..%2f..%2fetc"):
        response = await directory.request(
            "GET", f"/api/v1/registrations/{unknown}", chain=endpoint.chain
        )
        assert response.status_code == 404
        assert decode_error(response.content).id


@pytest.mark.req("503-T24-h")
async def test_the_same_registration_twice_is_a_conflict_that_names_the_first(
    directory: TestDirectory,
) -> None:
    kit = await directory.invited("E9")
    chain = (kit.certificate, kit.issuer)
    request = request_for("E9")[0]
    first = await directory.post(chain, request)
    second = await directory.post(chain, request)
    assert (first.status_code, second.status_code) == (201, 409)
    assert second.headers["location"] == first.headers["location"]
    assert len(await directory.office.search(None)) == 1


@pytest.mark.req("503-T24-i")
@pytest.mark.parametrize("media_type", ["text/plain", "application/json", None, "application/xmlx"])
async def test_a_body_of_another_media_type_is_refused(
    directory: TestDirectory, endpoint: TestComponent, media_type: str | None
) -> None:
    response = await directory.request(
        "PUT",
        "/api/v1/endpoints/E1",
        encode_component(await directory.entry("E1")),
        chain=endpoint.chain,
        media_type=media_type,
    )
    assert response.status_code == 415


@pytest.mark.parametrize("media_type", ["text/xml", "application/xml; charset=UTF-8"])
async def test_both_media_types_of_xml_are_taken(
    directory: TestDirectory, endpoint: TestComponent, media_type: str
) -> None:
    response = await directory.request(
        "PUT",
        "/api/v1/endpoints/E1",
        encode_component(await directory.entry("E1")),
        chain=endpoint.chain,
        media_type=media_type,
    )
    assert response.status_code == 200


@pytest.mark.req("503-T24-j", "503-7.4-c")
async def test_what_parses_but_fails_validation_is_unprocessable_and_changes_nothing(
    directory: TestDirectory, endpoint: TestComponent
) -> None:
    entry = await directory.entry("E1")
    before = await directory.state()
    backwards = path("BP1", start=NOW, end=NOW)
    bad = [
        encode_component(replace(entry, paths=(backwards,))),
        encode_component(replace(entry, paths=(path("BP1"), path("BP1", "DIRECT")))),
        encode_component(replace(entry, urls=("https://e1.example",))),
        encode_component(entry).replace(b"<phone>", b"<fax>").replace(b"</phone>", b"</fax>"),
        encode_component(entry).replace(b"mades.entsoe.eu", b"mades.example"),
    ]
    for body in bad:
        response = await directory.request(
            "PUT", "/api/v1/endpoints/E1", body, chain=endpoint.chain
        )
        assert response.status_code == 422, response.text
        assert decode_error(response.content).message
    assert await directory.state() == before


@pytest.mark.req("503-T24-k")
async def test_a_store_that_fails_is_an_internal_error_that_says_nothing(
    directory: TestDirectory, endpoint: TestComponent, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = replace(await directory.entry("E1"), urls=("amqps://new.example",))
    before = await directory.state()

    async def fails(work: object) -> None:
        raise RuntimeError("disk /secret/path is on fire")

    monkeypatch.setattr(directory.store, "run", fails)
    response = await directory.push(endpoint, entry)
    assert response.status_code == 500
    error = decode_error(response.content)
    assert error.code == "INTERNAL_ERROR"
    assert "secret" not in response.text
    assert "Traceback" not in response.text
    assert await directory.state() == before


@pytest.mark.req("503-7.5-c", "503-7.5-d")
@pytest.mark.req("503-7.5-b", component=CD)
async def test_every_error_has_a_body_of_the_error_schema(
    directory: TestDirectory, endpoint: TestComponent, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = encode_component(await directory.entry("E1"))
    kit = await directory.invited("E9")
    request = request_for("E9")[0]
    await directory.post((kit.certificate, kit.issuer), request)
    answers = [
        await directory.request("PUT", "/api/v1/endpoints/E1", b"<", chain=endpoint.chain),
        await directory.request("GET", "/api/v1/components", chain=[]),
        await directory.request("PUT", "/api/v1/endpoints/E2", entry, chain=endpoint.chain),
        await directory.request("GET", "/nowhere", chain=endpoint.chain),
        await directory.request("DELETE", "/api/v1/components", chain=endpoint.chain),
        await directory.post((kit.certificate, kit.issuer), request),
        await directory.request(
            "PUT", "/api/v1/endpoints/E1", b"<a>" * 2_000_000, chain=endpoint.chain
        ),
        await directory.request(
            "PUT", "/api/v1/endpoints/E1", entry, chain=endpoint.chain, media_type="text/plain"
        ),
        await directory.request("PUT", "/api/v1/endpoints/E1", b"<a/>", chain=endpoint.chain),
    ]

    async def fails(work: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(directory.store, "read", fails)
    answers.append(await directory.query_raw(endpoint.chain))
    assert [a.status_code for a in answers] == [400, 401, 403, 404, 405, 409, 413, 415, 422, 500]
    schema = load_schema("directory/error.xsd")
    for answer in answers:
        root = parse(answer.content)
        schema.validate(root)
        assert root.tag == "{http://mades.entsoe.eu/componentDirectory}error"
        assert all(root.findtext(name) for name in ("code", "id", "message"))
        assert root.find("details") is not None


async def test_each_refusal_is_in_the_journal_with_the_id_of_its_answer(
    directory: TestDirectory, endpoint: TestComponent
) -> None:
    response = await directory.request("GET", "/nowhere", chain=endpoint.chain)
    error = decode_error(response.content)
    (row,) = [r for r in await directory.refusals() if r.refusal_id == error.id]
    assert (row.rule, row.peer) == ("RESOURCE_UNKNOWN", "E1")


async def test_attributes_that_a_later_client_leaves_out_are_not_demanded(
    directory: TestDirectory, endpoint: TestComponent
) -> None:
    entry = await directory.entry("E1")
    text = encode_component(replace(entry, created=None, modified=None)).decode()
    old = re.sub(r"<componentDirectory>.*?</componentDirectory>", "", text)
    response = await directory.request(
        "PUT", "/api/v1/endpoints/E1", old.encode(), chain=endpoint.chain
    )
    assert response.status_code == 200
    answered, _ = decode_entry(response.content, ComponentType.ENDPOINT)
    assert answered.created == entry.created == Instant.of(NOW)
    assert encode_request(request_for("E1")[0])
