"""What is kept of faulty entries of others, and that own data is read strictly."""

import re
from datetime import timedelta

import pytest

from gridpost.core.component import ComponentType
from gridpost.core.identifiers import ComponentCode
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.synchronisation import Answer, Grant
from gridpost.wire.directory import (
    decode_components,
    decode_entry,
    decode_pushed,
    decode_query,
    encode_component,
    encode_components,
)
from support.builders import HOME, broker, component_directory, endpoint, path
from support.pki import shared_endpoint

CERTIFICATES = shared_endpoint("E1").certificates
E1 = endpoint("E1", path("A*", senders=["X"]), path("B"), certificates=CERTIFICATES)
E2 = endpoint("E2", certificates=CERTIFICATES)


def answer(*grants: Grant) -> bytes:
    granted = grants or (Grant(HOME, "1", timedelta(hours=1)),)
    return encode_components(Answer(granted, (E1, E2)))


def changed(data: bytes, old: str, new: str, count: int = 1) -> bytes:
    assert old.encode() in data
    return data.replace(old.encode(), new.encode(), count)


@pytest.mark.parametrize(
    ("old", "new", "left_out"),
    [
        ("<code>E1</code>", "<code>../E1</code>", "entry '../E1'"),
        ("<type>ENDPOINT</type>", "<type>BROKER</type>", "entry 'E1'"),
        ("<path>INDIRECT:B1</path>", "<path>SIDEWAYS</path>", "a message-path A\\* of E1"),
        ("<path>INDIRECT:B1</path>", "<path>INDIRECT:</path>", "a message-path A\\* of E1"),
        ("<certificate>MII", "<certificate>AAA", "a certificate AUTHENTICATION of E1"),
    ],
)
def test_a_fault_costs_the_faulty_item_only(old: str, new: str, left_out: str) -> None:
    received = decode_components(changed(answer(), old, new))
    (warning,) = received.warnings
    assert re.match(left_out + " is left out: ", warning)
    whole = {c.code: c for c in received.answer.components}
    assert "E2" in whole
    if "entry" in left_out:
        assert set(whole) == {"E2"}
    elif "path" in left_out:
        assert [p.message_type for p in whole[E1.code].paths] == ["B"]
    else:
        assert whole[E1.code].certificates == CERTIFICATES[1:]


def test_times_that_no_calendar_has_are_left_out() -> None:
    ides = b"<creationTimestamp>-0044-03-15T00:00:00Z"
    data = re.sub(rb"<creationTimestamp>[^<]*", ides, answer(), count=1)
    received = decode_components(data)
    assert "creationTimestamp of E1" in received.warnings[0]
    assert received.answer.components[0].created is None


def test_names_that_match_nothing_are_kept_so_that_no_rule_gets_wider() -> None:
    restricted = broker("B1", components=("E1",), message_types=("A",))
    data = encode_components(
        Answer(
            (Grant(HOME, "1", timedelta(hours=1)),),
            (
                type(restricted)(
                    restricted.code,
                    restricted.type,
                    restricted.contact,
                    restricted.component_directory,
                    restricted.implementation,
                    certificates=CERTIFICATES[:1],
                    restriction=restricted.restriction,
                ),
            ),
        )
    )
    data = changed(data, "<component>E1<", "<component>no code!<")
    data = changed(data, "<messageType>A<", "<messageType>A*B<")
    (read,) = decode_components(data).answer.components
    assert read.restriction is not None
    assert not read.restriction.allows_component("E1")
    assert not read.restriction.allows_message_type("AB")


def test_senders_absent_empty_and_wildcard() -> None:
    data = answer()
    assert b"<senderComponent><component>*</component></senderComponent>" in data
    absent = changed(data, "<senderComponent><component>X</component></senderComponent>", "")
    empty = changed(data, "<component>X</component>", "")
    mixed = changed(
        data, "<component>X</component>", "<component>X</component><component>*</component>"
    )

    def senders(document: bytes) -> object:
        return decode_components(document).answer.components[0].paths[0].senders

    assert senders(data) == {"X"}
    assert senders(absent) is None
    assert senders(empty) == frozenset()
    assert senders(mixed) is None


def test_direct_is_read_with_and_without_colon() -> None:
    for text in ("DIRECT", "DIRECT:"):
        data = changed(answer(), "<path>INDIRECT:B1</path>", f"<path>{text}</path>")
        read = decode_components(data).answer.components[0]
        assert read.paths[0].route.broker is None


def test_an_entry_without_home_belongs_to_the_only_subsystem() -> None:
    data = changed(answer(), f"<componentDirectory>{HOME}</componentDirectory>", "")
    assert decode_components(data).answer.components[0].component_directory == HOME
    two = (Grant(HOME, "1", timedelta(hours=1)), Grant(ComponentCode("CD-2"), "1", timedelta(1)))
    data = changed(answer(*two), f"<componentDirectory>{HOME}</componentDirectory>", "")
    received = decode_components(data)
    assert [c.code for c in received.answer.components] == ["E2"]


@pytest.mark.parametrize(
    ("ttl", "expected"),
    [("9223372036854775807", 3650), (" 86400000 ", 1), ("0", None), ("-5", None)],
)
def test_a_validity_is_cut_to_what_a_calendar_can_hold(ttl: str, expected: int | None) -> None:
    data = changed(answer(), "<ttl>3600000</ttl>", f"<ttl>{ttl}</ttl>")
    received = decode_components(data)
    if expected is None:
        assert received.answer.grants == ()
        assert "its validity has ended" in received.warnings[0]
    else:
        assert [g.ttl for g in received.answer.grants] == [timedelta(days=expected)]


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("<path>INDIRECT:B1</path>", "<path>SIDEWAYS</path>", Rule.BAD_PATH),
        (
            "<messageType>A*</messageType>",
            "<messageType>A*B</messageType>",
            Rule.BAD_MESSAGE_TYPE_PATTERN,
        ),
        ("<component>X</component>", "<component>no code</component>", Rule.BAD_COMPONENT_CODE),
        ("<code>E1</code>", "<code>../E1</code>", Rule.BAD_COMPONENT_CODE),
        ("<phone>", "<fax>", Rule.MALFORMED_XML),
    ],
)
def test_own_data_is_read_strictly(old: str, new: str, rule: Rule) -> None:
    data = changed(encode_component(E1), old, new)
    with pytest.raises(Refusal) as caught:
        decode_pushed(data, ComponentType.ENDPOINT, HOME)
    assert caught.value.rule is rule


def test_what_the_directory_owns_is_not_even_looked_at_in_a_push() -> None:
    data = changed(encode_component(E1), "<certificate>MII", "<certificate>AAA")
    data = changed(data, "<type>ENDPOINT</type>", "<type>BROKER</type>")
    pushed = decode_pushed(data, ComponentType.ENDPOINT, HOME)
    assert pushed.type is ComponentType.ENDPOINT
    with pytest.raises(Refusal):
        decode_entry(data, ComponentType.ENDPOINT)


@pytest.mark.parametrize(
    "data",
    [
        encode_component(E1),
        b"<componentsQuery/>",
        b'<q:componentsQuery xmlns:q="http://wrong.example"/>',
        b'<!DOCTYPE x><q:componentsQuery xmlns:q="http://mades.entsoe.eu/componentDirectory"/>',
        b"",
    ],
)
def test_another_document_than_the_expected_one_is_refused(data: bytes) -> None:
    with pytest.raises(Refusal):
        decode_query(data)


def test_a_component_directory_is_never_pushed() -> None:
    with pytest.raises(ValueError, match="never pushed"):
        encode_component(component_directory())
    with pytest.raises(ValueError, match="at least the home"):
        encode_components(Answer((), ()))
