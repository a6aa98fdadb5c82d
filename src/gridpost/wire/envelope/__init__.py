"""The common message envelope of IEC 61968-100 as XML."""

from gridpost.wire.envelope.fragment import Fragment
from gridpost.wire.envelope.payload import (
    content,
    expanded,
    file_payload,
    stream,
    unpacked,
    xml_payload,
)
from gridpost.wire.envelope.payload_parts import parts
from gridpost.wire.envelope.reading import decode, decode_element, decode_unchecked, schema
from gridpost.wire.envelope.settings import Reading
from gridpost.wire.envelope.writing import element_text, encode, encode_unchecked

__all__ = [
    "Fragment",
    "Reading",
    "content",
    "decode",
    "decode_element",
    "decode_unchecked",
    "element_text",
    "encode",
    "encode_unchecked",
    "expanded",
    "file_payload",
    "parts",
    "schema",
    "stream",
    "unpacked",
    "xml_payload",
]
