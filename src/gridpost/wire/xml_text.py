"""How a text is written into XML so that every parser gives back exactly the same text.

Documents are written as text, not as trees: their structure is fixed and known, and a thousand
directory entries cost a tenth of the time. This file is the only one that escapes.
"""

from __future__ import annotations

import re

from gridpost.core.identifiers import clip
from gridpost.core.refusal import Refusal, Rule

# Everything that is not a Char of XML 1.0, production 2.
_NO_CHAR = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def escape(name: str, text: str) -> str:
    """Character data; `name` says in a refusal which field it is about."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    if text.isascii() and text.isprintable():
        return escaped
    forbidden = _NO_CHAR.search(text)
    if forbidden is not None:
        raise Refusal(
            Rule.FORBIDDEN_XML,
            f"{clip(name)} holds the character U+{ord(forbidden[0]):04X}, which XML cannot carry",
        )
    # A bare carriage return would be read as a line feed (XML 1.0 2.11).
    return escaped.replace("\r", "&#13;")


def safe(text: str) -> str:
    """Text of others may hold what XML cannot carry; it must not break an answer."""
    return _NO_CHAR.sub("?", text)


def element(name: str, text: str) -> str:
    return f"<{name}>{escape(name, text)}</{name}>"


def optional(name: str, text: str) -> str:
    """Nothing for an empty text."""
    return element(name, text) if text else ""


def attribute(name: str, text: str) -> str:
    """With a blank in front. Blanks other than spaces would be normalised (XML 1.0 3.3.3)."""
    value = escape(name, text).replace('"', "&quot;").replace("\t", "&#9;").replace("\n", "&#10;")
    return f' {name}="{value}"'
