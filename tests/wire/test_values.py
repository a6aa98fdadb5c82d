"""Values of entries (Table 17)."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridpost.core.message import Entry, ValueType
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.mades import values


def is_value(kind: ValueType, text: str) -> bool:
    try:
        values.check(Entry("key", kind, text))
    except Refusal as refusal:
        return refusal.rule is not Rule.BAD_VALUE
    return True


@pytest.mark.parametrize(
    "text",
    ["0", "42", "-42", "+42", "007", "9223372036854775807", "-9223372036854775808", "0" * 50 + "1"],
)
def test_a_decimal_number_of_64_bits_is_a_long(text: str) -> None:
    assert is_value(ValueType.LONG, text)


@pytest.mark.parametrize(
    "text",
    [
        "", "-", "4.2", "0x1", "1e3", "9223372036854775808", "-9223372036854775809", "9" * 10_000,
        " 42", "42\n", "4 2", "1_0", "٤٢",
    ],
)  # fmt: skip
def test_anything_else_is_no_long(text: str) -> None:
    assert not is_value(ValueType.LONG, text)


@pytest.mark.parametrize("text", ["true", "false"])
def test_true_and_false_are_booleans(text: str) -> None:
    assert is_value(ValueType.BOOLEAN, text)


@pytest.mark.parametrize("text", ["", "True", "FALSE", "yes", "1", "0", " true"])
def test_no_other_text_is_a_boolean(text: str) -> None:
    assert not is_value(ValueType.BOOLEAN, text)


@pytest.mark.parametrize("text", ["", "QQ==", "QUI=", "QUJD", "Q U\r\nJ\tD", " QQ = = "])
def test_base64_with_blanks_anywhere_is_a_byte_array(text: str) -> None:
    assert is_value(ValueType.BYTE_ARRAY, text)


@pytest.mark.parametrize(
    "text",
    [
        "=", "==", "Q", "QQ", "QQ=", "QQ===", "QUJD=", "QUJD==", "QR==", "QUJ=", "QQ==QUJD", "Q-_=",
        "é===", "QQ\x0b==", "QQ\xa0==",
    ],
)  # fmt: skip
def test_broken_base64_is_no_byte_array(text: str) -> None:
    assert not is_value(ValueType.BYTE_ARRAY, text)


@given(st.binary(), st.data())
def test_base64_gives_back_the_octets_however_it_is_broken_into_lines(
    octets: bytes, data: st.DataObject
) -> None:
    text = base64.b64encode(octets).decode()
    at = data.draw(st.integers(0, len(text)))
    assert values.read_base64(f"{text[:at]}\r\n {text[at:]}", "key") == octets


@given(st.text(alphabet="AQgwEZ+/= \n9", max_size=12))
def test_base64_is_what_xml_schema_says(text: str) -> None:
    packed = text.replace(" ", "").replace("\n", "")
    try:
        canonical = base64.b64encode(base64.b64decode(packed, validate=True)).decode() == packed
    except ValueError:
        canonical = False
    assert is_value(ValueType.BYTE_ARRAY, text) == canonical


@given(st.text())
def test_every_text_is_a_string(text: str) -> None:
    assert is_value(ValueType.STRING, text)


def test_a_refusal_names_the_entry_and_stays_short() -> None:
    with pytest.raises(Refusal, match="'Session key' is not base64") as caught:
        values.check(Entry("Session key", ValueType.BYTE_ARRAY, "!" * 10_000))
    assert len(caught.value.message) < 200
