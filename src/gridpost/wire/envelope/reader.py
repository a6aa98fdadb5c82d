"""Reads the parts of an envelope that the schema has passed, field by field."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Any

from lxml import etree

from gridpost.core.envelope import (
    AnyMessage,
    Error,
    ErrorObject,
    EventMessage,
    FaultMessage,
    Header,
    Identifier,
    IdKind,
    Level,
    Location,
    Message,
    Name,
    NameType,
    NameTypeAuthority,
    Operation,
    OperationSet,
    Pair,
    Payload,
    ReplayDetection,
    Reply,
    Request,
    RequestMessage,
    ResponseMessage,
    Result,
    User,
    Verb,
)
from gridpost.core.identifiers import clip
from gridpost.core.instant import Instant
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.envelope.fragment import Fragment

VERBS = {verb.value: verb for verb in Verb}
_TRUE = frozenset({"true", "1"})


class Reader:
    """Reads what the schema has passed: names and order are right, so tags can be trusted.

    Tables are by whole tag: an envelope is read for every message, and this is most of the work.
    """

    __slots__ = ("_header", "_parts", "_prefix", "_roots", "_tables", "_zone")

    def __init__(self, namespace: str, zone: tzinfo | None) -> None:
        self._zone = zone
        self._prefix = "{" + namespace + "}"
        self._roots = self._tags(ROOTS)
        self._parts = self._tags(_PARTS)
        self._header = self._tags(HEADER)
        self._tables = {name: self._tags(table) for name, table in TABLES.items()}

    def _tags(self, table: dict[str, Any]) -> dict[str, Any]:
        return {self._prefix + name: value for name, value in table.items()}

    def message(self, root: Any) -> AnyMessage:
        parts: dict[str, Any] = {}
        for child in root:
            found = self._parts.get(child.tag)
            if found is not None:
                parts[found[0]] = found[1](self, child)
        message: AnyMessage = self._roots[root.tag](**parts)
        return message

    def header(self, element: Any) -> Header:
        fields: dict[str, Any] = {}
        properties: tuple[Pair, ...] = ()
        extensions: tuple[Fragment, ...] = ()
        table = self._header
        for child in element:
            found = table.get(child.tag)
            if found is None:
                extensions += _foreign(child)
                continue
            name, read = found
            if read is None:
                fields[name] = child.text or ""
            elif name == "properties":
                properties += (self._pair(child),)
            else:
                fields[name] = read(self, child)
        return Header(**fields, properties=properties, extensions=extensions)

    def request(self, element: etree._Element) -> Request:
        return Request(**self._fields(element, "Request"))

    def reply(self, element: etree._Element) -> Reply:
        return Reply(**self._fields(element, "Reply"))

    def payload(self, element: etree._Element) -> Payload:
        return Payload(**self._fields(element, "Payload", "content"))

    def _fields(self, element: Any, name: str, foreign: str = "extensions") -> dict[str, Any]:
        fields: dict[str, Any] = {}
        table = self._tables[name]
        for child in element:
            found = table.get(child.tag)
            if found is None:
                if isinstance(child.tag, str):
                    fields[foreign] = fields.get(foreign, ()) + _foreign(child)
                continue
            field, read, many = found
            value = read(self, child)
            fields[field] = (*fields.get(field, ()), value) if many else value
        return fields

    def _operation_set(self, element: etree._Element) -> OperationSet:
        return OperationSet(**self._fields(element, "OperationSet"))

    def _operation(self, element: etree._Element) -> Operation:
        fields = self._fields(element, "Operation", "content")
        if "content" in fields:
            (fields["content"],) = fields["content"]
        return Operation(**fields)

    def _error(self, element: etree._Element) -> Error:
        return Error(**self._fields(element, "Error"))

    def _location(self, element: etree._Element) -> Location:
        return Location(**self._fields(element, "Location"))

    def _object(self, element: etree._Element) -> ErrorObject:
        return ErrorObject(**self._fields(element, "object"))

    def _name(self, element: etree._Element) -> Name:
        return Name(**self._fields(element, "Name"))

    def _name_type(self, element: etree._Element) -> NameType:
        return NameType(**self._fields(element, "NameType"))

    def _name_type_authority(self, element: etree._Element) -> NameTypeAuthority:
        return NameTypeAuthority(**self._fields(element, "NameTypeAuthority"))

    def _id(self, element: etree._Element) -> Identifier:
        value = element.text or ""
        if not element.attrib:
            return Identifier(value)
        get = element.get
        kind = get("kind")
        return Identifier(
            value,
            None if kind is None else IdKind(kind),
            get("idType"),
            get("idAuthority"),
            get("objectType"),
        )

    def _texts(self, element: etree._Element) -> list[str]:
        return [child.text or "" for child in element if isinstance(child.tag, str)]

    def _pair(self, element: etree._Element) -> Pair:
        return Pair(*self._texts(element))

    def _user(self, element: etree._Element) -> User:
        return User(*self._texts(element))

    def _replay(self, element: etree._Element) -> ReplayDetection:
        nonce, created = self._texts(element)
        return ReplayDetection(nonce, date_time(created.strip(), self._zone))

    def _text(self, element: etree._Element) -> str:
        return element.text or ""

    def _verb(self, element: etree._Element) -> Verb:
        return VERBS[element.text or ""]

    def _result(self, element: etree._Element) -> Result:
        return Result(element.text or "")

    def _boolean(self, element: etree._Element) -> bool:
        # An empty elementOperation has its default, which is false.
        return (element.text or "").strip() in _TRUE

    def _integer(self, element: etree._Element) -> int:
        text = (element.text or "").strip()
        if len(text) > 40:
            raise Refusal(Rule.LIMIT_EXCEEDED, "an operationId has at most 40 digits")
        return int(text)

    def _level(self, element: etree._Element) -> Level:
        return Level(element.text or "")

    def _time(self, element: etree._Element) -> Instant:
        return date_time((element.text or "").strip(), self._zone)


def _foreign(child: etree._Element) -> tuple[Fragment, ...]:
    """Nothing for a comment or a processing instruction between elements."""
    return (Fragment(child),) if isinstance(child.tag, str) else ()


def date_time(text: str, zone: tzinfo | None) -> Instant:
    """61968-100 cl. 6.11. Without an offset only a known zone makes it a point in time."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        # The end of a day as 24:00:00, and fractions that Python does not read.
        at = Instant.parse(text).at
        if text[-1] != "Z" and text[-6] not in "+-":
            at = at.replace(tzinfo=None)
    if at.tzinfo is UTC:
        return Instant(at, text)
    if at.tzinfo is None:
        if zone is None:
            raise Refusal(
                Rule.BAD_DATE_TIME,
                f"'{clip(text)}' has no offset, and no time zone is configured for this peer",
            )
        at = at.replace(tzinfo=zone)
    try:
        return Instant(at.astimezone(UTC), text)
    except OverflowError:
        raise Refusal(Rule.BAD_DATE_TIME, f"'{clip(text)}' is no time that we can hold") from None


Read = Callable[[Reader, etree._Element], Any]

ROOTS: dict[str, Any] = {
    "RequestMessage": RequestMessage,
    "ResponseMessage": ResponseMessage,
    "EventMessage": EventMessage,
    "FaultMessage": FaultMessage,
    "Message": Message,
}
_PARTS: dict[str, tuple[str, Read]] = {
    "Header": ("header", Reader.header),
    "Request": ("request", Reader.request),
    "Reply": ("reply", Reader.reply),
    "Payload": ("payload", Reader.payload),
}
# None: a text, which is what most of them are.
HEADER: dict[str, tuple[str, Read | None]] = {
    "Verb": ("verb", Reader._verb),
    "Noun": ("noun", None),
    "Revision": ("revision", None),
    "ReplayDetection": ("replay_detection", Reader._replay),
    "Context": ("context", None),
    "Timestamp": ("timestamp", Reader._time),
    "Source": ("source", None),
    "AsyncReplyFlag": ("async_reply", Reader._boolean),
    "ReplyAddress": ("reply_address", None),
    "AckRequired": ("ack_required", Reader._boolean),
    "User": ("user", Reader._user),
    "MessageID": ("message_id", None),
    "CorrelationID": ("correlation_id", None),
    "Comment": ("comment", None),
    "Property": ("properties", Reader._pair),
}
_DESCRIBED: dict[str, tuple[str, Read, bool]] = {
    "name": ("name", Reader._text, False),
    "description": ("description", Reader._text, False),
}
# The field, how it is read, and whether there may be several.
TABLES: dict[str, dict[str, tuple[str, Read, bool]]] = {
    "Request": {
        "StartTime": ("start_time", Reader._time, False),
        "EndTime": ("end_time", Reader._time, False),
        "Option": ("options", Reader._pair, True),
        "ID": ("ids", Reader._id, True),
    },
    "Reply": {
        "Result": ("result", Reader._result, False),
        "Error": ("errors", Reader._error, True),
        "ID": ("ids", Reader._id, True),
        "operationId": ("operation_id", Reader._integer, False),
    },
    "Payload": {
        "OperationSet": ("operation_set", Reader._operation_set, False),
        "Compressed": ("compressed", Reader._text, False),
        "ID": ("ids", Reader._id, True),
        "Format": ("format", Reader._text, False),
    },
    "OperationSet": {
        "enforceMsgSequence": ("enforce_sequence", Reader._boolean, False),
        "enforceTransactionalIntegrity": ("enforce_integrity", Reader._boolean, False),
        "Operation": ("operations", Reader._operation, True),
    },
    "Operation": {
        "operationId": ("operation_id", Reader._integer, False),
        "noun": ("noun", Reader._text, False),
        "verb": ("verb", Reader._text, False),
        "elementOperation": ("element_operation", Reader._boolean, False),
    },
    "Error": {
        "code": ("code", Reader._text, False),
        "level": ("level", Reader._level, False),
        "reason": ("reason", Reader._text, False),
        "details": ("details", Reader._text, False),
        "xpath": ("xpath", Reader._text, False),
        "stackTrace": ("stack_trace", Reader._text, False),
        "Location": ("location", Reader._location, False),
        "ID": ("id", Reader._id, False),
        "relatedID": ("related_id", Reader._id, False),
        "object": ("object", Reader._object, False),
        "operationId": ("operation_id", Reader._integer, False),
    },
    "Location": {name: (name, Reader._text, False) for name in ("node", "pipeline", "stage")},
    "object": {
        "mRID": ("mrid", Reader._text, False),
        "Name": ("names", Reader._name, True),
        "objectType": ("object_type", Reader._text, False),
    },
    "Name": {
        "name": ("name", Reader._text, False),
        "NameType": ("name_type", Reader._name_type, False),
    },
    "NameType": {
        **_DESCRIBED,
        "NameTypeAuthority": ("authority", Reader._name_type_authority, False),
    },
    "NameTypeAuthority": _DESCRIBED,
}


@lru_cache(maxsize=64)
def reader_of(namespace: str, zone: tzinfo | None) -> Reader:
    return Reader(namespace, zone)
