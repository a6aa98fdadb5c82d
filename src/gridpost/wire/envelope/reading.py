"""From XML to an envelope: strict, by Annex A, in either namespace that the standard uses for it."""

from __future__ import annotations

from functools import cache

from lxml import etree

from gridpost.core.envelope import NAMESPACE, OTHER_NAMESPACE, SYNONYMS, AnyMessage
from gridpost.core.envelope_rules import check
from gridpost.core.identifiers import clip
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.envelope.known_forms import Templates
from gridpost.wire.envelope.reader import ROOTS, reader_of
from gridpost.wire.envelope.settings import Reading
from gridpost.wire.xml import Schema, parse, schema_tree

SCHEMA = "envelope/Message.xsd"
_OTHER = OTHER_NAMESPACE.encode()


DEFAULT_READING = Reading()


def decode(data: bytes | str, reading: Reading = DEFAULT_READING) -> AnyMessage:
    """Parse, validate and check; the value says everything that the document said."""
    message = decode_unchecked(data, reading)
    check(message)
    return message


def decode_unchecked(data: bytes | str, reading: Reading = DEFAULT_READING) -> AnyMessage:
    """By the schema alone: for looking into what breaks other rules."""
    octets = data.encode() if isinstance(data, str) else data
    known = _templates.read(octets, reading)
    if known is not None:
        return known
    message, root = _decode(data, octets, reading)
    _templates.learn(octets, root, reading)
    return message


def _decode(
    data: bytes | str, octets: bytes, reading: Reading
) -> tuple[AnyMessage, etree._Element]:
    if _OTHER in octets or b">update" in octets or b">show" in octets:
        root = parse(data, reading.limits)
        namespace = _namespace(root)
        _replace_synonym(root, namespace)
        schema(namespace).validate(root)
    else:
        try:
            root = schema(NAMESPACE).read(data, reading.limits)
        except Refusal as refusal:
            if refusal.rule is Rule.SCHEMA_INVALID:
                _namespace(parse(data, reading.limits))
            raise
        namespace = NAMESPACE
    return reader_of(namespace, reading.zone).message(root), root


def decode_element(root: etree._Element, reading: Reading = DEFAULT_READING) -> AnyMessage:
    """An envelope that came inside another document, for instance a SOAP body."""
    namespace = _namespace(root)
    _replace_synonym(root, namespace)
    # As a document of its own: a schema is about documents.
    schema(namespace).validate(root)
    message = reader_of(namespace, reading.zone).message(root)
    check(message)
    return message


@cache
def schema(namespace: str) -> Schema:
    """Our Message.xsd, for either namespace."""
    if namespace == NAMESPACE:
        return Schema(SCHEMA, schema_tree(SCHEMA))
    text = etree.tostring(schema_tree(SCHEMA)).replace(NAMESPACE.encode(), namespace.encode())
    return Schema(SCHEMA, etree.fromstring(text))


def _namespace(root: etree._Element) -> str:
    name = etree.QName(root)
    if name.namespace not in (NAMESPACE, OTHER_NAMESPACE):
        raise Refusal(
            Rule.ENVELOPE_FORM,
            f"'{clip(name.localname)}' is not in the namespace {NAMESPACE},"
            f" but in '{clip(name.namespace or '')}'",
        )
    if name.localname not in ROOTS:
        raise Refusal(Rule.ENVELOPE_FORM, f"'{clip(name.localname)}' is not a kind of message")
    return name.namespace


def _replace_synonym(root: etree._Element, namespace: str) -> None:
    verb = root.find(f"{{{namespace}}}Header/{{{namespace}}}Verb")
    if verb is not None and verb.text in SYNONYMS:
        verb.text = SYNONYMS[verb.text].value


_templates = Templates()
