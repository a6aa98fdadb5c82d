"""What makes an entry consistent in itself and with the rest (503 cl. 7.3)."""

from dataclasses import replace
from datetime import timedelta

import pytest

from gridpost.core.component import (
    CERTIFICATE_KINDS,
    Component,
    ComponentType,
    Contact,
    inconsistencies,
    system_inconsistencies,
)
from gridpost.core.identifiers import MessageTypePattern
from gridpost.core.message_path import Restriction
from support.builders import NOW, broker, component_directory, endpoint, path


def problems(component: Component) -> list[str]:
    return list(inconsistencies(component))


@pytest.mark.parametrize(
    "entry", [endpoint("E1", path("A")), broker("B1"), component_directory()], ids=lambda c: c.type
)
def test_a_sound_entry_has_no_problem(entry: Component) -> None:
    assert problems(entry) == []
    assert {c.kind for c in entry.certificates} == CERTIFICATE_KINDS[entry.type]


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("amqps//x", "must begin with amqps://"),
        ("ftp://x", "must begin with amqps://"),
        ("https://x", "must begin with amqps://"),
        ("amqps://", "names no host"),
        ("amqps://a b", "names no host"),
        ("amqps://host:port", "is not a URL"),
        ("amqps://[::1", "is not a URL"),
        ("amqps://user:secret@host", "host, a port and a path only"),
        ("amqps://host?x=1", "host, a port and a path only"),
    ],
)
@pytest.mark.req("503-7.3.1-c", component="endpoint")
def test_malformed_urls_and_wrong_protocols_are_named(url: str, problem: str) -> None:
    found = problems(endpoint("E1", urls=(url,)))
    assert len(found) == 1
    assert problem in found[0]
    assert url in found[0]


@pytest.mark.req("503-7.3.1-c", component="endpoint")
@pytest.mark.req("503-7.3.1-c", component="broker")
def test_the_scheme_follows_the_kind_of_component() -> None:
    assert problems(endpoint("E1", urls=("amqps://host:5671",))) == []
    assert problems(replace(broker("B1"), urls=("https://b1",)))
    assert problems(replace(component_directory(), urls=("amqps://cd",)))


@pytest.mark.req("503-7.3.1-d")
def test_a_usage_period_ends_after_it_starts() -> None:
    later = NOW + timedelta(hours=1)
    assert problems(endpoint("E1", path("A", start=NOW, end=later))) == []
    assert problems(endpoint("E1", path("A", start=NOW, end=NOW)))
    assert problems(endpoint("E1", path("A", start=later, end=NOW)))


@pytest.mark.req("503-7.3.1-e")
@pytest.mark.req("503-7.3.1-f")
def test_periods_of_one_message_type_must_not_overlap_but_may_touch() -> None:
    t = [NOW + timedelta(hours=h) for h in range(5)]

    def overlap(*paths: tuple[str, int, int | None]) -> bool:
        entry = endpoint(
            "E1",
            *(path(m, start=t[a], end=None if b is None else t[b]) for m, a, b in paths),
        )
        return any("overlap" in problem for problem in problems(entry))

    assert overlap(("AB", 1, 3), ("AB", 2, 4))
    assert not overlap(("AB", 1, 2), ("AB", 2, 3))
    assert overlap(("AB", 1, None), ("AB", 3, 4))
    assert overlap(("AB", 2, 3), ("AB", 1, 4))
    assert not overlap(("AB", 1, 3), ("A*", 2, 4))


def test_empty_contacts_and_misplaced_attributes_are_named() -> None:
    entry = replace(endpoint("E1"), contact=Contact("", "p", " ", "t"))
    assert problems(entry) == ["organization is empty", "email is empty"]
    assert problems(replace(broker("B1"), paths=(path("A"),))) == [
        "only an endpoint has message-paths"
    ]
    assert problems(replace(broker("B1"), restriction=None))
    assert problems(replace(endpoint("E1"), restriction=Restriction()))
    odd = replace(path("A"), message_type=MessageTypePattern("A*C"))
    assert any("A*C" in problem for problem in problems(endpoint("E1", odd)))


def warnings(entry: Component, *others: Component) -> list[str]:
    return list(system_inconsistencies(entry, {c.code: c for c in (entry, *others)}))


@pytest.mark.parametrize(
    ("entry", "others", "warning"),
    [
        (endpoint("E1", path("A", senders=["E9"])), [broker("B1")], "unknown sender E9"),
        (endpoint("E1", path("A", "DIRECT")), [], "publishes no URL"),
        (endpoint("E1", path("A")), [], "unknown broker B1"),
        (endpoint("E1", path("A", "INDIRECT:E2")), [endpoint("E2")], "unknown broker E2"),
        (endpoint("E1", path("A")), [broker("B1", components=("E2",))], "does not admit E1"),
        (endpoint("E1", path("A")), [broker("B1", message_types=("B*",))], "lets no message-type"),
        (broker("B1", components=("E9",)), [], "unknown endpoint E9"),
    ],
)
def test_what_the_rest_of_the_system_makes_useless_is_warned_of(
    entry: Component, others: list[Component], warning: str
) -> None:
    found = warnings(entry, *others)
    assert len(found) == 1
    assert warning in found[0]


@pytest.mark.parametrize(
    ("pattern", "allowed", "meet"),
    [
        ("AB", "AB", True),
        ("AB", "AC", False),
        ("AB", "A*", True),
        ("A*", "AB", True),
        ("AB*", "A*", True),
        ("A*", "AB*", True),
        ("A*", "B*", False),
        ("B", "A*", False),
        ("A*", "B", False),
    ],
)
def test_a_path_is_useless_only_if_no_message_type_fits_both(
    pattern: str, allowed: str, meet: bool
) -> None:
    found = warnings(endpoint("E1", path(pattern)), broker("B1", message_types=(allowed,)))
    assert (found == []) is meet


def test_every_kind_of_component_may_be_looked_up_by_its_type() -> None:
    assert set(CERTIFICATE_KINDS) == set(ComponentType)
