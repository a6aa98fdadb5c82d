"""Compression, heartbeats, names and filters of the capacity interface."""

from __future__ import annotations

import gzip
import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridpost.core.broadcast import LoginFilter, login_filter
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.cmm import Names, pack, read_heartbeat, unpack, write_heartbeat
from gridpost.wire.cmm.names import user_name


@given(st.binary(max_size=2000), st.booleans(), st.sampled_from([1, 3, 500]))
def test_a_body_comes_out_as_it_went_in(body, zipped, times):
    body *= times
    packed, encoding = pack(body, zipped=zipped)
    assert encoding == ("gzip" if zipped else None)
    assert not zipped or gzip.decompress(packed) == body
    assert unpack(packed, encoding, 1_000_000) == body


@pytest.mark.parametrize(
    ("body", "encoding", "rule"),
    [
        (b"plain", "gzip", Rule.MALFORMED_XML),
        (gzip.compress(b"x" * 100, mtime=0)[:-4], "gzip", Rule.MALFORMED_XML),
        (gzip.compress(b"x", mtime=0) + b"more", "gzip", Rule.MALFORMED_XML),
        (b"x", "br", Rule.MALFORMED_XML),
        (b"x" * 2001, None, Rule.LIMIT_EXCEEDED),
        (gzip.compress(b"x" * 10_000_000, mtime=0), "gzip", Rule.LIMIT_EXCEEDED),
    ],
)
def test_a_body_that_is_not_what_it_says_or_too_large_is_refused(body, encoding, rule):
    with pytest.raises(Refusal) as refused:
        unpack(body, encoding, 20_000 if rule is Rule.LIMIT_EXCEEDED and encoding else 2000)
    assert refused.value.rule is rule


@pytest.mark.req("cmm-5.4.1-b", component="client")
@pytest.mark.req("cmm-5.4.1-b", component="service")
def test_a_heartbeat_is_a_time_in_utc_with_milliseconds_and_short_zones_are_read():
    now = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
    body = write_heartbeat(now)
    assert re.fullmatch(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", body)
    assert abs(read_heartbeat(body) - now) < timedelta(milliseconds=1)
    assert read_heartbeat(body.replace(b"Z", b"+0000")) == read_heartbeat(body)
    for wrong in (b"<xml/>", b"\xff"):
        with pytest.raises(Refusal):
            read_heartbeat(wrong)


def test_permissions_of_one_user_fit_no_other():
    names, users = Names(), ["u1", "u10", "u.1", "ux1", "u-1", "u+1"]
    for user in users[:-1]:
        own = names.client_permissions(user_name(user))
        reach = [u for u in users if re.search(own.write, names.request(u))]
        assert reach == [user]
        for queue in (names.response_queue, names.broadcast_queue):
            assert [u for u in users if re.search(own.read, queue(u))] == [user]
        assert not re.search(own.write, names.heartbeat)
        assert not re.search(own.read, names.request_queue)
    with pytest.raises(Refusal):
        user_name("u+1")


def test_the_user_is_read_from_the_exchange():
    names = Names()
    assert names.user_of(names.request("u.1")) == "u.1"
    assert names.user_of("cmm.atc.DE-FR") is None


@pytest.mark.req("cmm-3.1.2.1-b")
@pytest.mark.req("cmm-3.1.2.1-g")
def test_a_filter_becomes_one_binding_for_each_combination():
    spaced = login_filter("X_Border:DE-FR|AT-DE, X_Event:ALLOCATION", 200)
    assert spaced == login_filter("X_Border:DE-FR|AT-DE,X_Event:ALLOCATION", 200)
    assert spaced.bindings() == [
        {"X_Border": "DE-FR", "X_Event": "ALLOCATION", "x-match": "all"},
        {"X_Border": "AT-DE", "X_Event": "ALLOCATION", "x-match": "all"},
    ]
    any_match = login_filter("X_Event:PUBLISH,x-match:any", 200)
    assert any_match.bindings() == [{"X_Event": "PUBLISH", "x-match": "any"}]
    assert any_match.admits({"X_Event": "PUBLISH", "X_Border": "AT-CZ"})
    assert not spaced.admits({"X_Event": "PUBLISH", "X_Border": "DE-FR"})


@pytest.mark.parametrize("empty", ["", "  "])
def test_an_empty_filter_restricts_nothing(empty):
    assert login_filter(empty, 200) == LoginFilter()
    assert LoginFilter().bindings() == [{"x-match": "all"}]
    assert LoginFilter().admits({})


@pytest.mark.parametrize(
    "wrong",
    [
        "X_Border",
        "X_Border:",
        ":DE-FR",
        "X_Border:A||B",
        "Colour:red",
        "x-match:some",
        "X_Border:A,X_Border:B",
        ",",
        "X_Border:" + "|".join(map(str, range(20))) + ",X_Day:" + "|".join(map(str, range(20))),
    ],
)
def test_a_filter_that_cannot_be_understood_or_is_too_wide_is_refused(wrong):
    with pytest.raises(Refusal) as refused:
        login_filter(wrong, 200)
    assert refused.value.rule is Rule.LOGIN_FILTER
