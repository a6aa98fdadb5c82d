"""503 cl. 6.5.6: the structure of the XML signature."""

from __future__ import annotations

import base64
import hashlib
import textwrap

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from lxml import etree

from gridpost.core.certificate import CertificateKind
from gridpost.core.message import SIGNATURE, InternalMessage
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.seal import encrypt, manifest, sign, verify
from gridpost.wire.x509 import public_key
from support.messages import CONTENT, acknowledgement, message, metadata
from support.sealing import e1, e2, entry, opened, with_entry

NS = "{http://www.w3.org/2000/09/xmldsig#}"
PRINTED_METHOD = "http://www.w3.org/2000/09/xmldsig#rsa-sha512"
PRINTED_DIGEST = "http://www.w3.org/2000/09/xmldsig#sha512"
REGISTERED_METHOD = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha512"
REGISTERED_DIGEST = "http://www.w3.org/2001/04/xmlenc#sha512"


async def document() -> etree._Element:
    signed = await sign(message(), e1().signer)
    return etree.fromstring(entry(signed, SIGNATURE, "Signature").encode())


def as_peer(method: str, digest: str) -> InternalMessage:
    """What another product writes: its own layout, and a signature over that layout."""
    fingerprint = base64.b64encode(hashlib.sha512(manifest(metadata(), CONTENT)).digest())
    info = textwrap.dedent(f"""\
        <SignedInfo>
            <CanonicalizationMethod Algorithm="http://www.w3.org/TR/2001/REC-xml-c14n-20010315"/>
            <SignatureMethod Algorithm="{method}"/>
            <Reference URI="">
              <DigestMethod Algorithm="{digest}"/>
              <DigestValue>{fingerprint.decode()}</DigestValue>
            </Reference>
          </SignedInfo>""")
    namespace = NS.strip("{}")
    canonical = etree.tostring(
        etree.fromstring(info.replace("<SignedInfo>", f'<SignedInfo xmlns="{namespace}">')),
        method="c14n",
    )
    key = e1().keys[CertificateKind.SIGNING]
    value = base64.encodebytes(key.sign(canonical, PKCS1v15(), hashes.SHA512())).decode()
    text = (
        f'<?xml version="1.0" encoding="UTF-8" standalone="no"?>\n<Signature xmlns="{namespace}">\n'
        f"  {info}\n      <SignatureValue>{value}</SignatureValue>\n"
        "  <KeyInfo>\n     <KeyName>E1</KeyName>\n  </KeyInfo>\n</Signature>"
    )
    from gridpost.wire.seal import STANDARD
    from gridpost.wire.seal.processors import SignatureData, signature_processor

    data = SignatureData(STANDARD.signature("SHA-512"), e1().signing.certificate_id, text)
    return InternalMessage(metadata(processors=(signature_processor(data),)), CONTENT)


def outcome(received: InternalMessage) -> Rule | None:
    try:
        verify(received, e1().certificates)
    except Refusal as refusal:
        return refusal.rule
    return None


@pytest.mark.req("503-6.5.6-a")
@pytest.mark.req("m11-5.6.4-a", component="endpoint")
async def test_the_structure_is_signed_info_value_and_key_info() -> None:
    root = await document()
    assert root.tag == f"{NS}Signature"
    assert [c.tag for c in root] == [f"{NS}SignedInfo", f"{NS}SignatureValue", f"{NS}KeyInfo"]
    assert [c.tag for c in root[0]] == [
        f"{NS}CanonicalizationMethod",
        f"{NS}SignatureMethod",
        f"{NS}Reference",
    ]


@pytest.mark.req("503-6.5.6-b")
async def test_the_canonicalisation_is_c14n_1_0() -> None:
    method = (await document()).find(f".//{NS}CanonicalizationMethod")
    assert method is not None
    assert dict(method.attrib) == {"Algorithm": "http://www.w3.org/TR/2001/REC-xml-c14n-20010315"}


@pytest.mark.req("503-6.5.6-c")
@pytest.mark.req("m11-5.6.4-b", component="endpoint")
async def test_the_signature_method_is_written_as_printed_and_read_as_registered() -> None:
    method = (await document()).find(f".//{NS}SignatureMethod")
    assert method is not None
    assert dict(method.attrib) == {"Algorithm": PRINTED_METHOD}
    for uri in (PRINTED_METHOD, REGISTERED_METHOD):
        assert outcome(as_peer(uri, PRINTED_DIGEST)) is None
    sha1 = "http://www.w3.org/2000/09/xmldsig#rsa-sha1"
    assert outcome(as_peer(sha1, PRINTED_DIGEST)) is Rule.SEAL_SIGNATURE_FORM


@pytest.mark.req("503-6.5.6-d")
@pytest.mark.req("m11-5.6.4-b", component="endpoint")
async def test_the_one_reference_is_empty_and_its_digest_is_sha_512() -> None:
    root = await document()
    (reference,) = root.findall(f".//{NS}Reference")
    assert dict(reference.attrib) == {"URI": ""}
    (method,) = root.findall(f".//{NS}DigestMethod")
    assert dict(method.attrib) == {"Algorithm": PRINTED_DIGEST}
    for uri in (PRINTED_DIGEST, REGISTERED_DIGEST):
        assert outcome(as_peer(PRINTED_METHOD, uri)) is None
    sha1 = "http://www.w3.org/2000/09/xmldsig#sha1"
    assert outcome(as_peer(PRINTED_METHOD, sha1)) is Rule.SEAL_SIGNATURE_FORM


@pytest.mark.req("503-6.5.6-e")
@pytest.mark.req("m11-5.6.4-c", component="endpoint")
async def test_the_digest_value_is_the_message_hash() -> None:
    text = (await document()).findtext(f".//{NS}DigestValue")
    digest = base64.b64decode(text or "", validate=True)
    assert len(digest) == 64
    assert digest == hashlib.sha512(manifest(metadata(), CONTENT)).digest()


@pytest.mark.req("503-6.5.6-f")
async def test_the_signature_value_is_base64_with_or_without_line_breaks() -> None:
    """REPAIRS: it signs the canonical SignedInfo, which holds the message hash."""
    root = await document()
    value = base64.b64decode(root.findtext(f"{NS}SignatureValue") or "", validate=True)
    assert len(value) == 256
    info = etree.fromstring(etree.tostring(root[0], with_tail=False))
    public_key(e1().signing.der).verify(
        value, etree.tostring(info, method="c14n"), PKCS1v15(), hashes.SHA512()
    )
    transfer = encrypt(await sign(message(), e1().signer), e2().encryption)
    text = entry(transfer, SIGNATURE, "Signature")
    start, end = text.index("<SignatureValue>") + 16, text.index("</SignatureValue>")
    broken = "\n".join(textwrap.wrap(text[start:end], 76))
    assert broken.count("\n") == 4
    lines = with_entry(transfer, SIGNATURE, "Signature", text[:start] + broken + text[end:])
    assert (await opened(lines)).message.content == CONTENT
    assert outcome(as_peer(PRINTED_METHOD, PRINTED_DIGEST)) is None


@pytest.mark.req("503-6.5.6-g")
@pytest.mark.req("m11-5.6.4-c", component="endpoint")
async def test_the_key_name_is_the_code_of_the_signer() -> None:
    assert (await document()).findtext(f"{NS}KeyInfo/{NS}KeyName") == "E1"
    ack = await sign(acknowledgement(b"x"), e2().signer)
    root = etree.fromstring(entry(ack, SIGNATURE, "Signature").encode())
    assert root.findtext(f"{NS}KeyInfo/{NS}KeyName") == ack.metadata.sender_code == "E2"
