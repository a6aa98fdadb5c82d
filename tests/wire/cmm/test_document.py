"""What the validating parser of the capacity interface takes and refuses."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridpost.core.allocation import AllocationType
from gridpost.core.refusal import Refusal
from gridpost.wire.cmm import (
    Alc,
    AlcResult,
    AllocationDataReq,
    AllocationReq,
    AllocationResp,
    Allocations,
    AtcDataReq,
    ErrorResp,
    Login,
    LoginResp,
    decode,
    encode,
)  # fmt: skip

CHARACTERS = st.characters(
    codec="utf-8", exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"
)
TEXT = st.text(CHARACTERS, max_size=30)
NAME = TEXT.filter(bool)
TIME = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)).map(
    lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000, tzinfo=UTC)
)
ALC = st.builds(Alc, NAME, TIME, TIME, st.integers(1, 10**12), TEXT)
ALLOCATIONS = st.builds(Allocations, NAME, NAME, st.lists(ALC, min_size=1, max_size=3).map(tuple))
PARTS = st.lists(ALLOCATIONS, min_size=1, max_size=3).map(tuple)
QUANTITY = st.none() | st.integers(0, 10**12)
RESULT = st.builds(AlcResult, TEXT, st.booleans(), TEXT, st.none() | TEXT, QUANTITY)
MESSAGES = st.one_of(
    st.builds(Login, st.none() | TEXT),
    st.builds(
        AllocationReq,
        st.sampled_from(AllocationType),
        st.lists(ALLOCATIONS, min_size=1, max_size=3).map(tuple),
    ),
    st.builds(AtcDataReq, TIME, NAME, NAME),
    st.builds(AllocationDataReq, TEXT, TIME, TIME, NAME, NAME),
    st.builds(LoginResp, st.booleans(), TEXT),
    st.builds(ErrorResp, TEXT),
    st.builds(
        AllocationResp,
        st.lists(
            st.builds(
                AlcResult,
                TEXT,
                st.booleans(),
                TEXT,
                st.none() | TEXT,
                st.none() | st.integers(0, 10**12),
            ),
            max_size=3,
        ).map(tuple),
    ),
)


@given(MESSAGES)
def test_what_is_written_reads_the_same(message):
    assert decode(encode(message)) == message


REQUEST = (
    '<AllocationReq type="AON"><Allocations inArea="A" outArea="B">'
    '<Alc clientId="1" bmCode="" periodStart="2014-07-09T15:00:00.000Z" '
    'periodEnd="2014-07-09T16:00:00.000Z" quantity="5"/></Allocations></AllocationReq>'
)


@pytest.mark.req("cmm-5.2.2-a", component="client")
def test_both_names_of_the_allocation_type_mean_the_same_and_one_is_written():
    message = decode(REQUEST.encode())
    assert decode(REQUEST.replace("type=", "allocationType=").encode()) == message
    assert b'<AllocationReq type="AON">' in encode(message)


@pytest.mark.req("cmm-5.2.3-b", component="client")
@pytest.mark.req("cmm-5.2.4-b", component="client")
def test_both_spellings_of_the_interconnector_are_read_and_each_is_written_as_printed():
    atc = AtcDataReq(datetime(2026, 1, 1, tzinfo=UTC), "A", "B")
    data = AllocationDataReq("G", atc.date, atc.date, "A", "B")
    assert b"<InterConnector " in encode(atc)
    assert b"<interConnector " in encode(data)
    assert decode(encode(atc).replace(b"InterC", b"interC")) == atc
    assert decode(encode(data).replace(b"interC", b"InterC")) == data


DATE = "date='2026-01-01T00:00:00Z'"
BOTH = "<InterConnector area1='A' area2='B'/>"
INVALID = {
    "not XML": "nonsense",
    "empty": "",
    "unknown root": f"<AtcDataRequest {DATE}>{BOTH}</AtcDataRequest>",
    "long name": "<AllocationDataRequest/>",
    "two requests": "<Login/><Login/>",
    "two inquiries": f"<AtcDataReq {DATE}>{BOTH}{BOTH}</AtcDataReq>",
    "unknown attribute": REQUEST.replace('clientId="1"', 'clientId="1" extra="1"'),
    "misspelt attribute": REQUEST.replace("bmCode", "bmcode"),
    "no clientId": REQUEST.replace('clientId="1"', ""),
    "no type": REQUEST.replace(' type="AON"', ""),
    "two types": REQUEST.replace('type="AON"', 'type="AON" allocationType="IOC"'),
    "bad enumeration": REQUEST.replace("AON", "FOK"),
    "lower case": REQUEST.replace("AON", "aon"),
    "no area": REQUEST.replace(' inArea="A"', ""),
    "no period": REQUEST.replace(' periodEnd="2014-07-09T16:00:00.000Z"', ""),
    "bad time": REQUEST.replace("2014-07-09T16:00:00.000Z", "tomorrow"),
    "bad quantity": REQUEST.replace('quantity="5"', 'quantity="5.5"'),
    "nothing wanted": REQUEST.replace('quantity="5"', 'quantity="0"'),
    "wrong order": REQUEST.replace("<Alc ", "<Other/><Alc "),
    "no date": "<AtcDataReq><InterConnector area1='A' area2='B'/></AtcDataReq>",
    "no area2": "<AtcDataReq date='2026-01-01T00:00:00Z'><InterConnector area1='A'/></AtcDataReq>",
    "no from": f"<AllocationDataReq balancingGroup='G' to='2026-01-01T00:00:00Z'>{BOTH}</AllocationDataReq>",
    "document type": "<!DOCTYPE Login [<!ENTITY x 'y'>]><Login arguments='&x;'/>",
}


@pytest.mark.parametrize("name", INVALID)
def test_what_does_not_follow_the_schema_is_refused_with_a_reason(name):
    with pytest.raises(Refusal) as refused:
        decode(INVALID[name].encode())
    assert refused.value.message


def test_special_characters_survive():
    message = replace(ErrorResp(""), message='a < b & "c" \n\t d')
    assert decode(encode(message)) == message
