"""MTOM: what is written is read back, however the network cuts it; what is not MTOM is refused."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridpost.core.refusal import Refusal, Rule
from gridpost.services.directory_client.node_soap import read_answer
from gridpost.wire.mades.endpoint_service import CONTENT, ENDPOINT_SERVICE, read_send
from gridpost.wire.soap.envelope import Envelope, EnvelopeLimits
from gridpost.wire.soap.fault import envelope_text
from gridpost.wire.soap.mtom import MtomMessage, MtomReader, MtomType
from gridpost.wire.soap.version import SOAP_11, SOAP_12, VERSIONS, SoapVersion

BEFORE = (
    '<m:SendMessageRequest xmlns:m="http://mades.entsoe.eu/2/"><message><receiverCode>E2'
    "</receiverCode><messageType>A01</messageType><content>"
)
AFTER = "</content></message></m:SendMessageRequest>"


def message(version: SoapVersion, content: bytes) -> MtomMessage:
    head, tail = envelope_text(version)
    return MtomMessage.of(version, head + BEFORE, AFTER + tail, content)


def read(content_type: str, data: bytes, piece: int = 4096, limit: int = 10**6) -> Envelope:
    found = MtomType.read(content_type, None)
    assert found is not None
    reader = MtomReader(found, ENDPOINT_SERVICE.large, EnvelopeLimits(limit), BytesIO)
    for start in range(0, len(data), piece):
        reader.feed(data[start : start + piece])
    return reader.close()


@given(st.sampled_from(VERSIONS), st.binary(max_size=3000), st.integers(1, 5000))
def test_what_is_written_is_read_back(version: SoapVersion, content: bytes, piece: int) -> None:
    written = message(version, content)
    data = b"".join(written.pieces())
    assert len(data) == written.size
    envelope = read(written.content_type, data, piece)
    assert envelope.version is version
    assert envelope.binaries[CONTENT].read() == content
    assert read_send(envelope.body).receiver_code == "E2"
    ENDPOINT_SERVICE.schema.validate(envelope.body)


def test_a_boundary_inside_the_document_does_not_end_it() -> None:
    written = message(SOAP_11, b"")
    content = f"\r\n--{written.boundary[:-1]}\r\n--{written.boundary[:-1]}--".encode()
    written = replace(written, contents=(content,))
    envelope = read(written.content_type, b"".join(written.pieces()), 3)
    assert envelope.binaries[CONTENT].read() == content


def test_the_action_of_soap_1_2_is_found_where_toolkits_put_it() -> None:
    head = 'multipart/related; type="application/xop+xml"; boundary=b; '
    for tail in (
        'start-info="application/soap+xml"; action="urn:a"',
        'start-info="application/soap+xml; action=\\"urn:a\\""',
    ):
        found = MtomType.read(head + tail, None)
        assert found is not None
        assert (found.media.version, found.media.action) == (SOAP_12, "urn:a")
    assert MtomType.read("text/xml", None) is None


def test_parts_may_stand_before_the_root() -> None:
    written = message(SOAP_12, b"document")
    first, second = b"".join(written.pieces()).split(f"--{written.boundary}".encode())[1:3]
    mark = f"--{written.boundary}".encode()
    data = mark + second + mark + first + mark + b"--\r\n"
    assert read(written.content_type, data).binaries[CONTENT].read() == b"document"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cid:", "cid:other"),
        ("<content><xop", "<content>QUJD<xop"),
        ("</content>", "<more/></content>"),
        ("<receiverCode>E2</receiverCode>", "<receiverCode>@</receiverCode>"),
        ("Content-Transfer-Encoding: binary", "Content-Transfer-Encoding: base64"),
        ("application/xop+xml; charset", "text/plain; charset"),
        ('type="text/xml"', 'type="application/soap+xml"'),
        ("<root@gridpost>", "<another@gridpost>"),
        ("--\r\n", ""),
        ("Content-ID: <", "X-ID: <"),
    ],
)
def test_what_is_not_well_formed_is_refused(old: str, new: str) -> None:
    written = message(SOAP_11, b"document")
    data = b"".join(written.pieces()).decode()
    if "@" in new and "receiverCode" in new:
        include = data[data.index("<xop:Include") : data.index("</content>")]
        data = data.replace(include, "QUJD").replace("E2", include)
    else:
        assert old in data
        data = data.replace(old, new)
    with pytest.raises(Refusal) as refused:
        read(written.content_type, data.encode())
    assert refused.value.rule in (Rule.SOAP_FORM, Rule.BAD_BASE64)


def test_a_part_that_is_too_large_is_refused_while_it_arrives() -> None:
    written = message(SOAP_11, bytes(2000))
    with pytest.raises(Refusal) as refused:
        read(written.content_type, b"".join(written.pieces()), 100, limit=1000)
    assert refused.value.rule is Rule.CONTENT_TOO_LARGE


def test_many_parts_are_refused() -> None:
    written = message(SOAP_11, b"")
    part = f"\r\n--{written.boundary}\r\nContent-ID: <%d>\r\n\r\nx"
    many = "".join(part % n for n in range(20))
    data = b"".join(written.pieces()).removesuffix(f"\r\n--{written.boundary}--\r\n".encode())
    with pytest.raises(Refusal) as refused:
        read(written.content_type, data + many.encode())
    assert refused.value.rule is Rule.LIMIT_EXCEEDED


@pytest.mark.parametrize(
    "content_type",
    [
        "multipart/related; boundary=b",
        'multipart/related; type="text/xml"; boundary=b',
        'multipart/related; type="application/xop+xml"; start-info="text/xml"',
        'multipart/related; type="application/xop+xml"; boundary=b',
    ],
)
def test_another_multipart_is_no_mtom(content_type: str) -> None:
    with pytest.raises(Refusal) as refused:
        MtomType.read(content_type, None)
    assert refused.value.rule is Rule.MEDIA_TYPE


def test_an_answer_in_memory_is_read_as_it_was_written() -> None:
    content = bytes(range(256)) * 5000
    for reader_of in (_mtom_answer, _text_answer):
        media_type, body = reader_of(content)
        pieces = [body[:1000], body[1000:]]
        envelope = read_answer(media_type, pieces, [("m", "c")], "DownloadMessages")
        (document,) = envelope.documents
        assert document.read() == content
        assert document.read() == content


def test_a_large_document_is_not_copied_on_its_way_out_and_small_ones_go_together() -> None:
    small, large = b"s" * 1000, bytes(600 * 1024)
    texts = ("<m><c>", "</c></m><m><c>", "</c></m><m><c>", "</c></m>")
    written = MtomMessage.of_many(SOAP_12, texts, (small, large, small))
    pieces = list(written.pieces())

    views = [piece for piece in pieces if isinstance(piece, memoryview)]
    assert sum(map(len, views)) == len(large)
    assert all(view.obj is large for view in views)
    assert [small in piece for piece in pieces if isinstance(piece, bytes)] == [True, True]
    assert written.size == sum(map(len, pieces))


def _mtom_answer(content: bytes) -> tuple[str, bytes]:
    head, tail = envelope_text(SOAP_12)
    message = MtomMessage.of(SOAP_12, f"{head}<m><c>", f"</c></m>{tail}", content)
    return message.content_type, b"".join(message.pieces())


def _text_answer(content: bytes) -> tuple[str, bytes]:
    head, tail = envelope_text(SOAP_12)
    return SOAP_12.content_type, f"{head}<m><c>{b64encode(content).decode()}</c></m>{tail}".encode()
