"""Which texts are values of a type: the entries of 503 Table 17, and fields that core names check."""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Callable
from typing import TypeVar

from gridpost.core.identifiers import clip
from gridpost.core.message import Entry, ValueType
from gridpost.core.refusal import Refusal, Rule

T = TypeVar("T")
V = TypeVar("V")

_LONG = re.compile(r"[+-]?0*[0-9]{1,19}", re.ASCII)
_MIN_LONG, _MAX_LONG = -(2**63), 2**63 - 1

_BLANK = re.compile(r"[ \t\r\n]")
_BLANKS = str.maketrans("", "", " \t\r\n")
# The last character in front of the padding has bits that no octet uses; base64Binary has them 0.
_BEFORE_ONE_PAD = frozenset("AEIMQUYcgkosw048")
_BEFORE_TWO_PADS = frozenset("AQgw")


def check(entry: Entry) -> None:
    """Refuses an entry whose value is not of its type."""
    value = entry.value
    if entry.type is ValueType.STRING:
        return
    if entry.type is ValueType.BYTE_ARRAY:
        read_base64(value, entry.key)
    elif entry.type is ValueType.BOOLEAN:
        if value not in ("true", "false"):
            raise _bad(entry.key, value, "'true' or 'false'")
    elif not _LONG.fullmatch(value) or not _MIN_LONG <= int(value) <= _MAX_LONG:
        raise _bad(entry.key, value, "a decimal number of 64 bits")


def read_base64(text: str, what: str) -> bytes:
    """xsd:base64Binary, with blanks anywhere."""
    packed = text.translate(_BLANKS) if _BLANK.search(text) else text
    try:
        octets = a2b_base64(packed, strict_mode=True)
    except ValueError:
        raise _bad(what, text, "base64") from None
    if packed.endswith("=="):
        canonical = packed[-3] in _BEFORE_TWO_PADS
    elif packed.endswith("="):
        canonical = packed[-2] in _BEFORE_ONE_PAD
    else:
        canonical = True
    if not canonical or len(packed) % 4:
        raise _bad(what, text, "base64")
    return octets


def named(field: str, check: Callable[[V], T], text: V) -> T:
    """What `check` makes of the text; a refusal says which field it is about."""
    try:
        return check(text)
    except Refusal as refusal:
        raise Refusal(refusal.rule, f"{field}: {refusal.message}", refusal.details) from None


def _bad(what: str, value: str, expected: str) -> Refusal:
    return Refusal(
        Rule.BAD_VALUE, f"the value '{clip(value, 40)}' of '{clip(what)}' is not {expected}"
    )
