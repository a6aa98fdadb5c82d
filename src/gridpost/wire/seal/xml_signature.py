"""The XML signature of 503 cl. 6.5.6: its bytes to be signed, its text, and the only shape we read.

The signature is detached from everything: its one Reference has an empty URI, and its DigestValue
is the fingerprint of the message. Exactly the elements of 6.5.6 are accepted, so there is nothing
that a second Reference, an Object, a transform or an Id could smuggle in.

What Gridpost writes is already canonical but for one namespace declaration; a received text of the
same form is taken apart without a parser. Any other is parsed and canonicalised as received.
"""

from __future__ import annotations

import binascii
import re
from dataclasses import dataclass
from functools import lru_cache
from xml.sax.saxutils import escape

from lxml import etree

from gridpost.core.refusal import Refusal, Rule
from gridpost.wire import xml
from gridpost.wire.seal.registry import C14N, XMLDSIG, SignatureAlgorithm

# Ten times what a 4096-bit signature needs with line breaks and indentation.
MAX_SIGNATURE_TEXT = 32 * 1024
_LIMITS = xml.XmlLimits(
    max_bytes=4 * MAX_SIGNATURE_TEXT,
    max_depth=8,
    max_elements=32,
    max_attributes=32,
    max_attribute_length=1024,
)

_DECLARATION = '<?xml version="1.0" encoding="UTF-8" standalone="no"?>'
_ANY_DECLARATION = re.compile(r"\A\s*<\?xml\s[^<>]{0,200}\?>")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9@-]{1,255}", re.ASCII)
_XML_SPACE = " \t\r\n"
_TAG = f"{{{XMLDSIG}}}"

_VALUE_OPEN = "</SignedInfo><SignatureValue>"
_VALUE_CLOSE = "</SignatureValue><KeyInfo><KeyName>"
_END = "</KeyName></KeyInfo></Signature>"


@dataclass(frozen=True, slots=True)
class XmlSignature:
    """A signature document that has the right shape. Nothing of it is verified yet."""

    signed_info: bytes
    """Canonical (C14N 1.0 without comments), as it was signed."""
    digest: bytes
    value: bytes
    key_name: str
    """Not signed, and it selects nothing: the entry `Certificate ID` does."""


def signed_info(digest: bytes, algorithm: SignatureAlgorithm) -> bytes:
    """The bytes to be signed: C14N 1.0 of the SignedInfo that `assemble` writes."""
    form = _form(algorithm.method_uris[0], algorithm.digest_uris[0])
    return form.canonical_head + binascii.b2a_base64(digest, newline=False) + form.canonical_tail


def assemble(digest: bytes, value: bytes, key_name: str, algorithm: SignatureAlgorithm) -> str:
    """The text of the entry `Signature` (503 Table 10). `key_name` is the code of the signer."""
    form = _form(algorithm.method_uris[0], algorithm.digest_uris[0])
    return "".join(
        (
            form.head,
            binascii.b2a_base64(digest, newline=False).decode("ascii"),
            form.middle,
            binascii.b2a_base64(value, newline=False).decode("ascii"),
            _VALUE_CLOSE,
            escape(key_name),
            _END,
        )
    )


def read(text: str, algorithm: SignatureAlgorithm) -> XmlSignature:
    """Take a signature document apart, or refuse it with `SEAL_SIGNATURE_FORM`."""
    if len(text) > MAX_SIGNATURE_TEXT:
        raise _wrong_form("it is too long")
    return _read_own_form(text, algorithm) or _read_any_form(text, algorithm)


@dataclass(frozen=True, slots=True)
class _Form:
    """What is constant in the signatures that we write with one algorithm."""

    head: str
    middle: str
    canonical_head: bytes
    canonical_tail: bytes


@lru_cache(maxsize=16)
def _form(method_uri: str, digest_uri: str) -> _Form:
    # In canonical form an element has a start tag and an end tag, attributes in double quotes, and
    # SignedInfo declares the namespace that it inherits from Signature in the document.
    before_digest = (
        f'<CanonicalizationMethod Algorithm="{C14N}"></CanonicalizationMethod>'
        f'<SignatureMethod Algorithm="{method_uri}"></SignatureMethod>'
        f'<Reference URI=""><DigestMethod Algorithm="{digest_uri}"></DigestMethod><DigestValue>'
    )
    after_digest = "</DigestValue></Reference>"
    return _Form(
        head=f'{_DECLARATION}<Signature xmlns="{XMLDSIG}"><SignedInfo>{before_digest}',
        middle=after_digest + _VALUE_OPEN,
        canonical_head=f'<SignedInfo xmlns="{XMLDSIG}">{before_digest}'.encode(),
        canonical_tail=f"{after_digest}</SignedInfo>".encode(),
    )


def _read_own_form(text: str, algorithm: SignatureAlgorithm) -> XmlSignature | None:
    """None when the text is not, character for character, of the form that we write."""
    form = _form(algorithm.method_uris[0], algorithm.digest_uris[0])
    if not (text.startswith(form.head) and text.endswith(_END)):
        return None
    digest_start = len(form.head)
    digest_end = digest_start + 4 * ((algorithm.digest_size + 2) // 3)
    if not text.startswith(form.middle, digest_end):
        return None
    value_start = digest_end + len(form.middle)
    value_end = text.find(_VALUE_CLOSE, value_start, MAX_SIGNATURE_TEXT)
    key_name = text[value_end + len(_VALUE_CLOSE) : -len(_END)]
    if value_end < 0 or not _PLAIN_NAME.fullmatch(key_name):
        return None
    digest_text = text[digest_start:digest_end].encode()
    try:
        # Strict base64 holds no markup: what stands between the constant parts is nothing else.
        digest = binascii.a2b_base64(digest_text, strict_mode=True)
        value = binascii.a2b_base64(text[value_start:value_end], strict_mode=True)
    except ValueError:
        return None
    if len(digest) != algorithm.digest_size:
        return None
    return XmlSignature(
        form.canonical_head + digest_text + form.canonical_tail, digest, value, key_name
    )


def _read_any_form(text: str, algorithm: SignatureAlgorithm) -> XmlSignature:
    root = _parse(text)
    if root.tag != f"{_TAG}Signature":
        raise _wrong_form("it is not a Signature of XML-DSig")
    info, value, key_info = _children(root, "SignedInfo", "SignatureValue", "KeyInfo")
    c14n, method, reference = _children(
        info, "CanonicalizationMethod", "SignatureMethod", "Reference"
    )
    # 503 cl. 6.5.6: one Reference, to nothing: the message is the manifest of 6.5.4.
    digest_method, digest_value = _children(
        reference, "DigestMethod", "DigestValue", attributes={"URI": ("",)}
    )
    _children(c14n, attributes={"Algorithm": (C14N,)})
    _children(method, attributes={"Algorithm": algorithm.method_uris})
    _children(digest_method, attributes={"Algorithm": algorithm.digest_uris})
    (key_name,) = _children(key_info, "KeyName")
    digest = _base64(digest_value)
    if len(digest) != algorithm.digest_size:
        raise _wrong_form(f"its DigestValue has {len(digest)} bytes")
    return XmlSignature(_canonical(info), digest, _base64(value), _text(key_name))


def _parse(text: str) -> etree._Element:
    # The text was decoded long ago: what its declaration says of an encoding means nothing now.
    body = _ANY_DECLARATION.sub("", text, count=1)
    try:
        return xml.parse(body, _LIMITS)
    except Refusal as refusal:
        # Whatever is wrong with the XML, a peer must not be able to tell it from other failures.
        raise _wrong_form(refusal.message, refusal.details) from refusal


def _children(
    element: etree._Element, *names: str, attributes: dict[str, tuple[str, ...]] | None = None
) -> list[etree._Element]:
    """Exactly these children in this order, exactly these attributes, white space between them."""
    expected = attributes or {}
    found = dict(element.attrib)
    if found.keys() != expected.keys() or any(found[k] not in v for k, v in expected.items()):
        raise _wrong_form(f"{_local(element)} has other attributes than 503 cl. 6.5.6 gives it")
    children = list(element)
    if [child.tag for child in children] != [_TAG + name for name in names]:
        raise _wrong_form(f"{_local(element)} has other children than 503 cl. 6.5.6 gives it")
    between = [element.text, *(child.tail for child in children)]
    if any(text and text.strip(_XML_SPACE) for text in between):
        raise _wrong_form(f"{_local(element)} has text between its children")
    return children


def _text(element: etree._Element) -> str:
    if len(element) or len(element.attrib):
        raise _wrong_form(f"{_local(element)} must be plain text")
    return element.text or ""


def _base64(element: etree._Element) -> bytes:
    # 503 cl. 6.5.6 prints a value broken into lines.
    packed = "".join(_text(element).split())
    try:
        return binascii.a2b_base64(packed.encode("ascii"), strict_mode=True)
    except ValueError:
        raise _wrong_form(f"{_local(element)} is not base64") from None


def _canonical(info: etree._Element) -> bytes:
    # Parsed again as a document of its own, with the namespaces it inherits declared on it: on an
    # element inside a tree lxml can add an empty default namespace.
    alone = etree.fromstring(etree.tostring(info, with_tail=False))
    return etree.tostring(alone, method="c14n", exclusive=False, with_comments=False)


def _local(element: etree._Element) -> str:
    return etree.QName(element).localname


def _wrong_form(reason: str, details: str = "") -> Refusal:
    return Refusal(
        Rule.SEAL_SIGNATURE_FORM, f"the XML signature is not as in 503 cl. 6.5.6: {reason}", details
    )
