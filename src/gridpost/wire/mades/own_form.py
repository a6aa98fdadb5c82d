"""Message metadata in the exact form that we write, read without a tree of elements.

Nearly all metadata that arrive were written by Gridpost or like it. What is not, character for
character, of that form is none of this file's business: `metadata` reads it with parser and schema,
and says what is wrong with it. Whatever is read here would be read there, and with the same outcome.
"""

from __future__ import annotations

import re

from gridpost.core.identifiers import component_code, message_id, message_type
from gridpost.core.instant import Instant
from gridpost.core.message import Entry, InternalType, Metadata, Processor, ValueType
from gridpost.core.refusal import Refusal
from gridpost.wire.mades import values

NAMESPACE = "http://mades.entsoe.eu/internalMessaging"

# So short that it holds fewer elements than any limit allows.
_LONGEST = 64 * 1024
_MOMENT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
_INTERNAL_TYPES = tuple(member.value for member in InternalType)


def _element(name: str, pattern: str = "[^<>&]*") -> str:
    return f"<{name}>({pattern})</{name}>"


_DOCUMENT = re.compile(
    f'<mades:messageMetadata xmlns:mades="{re.escape(NAMESPACE)}">'
    + _element("messageID")
    + _element("receiverCode")
    + _element("messageType")
    + f"(?:{_element('extension')})?"
    + _element("generated", _MOMENT)
    + f"(?:{_element('expirationTime', _MOMENT)})?"
    + _element("senderCode")
    + _element("internalType", "|".join(_INTERNAL_TYPES))
    + f"(?:{_element('relatedMessageID')})?"
    + f"(?:{_element('senderApplication')})?"
    + f"(?:{_element('baMessageID')})?"
    + "<processingMetadata><messageProcessors>(.*)</messageProcessors></processingMetadata>"
    + _element("messageMversion", r"0|[1-9]\d{0,8}")
    + "</mades:messageMetadata>",
    re.ASCII,
)
_HEAD = re.compile(f"<messageProcessor>{_element('processorID')}<processorData><entries>", re.ASCII)
_ENTRY = re.compile(
    "<entry>"
    + _element("key")
    + _element("type", "|".join(member.value for member in ValueType))
    + _element("value", "[^<>]*")
    + "</entry>",
    re.ASCII,
)
_TAIL = "</entries></processorData></messageProcessor>"
_TYPES = {member.value: member for member in ValueType}
_KINDS = {member.value: member for member in InternalType}


def read(text: str) -> Metadata | None:
    """None: the text is not of this form, or holds a value that has to be refused."""
    if len(text) > _LONGEST or not (text.isascii() and text.isprintable()):
        return None
    found = _DOCUMENT.fullmatch(text)
    if found is None:
        return None
    (
        identifier, receiver, kind, extension, generated, expiration, sender, internal_type,
        related, application, business, processors, version,
    ) = found.groups("")  # fmt: skip
    try:
        read = _processors(processors)
        if read is None:
            return None
        return Metadata(
            message_id(identifier),
            component_code(receiver),
            message_type(kind),
            Instant.parse(generated),
            Instant.parse(expiration) if expiration else None,
            component_code(sender),
            _KINDS[internal_type],
            extension,
            related,
            application,
            business,
            read,
            int(version),
        )
    except Refusal:
        return None


def _processors(text: str) -> tuple[Processor, ...] | None:
    at, processors = 0, []
    while at < len(text):
        head = _HEAD.match(text, at)
        if head is None:
            return None
        at = head.end()
        entries = []
        while (found := _ENTRY.match(text, at)) is not None:
            key, kind, escaped = found.groups()
            value = _unescape(escaped) if "&" in escaped else escaped
            if value is None:
                return None
            entry = Entry(key, _TYPES[kind], value)
            if entry.type is not ValueType.STRING:
                values.check(entry)
            entries.append(entry)
            at = found.end()
        if not text.startswith(_TAIL, at):
            return None
        at += len(_TAIL)
        processors.append(Processor(head[1], tuple(entries)))
    return tuple(processors)


def _unescape(text: str) -> str | None:
    """None: something else is escaped than we would escape."""
    text = text.replace("&lt;", "<").replace("&gt;", ">")
    if text.count("&") != text.count("&amp;"):
        return None
    return text.replace("&amp;", "&")
