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


# Printable ASCII without markup; where it may be escaped, with "&".
_PLAIN = r"[ !-%'-;=?-~]*"
_ESCAPED = "[ -;=?-~]*"


def _element(name: str, pattern: str = _PLAIN) -> str:
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
    + _element("value", _ESCAPED)
    + "</entry>",
    re.ASCII,
)
_ENTRY_FRAME = len("<entry><key></key><type></type><value></value></entry>")
_TAIL = "</entries></processorData></messageProcessor>"
_TYPES = {member.value: member for member in ValueType}
_KINDS = {member.value: member for member in InternalType}


def read(text: str) -> Metadata | None:
    """None: the text is not of this form, or holds a value that has to be refused."""
    if len(text) > _LONGEST:
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
    if not text:
        return ()
    processors = []
    # No value holds "<", so this stands nowhere but at the end of a processor.
    *parts, rest = text.split(_TAIL)
    if rest:
        return None
    for part in parts:
        head = _HEAD.match(part)
        if head is None:
            return None
        entries, size = [], head.end()
        for key, kind, escaped in _ENTRY.findall(part, size):
            size += _ENTRY_FRAME + len(key) + len(kind) + len(escaped)
            value = _unescape(escaped) if "&" in escaped else escaped
            if value is None:
                return None
            entry = Entry(key, _TYPES[kind], value)
            if entry.type is not ValueType.STRING:
                values.check(entry)
            entries.append(entry)
        # The entries found do not overlap: if they add up to the whole, there is nothing between them.
        if size != len(part):
            return None
        processors.append(Processor(head[1], tuple(entries)))
    return tuple(processors)


def _unescape(text: str) -> str | None:
    """None: something else is escaped than we would escape."""
    text = text.replace("&lt;", "<").replace("&gt;", ">")
    if "&" not in text:
        return text
    if text.count("&") != text.count("&amp;"):
        return None
    return text.replace("&amp;", "&")
