"""Points taken out before XML is read are those that reading all of it as XML gives."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridpost.bench._documents import document
from gridpost.pipeline.silver import market
from gridpost.pipeline.silver.market import parse_document
from gridpost.pipeline.silver.market_runs import MAX_DOCUMENT, cut

KNOWN = datetime(2026, 3, 1, tzinfo=UTC)
SPRING = datetime(2026, 3, 28, 23, tzinfo=UTC)
# What stands between and inside points, mostly plain.
BETWEEN = st.sampled_from(
    [b""] * 8
    + [
        b"\n  ",
        b"<Reason/>",
        b"<!-- x -->",
        b"<![CDATA[<Point>]]>",
        b"<?x?>",
        b"&amp;",
        b"]]>",
        b"<Point>",
    ]
)
NUMBERS = st.sampled_from(
    [
        b"1",
        b"-2.50",
        b"+3.00000001",
        b"0",
        b" 4 ",
        b"1e2",
        b"",
        b"x",
        b"1.000000001",
        b"9" * 29,
        b"9" * 30,
    ]
)
PLAIN = st.sampled_from([b"1", b"-2.50", b"+3.00000001", b"0", b"12345.678"])
EXTRA = st.sampled_from(
    [b""] * 8 + [b"<secondaryQuantity>1</secondaryQuantity>", b"<quantity>7</quantity>"]
)


@st.composite
def points(draw: st.DrawFn, numbers: st.SearchStrategy[bytes]) -> bytes:
    found = b""
    form = draw(st.sampled_from(["qp", "q", "p", "", "any"]))
    for position in draw(
        st.sampled_from([[1, 2, 3, 4]] * 3 + [[1, 3], [2], [], [1, 1], [4, 3, 2, 1], [9]])
    ):
        blank = draw(st.sampled_from([b"", b"", b"\n\t "]))
        has = draw(st.sampled_from(["qp", "q", "p"])) if form == "any" else form
        name = draw(st.sampled_from([b"Point"] * 12 + [b"Point a='1'", b"m:Point"]))
        found += b"<%s>%s<position>%d</position>%s" % (name, blank, position, blank)
        found += draw(EXTRA)
        if "q" in has:
            found += b"<quantity>%s</quantity>%s" % (draw(numbers), blank)
        if "p" in has:
            found += b"<price.amount>%s</price.amount>" % draw(numbers)
        found += b"</%s>%s" % (name.partition(b" ")[0], draw(BETWEEN))
    return found


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    made = document(
        SPRING,
        draw(st.sampled_from([4, 4, 4, 5])),
        curve=draw(st.sampled_from(["A01", "A01", "A02", "A03", "A04", "A05", "A77"])),
        unit=draw(st.sampled_from(["MAW", "MAW", "KWT", "XXX"])),
        resolution=draw(st.sampled_from(["PT60M", "PT60M", "P1D", "PT7M"])),
        series=draw(st.sampled_from([1, 1, 2])),
        status=draw(st.sampled_from([None, "A09"])),
    )
    numbers = draw(st.sampled_from([PLAIN, PLAIN, NUMBERS]))
    first, *others = made.split(b"<Point>")
    rest = others[-1].partition(b"</Point>")[2]
    head = first.replace(
        b" xmlns=", draw(st.sampled_from([b" xmlns=", b" xmlns:m='urn:m' xmlns="]))
    )
    where = draw(st.sampled_from([b""] * 8 + [b"</Period><Period>", b"</Period>"]))
    made = (
        head
        + draw(points(numbers))
        + where
        + draw(points(numbers) if where else st.just(b""))
        + rest
    )
    odd = draw(
        st.sampled_from(
            [b""] * 6 + [b"<?xml version='1.0'?>", b"<!DOCTYPE a>", b"\xef\xbb\xbf", b" "]
        )
    )
    return odd + made


@settings(max_examples=600, deadline=None)
@given(documents())
def test_a_document_means_the_same_whichever_way_it_is_read(content):
    quick = parse_document(content, "m", KNOWN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(market, "cut", lambda content: None)
        assert quick == parse_document(content, "m", KNOWN)


@pytest.mark.parametrize("shape", ["plain", "indented", "quantities alone", "with gaps"])
def test_usual_documents_take_the_quick_way(shape, monkeypatch):
    content = document(SPRING, 4, curve="A03", positions=[1, 3] if shape == "with gaps" else None)
    if shape == "indented":
        content = content.replace(b"><", b">\n  <")
    if shape == "quantities alone":
        pieces = content.split(b"<price.amount>")
        content = pieces[0] + b"".join(p.partition(b"</price.amount>")[2] for p in pieces[1:])
    monkeypatch.setattr(market, "_read_points", None)
    row = parse_document(content, "m", KNOWN)
    assert (row["problem"], row["points"]) == (None, 4)
    assert row["values"][1]["carried"] is (shape == "with gaps")


@pytest.mark.parametrize(
    "content",
    [
        b"<!DOCTYPE a>" + document(SPRING, 1),
        b"<!--" + document(SPRING, 1) + b"-->",
        document(SPRING, 1).replace(b"<Point>", b"<Point/><Point>"),
        document(SPRING, 1) + b" " * MAX_DOCUMENT,
    ],
    ids=["document type", "comment", "another point", "too large"],
)
def test_what_is_not_plain_is_read_as_a_whole(content):
    assert cut(content) is None


def test_depth_is_counted_with_the_points_that_were_taken_out():
    """64 levels are allowed: a point of the level 63 has values of the level 64."""
    inner = document(SPRING, 1)
    point = inner[inner.index(b"<Point>") : inner.index(b"</Period>")]
    for levels, problem in ((62, "not a market document"), (63, "not XML: the XML document has")):
        content = b"<a>" * levels + point + b"</a>" * levels
        assert parse_document(content, "m", KNOWN)["problem"].startswith(problem)
