"""503 cl. 5.3 and 5.4: paths and restrictions survive publication and synchronisation unchanged."""

from datetime import timedelta

import pytest

from gridpost.core.component import Component
from gridpost.core.identifiers import ComponentCode
from gridpost.core.message_path import Route
from gridpost.core.synchronisation import Directory, answer, merge
from gridpost.wire.directory.components import decode_components, encode_components
from support.builders import HOME, NOW, broker, component_directory, directory, endpoint, path

TTL = timedelta(hours=1)


def published(*components: Component) -> Directory:
    """What a component holds after its first synchronisation with the home of `components`."""
    home = directory(component_directory(), *components)
    reply = answer(home, (), home=ComponentCode(HOME), ttl=TTL, only_home=False, at=NOW)
    return merge(Directory(), decode_components(encode_components(reply)).answer, at=NOW).directory


@pytest.mark.req("503-5.3-c", component="component-directory")
def test_both_forms_of_a_path_are_published_as_written() -> None:
    entry = published(endpoint("E1", path("A", "DIRECT"), path("B", "INDIRECT:B1"))).find("E1", NOW)
    assert entry is not None
    assert [str(p.route) for p in entry.paths] == ["DIRECT", "INDIRECT:B1"]
    assert Route.parse("DIRECT:") == entry.paths[0].route
    document = encode_components(
        answer(
            directory(endpoint("E1", path("A", "DIRECT"))),
            (),
            home=ComponentCode(HOME),
            ttl=TTL,
            only_home=False,
            at=NOW,
        )
    )
    assert b"DIRECT<" in document
    assert b"DIRECT:<" not in document


@pytest.mark.req("503-5.3-d", component="component-directory")
def test_wildcards_of_message_types_are_published() -> None:
    entry = published(endpoint("E1", path("ABC*"), path("ABC"), path("*"))).find("E1", NOW)
    assert entry is not None
    assert [p.message_type for p in entry.paths] == ["ABC*", "ABC", "*"]


@pytest.mark.req("503-5.3-e", component="component-directory")
def test_listed_any_and_no_senders_stay_apart() -> None:
    paths = (path("A", senders=["E2"]), path("B", senders=["*"]), path("C", senders=[]))
    entry = published(endpoint("E1", *paths)).find("E1", NOW)
    assert entry is not None
    assert [p.senders for p in entry.paths] == [frozenset({"E2"}), None, frozenset()]


@pytest.mark.req("503-5.3-h", component="component-directory")
def test_an_announced_change_of_route_is_published_with_both_periods() -> None:
    change = NOW + timedelta(hours=1)
    paths = (path("A", "INDIRECT:B1", end=change), path("A", "INDIRECT:B2", start=change))
    entry = published(endpoint("E1", *paths)).find("E1", NOW)
    assert entry is not None
    assert entry.paths == paths


@pytest.mark.req("503-5.4-c", component="component-directory")
def test_a_restriction_is_published() -> None:
    entry = published(broker("B1", components=("E1",), message_types=("A*",))).find("B1", NOW)
    assert entry is not None
    assert entry.restriction == broker("B1", components=("E1",), message_types=("A*",)).restriction
