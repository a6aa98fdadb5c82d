"""Names in the system: component codes, message ids, message-types and the patterns that match them.

Functions here turn text from outside into a checked name or refuse it; a value of one of these
types has passed its check.
"""

from __future__ import annotations

import re
from typing import NewType
from uuid import uuid4

from gridpost.core.refusal import Refusal, Rule

ComponentCode = NewType("ComponentCode", str)
MessageId = NewType("MessageId", str)
MessageType = NewType("MessageType", str)
MessageTypePattern = NewType("MessageTypePattern", str)

ANY = "*"

# Long enough for EIC codes and the codes in use; short enough for a queue name and a file name.
MAX_CODE_LENGTH = 255
MAX_MESSAGE_TYPE_LENGTH = 255
MAX_APPLICATION_ID_LENGTH = 255

_CODE = re.compile(r"[A-Za-z0-9@-]+", re.ASCII)
_MESSAGE_TYPE = re.compile(r"[A-Za-z0-9-]+", re.ASCII)
_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", re.ASCII)
_STRICT_MESSAGE_TYPE = re.compile(r"[A-Za-z0-9]+", re.ASCII)


def component_code(text: str) -> ComponentCode:
    """503 cl. 5.1; the pattern is that of Tables 29 and 37."""
    if len(text) > MAX_CODE_LENGTH or not _CODE.fullmatch(text):
        raise Refusal(
            Rule.BAD_COMPONENT_CODE,
            f"'{clip(text)}' is not a component code: use letters, digits, '-' and '@'",
        )
    return ComponentCode(text)


def message_type(text: str, *, strict: bool = False) -> MessageType:
    """503 cl. 5.2. The tables forbid hyphens that 5.3 uses: see divergences, strict patterns."""
    pattern = _STRICT_MESSAGE_TYPE if strict else _MESSAGE_TYPE
    if len(text) > MAX_MESSAGE_TYPE_LENGTH or not pattern.fullmatch(text):
        allowed = "letters and digits" if strict else "letters, digits and '-'"
        raise Refusal(Rule.BAD_MESSAGE_TYPE, f"'{clip(text)}' is not a message-type: use {allowed}")
    return MessageType(text)


def message_type_pattern(text: str) -> MessageTypePattern:
    """A message-type with at most one wildcard, at its end (503 cl. 5.3)."""
    stem = text.removesuffix(ANY)
    if text != ANY and (len(text) > MAX_MESSAGE_TYPE_LENGTH or not _MESSAGE_TYPE.fullmatch(stem)):
        raise Refusal(
            Rule.BAD_MESSAGE_TYPE_PATTERN,
            f"'{clip(text)}' is not a message-type pattern: write a message-type, "
            "optionally with one '*' at its end",
        )
    return MessageTypePattern(text)


def matches(pattern: str, message_type: str) -> bool:
    """503 cl. 5.3: a trailing '*' matches any ending, the empty one included."""
    if pattern.endswith(ANY):
        return message_type.startswith(pattern[:-1])
    return pattern == message_type


def application_id(text: str, what: str, *, strict: bool = False) -> str:
    """baMessageID and senderApplication: like a message-type, but they may be empty (Table 29)."""
    pattern = _STRICT_MESSAGE_TYPE if strict else _MESSAGE_TYPE
    if text and (len(text) > MAX_APPLICATION_ID_LENGTH or not pattern.fullmatch(text)):
        allowed = "letters and digits" if strict else "letters, digits and '-'"
        raise Refusal(Rule.BAD_APPLICATION_ID, f"{what} '{clip(text)}' may hold only {allowed}")
    return text


def message_id(text: str) -> MessageId:
    """A UUID as of RFC 4122 in its canonical text form (503 cl. 5.1)."""
    if not _UUID.fullmatch(text):
        raise Refusal(Rule.BAD_MESSAGE_ID, f"'{clip(text)}' is not a message ID: it must be a UUID")
    return MessageId(text)


def new_message_id() -> MessageId:
    return MessageId(str(uuid4()))


def clip(text: str, limit: int = 80) -> str:
    """Foreign text in our own sentences stays short and on one line."""
    one_line = "".join(c if c.isprintable() else "?" for c in text[: limit + 1])
    return one_line if len(one_line) <= limit else one_line[:limit] + "…"
