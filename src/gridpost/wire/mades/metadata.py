"""Message metadata as XML (503 cl. 6.5.5, Tables 11 to 17): what is emitted, and what is read as well.

Emitted documents follow the schema to the letter. Read documents may leave out what one of table
and schema calls optional (see divergences, optional metadata elements).
"""

from __future__ import annotations

from functools import cache, lru_cache

from lxml import etree

from gridpost.core.identifiers import component_code, message_id, message_type
from gridpost.core.instant import Instant
from gridpost.core.message import Entry, InternalType, Metadata, Processor, ValueType
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.mades import own_form, values
from gridpost.wire.mades.own_form import NAMESPACE
from gridpost.wire.mades.values import named
from gridpost.wire.xml import Schema, XmlLimits, load_schema, schema_tree
from gridpost.wire.xml_text import element, escape, optional

SCHEMA_NAME = "internalMessaging.xsd"

# A signature of some kilobytes, two processors and room for entries that a later version adds.
LIMITS = XmlLimits(
    max_bytes=1024 * 1024,
    max_depth=16,
    max_elements=10_000,
    max_attributes=1_000,
    max_attribute_length=4_096,
)

_XSD = "{http://www.w3.org/2001/XMLSchema}"
_BLANKS = " \t\r\n"

_VALUE_TYPES = {member.value: member for member in ValueType}

_MIN_INT, _MAX_INT = -(2**31), 2**31 - 1


def encode(metadata: Metadata) -> str:
    """A document that the schema accepts, without declaration: it travels as an AMQP string."""
    expiration = metadata.expiration_time
    if not _MIN_INT <= metadata.message_mversion <= _MAX_INT:
        raise Refusal(Rule.BAD_VALUE, "messageMversion does not fit into 32 bits")
    # 503 cl. 6.5.5: only the root has a namespace, so it must not be the default one.
    return (
        f'<mades:messageMetadata xmlns:mades="{NAMESPACE}">'
        f"{element('messageID', metadata.message_id)}"
        f"{element('receiverCode', metadata.receiver_code)}"
        f"{element('messageType', metadata.message_type)}"
        f"{optional('extension', metadata.extension)}"
        f"{element('generated', metadata.generated.text)}"
        f"{element('expirationTime', expiration.text) if expiration is not None else ''}"
        f"{element('senderCode', metadata.sender_code)}"
        f"{element('internalType', metadata.internal_type)}"
        f"{optional('relatedMessageID', metadata.related_message_id)}"
        f"{optional('senderApplication', metadata.sender_application)}"
        f"{optional('baMessageID', metadata.ba_message_id)}"
        "<processingMetadata><messageProcessors>"
        f"{''.join([_processor(processor) for processor in metadata.processors])}"
        "</messageProcessors></processingMetadata>"
        f"<messageMversion>{metadata.message_mversion:d}</messageMversion>"
        "</mades:messageMetadata>"
    )


def decode(text: str | bytes, limits: XmlLimits = LIMITS) -> Metadata:
    """Metadata from a peer. The texts of date-times stay as they were signed."""
    if limits is LIMITS and isinstance(text, str):
        known = own_form.read(text)
        if known is not None:
            return known
    return decode_any_form(text, limits)


def decode_any_form(text: str | bytes, limits: XmlLimits = LIMITS) -> Metadata:
    """With parser and schema, whoever wrote it."""
    root = _reading_schema().read(text, limits)
    fields = {str(child.tag): child.text or "" for child in root.iterchildren("*")}
    expiration = fields.get("expirationTime", "").strip(_BLANKS)
    return Metadata(
        message_id=named("messageID", message_id, fields["messageID"]),
        receiver_code=named("receiverCode", component_code, fields["receiverCode"]),
        message_type=named("messageType", message_type, fields["messageType"]),
        generated=named("generated", Instant.parse, fields["generated"].strip(_BLANKS)),
        expiration_time=named("expirationTime", Instant.parse, expiration) if expiration else None,
        sender_code=named("senderCode", component_code, fields["senderCode"]),
        internal_type=InternalType(fields["internalType"]),
        extension=fields.get("extension", ""),
        related_message_id=fields.get("relatedMessageID", ""),
        sender_application=fields.get("senderApplication", ""),
        ba_message_id=fields.get("baMessageID", ""),
        processors=_read_processors(root),
        message_mversion=int(fields["messageMversion"]),
    )


def schema() -> Schema:
    """The schema that everything we emit follows."""
    return load_schema(SCHEMA_NAME)


@cache
def _reading_schema() -> Schema:
    """The same schema with the containers optional, and an empty expirationTime as good as none."""
    tree = schema_tree(SCHEMA_NAME)
    for name in ("processingMetadata", "messageProcessors", "entries"):
        for declaration in _declarations(tree, name):
            declaration.set("minOccurs", "0")
            declaration.set("nillable", "true")
    # 503 Table 11, note a: null and empty are the same.
    nothing = etree.SubElement(tree, f"{_XSD}simpleType", name="Nothing")
    restriction = etree.SubElement(nothing, f"{_XSD}restriction", base="xsd:string")
    etree.SubElement(restriction, f"{_XSD}length", value="0")
    # libxml2 takes blanks in front of a date-time, which XML Schema allows, only in a union.
    for name, members in (
        ("generated", "xsd:dateTime"),
        ("expirationTime", "xsd:dateTime mades:Nothing"),
    ):
        moment = etree.SubElement(tree, f"{_XSD}simpleType", name=f"{name}Type")
        etree.SubElement(moment, f"{_XSD}union", memberTypes=members)
        for declaration in _declarations(tree, name):
            declaration.set("type", f"mades:{name}Type")
    return Schema(SCHEMA_NAME, tree)


def _declarations(schema: etree._Element, name: str) -> list[etree._Element]:
    return [e for e in schema.iter(f"{_XSD}element") if e.get("name") == name]


def _processor(processor: Processor) -> str:
    return (
        f"<messageProcessor>{element('processorID', processor.processor_id)}"
        "<processorData><entries>"
        f"{''.join([_entry(entry) for entry in processor.entries])}"
        "</entries></processorData></messageProcessor>"
    )


@lru_cache(256)
def _entry_head(key: str, kind: ValueType) -> str:
    return f"<entry><key>{escape('key', key)}</key><type>{kind.value}</type>"


def _entry(entry: Entry) -> str:
    values.check(entry)
    return (
        f"{_entry_head(entry.key, entry.type)}"
        f"<value>{escape(entry.key, entry.value)}</value></entry>"
    )


def _read_processors(root: etree._Element) -> tuple[Processor, ...]:
    """The schema has seen to it that these four names come in this order and nowhere else."""
    processors: list[tuple[str, list[Entry]]] = []
    key = kind = ""
    for item in root.iter("processorID", "key", "type", "value"):
        tag, text = item.tag, item.text or ""
        if tag == "key":
            key = text
        elif tag == "type":
            kind = text
        elif tag == "value":
            entry = Entry(key, _VALUE_TYPES[kind], text)
            if entry.type is not ValueType.STRING:
                values.check(entry)
            processors[-1][1].append(entry)
        else:
            processors.append((text, []))
    return tuple([Processor(name, tuple(entries)) for name, entries in processors])
