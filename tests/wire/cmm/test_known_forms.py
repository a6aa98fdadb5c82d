"""A request of a known form reads as it does the whole way, and what is not plain goes the whole way."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridpost.core.allocation import AllocationType
from gridpost.core.refusal import Refusal
from gridpost.wire.cmm import AllocationReq, decode
from gridpost.wire.cmm.document import LIMITS, schema
from gridpost.wire.cmm.known_forms import KnownForms

DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>'
VALUES = {
    "type": "AON",
    "inArea": "A",
    "outArea": "B",
    "clientId": "1",
    "bmCode": "",
    "periodStart": "2014-07-09T15:00:00.000Z",
    "periodEnd": "2014-07-09T16:00:00.000Z",
    "quantity": "5",
}


def request(declaration: str = "", **values: str) -> bytes:
    given_ = {**VALUES, **values}
    return (
        (
            declaration
            + '<AllocationReq type="{type}"><Allocations inArea="{inArea}" outArea="{outArea}">\n'
            '<Alc clientId="{clientId}" bmCode="{bmCode}" periodStart="{periodStart}" '
            'periodEnd="{periodEnd}" quantity="{quantity}"/></Allocations></AllocationReq>'
        )
        .format(**given_)
        .encode()
    )


def knowing(octets: bytes) -> KnownForms:
    forms = KnownForms()
    forms.learn(octets, LIMITS, schema().read(octets, LIMITS))
    return forms


@pytest.mark.parametrize("declaration", ["", DECLARATION])
def test_a_request_of_a_known_form_is_read_without_a_tree(declaration):
    forms = knowing(request(declaration))
    other = request(declaration, type="IOC", clientId="two", quantity="999999999999", bmCode="X")
    found = forms.read(other, LIMITS)
    assert isinstance(found, AllocationReq)
    assert found.type is AllocationType.IOC
    [alc] = found.allocations[0].items
    assert (alc.client_id, alc.quantity, alc.bm_code) == ("two", 999_999_999_999, "X")
    assert found == decode(other)


PLAIN = st.text(st.characters(codec="ascii"), max_size=70)
TIMES = st.sampled_from(
    [
        "2024-02-29T00:00:00Z", "2023-02-29T00:00:00Z", "2024-02-29T24:00:00.000Z",
        "2024-02-29T23:59:60.000Z", "0000-01-01T00:00:00.000Z", "2024-02-29T10:00:00.000+01:00",
        " 2024-02-29T10:00:00.000Z", "2024-02-29T10:00:00.1234567Z", "2024-02-29T10:00:00.5Z",
    ]
)  # fmt: skip
QUANTITIES = st.sampled_from(
    ["1", "0", "-1", "+5", "007", " 5", "1000000000000", "1000000000001", "", "5.0", "five"]
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["ACE", "IOC", "ace", ""]),
            "inArea": PLAIN,
            "outArea": PLAIN,
            "clientId": PLAIN,
            "bmCode": PLAIN,
            "periodStart": TIMES,
            "periodEnd": TIMES,
            "quantity": QUANTITIES,
        },
    )
)
def test_whatever_stands_in_the_values_a_known_form_says_what_the_schema_says(values):
    octets = request(**values)
    found = knowing(request()).read(octets, LIMITS)
    if found is not None:
        # Other forms than this one have not learnt it: it goes through parser and schema.
        root = schema().read(octets, LIMITS)
        [alc] = root.iter("Alc")
        [part] = root.iter("Allocations")
        [item] = found.allocations[0].items
        assert found.type.value == root.attrib["type"]
        assert found.allocations[0].in_area == part.attrib["inArea"]
        assert found.allocations[0].out_area == part.attrib["outArea"]
        assert item.client_id == alc.attrib["clientId"]
        assert item.bm_code == alc.attrib["bmCode"]
        assert item.quantity == int(alc.attrib["quantity"])


@pytest.mark.parametrize(
    "octets",
    [
        request(clientId="&amp;"),
        request(clientId="ä"),
        request(clientId="it's"),
        request(clientId='" quantity="7'),
        request().replace(b"\n", b'<!-- "x" -->'),
        request().replace(b'clientId="1"', b"clientId='1'"),
    ],
)
def test_what_is_not_plain_is_neither_read_nor_learnt(octets):
    assert knowing(request()).read(octets, LIMITS) is None
    try:
        forms = knowing(octets)
    except Refusal:
        return
    assert forms.read(octets, LIMITS) is None


def test_a_form_counts_for_the_limits_it_was_read_with():
    forms = knowing(request())
    assert forms.read(request(), LIMITS) is not None
    assert forms.read(request(), replace(LIMITS, max_depth=3)) is None


def test_a_value_that_the_schema_refuses_is_refused_after_its_form_is_known():
    decode(request())
    for values in ({"quantity": "0"}, {"clientId": ""}, {"periodEnd": "soon"}, {"type": "ALL"}):
        with pytest.raises(Refusal):
            decode(request(**values))
