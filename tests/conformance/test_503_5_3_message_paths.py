"""503 cl. 5.3: how the one message-path towards a recipient is found."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridpost.core.component import inconsistencies
from gridpost.core.identifiers import ComponentCode, matches, message_type_pattern
from gridpost.core.message_path import MessagePath, Route, find_path, senders_of
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.synchronisation import content_id
from support.builders import NOW, endpoint, path

MILLISECOND = timedelta(milliseconds=1)
Y2000 = datetime(2000, 1, 1, tzinfo=UTC)


def found(
    paths: list[MessagePath],
    message_type: str,
    *,
    sender: str = "E1",
    takes_connections: bool = True,
    at: datetime = NOW,
) -> str:
    """The route, or the name of the rule that refused it."""
    try:
        selected = find_path(
            paths,
            message_type=message_type,
            sender=ComponentCode(sender),
            sender_takes_connections=takes_connections,
            recipient=ComponentCode("R"),
            at=at,
        )
    except Refusal as refusal:
        return refusal.rule.name
    return str(selected.route)


EXAMPLE = [
    path("BP1-*", "INDIRECT:Broker1", start=Y2000),
    path("BP1-C", "INDIRECT:Broker2", start=Y2000, senders=["E1", "E2"]),
]


@pytest.mark.req("503-5.3-q")
@pytest.mark.parametrize(
    ("sender", "message_type", "route"),
    [
        ("E1", "BP1-A", "INDIRECT:Broker1"),
        ("E2", "BP1-A", "INDIRECT:Broker1"),
        ("E3", "BP1-A", "INDIRECT:Broker1"),
        ("E1", "BP1-B", "INDIRECT:Broker1"),
        ("E2", "BP1-B", "INDIRECT:Broker1"),
        ("E3", "BP1-B", "INDIRECT:Broker1"),
        ("E1", "BP1-C", "INDIRECT:Broker2"),
        ("E2", "BP1-C", "INDIRECT:Broker2"),
        ("E3", "BP1-C", "SENDER_NOT_ALLOWED_ON_PATH"),
    ],
)
def test_the_example_of_the_standard(sender: str, message_type: str, route: str) -> None:
    assert found(EXAMPLE, message_type, sender=sender) == route


@pytest.mark.req("503-5.3-o")
@pytest.mark.parametrize("wider", ["BP1-*", "BP1*", "BP*", "B*", "*"])
def test_an_excluded_sender_never_falls_back_to_a_wider_pattern(wider: str) -> None:
    paths = [path(wider), path("BP1-C", senders=["E1", "E2"])]
    assert found(paths, "BP1-C", sender="E3") == "SENDER_NOT_ALLOWED_ON_PATH"


@pytest.mark.req("503-5.3-c", component="endpoint")
@pytest.mark.req("503-T21-b")
def test_a_path_is_direct_or_names_its_broker() -> None:
    assert [str(Route.parse(text)) for text in ("DIRECT", "DIRECT:", "INDIRECT:B1")] == [
        "DIRECT",
        "DIRECT",
        "INDIRECT:B1",
    ]
    for bad in ("", "INDIRECT", "INDIRECT:", "direct", "DIRECT:B1", "VIA:B1", "INDIRECT:a b"):
        with pytest.raises(Refusal):
            Route.parse(bad)


@pytest.mark.req("503-5.3-d", component="endpoint")
@pytest.mark.req("503-T21-a")
def test_a_message_type_of_a_path_may_end_with_a_wildcard() -> None:
    assert [matches("ABC*", t) for t in ("ABC", "ABCD", "AB", "XABC")] == [True, True, False, False]
    assert [matches("ABC", t) for t in ("ABC", "ABCD", "AB")] == [True, False, False]
    assert matches("*", "anything")
    with pytest.raises(Refusal):
        message_type_pattern("A*C")


@pytest.mark.req("503-5.3-e", component="endpoint")
@pytest.mark.req("503-T21-c")
def test_senders_are_listed_or_any_or_nobody() -> None:
    assert found([path("A", senders=["E1"])], "A") == "INDIRECT:B1"
    assert found([path("A", senders=["E2"])], "A") == "SENDER_NOT_ALLOWED_ON_PATH"
    assert found([path("A", senders=["*"])], "A") == "INDIRECT:B1"
    assert found([path("A", senders=["E2", "*"])], "A") == "INDIRECT:B1"
    assert found([path("A", senders=None)], "A") == "INDIRECT:B1"
    assert found([path("A", senders=[])], "A") == "SENDER_NOT_ALLOWED_ON_PATH"
    assert senders_of(["*"]) is None


@pytest.mark.req("503-5.3-f", "503-T21-d")
def test_from_is_inclusive() -> None:
    paths = [path("*"), path("A", "INDIRECT:B2", start=NOW)]
    assert found(paths, "A", at=NOW) == "INDIRECT:B2"
    # A path that is not usable yet takes no part, even if its type is identical.
    assert found(paths, "A", at=NOW - MILLISECOND) == "INDIRECT:B1"


@pytest.mark.req("503-5.3-g", "503-T21-e")
def test_to_is_exclusive_and_may_be_missing() -> None:
    paths = [path("A", end=NOW)]
    assert found(paths, "A", at=NOW - MILLISECOND) == "INDIRECT:B1"
    assert found(paths, "A", at=NOW) == "NO_PATH_MATCHES"
    assert found([path("A")], "A", at=datetime(2099, 1, 1, tzinfo=UTC)) == "INDIRECT:B1"


@pytest.mark.req("503-5.3-h", component="endpoint")
def test_a_route_change_can_be_announced_in_advance() -> None:
    change = NOW + timedelta(hours=1)
    paths = [path("A", "INDIRECT:B1", end=change), path("A", "INDIRECT:B2", start=change)]
    assert list(inconsistencies(endpoint("R", *paths))) == []
    assert found(paths, "A", at=change - MILLISECOND) == "INDIRECT:B1"
    assert found(paths, "A", at=change) == "INDIRECT:B2"


@pytest.mark.req("503-5.3-i")
def test_the_result_changes_when_the_clock_crosses_a_limit() -> None:
    start, end = NOW + timedelta(hours=1), NOW + timedelta(hours=2)
    paths = [path("A", start=start, end=end)]
    results = [found(paths, "A", at=at) for at in (NOW, start, end)]
    assert results == ["NO_PATH_MATCHES", "INDIRECT:B1", "NO_PATH_MATCHES"]


@pytest.mark.req("503-5.3-j")
def test_step_1_keeps_what_matches() -> None:
    assert found([path("ABC*")], "XYZ") == "NO_PATH_MATCHES"
    assert found([], "XYZ") == "NO_PATH_MATCHES"


@pytest.mark.req("503-5.3-k")
def test_step_2_prefers_the_identical_message_type() -> None:
    longer = [path("BP1-C*", "INDIRECT:B1"), path("BP1-C", "INDIRECT:B2")]
    assert found(longer, "BP1-C") == "INDIRECT:B2"


@pytest.mark.req("503-5.3-l")
def test_step_3_prefers_the_longest_pattern() -> None:
    paths = [path("*", "INDIRECT:B1"), path("BP*", "INDIRECT:B2"), path("BP1-*", "INDIRECT:B3")]
    assert [found(paths, t) for t in ("BP1-A", "BPX", "Q")] == [
        "INDIRECT:B3",
        "INDIRECT:B2",
        "INDIRECT:B1",
    ]


@pytest.mark.req("503-5.3-m")
def test_step_4_needs_exactly_one_path() -> None:
    assert found([path("A", "INDIRECT:B1"), path("A", "INDIRECT:B2")], "A") == "PATHS_OVERLAP"
    assert found([path("A*", "INDIRECT:B1"), path("A*", "INDIRECT:B2")], "AB") == "PATHS_OVERLAP"


@pytest.mark.req("503-5.3-n")
def test_step_4_checks_the_sender_and_not_the_recipient() -> None:
    paths = [path("A", senders=["E1", "E2"])]
    assert found(paths, "A", sender="E1") == "INDIRECT:B1"
    assert found(paths, "A", sender="E3") == "SENDER_NOT_ALLOWED_ON_PATH"
    assert found([path("A", senders=["R"])], "A", sender="E1") == "SENDER_NOT_ALLOWED_ON_PATH"


@pytest.mark.req("503-5.3-p")
def test_step_4_refuses_direct_transfer_to_a_sender_that_cannot_be_answered() -> None:
    paths = [path("A", "DIRECT")]
    assert found(paths, "A", takes_connections=True) == "DIRECT"
    assert found(paths, "A", takes_connections=False) == "SENDER_TAKES_NO_CONNECTIONS"
    assert found([path("A")], "A", takes_connections=False) == "INDIRECT:B1"


@pytest.mark.req("503-5.3-a")
def test_the_list_of_paths_follows_every_change_of_its_owner() -> None:
    """Create, change, delete: each step is another content of the entry."""
    steps = [
        endpoint("R"),
        endpoint("R", path("A")),
        endpoint("R", path("A", "INDIRECT:B2")),
        endpoint("R"),
    ]
    ids = [content_id([step]) for step in steps]
    assert len(set(ids)) == 3
    assert ids[0] == ids[3]
    assert [found(list(s.paths), "A") for s in steps] == [
        "NO_PATH_MATCHES",
        "INDIRECT:B1",
        "INDIRECT:B2",
        "NO_PATH_MATCHES",
    ]


def test_each_refusal_says_which_rule_failed_and_whom_to_ask() -> None:
    with pytest.raises(Refusal) as caught:
        find_path(
            [],
            message_type="A",
            sender=ComponentCode("E1"),
            sender_takes_connections=True,
            recipient=ComponentCode("R"),
            at=NOW,
        )
    assert caught.value.rule is Rule.NO_PATH_MATCHES
    assert caught.value.rule.clause == "503 cl. 5.3 step 1"
    assert "administrator of R" in caught.value.details


TYPES = st.text("AB", min_size=1, max_size=3)
PATTERNS = st.one_of(TYPES, TYPES.map(lambda t: t + "*"), st.just("*"))


@given(
    st.lists(st.tuples(PATTERNS, st.integers(0, 3), st.integers(0, 3)), max_size=6),
    TYPES,
    st.integers(0, 3),
)
def test_the_search_equals_the_text_of_the_four_steps(
    rows: list[tuple[str, int, int]], message_type: str, hour: int
) -> None:
    """An independent reading of the algorithm, set by set, agrees for every small case."""
    paths = [
        path(
            pattern,
            f"INDIRECT:B{number}",
            start=NOW + timedelta(hours=start),
            end=NOW + timedelta(hours=start + length) if length else None,
        )
        for number, (pattern, start, length) in enumerate(rows)
    ]
    at = NOW + timedelta(hours=hour)
    p = {
        i
        for i, (pattern, start, length) in enumerate(rows)
        if start <= hour
        and (length == 0 or hour < start + length)
        and (
            message_type.startswith(pattern[:-1]) if pattern[-1] == "*" else pattern == message_type
        )
    }
    q = {i for i in p if rows[i][0] == message_type}
    if q:
        p = q
    elif p:
        n = max(len(rows[i][0]) for i in p)
        p = {i for i in p if len(rows[i][0]) == n}
    expected = f"INDIRECT:B{min(p)}" if len(p) == 1 else "PATHS_OVERLAP" if p else "NO_PATH_MATCHES"
    assert found(paths, message_type, at=at) == expected
