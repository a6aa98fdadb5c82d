"""The text forms of a certificate ID: an issuer's name directly followed by a serial number.

503 cl. 8.2 concatenates the two without giving a text form. Gridpost writes RFC 4514 and a decimal
number; what other products write is only ever compared with, never emitted.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

from cryptography import x509

# RFC 4514 section 3. Any other attribute is written as its OID and its value in hexadecimal.
_SHORT = {
    "2.5.4.3": "CN",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.6": "C",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
# What java.security.cert.X509Certificate.getIssuerX500Principal().toString() calls them.
_JAVA = _SHORT | {
    "1.2.840.113549.1.9.1": "EMAILADDRESS",
    "2.5.4.4": "SURNAME",
    "2.5.4.5": "SERIALNUMBER",
    "2.5.4.12": "T",
    "2.5.4.42": "GIVENNAME",
    "2.5.4.43": "INITIALS",
    "2.5.4.44": "GENERATION",
    "2.5.4.46": "DNQ",
}
# X.690 tags of the character strings that names are made of.
_ENCODINGS = {
    12: "utf-8",
    18: "ascii",
    19: "ascii",
    20: "latin-1",
    22: "ascii",
    26: "ascii",
    28: "utf-32-be",
    30: "utf-16-be",
}


class _Attribute(NamedTuple):
    oid: str
    text: str | None
    """None when the value is not a character string."""
    der: bytes


_Rdns = list[list[_Attribute]]


def own_form(certificate: x509.Certificate) -> str:
    return f"{_rfc4514(_rdns(certificate.issuer))}{certificate.serial_number}"


def known_forms(certificate: x509.Certificate) -> frozenset[str]:
    """Our own form and those of other products (REPAIRS 8.2)."""
    rdns = _rdns(certificate.issuer)
    number = certificate.serial_number
    plain = f"{number:x}"
    even = plain if len(plain) % 2 == 0 else f"0{plain}"
    serials = {str(number), plain, plain.upper(), even, even.upper()}
    names = {
        _rfc4514(rdns),
        _rfc2253_of_java(rdns),
        _to_string_of_java(rdns),
        # An OID with readable text, as many tools print attributes that have no short name.
        certificate.issuer.rfc4514_string(),
    }
    return frozenset(name + serial for name in names for serial in serials)


def _rfc4514(rdns: _Rdns) -> str:
    return _joined(rdns, ",", "+", functools.partial(_short_or_hex, escape=_escape_rfc4514))


def _rfc2253_of_java(rdns: _Rdns) -> str:
    return _joined(rdns, ",", "+", functools.partial(_short_or_hex, escape=_escape_java_2253))


def _to_string_of_java(rdns: _Rdns) -> str:
    return _joined(rdns, ", ", " + ", _java_keyword_and_value)


def _joined(rdns: _Rdns, between: str, within: str, one: Callable[[_Attribute], str]) -> str:
    """All three forms write the most specific part first, against the encoded order."""
    return between.join(within.join(one(a) for a in rdn) for rdn in reversed(rdns))


def _short_or_hex(attribute: _Attribute, escape: Callable[[str], str]) -> str:
    keyword = _SHORT.get(attribute.oid)
    if keyword is None or attribute.text is None:
        return f"{keyword or attribute.oid}=#{attribute.der.hex()}"
    return f"{keyword}={escape(attribute.text)}"


def _escape_rfc4514(text: str) -> str:
    out = "".join(f"\\{c}" if c in '"+,;<>\\' else "\\00" if c == "\0" else c for c in text)
    if out.startswith((" ", "#")):
        out = "\\" + out
    return _escape_last_space(out) if len(text) > 1 else out


def _escape_java_2253(text: str) -> str:
    # Java also escapes '=' and every '#'; RFC 2253 allows, but does not ask for it.
    out = "".join(f"\\{c}" if c in ',=+<>#;"\\' else c for c in text)
    if out.startswith(" "):
        out = "\\" + out
    return _escape_last_space(out) if len(text) > 1 else out


def _escape_last_space(text: str) -> str:
    return text[:-1] + "\\ " if text.endswith(" ") else text


def _java_keyword_and_value(attribute: _Attribute) -> str:
    keyword = _JAVA.get(attribute.oid, f"OID.{attribute.oid}")
    if attribute.text is None:
        return f"{keyword}=#{attribute.der.hex()}"
    text = attribute.text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    needs_quotes = (
        any(c in ',+=\n<>#;\\"' for c in text) or text != text.strip(" \n") or "  " in text
    )
    return f'{keyword}="{escaped}"' if needs_quotes else f"{keyword}={escaped}"


def _rdns(name: x509.Name) -> _Rdns:
    """Name ::= SEQUENCE OF SET OF SEQUENCE { type OID, value ANY } (X.501)."""
    _, names, _ = next(_tlvs(name.public_bytes()))
    return [[_attribute(pair) for _, pair, _ in _tlvs(rdn)] for _, rdn, _ in _tlvs(names)]


def _attribute(pair: bytes) -> _Attribute:
    (_, oid, _), (tag, value, whole) = _tlvs(pair)
    encoding = _ENCODINGS.get(tag)
    try:
        text = value.decode(encoding) if encoding else None
    except UnicodeDecodeError:
        text = None
    return _Attribute(_dotted(oid), text, whole)


def _tlvs(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Tag, value and the whole encoding of each element. The library has checked the DER."""
    at = 0
    while at < len(data):
        start, length, body = at, data[at + 1], at + 2
        if length & 0x80:
            body += length & 0x7F
            length = int.from_bytes(data[at + 2 : body])
        at = body + length
        yield data[start], data[body:at], data[start:at]


def _dotted(oid: bytes) -> str:
    arcs: list[int] = []
    arc = 0
    for byte in oid:
        arc = arc << 7 | byte & 0x7F
        if not byte & 0x80:
            arcs.append(arc)
            arc = 0
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, [first, arcs[0] - 40 * first, *arcs[1:]]))
