"""Message metadata as XML: the round trip, and what is read besides our own form."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from gridpost.core.message import Entry, Metadata, Processor, ValueType
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.mades import metadata, own_form
from gridpost.wire.xml import XmlLimits
from support.samples import metadatas, standard_message, texts


def rule_of(text: str | bytes) -> Rule:
    with pytest.raises(Refusal) as caught:
        metadata.decode(text)
    return caught.value.rule


@given(metadatas)
def test_what_was_encoded_is_decoded_to_the_same_texts(value: Metadata) -> None:
    text = metadata.encode(value)
    metadata.schema().read(text)
    for form in (text, text.encode(), text.encode("utf-16")):
        read = metadata.decode(form)
        assert read == value
        assert texts(read) == texts(value)
    assert metadata.encode(read) == text


@given(metadatas)
def test_another_writer_of_the_same_document_is_understood(value: Metadata) -> None:
    root = etree.fromstring(metadata.encode(value))
    root.addprevious(etree.Comment(" from another product "))
    etree.indent(root)
    octets = etree.tostring(root, xml_declaration=True, encoding="UTF-8", standalone=True)
    assert metadata.decode(octets) == value


@given(st.text(), st.sampled_from(["extension", "sender_application", "ba_message_id"]))
def test_any_text_is_carried_unchanged_or_refused(text: str, name: str) -> None:
    try:
        encoded = metadata.encode(standard_message(**{name: text}))
    except Refusal:
        return
    assert getattr(metadata.decode(encoded), name) == text


@pytest.mark.parametrize("bad", ["\x00", "a\x0bb", "\ud800", "\ufffe", "\uffff", "\x1f"])
@pytest.mark.parametrize("place", ["extension", "key", "value", "processorID"])
def test_a_character_that_xml_cannot_carry_is_refused(bad: str, place: str) -> None:
    value = (
        standard_message(extension=bad)
        if place == "extension"
        else standard_message(
            processors=(
                Processor(
                    bad if place == "processorID" else "signature",
                    (
                        Entry(
                            bad if place == "key" else "k",
                            ValueType.STRING,
                            bad if place == "value" else "v",
                        ),
                    ),
                ),
            )
        )
    )
    with pytest.raises(Refusal) as caught:
        metadata.encode(value)
    assert caught.value.rule is Rule.FORBIDDEN_XML
    assert f"U+{ord(max(bad, key=lambda c: c not in 'ab')):04X}" in caught.value.message


@pytest.mark.parametrize(
    "text", ["\r", "\r\n", "\x85", "\u2028", "\x7f", "\U0010ffff", "]]>", " a "]
)
def test_line_ends_and_blanks_survive(text: str) -> None:
    value = standard_message(extension=text)
    assert metadata.decode(metadata.encode(value)) == value


def test_a_version_beyond_xsd_int_is_not_written() -> None:
    with pytest.raises(Refusal) as caught:
        metadata.encode(standard_message(message_mversion=2**31))
    assert caught.value.rule is Rule.BAD_VALUE


@pytest.mark.parametrize(
    ("element", "value", "rule"),
    [
        ("messageID", "42", Rule.BAD_MESSAGE_ID),
        ("receiverCode", "E 2", Rule.BAD_COMPONENT_CODE),
        ("senderCode", "", Rule.BAD_COMPONENT_CODE),
        ("messageType", "A*", Rule.BAD_MESSAGE_TYPE),
        ("generated", "12026-01-01T00:00:00Z", Rule.BAD_DATE_TIME),
        ("expirationTime", "-0001-01-01T00:00:00Z", Rule.BAD_DATE_TIME),
        ("generated", "yesterday", Rule.SCHEMA_INVALID),
        ("internalType", "standard_message", Rule.SCHEMA_INVALID),
        ("messageMversion", "2.0", Rule.SCHEMA_INVALID),
        ("messageMversion", "2147483648", Rule.SCHEMA_INVALID),
    ],
)
def test_a_refusal_names_the_element(element: str, value: str, rule: Rule) -> None:
    root = etree.fromstring(metadata.encode(standard_message()))
    found = root.find(element)
    assert found is not None
    found.text = value
    with pytest.raises(Refusal) as caught:
        metadata.decode(etree.tostring(root))
    assert caught.value.rule is rule
    assert element in caught.value.message


def test_blanks_around_values_that_xml_schema_collapses_are_not_part_of_them() -> None:
    text = metadata.encode(standard_message())
    for name in ("generated", "expirationTime", "messageMversion"):
        text = text.replace(f"<{name}>", f"<{name}>\n  ").replace(f"</{name}>", f"\t</{name}>")
    read = metadata.decode(text)
    assert read == standard_message()
    assert texts(read) == texts(standard_message())


def test_a_value_split_by_a_comment_is_refused() -> None:
    text = metadata.encode(standard_message())
    assert rule_of(text.replace("10X-SENDER", "10X-<!-- -->SENDER")) is Rule.FORBIDDEN_XML


def test_a_value_in_a_character_data_section_is_read_whole() -> None:
    text = metadata.encode(standard_message()).replace("10X-SENDER", "10X-<![CDATA[SEN]]>DER")
    assert metadata.decode(text) == standard_message()


def test_limits_are_those_of_the_caller() -> None:
    text = metadata.encode(standard_message())
    with pytest.raises(Refusal) as caught:
        metadata.decode(text, XmlLimits(max_bytes=len(text) - 1))
    assert caught.value.rule is Rule.LIMIT_EXCEEDED
    assert metadata.decode(text, XmlLimits(max_bytes=len(text))) == standard_message()


def test_metadata_of_thousands_of_entries_is_refused() -> None:
    many = tuple(Entry(str(i), ValueType.STRING, "x" * 20) for i in range(5_000))
    text = metadata.encode(standard_message(processors=(Processor("signature", many),)))
    assert rule_of(text) is Rule.LIMIT_EXCEEDED


@given(st.data())
def test_no_change_to_a_document_raises_anything_but_a_refusal(data: st.DataObject) -> None:
    octets = bytearray(metadata.encode(standard_message()).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(octets) - 1))
        octets[at : at + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=4))
    try:
        read = metadata.decode(bytes(octets))
    except Refusal:
        return
    assert isinstance(read, Metadata)


def test_every_attribute_of_the_metadata_is_on_the_wire() -> None:
    other = standard_message()
    # MADES 1.1 has a name of the sender; 503 Table 11 has none, and its manifest must not change.
    without = replace(other, sender_description="Northgrid")
    assert metadata.encode(without) == metadata.encode(other)
    for field in fields(Metadata):
        if field.name == "sender_description":
            continue
        without = replace(other, **{field.name: _another(field.name)})
        assert metadata.encode(without) != metadata.encode(other)


def _another(name: str) -> object:
    different = {
        "message_id": "0b7f3c52-77f0-4a7d-9a55-3b1f4f0e9d21",
        "expiration_time": None,
        "generated": standard_message().expiration_time,
        "internal_type": "TRACING_MESSAGE",
        "processors": (),
        "message_mversion": 3,
    }
    return different.get(name, "other")


def _outcome(read: Callable[[str], Metadata], text: str) -> object:
    try:
        value = read(text)
    except Refusal as refusal:
        return refusal.rule, refusal.message
    return value, texts(value)


def test_what_we_write_is_read_without_a_tree() -> None:
    value = standard_message(
        extension="xml",
        related_message_id="b",
        sender_application="APP",
        ba_message_id="BA-1",
        processors=(
            Processor("empty", ()),
            Processor(
                "signature",
                (
                    Entry("Signature", ValueType.STRING, "<Signature a='b'>&amp;\"]]></Signature>"),
                    Entry("Bytes", ValueType.BYTE_ARRAY, "AAEC"),
                    Entry("Number", ValueType.LONG, "-1"),
                    Entry("Truth", ValueType.BOOLEAN, "true"),
                ),
            ),
        ),
    )
    text = metadata.encode(value)
    assert own_form.read(text) == value == metadata.decode_any_form(text)


@given(metadatas)
def test_whatever_we_write_is_read_the_same_with_and_without_a_tree(value: Metadata) -> None:
    text = metadata.encode(value)
    known = own_form.read(text)
    if known is not None:
        assert known == value
        assert texts(known) == texts(value)
    assert metadata.decode_any_form(text) == value


_PIECES = (
    "", " ", "\n", "\r", "\t", "\x00", "\x7f", "\u00e9", "\ufffe", "<", ">", "&", "&amp;", "&lt;", "&gt;",
    "&quot;", "&#65;", "&#13;", "]]>", "]]&gt;", "<!--x-->", "<![CDATA[x]]>", "<?x y?>", "=", "==",
    "Zg==", "Zh==",
    "0", "1", "-", "+1", "01", "9999999999", "24", "60", "13", "T", "Z", "+01:00", "true", "TRUE",
    "STRING", "LONG", "BYTE_ARRAY", "BOOLEAN", "TRACING_MESSAGE", "<extension></extension>",
    "<expirationTime></expirationTime>", "<entry></entry>", "<entries></entries>", "<key>k</key>",
    "<messageProcessor></messageProcessor>", "</messageProcessors>", "<messageProcessors>",
)  # fmt: skip


@given(metadatas, st.data())
def test_a_document_that_was_changed_is_read_or_refused_as_with_a_tree(
    value: Metadata, data: st.DataObject
) -> None:
    text = metadata.encode(value)
    for _ in range(data.draw(st.integers(1, 3))):
        # Whole values and tags as well as single characters.
        edges = sorted({0, len(text), *(m.start() for m in re.finditer("[<>]", text))})
        start = data.draw(st.sampled_from(edges) | st.integers(0, len(text)))
        later = [edge for edge in edges if edge >= start][:3] or [start]
        end = data.draw(st.sampled_from(later) | st.integers(start, min(start + 3, len(text))))
        text = text[:start] + data.draw(st.sampled_from(_PIECES)) + text[end:]
    assert _outcome(metadata.decode, text) == _outcome(metadata.decode_any_form, text)


_TYPICAL = metadata.encode(
    standard_message(
        extension="x",
        sender_application="APP",
        processors=(
            Processor(
                "signature",
                (
                    Entry("a", ValueType.STRING, "<S/>"),
                    Entry("b", ValueType.LONG, "12"),
                    Entry("c", ValueType.BYTE_ARRAY, "AAEC"),
                    Entry("d", ValueType.BOOLEAN, "true"),
                ),
            ),
        ),
    )
)


@pytest.mark.parametrize("piece", _PIECES)
def test_each_value_replaced_is_read_or_refused_as_with_a_tree(piece: str) -> None:
    for found in re.finditer(">([^<>]*)<", _TYPICAL):
        for start, end in (found.span(1), (found.end(1), found.end(1)), (found.start(1),) * 2):
            text = _TYPICAL[:start] + piece + _TYPICAL[end:]
            assert _outcome(metadata.decode, text) == _outcome(metadata.decode_any_form, text)
