"""503 cl. 7.8.1 and Table 18 at the directory: which documents it takes, and what it makes of them."""

from __future__ import annotations

import pytest

from gridpost.core.component import ComponentType
from gridpost.core.message_path import Restriction
from support.api_texts import PATH, broker_entry, entry
from support.component_directory import BROKER_KINDS, TestDirectory
from support.pki import TestComponent

CD = "component-directory"


@pytest.fixture
async def directory() -> TestDirectory:
    return await TestDirectory().started()


async def status(directory: TestDirectory, component: TestComponent, body: bytes) -> int:
    """Of a push; one that is refused changes nothing."""
    folder = "brokers" if b":broker" in body else "endpoints"
    before = await directory.content_id()
    response = await directory.request(
        "PUT", f"/api/v1/{folder}/{component.code}", body, chain=component.chain
    )
    if response.status_code != 200:
        assert await directory.content_id() == before
    return response.status_code


@pytest.mark.req("503-7.8.1-j", "503-7.8.1-l", component=CD)
async def test_paths_are_read_in_their_one_order(directory: TestDirectory) -> None:
    component = await directory.register("E1")
    until = PATH.replace(
        "</validFrom>", "</validFrom><validUntil>2027-01-01T00:00:00Z</validUntil>"
    )
    for good, paths in ((f"<paths>{PATH}</paths>", 1), ("<paths/>", 0), ("", 0)):
        assert await status(directory, component, entry(component, good)) == 200
        assert len((await directory.entry("E1")).paths) == paths
    assert await status(directory, component, entry(component, f"<paths>{until}</paths>")) == 200
    (path,) = (await directory.entry("E1")).paths
    assert (str(path.route), path.senders) == ("INDIRECT:B1", {"E2"})
    assert path.valid_until is not None
    sender, kind, route, start = (
        "<senderComponent><component>E2</component></senderComponent>",
        "<messageType>A01</messageType>",
        "<path>INDIRECT:B1</path>",
        "<validFrom>2026-01-01T00:00:00Z</validFrom>",
    )
    for wrong in (
        (kind, sender, route, start),
        (sender, route, kind, start),
        (sender, kind, start, route),
        (sender, kind, route),
        (sender, kind, route, start, start),
    ):
        body = entry(component, f"<paths><path>{''.join(wrong)}</path></paths>")
        assert await status(directory, component, body) == 422
    assert (await directory.entry("E1")).paths == (path,)


@pytest.mark.req("503-7.8.1-m", component=CD)
async def test_a_restriction_is_mandatory_and_has_one_order(directory: TestDirectory) -> None:
    component = await directory.register("B1", BROKER_KINDS)
    listed = "<components><component>E1</component></components>"
    types = "<messageTypes><messageType>A*</messageType></messageTypes>"
    body = broker_entry(component, f"<restriction>{listed}{types}</restriction>")
    assert await status(directory, component, body) == 200
    restriction = (await directory.entry("B1")).restriction
    assert restriction is not None
    assert (restriction.components, restriction.message_types) == ({"E1"}, ("A*",))
    for wrong in (
        "",
        f"<restriction>{types}{listed}</restriction>",
        "<restriction/><restriction/>",
    ):
        assert await status(directory, component, broker_entry(component, wrong)) == 422
    assert (await directory.entry("B1")).restriction == restriction
    assert await status(directory, component, broker_entry(component, "<restriction/>")) == 200
    allowing = (await directory.entry("B1")).restriction
    assert allowing == Restriction()
    assert allowing.allows_component("ANYBODY")


@pytest.mark.req("503-T18-b")
async def test_the_type_of_an_entry_is_one_of_three_and_that_of_its_component(
    directory: TestDirectory,
) -> None:
    endpoint = await directory.register("E1")
    broker = await directory.register("B1", BROKER_KINDS)
    seen = (await directory.query(endpoint.chain)).answer.components
    assert {c.code: c.type for c in seen} == {
        "CD-1": ComponentType.COMPONENT_DIRECTORY,
        "E1": ComponentType.ENDPOINT,
        "B1": ComponentType.BROKER,
    }
    for wrong in ("NODE", "endpoint", ""):
        body = entry(endpoint, "<paths/>", type_=wrong)
        assert await status(directory, endpoint, body) == 422, wrong
    # The type belongs to the directory (Table 18): what a push says of it changes nothing.
    for other in ("BROKER", "COMPONENT_DIRECTORY"):
        await status(directory, endpoint, entry(endpoint, "<paths/>", type_=other))
        assert (await directory.entry("E1")).type is ComponentType.ENDPOINT
    # Nor does a broker become an endpoint by pushing one.
    response = await directory.request(
        "PUT", "/api/v1/endpoints/B1", entry(broker, "<paths/>"), chain=broker.chain
    )
    assert response.status_code in (403, 422)
    assert (await directory.entry("B1")).type is ComponentType.BROKER
