"""Reading an envelope piece by piece: nothing is lost, nothing depends on where a piece ends."""

from __future__ import annotations

from base64 import b64encode, encodebytes
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.soap.base64_text import Base64Reader, encode_pieces, encoded_size
from gridpost.wire.soap.envelope import Envelope, EnvelopeLimits, EnvelopeReader
from gridpost.wire.soap.fault import Fault, FaultCode, render
from gridpost.wire.soap.version import SOAP_11, SOAP_12, VERSIONS, MediaType, SoapVersion

PLACE = ("{urn:t}In", "a", "doc")


def read(data: bytes, version: SoapVersion = SOAP_11, piece: int = 1000) -> Envelope:
    reader = EnvelopeReader(version, [PLACE], EnvelopeLimits(10**6), BytesIO)
    for start in range(0, len(data), piece):
        reader.feed(data[start : start + piece])
    return reader.close()


def envelope(body: str, version: SoapVersion = SOAP_11) -> str:
    return f'<s:Envelope xmlns:s="{version.namespace}"><s:Body>{body}</s:Body></s:Envelope>'


@given(
    st.sampled_from(VERSIONS),
    st.binary(max_size=2000),
    st.integers(1, 600),
    st.sampled_from(["utf-8", "utf-16"]),
    st.booleans(),
)
def test_the_document_is_cut_out_and_everything_around_it_stays(
    version: SoapVersion, document: bytes, piece: int, encoding: str, lines: bool
) -> None:
    text = (encodebytes if lines else b64encode)(document).decode()
    body = (
        '<t:In xmlns:t="urn:t"><!-- ä --><a x="1"><b>é&amp;</b><doc k="v">{}</doc><doc2>{}</doc2>'
        "</a><doc>ab</doc></t:In>"
    )
    declared = f'<?xml version="1.0" encoding="{encoding}"?>'
    data = (declared + envelope(body.format(text, "QUJD"), version)).encode(encoding)
    found = read(data, version, piece)
    assert found.version is version
    spooled = found.binaries.get(PLACE)
    assert (b"" if spooled is None else spooled.read()) == document
    doc = found.body.find("a/doc")
    assert doc is not None
    assert not (doc.text or "").strip()
    doc.text = None
    expected = etree.fromstring(body.format("", "QUJD"))
    assert etree.tostring(found.body, method="c14n", exclusive=True) == etree.tostring(
        expected, method="c14n", exclusive=True
    )


def test_what_is_cut_never_counts_as_envelope() -> None:
    text = b64encode(bytes(100_000)).decode()
    data = envelope(f'<t:In xmlns:t="urn:t"><a><doc>{text}</doc></a></t:In>').encode()
    reader = EnvelopeReader(SOAP_11, [PLACE], EnvelopeLimits(100_000, max_rest=500), BytesIO)
    for start in range(0, len(data), 100):
        reader.feed(data[start : start + 100])
    assert reader.close().binaries[PLACE].size == 100_000


@given(st.binary(max_size=500), st.lists(st.integers(0, 700), max_size=5))
def test_base64_is_read_in_any_pieces(data: bytes, cuts: list[int]) -> None:
    text = b64encode(data).decode()
    out = BytesIO()
    reader = Base64Reader(out, 10_000)
    last = 0
    for cut in [*sorted(cuts), len(text)]:
        reader.feed(text[last:cut])
        last = max(last, cut)
    reader.close()
    assert out.getvalue() == data
    written = b"".join(encode_pieces(data))
    assert written.decode() == text
    assert len(written) == encoded_size(len(data))


@pytest.mark.parametrize(
    "text", ["A", "AB", "ABC", "AB==CD==", "====", "A===", "AB=C", "A-_B", "é"]
)
@pytest.mark.parametrize("piece", [1, 100])
def test_what_is_not_base64_is_refused(text: str, piece: int) -> None:
    reader = Base64Reader(BytesIO(), 100)
    with pytest.raises(Refusal) as refused:
        for start in range(0, len(text), piece):
            reader.feed(text[start : start + piece])
        reader.close()
    assert refused.value.rule is Rule.BAD_BASE64


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("code", FaultCode)
def test_a_fault_is_well_formed_whatever_its_reason_quotes(
    version: SoapVersion, code: FaultCode
) -> None:
    missed = (("urn:h?a&b", "Route"), ("", "Bare"))
    fault = Fault(code, "<&\x00\ud800]]>", "<d/>", missed)
    root = etree.fromstring(render(version, fault).encode())
    (found,) = root.iter(version.tag("Fault"))
    said = "".join(found.itertext())
    assert "<&??]]>" in said
    assert code.value[0 if version is SOAP_11 else 1] in said


@pytest.mark.parametrize(
    ("content_type", "header", "version", "action"),
    [
        ("text/xml", None, SOAP_11, ""),
        ("text/xml; charset=UTF-8", '"urn:a"', SOAP_11, "urn:a"),
        ("Text/XML", '""', SOAP_11, ""),
        ('application/soap+xml; charset=utf-8; action="urn:a"', None, SOAP_12, "urn:a"),
        ("application/soap+xml;action=urn:a", '"urn:ignored"', SOAP_12, "urn:a"),
    ],
)
def test_version_and_action_are_read_from_the_headers(
    content_type: str, header: str | None, version: SoapVersion, action: str
) -> None:
    assert MediaType.read(content_type, header) == MediaType(version, action)
