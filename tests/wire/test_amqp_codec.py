"""AMQP values: every form is read, ours round-trips, and no octets do harm."""

from __future__ import annotations

import math
import struct
from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.amqp.codec import (
    binary,
    decode,
    elements,
    encode,
    encode_composite,
    flat,
    skip,
)
from gridpost.wire.amqp.types import (
    AmqpLimits,
    Array,
    Byte,
    Char,
    Decimal,
    Described,
    Float,
    Int,
    Long,
    Map,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
)
from support.effort import no_more_work_than_hashing

SCALARS: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(0, 2**8 - 1).map(UByte),
    st.integers(0, 2**16 - 1).map(UShort),
    st.integers(0, 2**32 - 1).map(UInt),
    st.integers(0, 2**64 - 1).map(ULong),
    st.integers(-(2**7), 2**7 - 1).map(Byte),
    st.integers(-(2**15), 2**15 - 1).map(Short),
    st.integers(-(2**31), 2**31 - 1).map(Int),
    st.integers(-(2**63), 2**63 - 1).map(Long),
    st.integers(-(2**63), 2**63 - 1).map(Timestamp),
    st.floats(width=32, allow_nan=False).map(Float),
    st.floats(allow_nan=False),
    st.characters(exclude_categories=["Cs"]).map(Char),
    st.text(max_size=300),
    st.binary(max_size=300),
    st.text(st.characters(max_codepoint=127), max_size=300).map(Symbol),
    st.uuids(),
    st.sampled_from([4, 8, 16]).flatmap(lambda n: st.binary(min_size=n, max_size=n)).map(Decimal),
)
ARRAYS: st.SearchStrategy[Value] = st.one_of(
    st.builds(Array, st.just(0x71), st.lists(st.integers(-9, 9).map(Int), max_size=4).map(tuple)),
    st.builds(Array, st.just(0xB1), st.lists(st.text(max_size=5), max_size=4).map(tuple)),
    st.builds(Array, st.just(0x56), st.lists(st.booleans(), max_size=4).map(tuple)),
    st.builds(
        Array,
        st.just(0xA3),
        st.lists(st.just(Symbol("x")), max_size=3).map(tuple),
        st.just((Symbol("d"), ULong(7))),
    ),
)


def _containers(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    return st.one_of(
        st.lists(inner, max_size=5),
        st.lists(st.tuples(inner, inner), max_size=4).map(lambda pairs: Map(tuple(pairs))),
        st.builds(Described, inner, inner),
        st.lists(st.lists(SCALARS, max_size=2), max_size=3).map(
            lambda lists: Array(0xD0, tuple(lists))
        ),
    )


VALUES: st.SearchStrategy[Value] = st.recursive(SCALARS | ARRAYS, _containers, max_leaves=12)


def typed(value: Value) -> object:
    """Equality that sees the AMQP type: UInt(1), Int(1) and True are equal to Python."""
    if isinstance(value, list):
        return [typed(item) for item in value]
    if isinstance(value, Map):
        return Map, [(typed(key), typed(item)) for key, item in value.pairs]
    if isinstance(value, Array):
        return (
            Array,
            value.code,
            [typed(i) for i in value.items],
            [typed(d) for d in value.descriptors],
        )
    if isinstance(value, Described):
        return Described, typed(value.descriptor), typed(value.value)
    return type(value), value


def refused(octets: bytes, limits: AmqpLimits | None = None) -> Rule:
    with pytest.raises(Refusal) as caught:
        decode(octets, limits or AmqpLimits())
    return caught.value.rule


@given(VALUES)
def test_what_was_encoded_is_decoded_to_the_same_type_and_value(value: Value) -> None:
    octets = encode(value)
    assert typed(decode(octets)) == typed(value)
    assert typed(decode(memoryview(octets))) == typed(value)
    assert skip(octets, 0, len(octets)) == len(octets)


@given(VALUES, st.data())
def test_a_value_cut_short_is_refused(value: Value, data: st.DataObject) -> None:
    octets = encode(value)
    cut = octets[: data.draw(st.integers(0, len(octets) - 1))]
    assert refused(cut) is Rule.MALFORMED_AMQP


@given(VALUES, st.binary(min_size=1, max_size=3))
def test_octets_after_a_value_are_refused(value: Value, rest: bytes) -> None:
    assert refused(encode(value) + rest) is Rule.MALFORMED_AMQP


FORMS: list[tuple[str, Value]] = [
    ("40", None),
    ("41", True),
    ("42", False),
    ("5600", False),
    ("5601", True),
    ("50ff", UByte(255)),
    ("60ffff", UShort(65535)),
    ("43", UInt(0)),
    ("52ff", UInt(255)),
    ("7000000001", UInt(1)),
    ("44", ULong(0)),
    ("53ff", ULong(255)),
    ("80ffffffffffffffff", ULong(2**64 - 1)),
    ("51ff", Byte(-1)),
    ("61ffff", Short(-1)),
    ("54ff", Int(-1)),
    ("71ffffffff", Int(-1)),
    ("55ff", Long(-1)),
    ("81ffffffffffffffff", Long(-1)),
    ("723fc00000", Float(1.5)),
    ("823ff8000000000000", 1.5),
    ("7400000001", Decimal(b"\0\0\0\1")),
    ("840000000000000001", Decimal(b"\0\0\0\0\0\0\0\1")),
    ("94" + "00" * 16, Decimal(bytes(16))),
    ("730001f600", Char("\U0001f600")),
    ("83ffffffffffffffff", Timestamp(-1)),
    ("98" + "11" * 16, UUID("11" * 16)),
    ("a00161", b"a"),
    ("b00000000161", b"a"),
    ("a102c3a9", "é"),
    ("b100000002c3a9", "é"),
    ("a30161", Symbol("a")),
    ("b30000000161", Symbol("a")),
    ("45", []),
    ("c00100", []),
    ("c003024041", [None, True]),
    ("d000000006000000024041", [None, True]),
    ("c10100", Map(())),
    ("c103024041", Map(((None, True),))),
    ("d100000006000000024041", Map(((None, True),))),
    ("e00402500102", Array(0x50, (UByte(1), UByte(2)))),
    ("f00000000700000002500102", Array(0x50, (UByte(1), UByte(2)))),
    ("e0020340", Array(0x40, (None, None, None))),
    ("e0050100537041", Array(0x41, (True,), (ULong(0x70),))),
    ("00537045", Described(ULong(0x70), [])),
    ("00a3017800a3017941", Described(Symbol("x"), Described(Symbol("y"), True))),
]


@pytest.mark.parametrize(("octets", "value"), FORMS)
def test_every_form_of_the_specification_is_read(octets: str, value: Value) -> None:
    assert typed(decode(bytes.fromhex(octets))) == typed(value)
    assert skip(bytes.fromhex(octets), 0, len(octets) // 2) == len(octets) // 2


BROKEN = {
    "nothing": "",
    "no such type": "99",
    "no such type in an array": "e0020099",
    "boolean 2": "5602",
    "surrogate as char": "730000d800",
    "char beyond Unicode": "7300110000",
    "string that is no UTF-8": "a101ff",
    "symbol that is no ASCII": "a302c3a9",
    "map with a lonely key": "c1020140",
    "list with too many elements": "c0020240",
    "list with too few elements": "c003014040",
    "list smaller than its count": "c000",
    "list32 smaller than its count": "d00000000300000000",
    "list longer than the octets": "c0ff0040",
    "list without size": "c0",
    "list32 without count": "d00000",
    "string without size": "a1",
    "binary32 without size": "b00000",
    "element longer than its list": "c00401a102",
    "array without constructor": "e00100",
    "described array without constructor": "e003000043",
    "array with octets left over": "e00401500100",
    "described without value": "005370",
    "descriptor alone": "00",
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_octets_are_refused(name: str) -> None:
    assert refused(bytes.fromhex(BROKEN[name])) is Rule.MALFORMED_AMQP


@pytest.mark.parametrize(
    "opening", [b"\xc0\xff\xff", b"\x00", b"\xd0\xff\xff\xff\xff\xff\xff\xff\xff"]
)
def test_a_million_openings_do_no_harm(opening: bytes) -> None:
    octets = opening * 1_000_000
    with no_more_work_than_hashing(500_000_000):
        assert refused(octets) in (Rule.MALFORMED_AMQP, Rule.LIMIT_EXCEEDED)
        with suppress(Refusal):
            skip(octets, 0, len(octets))


@pytest.mark.parametrize("octets", ["", "99", "a1", "b00000", "a102", "7000", "005370", "00"])
def test_octets_that_hold_no_whole_value_cannot_be_skipped(octets: str) -> None:
    with pytest.raises(Refusal) as caught:
        skip(bytes.fromhex(octets), 0, len(octets) // 2)
    assert caught.value.rule is Rule.MALFORMED_AMQP


@pytest.mark.parametrize(
    "array",
    [
        Array(0xC0, (["a"], [])),
        Array(0xC1, (Map((("a", True),)),)),
        Array(0xE0, (Array(0x50, (UByte(1),)),)),
        Array(0xA0, (b"a", b"")),
        Array(0x45, ([], [])),
        Array(0x82, (1.5,)),
        Array(0x98, (UUID(int=1),)),
        Array(0x74, (Decimal(b"abcd"),)),
        Array(0x73, (Char("a"),)),
    ],
)
def test_arrays_keep_the_constructor_they_came_with(array: Array) -> None:
    assert typed(decode(encode(array))) == typed(array)


@given(st.integers(0, 5), st.sampled_from(["list", "map", "described", "array"]))
def test_nesting_ends_at_the_limit(depth: int, kind: str) -> None:
    value: Value = True
    for _ in range(depth):
        value = {
            "list": [value],
            "map": Map(((True, value),)),
            "described": Described(value, True),
            "array": Array(0xD0, ([value],)),
        }[kind]
    levels = depth * 2 if kind == "array" else depth
    assert typed(decode(encode(value), AmqpLimits(max_depth=levels))) == typed(value)
    if depth:
        assert refused(encode(value), AmqpLimits(max_depth=levels - 1)) is Rule.LIMIT_EXCEEDED


def test_descriptors_of_an_array_count_as_nesting() -> None:
    array = Array(0x41, (True,), (None,) * 40)
    assert refused(encode(array)) is Rule.LIMIT_EXCEEDED


def test_an_array_of_nothing_cannot_be_made_large() -> None:
    octets = b"\xf0" + struct.pack(">II", 5, 2**32 - 1) + b"\x40"
    assert refused(octets) is Rule.LIMIT_EXCEEDED


def test_parts_are_counted_over_all_containers() -> None:
    limits = AmqpLimits(max_items=6)
    assert decode(encode([[True, True], [True, True]]), limits)
    assert refused(encode([[True, True], [True, True, True]]), limits) is Rule.LIMIT_EXCEEDED


@given(st.binary(max_size=200))
def test_octets_are_decoded_or_refused(octets: bytes) -> None:
    try:
        value = decode(octets)
    except Refusal as refusal:
        known = refusal.rule in (Rule.MALFORMED_AMQP, Rule.LIMIT_EXCEEDED)
    else:
        known = typed(decode(encode(value))) == typed(value) or "nan" in repr(value)
    assert known


@given(VALUES, st.data())
def test_a_changed_octet_is_decoded_or_refused(value: Value, data: st.DataObject) -> None:
    octets = bytearray(encode(value))
    octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    test_octets_are_decoded_or_refused.hypothesis.inner_test(bytes(octets))  # type: ignore[attr-defined]


def test_not_a_number_is_read_and_written() -> None:
    value = decode(encode([math.nan, Float(math.nan)]))
    assert isinstance(value, list)
    assert all(isinstance(item, float) and math.isnan(item) for item in value)


@pytest.mark.parametrize("value", [7, object(), {"a": 1}, ("a",)])
def test_a_value_without_an_amqp_type_is_our_own_mistake(value: object) -> None:
    with pytest.raises(TypeError):
        encode(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [UInt(-1), UInt(2**32), Byte(128), Timestamp(2**63)])
def test_a_number_out_of_range_is_our_own_mistake(value: Value) -> None:
    with pytest.raises(struct.error):
        encode(value)


@given(st.lists(SCALARS, max_size=20))
def test_the_elements_of_a_list_are_found_without_decoding(values: list[Value]) -> None:
    found = elements(encode(values))
    assert [typed(decode(octets)) for octets in found] == [typed(value) for value in values]
    assert all(isinstance(octets, memoryview) for octets in found)


@pytest.mark.parametrize(
    ("octets", "rule"),
    [
        ("", Rule.MALFORMED_AMQP),
        ("41", Rule.MALFORMED_AMQP),
        ("4541", Rule.MALFORMED_AMQP),
        ("c002014141", Rule.MALFORMED_AMQP),
        ("c003014141", Rule.MALFORMED_AMQP),
        ("c0020241", Rule.MALFORMED_AMQP),
        ("c00403414141", Rule.LIMIT_EXCEEDED),
    ],
)
def test_what_is_no_proper_list_has_no_elements(octets: str, rule: Rule) -> None:
    with pytest.raises(Refusal) as caught:
        elements(bytes.fromhex(octets), AmqpLimits(max_items=2))
    assert caught.value.rule is rule


@pytest.mark.parametrize("size", [0, 255, 256])
def test_the_content_of_a_binary_is_not_copied(size: int) -> None:
    octets = encode(bytes(size))
    content = binary(octets)
    assert content == bytes(size)
    assert content.obj is octets


@pytest.mark.parametrize("octets", ["", "a10161", "a0016162", "a00261"])
def test_what_is_no_binary_has_no_content(octets: str) -> None:
    with pytest.raises(Refusal) as caught:
        binary(bytes.fromhex(octets))
    assert caught.value.rule is Rule.MALFORMED_AMQP


def test_a_composite_leaves_out_nulls_at_its_end_and_takes_the_smallest_list() -> None:
    assert encode_composite(0x70, [None, None]).hex() == "00537045"
    assert encode_composite(0x70, [True, None, None]).hex() == "005370c0020141"
    assert encode_composite(0x70, [None, True, None]).hex() == "005370c003024041"
    assert encode_composite(0x73, ["x" * 252])[3] == 0xC0
    assert encode_composite(0x73, ["x" * 253])[3] == 0xD0


USUAL: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    st.booleans(),
    st.text(max_size=20),
    st.integers(0, 2**32 - 1).map(UInt),
    st.sampled_from([UInt(0), UInt(1), Int(0), Int(-1), Int(127), Int(-128), Int(300)]),
    st.integers(-(2**63), 2**63 - 1).map(Timestamp),
)


@given(st.lists(USUAL, max_size=80), st.booleans())
def test_a_flat_list_or_map_is_read_the_short_way_as_the_long_way(
    values: list[Value], as_map: bool
) -> None:
    pairs = tuple(zip(values[::2], values[1::2], strict=False))
    octets = encode(Map(pairs) if as_map else values)
    found = flat(octets)
    if found is None:
        return
    read = decode(octets)
    expected = [v for pair in read.pairs for v in pair] if isinstance(read, Map) else read
    assert found == expected
    assert isinstance(expected, list)
    assert [type(v) for v in found] == [type(v) for v in expected]


def test_a_list_as_every_message_has_it_is_read_the_short_way() -> None:
    fields: list[Value] = ["id", None, Timestamp(1), UInt(0), UInt(7), UInt(70_000), True, Int(2)]
    assert flat(encode(fields)) == fields
    assert flat(encode_composite(0x73, fields)[3:]) == fields


@given(st.one_of(st.lists(VALUES, max_size=4).map(encode), st.binary(max_size=60)), st.data())
def test_what_is_unusual_or_broken_is_left_to_the_long_way(
    octets: bytes, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, max(0, len(octets) - 1)))
    changed = octets[:at] + data.draw(st.binary(max_size=2)) + octets[at + 1 :]
    found = flat(changed)
    if found is not None and changed[0] in (0xC0, 0xD0):
        assert decode(changed) == found


def test_limits_of_the_caller_hold_on_the_short_way() -> None:
    assert flat(encode(["a"]), AmqpLimits(max_items=1)) is None
    assert flat(encode(["a"]), AmqpLimits(max_depth=0)) is None
