"""The short way of reading a passing message gives what the long way gives, or leaves it to that."""

from __future__ import annotations

import struct
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridpost.core.message import InternalType, SealedMessage
from gridpost.core.refusal import Refusal
from gridpost.wire.amqp.sections import Header, decode_header, split
from gridpost.wire.mades import passing
from gridpost.wire.mades.amqp_message import MAX_TTL, encode
from gridpost.wire.mades.passing import (
    Passing,
    correlation_of,
    passing_header,
    read_any,
    read_passing,
)
from support.builders import NOW, metadata

USUAL = encode(SealedMessage(metadata(), b"body" * 300), None, NOW)


def _result(read: object, data: bytes) -> object:
    try:
        found: Passing = read(data)  # type: ignore[operator]
    except Refusal as refusal:
        return refusal.rule
    except Exception as error:  # a bug, and then the same one on both ways
        return type(error)
    return (
        found.message_id, found.receiver_code, found.sender_code, found.subject,
        found.absolute_expiry, found.ttl, found.priority, bytes(found.bare), found.correlation_id,
        correlation_of(found.bare),
    )  # fmt: skip


@pytest.mark.parametrize("kind", list(InternalType))
def test_both_ways_agree_on_what_we_write(kind: InternalType) -> None:
    data = encode(SealedMessage(metadata(kind), b"x" * 10), None, NOW)
    assert _result(read_passing, data) == _result(read_any, data)
    assert not isinstance(_result(read_any, data), type)


def test_an_acknowledgement_says_of_which_message_it_speaks_on_both_ways() -> None:
    spoken = str(uuid4())
    said = replace(metadata(InternalType.DELIVERY_ACKNOWLEDGEMENT), related_message_id=spoken)
    data = encode(SealedMessage(said, b"x"), None, NOW)
    bare = read_passing(data).bare
    assert read_passing(data).correlation_id == read_any(data).correlation_id == spoken
    assert correlation_of(bare) == correlation_of(bytes(bare)) == spoken
    assert correlation_of(read_passing(USUAL).bare) == ""
    # A list with a length of four octets is unusual, and as good.
    wide = b"\x00\x53\x73\xd0" + struct.pack(">II", 4 + bare[4] - 1, bare[5]) + bytes(bare[6:])
    assert correlation_of(wide) == spoken


def test_a_usual_message_goes_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passing, "read_any", None)
    read_passing(USUAL)
    read_passing(memoryview(USUAL))
    read_passing(memoryview(bytearray(USUAL + bytes(100_000))))


@given(at=st.integers(0, 420), value=st.integers(0, 255))
def test_both_ways_agree_when_an_octet_is_changed(at: int, value: int) -> None:
    data = bytearray(USUAL)
    data[at] = value
    assert _result(read_passing, bytes(data)) == _result(read_any, bytes(data))


@given(st.integers(0, 420), st.integers(0, 20), st.binary(max_size=8))
def test_both_ways_agree_when_octets_are_taken_out_or_put_in(
    at: int, length: int, new: bytes
) -> None:
    data = USUAL[:at] + new + USUAL[at + length :]
    assert _result(read_passing, data) == _result(read_any, data)


@given(st.binary(max_size=200))
def test_both_ways_agree_on_rubbish(data: bytes) -> None:
    assert _result(read_passing, data) == _result(read_any, data)


@given(st.none() | st.integers(0, 255), st.integers(0, MAX_TTL), st.integers(0, 2**32 - 1))
def test_the_header_says_what_it_is_given(priority: int | None, ttl: int, failed: int) -> None:
    header = decode_header(split(passing_header(priority, ttl, failed) + b"\x00\x53\x77\x40"))
    assert header == Header(True, priority, ttl, failed == 0, failed)


def test_ttl_counts_from_arrival_and_the_earlier_end_wins() -> None:
    found = read_passing(USUAL)
    late = NOW + timedelta(minutes=30)
    assert found.expires_at(NOW) == NOW + timedelta(hours=1)
    assert found.expires_at(late) == NOW + timedelta(hours=1)
    found.ttl = 1_000
    assert found.expires_at(NOW) == NOW + timedelta(seconds=1)
    found.ttl = MAX_TTL
    assert found.expires_at(late) == found.absolute_expiry
