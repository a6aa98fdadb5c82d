"""503 cl. 6.5.5, Tables 11 to 17: metadata of an internal message and its schema."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.resources import as_file, files
from pathlib import Path

import pytest
from lxml import etree

from gridpost.core.message import (
    ENCRYPTION,
    SIGNATURE,
    Entry,
    InternalType,
    Metadata,
    Processor,
    ValueType,
)
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.mades import metadata
from gridpost.wire.xml import schema_tree
from support.samples import PROCESSORS, internal_message, standard_message, texts

NAMESPACE = "http://mades.entsoe.eu/internalMessaging"
XSI = "http://www.w3.org/2001/XMLSchema-instance"
XSD = "{http://www.w3.org/2001/XMLSchema}"

ORDER = [
    "messageID", "receiverCode", "messageType", "extension", "generated", "expirationTime",
    "senderCode", "internalType", "relatedMessageID", "senderApplication", "baMessageID",
    "processingMetadata", "messageMversion",
]  # fmt: skip
OPTIONAL = ["extension", "expirationTime", "relatedMessageID", "senderApplication", "baMessageID"]
REQUIRED = [name for name in ORDER if name not in OPTIONAL]

# All thirteen elements at once.
FULL = standard_message(related_message_id="0b7f3c52-77f0-4a7d-9a55-3b1f4f0e9d21")


def document(value: Metadata = FULL) -> etree._Element:
    return etree.fromstring(metadata.encode(value))


def child(root: etree._Element, name: str) -> etree._Element:
    found = root.find(f".//{name}")
    assert found is not None
    return found


def remove(root: etree._Element, name: str) -> etree._Element:
    found = child(root, name)
    parent = found.getparent()
    assert parent is not None
    parent.remove(found)
    return root


def is_valid(root: etree._Element) -> bool:
    """By the schema of the standard, without what we tolerate besides it."""
    try:
        metadata.schema().validate(root)
    except Refusal as refusal:
        return refusal.rule is not Rule.SCHEMA_INVALID
    return True


def rule_of(root: etree._Element) -> Rule:
    with pytest.raises(Refusal) as caught:
        metadata.decode(etree.tostring(root))
    return caught.value.rule


# ---------------------------------------------------------------- Table 11


@pytest.mark.parametrize("kind", InternalType)
def test_each_kind_carries_its_elements_and_leaves_out_the_unused_ones(kind: InternalType) -> None:
    value = internal_message(kind)
    present = {element.tag for element in document(value)}
    unused = {"relatedMessageID"}
    if kind.is_acknowledgement:
        unused = {"extension", "senderApplication", "baMessageID"}
    elif kind is InternalType.TRACING_MESSAGE:
        unused |= {"extension"}
    assert present == set(ORDER) - unused
    assert metadata.decode(metadata.encode(value)) == value


@pytest.mark.req("503-T11-h")
def test_an_internal_type_that_table_12_does_not_list_is_refused() -> None:
    root = document()
    assert child(root, "internalType").text == "STANDARD_MESSAGE"
    child(root, "internalType").text = "BP1-A"
    assert rule_of(root) is Rule.SCHEMA_INVALID
    assert rule_of(remove(document(), "internalType")) is Rule.SCHEMA_INVALID


@pytest.mark.req("503-T11-l")
def test_processing_metadata_is_always_emitted_and_may_be_missing_from_a_peer() -> None:
    value = internal_message(InternalType.RECEIVE_ACKNOWLEDGEMENT)
    root = document(value)
    assert is_valid(root)
    assert len(child(root, "messageProcessors")) == 0
    for name in ("messageProcessors", "processingMetadata"):
        remove(root, name)
        assert not is_valid(root)
        assert metadata.decode(etree.tostring(root)) == value


@pytest.mark.req("503-T11-m")
def test_message_mversion_is_the_integer_2_and_never_missing() -> None:
    assert child(document(), "messageMversion").text == "2"
    assert rule_of(remove(document(), "messageMversion")) is Rule.SCHEMA_INVALID
    for text in ("", "two", "2.0", "2147483648"):
        root = document()
        child(root, "messageMversion").text = text
        assert rule_of(root) is Rule.SCHEMA_INVALID


def three_forms(name: str) -> list[etree._Element]:
    absent, empty, nil = remove(document(), name), document(), document()
    child(empty, name).text = None
    child(nil, name).text = None
    child(nil, name).set(f"{{{XSI}}}nil", "true")
    return [absent, empty, nil]


@pytest.mark.req("503-T11-n")
@pytest.mark.parametrize("name", OPTIONAL)
def test_absent_empty_and_nil_are_one_value(name: str) -> None:
    absent, empty, nil = (metadata.decode(etree.tostring(root)) for root in three_forms(name))
    assert absent == empty == nil
    assert texts(absent) == texts(empty) == texts(nil)
    assert metadata.encode(absent) == metadata.encode(nil) == metadata.encode(empty)
    assert f"<{name}" not in metadata.encode(absent)


# ---------------------------------------------------------------- Table 12


@pytest.mark.req("503-T12-a")
@pytest.mark.parametrize(
    "text",
    [
        "STANDARD_MESSAGE", "DELIVERY_ACKNOWLEDGEMENT", "RECEIVE_ACKNOWLEDGEMENT",
        "FAILURE_ACKNOWLEDGEMENT", "TRACING_MESSAGE", "TRACING_ACKNOWLEDGEMENT",
    ],
)  # fmt: skip
def test_the_six_internal_types_round_trip(text: str) -> None:
    root = document()
    child(root, "internalType").text = text
    assert is_valid(root)
    read = metadata.decode(etree.tostring(root))
    assert read.internal_type is InternalType(text)
    assert f"<internalType>{text}</internalType>" in metadata.encode(read)
    assert len(InternalType) == 6


@pytest.mark.req("503-T12-a")
@pytest.mark.parametrize("text", ["", "standard_message", "ACKNOWLEDGEMENT", " STANDARD_MESSAGE"])
def test_a_seventh_internal_type_is_refused(text: str) -> None:
    root = document()
    child(root, "internalType").text = text
    assert not is_valid(root)
    assert rule_of(root) is Rule.SCHEMA_INVALID


# ---------------------------------------------------------------- Tables 13 to 17


@pytest.mark.req("503-T14-a")
def test_a_processor_has_an_id_in_lower_case_and_data() -> None:
    value = standard_message(processors=(Processor(SIGNATURE), Processor(ENCRYPTION)))
    root = document(value)
    assert [e.text for e in root.iter("processorID")] == ["signature", "encryption"]
    for name in ("processorID", "processorData"):
        broken = remove(document(value), name)
        assert not is_valid(broken)
        assert rule_of(broken) is Rule.SCHEMA_INVALID


@pytest.mark.req("503-T16-a")
@pytest.mark.parametrize("name", ["key", "type", "value"])
def test_an_entry_without_key_type_or_value_is_refused(name: str) -> None:
    assert [e.tag for e in child(document(), "entry")] == ["key", "type", "value"]
    broken = remove(document(), name)
    assert not is_valid(broken)
    assert rule_of(broken) is Rule.SCHEMA_INVALID


def with_entry(kind: str, text: str) -> etree._Element:
    entry = Entry("Extra", ValueType.STRING, text)
    root = document(standard_message(processors=(Processor("signature", (entry,)),)))
    child(root, "type").text = kind
    return root


VALUES = [("STRING", "any text"), ("LONG", "42"), ("BYTE_ARRAY", "AAECAw=="), ("BOOLEAN", "true")]


@pytest.mark.req("503-T17-a")
@pytest.mark.parametrize(("kind", "text"), VALUES)
def test_the_four_value_types_round_trip(kind: str, text: str) -> None:
    root = with_entry(kind, text)
    assert is_valid(root)
    read = metadata.decode(etree.tostring(root))
    assert read.processors[0].entries == (Entry("Extra", ValueType(kind), text),)
    assert metadata.decode(metadata.encode(read)) == read


@pytest.mark.req("503-T17-a")
@pytest.mark.parametrize("kind", ["", "string", "DOUBLE", "BYTE ARRAY"])
def test_another_value_type_is_refused(kind: str) -> None:
    assert not is_valid(with_entry(kind, "42"))
    assert rule_of(with_entry(kind, "42")) is Rule.SCHEMA_INVALID


@pytest.mark.req("503-T17-b")
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *VALUES,
        ("LONG", "9223372036854775807"),
        ("LONG", "-9223372036854775808"),
        ("BOOLEAN", "false"),
        ("BYTE_ARRAY", "AAEC\n Aw=="),
    ],
)
def test_values_in_their_form_are_read_and_written(kind: str, text: str) -> None:
    read = metadata.decode(etree.tostring(with_entry(kind, text)))
    assert read.processors[0].entries[0].value == text
    assert metadata.decode(metadata.encode(read)) == read


@pytest.mark.req("503-T17-b")
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("LONG", "9223372036854775808"),
        ("LONG", "-9223372036854775809"),
        ("LONG", "4.2"),
        ("LONG", ""),
        ("BOOLEAN", "yes"),
        ("BOOLEAN", "TRUE"),
        ("BYTE_ARRAY", "AAECAw="),
        ("BYTE_ARRAY", "%%%="),
    ],
)
def test_values_in_another_form_are_neither_read_nor_written(kind: str, text: str) -> None:
    assert rule_of(with_entry(kind, text)) is Rule.BAD_VALUE
    entry = Entry("Extra", ValueType(kind), text)
    with pytest.raises(Refusal) as caught:
        metadata.encode(standard_message(processors=(Processor("signature", (entry,)),)))
    assert caught.value.rule is Rule.BAD_VALUE


def test_entries_that_nobody_knows_survive_in_their_order() -> None:
    extra = tuple(Entry(f"X{i % 3}", ValueType.LONG, str(i)) for i in range(9))
    value = standard_message(processors=(Processor("signature", extra), Processor("later", extra)))
    assert metadata.decode(metadata.encode(value)) == value


# ---------------------------------------------------------------- the schema


@pytest.mark.req("503-6.5.5-a")
def test_the_root_is_message_metadata_in_the_namespace_of_the_standard() -> None:
    root = document()
    assert root.tag == f"{{{NAMESPACE}}}messageMetadata"
    text = metadata.encode(FULL)
    for broken in (
        text.replace(NAMESPACE, "http://mades.entsoe.eu/other"),
        text.replace("mades:messageMetadata", "messageMetadata"),
        text.replace("mades:messageMetadata", "mades:metadata"),
    ):
        assert rule_of(etree.fromstring(broken)) is Rule.SCHEMA_INVALID


@pytest.mark.req("503-6.5.5-b")
def test_everything_below_the_root_is_in_no_namespace() -> None:
    root = document()
    assert is_valid(root)
    assert all("{" not in str(element.tag) for element in root.iterdescendants())
    assert "elementFormDefault" not in schema_tree("internalMessaging.xsd").attrib
    qualified = re.sub(r"<(/?)(?=[a-z])(?!mades:)", r"<\1mades:", metadata.encode(FULL))
    assert rule_of(etree.fromstring(qualified)) is Rule.SCHEMA_INVALID


@pytest.mark.req("503-6.5.5-c")
def test_elements_come_in_the_order_of_the_schema_and_no_other() -> None:
    root = document()
    assert [element.tag for element in root] == ORDER
    assert is_valid(root)
    for at in range(len(ORDER) - 1):
        swapped = document()
        swapped.insert(at, swapped[at + 1])
        assert not is_valid(swapped)
        assert rule_of(swapped) is Rule.SCHEMA_INVALID


@pytest.mark.req("503-6.5.5-d")
@pytest.mark.parametrize("name", OPTIONAL)
def test_an_optional_element_may_be_absent_or_nil(name: str) -> None:
    absent, _, nil = three_forms(name)
    assert is_valid(absent)
    assert is_valid(nil)


@pytest.mark.req("503-6.5.5-d")
@pytest.mark.parametrize("name", ORDER)
def test_other_elements_occur_exactly_once_and_are_not_nil(name: str) -> None:
    doubled = document()
    found = child(doubled, name)
    found.addnext(etree.fromstring(etree.tostring(found)))
    assert not is_valid(doubled)
    assert rule_of(doubled) is Rule.SCHEMA_INVALID
    if name in REQUIRED:
        absent, _, nil = three_forms(name)
        assert not is_valid(absent)
        assert not is_valid(nil)
        if name != "processingMetadata":
            assert rule_of(absent) is rule_of(nil) is Rule.SCHEMA_INVALID


@pytest.mark.req("503-6.5.5-e")
@pytest.mark.parametrize("processors", [(), PROCESSORS[:1], PROCESSORS, (Processor("signature"),)])
def test_the_nesting_is_that_of_the_schema_and_empty_containers_stay(
    processors: tuple[Processor, ...],
) -> None:
    value = standard_message(processors=processors)
    root = document(value)
    assert is_valid(root)
    (containers,) = root.findall("processingMetadata/messageProcessors")
    assert len(containers.findall("messageProcessor")) == len(processors)
    for element, processor in zip(containers, processors, strict=True):
        assert [e.tag for e in element] == ["processorID", "processorData"]
        (entries,) = element.findall("processorData/entries")
        assert len(entries.findall("entry")) == len(entries) == len(processor.entries)
    assert metadata.decode(etree.tostring(root)) == value


TYPES = {
    "MessageMetadata", "MessageProcessingMetadata", "MessageProcessors", "MessageProcessor", "Map",
    "Entries", "Entry", "ValueType", "InternalMessageType",
}  # fmt: skip


@pytest.mark.req("503-6.5.5-f")
def test_the_schema_defines_the_nine_types_and_lxml_compiles_it() -> None:
    tree = schema_tree("internalMessaging.xsd")
    etree.XMLSchema(tree)
    named = [*tree.findall(f"{XSD}complexType"), *tree.findall(f"{XSD}simpleType")]
    assert {element.get("name") for element in named} == TYPES
    assert [element.get("name") for element in tree.findall(f"{XSD}element")] == ["messageMetadata"]


@pytest.mark.req("503-6.5.5-f")
@pytest.mark.skipif(
    shutil.which("xmllint") is None, reason="xmllint (libxml2-utils) is not installed"
)
def test_xmllint_compiles_the_schema_and_accepts_what_we_emit(tmp_path: Path) -> None:
    documents = []
    for kind in InternalType:
        documents.append(tmp_path / f"{kind}.xml")
        documents[-1].write_text(metadata.encode(internal_message(kind)), encoding="utf-8")
    with as_file(files("gridpost.wire.schemas") / "internalMessaging.xsd") as schema:
        arguments = ["xmllint", "--nonet", "--noout", "--schema", str(schema), *map(str, documents)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("validates") == 6
