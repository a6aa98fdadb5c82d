"""Mversion rules of 503 cl. 9 and MADES 1.1 cl. 4."""

import pytest

from gridpost.core.refusal import Refusal, Rule
from gridpost.core.version import (
    INSTALLED,
    Versions,
    check_message,
    node_accepts_endpoint,
    nodes_synchronise,
    old_version_for,
    parse_mades_version,
    understands,
    version_for,
)


@pytest.mark.parametrize(
    ("text", "version"), [("2", 2), ("1.1", 1), (" 2 ", 2), ("", None), ("two", None), ("²", None)]
)
def test_the_version_of_a_directory_entry_is_read(text: str, version: int | None) -> None:
    assert parse_mades_version(text) == version


@pytest.mark.req("503-9.2-c")
def test_a_message_is_composed_in_a_version_that_the_recipient_understands() -> None:
    assert version_for(2) == 2
    assert version_for(1) == 1
    assert version_for(3) == 2
    for bad, rule in ((None, Rule.VERSION_UNKNOWN), (4, Rule.VERSIONS_TOO_FAR_APART)):
        with pytest.raises(Refusal) as caught:
            version_for(bad)
        assert caught.value.rule is rule
    with pytest.raises(Refusal):
        version_for(1, sender=3)


@pytest.mark.req("503-9.2-d", component="endpoint")
def test_the_version_of_a_message_decides_whether_it_is_processed() -> None:
    check_message(INSTALLED, 1)
    check_message(INSTALLED, 2)
    for unknown in (0, 3, 99, -1):
        assert not understands(INSTALLED, unknown)
        with pytest.raises(Refusal) as caught:
            check_message(INSTALLED, unknown)
        assert caught.value.rule is Rule.MESSAGE_VERSION_UNSUPPORTED


def of(ns: int, nr: int | None, nns: int, nnr: int, nb: int = 1) -> Versions:
    return Versions(ns, nns, nr, nnr, nb)


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        pytest.param(of(1, 1, 1, 1), 1, marks=pytest.mark.req("m11-4.2.4-a")),
        pytest.param(of(2, 1, 2, 1), 1, marks=pytest.mark.req("m11-4.2.4-a")),
        pytest.param(of(2, 2, 2, 2), 2, marks=pytest.mark.req("m11-4.2.4-a")),
        pytest.param(of(1, None, 1, 1), Rule.VERSION_UNKNOWN, marks=pytest.mark.req("m11-T13-a")),
        pytest.param(
            of(1, 3, 2, 2), Rule.VERSIONS_TOO_FAR_APART, marks=pytest.mark.req("m11-T13-b")
        ),
        pytest.param(of(1, 2, 1, 2), 1, marks=pytest.mark.req("m11-T13-b")),
        pytest.param(
            of(1, 2, 2, 3), Rule.RECIPIENT_NODE_VERSION, marks=pytest.mark.req("m11-T13-c")
        ),
        pytest.param(of(1, 2, 2, 2), 1, marks=pytest.mark.req("m11-T13-c")),
        pytest.param(of(2, 1, 3, 2), Rule.SENDER_NODE_VERSION, marks=pytest.mark.req("m11-T13-d")),
        pytest.param(of(2, 1, 2, 2), 1, marks=pytest.mark.req("m11-T13-d")),
        pytest.param(
            of(1, 2, 2, 2, 2), Rule.BUSINESS_TYPE_VERSION, marks=pytest.mark.req("m11-T13-e")
        ),
        pytest.param(
            of(2, 1, 2, 2, 2), Rule.BUSINESS_TYPE_VERSION, marks=pytest.mark.req("m11-T13-e")
        ),
        pytest.param(of(2, 2, 2, 2, 2), 2, marks=pytest.mark.req("m11-T13-e")),
    ],
)
def test_table_13(versions: Versions, expected: int | Rule) -> None:
    if isinstance(expected, int):
        assert old_version_for(versions) == expected
        return
    with pytest.raises(Refusal) as caught:
        old_version_for(versions)
    assert caught.value.rule is expected


def test_a_node_serves_its_own_and_the_previous_version() -> None:
    assert [node_accepts_endpoint(2, e) for e in (0, 1, 2, 3)] == [False, True, True, False]
    assert [nodes_synchronise(1, peer) for peer in (1, 2, 3)] == [True, True, False]
