"""WS-Security: an X.509 signature over the body of a SOAP message and the time it was made.

Only one shape is written and read: one signature with the signer's certificate as a token, exclusive
canonicalisation, RSA with SHA-256 or stronger. What is signed is found by its place in the envelope
and must carry the Id that the signature names, so no other element can stand in for it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import uuid4

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256, SHA512, HashAlgorithm
from lxml import etree

from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.soap.version import version_of
from gridpost.wire.x509 import public_key

_OASIS = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss"
WSSE, WSU = f"{_OASIS}-wssecurity-secext-1.0.xsd", f"{_OASIS}-wssecurity-utility-1.0.xsd"
DS = "http://www.w3.org/2000/09/xmldsig#"
SECURITY = f"{{{WSSE}}}Security"
_TOKEN_TYPE = f"{_OASIS}-x509-token-profile-1.0#X509v3"
_BASE64 = f"{_OASIS}-soap-message-security-1.0#Base64Binary"
_EXCLUSIVE = "http://www.w3.org/2001/10/xml-exc-c14n#"
_RSA_SHA256 = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"
_SHA256 = "http://www.w3.org/2001/04/xmlenc#sha256"
_METHODS: dict[str, HashAlgorithm] = {
    _RSA_SHA256: SHA256(),
    "http://www.w3.org/2001/04/xmldsig-more#rsa-sha512": SHA512(),
}
_DIGESTS = {_SHA256: "sha256", "http://www.w3.org/2001/04/xmlenc#sha512": "sha512"}
_ID = f"{{{WSU}}}Id"

Trust = Callable[[bytes], None]
"""Judges a certificate (DER); raises a Refusal."""


@dataclass(frozen=True, slots=True)
class BodySigner:
    certificate: bytes
    """DER."""
    key: rsa.RSAPrivateKey
    now: Callable[[], datetime]
    lasts: timedelta = timedelta(minutes=5)

    def sign(self, message: bytes) -> bytes:
        root = etree.fromstring(message, etree.XMLParser(resolve_entities=False, no_network=True))
        version = version_of(etree.QName(root).namespace or "")
        assert version is not None  # we wrote it
        body = root.find(version.tag("Body"))
        assert body is not None
        header = root.find(version.tag("Header"))
        if header is None:
            header = etree.Element(version.tag("Header"))
            root.insert(0, header)
        marks = [f"{name}-{uuid4()}" for name in ("body", "time", "token")]
        body.set(_ID, marks[0])
        token = base64.b64encode(self.certificate).decode("ascii")
        now = self.now()
        security = etree.fromstring(
            f'<wsse:Security xmlns:wsse="{WSSE}" xmlns:wsu="{WSU}" '
            f'xmlns:s="{version.namespace}" s:mustUnderstand="1">'
            f'<wsse:BinarySecurityToken wsu:Id="{marks[2]}" ValueType="{_TOKEN_TYPE}" '
            f'EncodingType="{_BASE64}">{token}</wsse:BinarySecurityToken>'
            f'<wsu:Timestamp wsu:Id="{marks[1]}"><wsu:Created>{_text(now)}</wsu:Created>'
            f"<wsu:Expires>{_text(now + self.lasts)}</wsu:Expires></wsu:Timestamp>"
            "</wsse:Security>"
        )
        header.append(security)
        time = security.find(f"{{{WSU}}}Timestamp")
        assert time is not None
        references = "".join(
            f'<ds:Reference URI="#{mark}"><ds:Transforms><ds:Transform Algorithm="{_EXCLUSIVE}"/>'
            f'</ds:Transforms><ds:DigestMethod Algorithm="{_SHA256}"/><ds:DigestValue>'
            f"{base64.b64encode(_digest(part, 'sha256')).decode()}</ds:DigestValue></ds:Reference>"
            for mark, part in ((marks[0], body), (marks[1], time))
        )
        info = etree.fromstring(
            f'<ds:SignedInfo xmlns:ds="{DS}"><ds:CanonicalizationMethod Algorithm="{_EXCLUSIVE}"/>'
            f'<ds:SignatureMethod Algorithm="{_RSA_SHA256}"/>{references}</ds:SignedInfo>'
        )
        value = self.key.sign(_canonical(info), padding.PKCS1v15(), SHA256())
        signature = etree.SubElement(security, f"{{{DS}}}Signature", nsmap={"ds": DS})
        signature.append(info)
        etree.SubElement(signature, f"{{{DS}}}SignatureValue").text = base64.b64encode(
            value
        ).decode()
        known = etree.SubElement(
            etree.SubElement(
                etree.SubElement(signature, f"{{{DS}}}KeyInfo"),
                f"{{{WSSE}}}SecurityTokenReference",
            ),
            f"{{{WSSE}}}Reference",
        )
        known.set("URI", f"#{marks[2]}")
        known.set("ValueType", _TOKEN_TYPE)
        return etree.tostring(root, encoding="UTF-8", xml_declaration=True)


@dataclass(frozen=True, slots=True)
class BodyVerifier:
    trust: Trust
    now: Callable[[], datetime]
    window: timedelta = timedelta(minutes=5)

    def verify(self, envelope: etree._Element) -> bytes:
        """The certificate of whoever signed the body; a Refusal when nobody did."""
        version = version_of(etree.QName(envelope).namespace or "")
        if version is None:
            raise _bad("this is no SOAP envelope")
        found = envelope.findall(f"{version.tag('Header')}/{SECURITY}/{{{DS}}}Signature")
        if len(found) != 1:
            raise _bad("the message must have one signature")
        signature, security = found[0], found[0].getparent()
        info = signature.find(f"{{{DS}}}SignedInfo")
        body = envelope.find(version.tag("Body"))
        if info is None or body is None or security is None:
            raise _bad("the signature has no SignedInfo")
        covered = {"body": body, "time": security.find(f"{{{WSU}}}Timestamp")}
        self._digests(info, covered)
        der = self._token(signature, security)
        self._value(signature, info, der)
        self._fresh(covered["time"])
        self.trust(der)
        return der

    def _digests(self, info: etree._Element, covered: dict[str, etree._Element | None]) -> None:
        expected = {f"#{part.get(_ID)}": part for part in covered.values() if part is not None}
        body = covered["body"]
        seen = set()
        for reference in info.iterchildren(f"{{{DS}}}Reference"):
            part = expected.get(reference.get("URI", ""))
            if part is None:
                raise _bad("something else than body and timestamp is signed")
            transforms = reference.findall(f"{{{DS}}}Transforms/{{{DS}}}*")
            method = reference.find(f"{{{DS}}}DigestMethod")
            name = _DIGESTS.get(method.get("Algorithm", "") if method is not None else "")
            if [t.get("Algorithm") for t in transforms] != [_EXCLUSIVE] or name is None:
                raise _bad("only exclusive canonicalisation with SHA-256 or SHA-512 is accepted")
            value = _binary(reference.findtext(f"{{{DS}}}DigestValue"))
            if value != _digest(part, name, _prefixes(transforms[0])):
                raise _bad("what was signed has been changed")
            seen.add(id(part))
        if body is None or id(body) not in seen:
            raise _bad("the body is not signed")
        if covered["time"] is None or id(covered["time"]) not in seen:
            raise _bad("there is no signed timestamp")

    def _token(self, signature: etree._Element, security: etree._Element) -> bytes:
        reference = signature.find(
            f"{{{DS}}}KeyInfo/{{{WSSE}}}SecurityTokenReference/{{{WSSE}}}Reference"
        )
        tokens = security.findall(f"{{{WSSE}}}BinarySecurityToken")
        if reference is None or len(tokens) != 1:
            raise _bad("the signer's certificate must be there, once")
        if reference.get("URI") != f"#{tokens[0].get(_ID)}":
            raise _bad("the signature refers to another token")
        return _binary(tokens[0].text)

    def _value(self, signature: etree._Element, info: etree._Element, der: bytes) -> None:
        canonical = info.find(f"{{{DS}}}CanonicalizationMethod")
        method = info.find(f"{{{DS}}}SignatureMethod")
        hashed = _METHODS.get(method.get("Algorithm", "") if method is not None else "")
        if canonical is None or canonical.get("Algorithm") != _EXCLUSIVE or hashed is None:
            raise _bad("only RSA with SHA-256 or SHA-512 is accepted")
        value = _binary(signature.findtext(f"{{{DS}}}SignatureValue"))
        try:
            signed = _canonical(info, _prefixes(canonical))
            public_key(der).verify(value, signed, padding.PKCS1v15(), hashed)
        except InvalidSignature:
            raise _bad("the signature does not fit") from None

    def _fresh(self, time: etree._Element | None) -> None:
        try:
            created, expires = (
                datetime.fromisoformat((time.findtext(f"{{{WSU}}}{name}") or "").strip())
                for name in ("Created", "Expires")
                if time is not None
            )
            late = created - self.window > self.now() or expires + self.window < self.now()
        except (ValueError, TypeError):
            raise _bad("the timestamp has no times") from None
        if late or expires - created > timedelta(hours=1):
            raise _bad("the timestamp is not of now")


def _text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def _canonical(element: etree._Element, prefixes: list[str] | None = None) -> bytes:
    return etree.tostring(
        element,
        method="c14n",
        exclusive=True,
        with_comments=False,
        inclusive_ns_prefixes=prefixes or None,
    )


def _digest(element: etree._Element, name: str, prefixes: list[str] | None = None) -> bytes:
    return hashlib.new(name, _canonical(element, prefixes)).digest()


def _prefixes(method: etree._Element) -> list[str]:
    """Namespaces that exclusive canonicalisation keeps although nothing in the part uses them."""
    found = method.find(f"{{{_EXCLUSIVE}}}InclusiveNamespaces")
    return [] if found is None else found.get("PrefixList", "").split()


def _binary(text: str | None) -> bytes:
    try:
        return base64.b64decode("".join((text or "").split()), validate=True)
    except binascii.Error:
        raise _bad("a value is not base64") from None


def _bad(reason: str) -> Refusal:
    return Refusal(Rule.BAD_SIGNATURE_OF_BODY, f"the signature is not accepted: {reason}")
