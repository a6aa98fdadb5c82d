"""The one shape of a signature document, and the bytes that its value signs."""

from __future__ import annotations

import base64
import hashlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.seal import STANDARD
from gridpost.wire.seal.registry import C14N, XMLDSIG
from gridpost.wire.seal.xml_signature import (
    MAX_SIGNATURE_TEXT,
    XmlSignature,
    assemble,
    read,
    signed_info,
)

SHA512 = STANDARD.signature("SHA-512")
DIGEST = hashlib.sha512(b"a message").digest()
VALUE = bytes(range(256))
OWN = assemble(DIGEST, VALUE, "E1", SHA512)
DIGEST_TEXT = base64.b64encode(DIGEST).decode()
VALUE_TEXT = base64.b64encode(VALUE).decode()

# Laid out as the example of 503 cl. 6.5.6.
AS_PRINTED = f"""<?xml version="1.0" encoding="UTF-8" standalone="no"?>
<Signature xmlns="{XMLDSIG}">
  <SignedInfo>
    <CanonicalizationMethod Algorithm="{C14N}"/>
    <SignatureMethod Algorithm="{XMLDSIG}rsa-sha512"/>
    <Reference URI="">
      <DigestMethod Algorithm="{XMLDSIG}sha512"/>
      <DigestValue>{DIGEST_TEXT}</DigestValue>
    </Reference>
  </SignedInfo>
      <SignatureValue>{VALUE_TEXT[:76]}
{VALUE_TEXT[76:152]}
{VALUE_TEXT[152:]}</SignatureValue>
  <KeyInfo>
     <KeyName>E1</KeyName>
  </KeyInfo>
</Signature>"""


def canonical_of(text: str) -> bytes:
    """What lxml makes of the SignedInfo in a document."""
    root = etree.fromstring(text.partition("?>")[2])
    alone = etree.fromstring(etree.tostring(root[0], with_tail=False))
    return etree.tostring(alone, method="c14n", exclusive=False, with_comments=False)


def refused(text: str) -> str:
    with pytest.raises(Refusal) as caught:
        read(text, SHA512)
    assert caught.value.rule is Rule.SEAL_SIGNATURE_FORM
    return caught.value.message


@given(st.binary(min_size=64, max_size=64), st.binary(min_size=1, max_size=512))
def test_what_is_written_is_read(digest: bytes, value: bytes) -> None:
    text = assemble(digest, value, "ENDPOINT@1-A", SHA512)
    assert read(text, SHA512) == XmlSignature(
        signed_info(digest, SHA512), digest, value, "ENDPOINT@1-A"
    )


@given(st.binary(min_size=64, max_size=64))
def test_the_bytes_to_be_signed_are_the_canonical_form_of_what_is_written(digest: bytes) -> None:
    assert signed_info(digest, SHA512) == canonical_of(assemble(digest, VALUE, "E1", SHA512))


def test_the_parser_and_the_short_cut_agree() -> None:
    with_space = OWN.replace("</Signature>", " </Signature>")
    assert read(with_space, SHA512) == read(OWN, SHA512)


def test_the_layout_of_the_standard_is_read_and_canonicalised_as_received() -> None:
    parsed = read(AS_PRINTED, SHA512)
    assert (parsed.digest, parsed.value, parsed.key_name) == (DIGEST, VALUE, "E1")
    assert parsed.signed_info == canonical_of(AS_PRINTED)
    assert parsed.signed_info.startswith(
        f'<SignedInfo xmlns="{XMLDSIG}">\n    <CanonicalizationMethod'.encode()
    )
    assert parsed.signed_info != read(OWN, SHA512).signed_info


def test_prefixes_and_inherited_namespaces_are_part_of_the_canonical_form() -> None:
    names = ("Signature", "SignedInfo", "CanonicalizationMethod", "SignatureMethod", "Reference")
    prefixed = AS_PRINTED
    for name in (*names, "DigestMethod", "DigestValue", "SignatureValue", "KeyInfo", "KeyName"):
        for opening in ("<", "</"):
            for closing in (">", " ", "/"):
                prefixed = prefixed.replace(
                    f"{opening}{name}{closing}", f"{opening}ds:{name}{closing}"
                )
    prefixed = prefixed.replace(f'xmlns="{XMLDSIG}"', f'xmlns:ds="{XMLDSIG}" xmlns:a="urn:a"')
    parsed = read(prefixed, SHA512)
    assert parsed.digest == DIGEST
    assert parsed.signed_info.startswith(
        f'<ds:SignedInfo xmlns:a="urn:a" xmlns:ds="{XMLDSIG}">'.encode()
    )


@pytest.mark.parametrize("number", [0, 1])
def test_printed_and_registered_algorithm_uris_are_read(number: int) -> None:
    text = AS_PRINTED.replace(SHA512.method_uris[0], SHA512.method_uris[number])
    text = text.replace(SHA512.digest_uris[0], SHA512.digest_uris[number])
    assert read(text, SHA512).digest == DIGEST
    assert SHA512.method_uris[number].encode() in read(text, SHA512).signed_info


def test_the_declared_encoding_of_decoded_text_does_not_matter() -> None:
    assert read(AS_PRINTED.replace("UTF-8", "ISO-8859-1"), SHA512).digest == DIGEST
    assert read(AS_PRINTED.partition("?>")[2].lstrip(), SHA512).digest == DIGEST


def test_a_key_name_is_escaped_and_read_back() -> None:
    assert read(assemble(DIGEST, VALUE, "<a&b>", SHA512), SHA512).key_name == "<a&b>"


WRONG = {
    "empty": "",
    "no XML": "not xml",
    "other root": "<a/>",
    "other namespace": AS_PRINTED.replace(XMLDSIG, "urn:x"),
    "no namespace": AS_PRINTED.replace(f' xmlns="{XMLDSIG}"', ""),
    "Id": AS_PRINTED.replace("<SignedInfo>", '<SignedInfo Id="s">'),
    "Id on Signature": AS_PRINTED.replace("<Signature ", '<Signature Id="s" '),
    "xml:lang": AS_PRINTED.replace("<Signature ", '<Signature xml:lang="en" '),
    "Id on a value": AS_PRINTED.replace("<DigestValue>", '<DigestValue Id="d">'),
    "URI": AS_PRINTED.replace('URI=""', 'URI="#other"'),
    "no URI": AS_PRINTED.replace(' URI=""', ""),
    "Type": AS_PRINTED.replace('URI=""', 'URI="" Type="x"'),
    "rsa-sha1": AS_PRINTED.replace("rsa-sha512", "rsa-sha1"),
    "sha1": AS_PRINTED.replace("#sha512", "#sha1"),
    "exclusive C14N": AS_PRINTED.replace(C14N, "http://www.w3.org/2001/10/xml-exc-c14n#"),
    "C14N with comments": AS_PRINTED.replace(C14N, C14N + "#WithComments"),
    "C14N broken by a line": AS_PRINTED.replace("c14n-20010315", "c14n-\n20010315"),
    "transforms": AS_PRINTED.replace(
        '<Reference URI="">',
        '<Reference URI=""><Transforms><Transform Algorithm="http://www.w3.org/TR/1999/'
        'REC-xslt-19991116"/></Transforms>',
    ),
    "parameter of a method": AS_PRINTED.replace(
        f'<SignatureMethod Algorithm="{XMLDSIG}rsa-sha512"/>',
        f'<SignatureMethod Algorithm="{XMLDSIG}rsa-sha512"><HMACOutputLength>0'
        "</HMACOutputLength></SignatureMethod>",
    ),
    "object": AS_PRINTED.replace("</Signature>", "<Object>x</Object></Signature>"),
    "certificate": AS_PRINTED.replace("<KeyName>E1</KeyName>", "<X509Data/>"),
    "key value": AS_PRINTED.replace("<KeyInfo>", "<KeyInfo><KeyValue/>"),
    "no key info": AS_PRINTED[: AS_PRINTED.index("<KeyInfo>")] + "</Signature>",
    "comment": AS_PRINTED.replace("<KeyInfo>", "<KeyInfo><!-- c -->"),
    "comment in a value": AS_PRINTED.replace(DIGEST_TEXT, f"{DIGEST_TEXT[:8]}<!-- -->"),
    "instruction": AS_PRINTED.replace("<KeyInfo>", "<KeyInfo><?p i?>"),
    "text between": AS_PRINTED.replace("<KeyInfo>", "x<KeyInfo>"),
    "text within": AS_PRINTED.replace("<KeyInfo>", "<KeyInfo>x"),
    "element in a value": AS_PRINTED.replace("<KeyName>E1", "<KeyName><b/>E1"),
    "short digest": AS_PRINTED.replace(DIGEST_TEXT, "eVpInNsCIWzEjdrxxvongO2rnQ4="),
    "no base64": AS_PRINTED.replace(DIGEST_TEXT, "!" + DIGEST_TEXT[1:]),
    "no base64 either": AS_PRINTED.replace(DIGEST_TEXT, "\u00e9" + DIGEST_TEXT[1:]),
    "after the end": AS_PRINTED + "x",
    "two documents": OWN + OWN,
    "two signed infos": OWN.replace(
        "<SignedInfo>",
        OWN[OWN.index("<SignedInfo>") : OWN.index("<SignatureValue>")] + "<SignedInfo>",
    ),
    "two references": OWN.replace(
        "</SignedInfo>",
        OWN[OWN.index("<Reference") : OWN.index("</SignedInfo>")] + "</SignedInfo>",
    ),
    "signature in the signature": OWN.replace(
        "<SignedInfo>", f"{OWN.partition('?>')[2]}<SignedInfo>", 1
    ),
    "DTD": AS_PRINTED.replace("?>", "?><!DOCTYPE Signature>", 1),
    "external entity": AS_PRINTED.replace(
        "?>", '?><!DOCTYPE Signature [<!ENTITY e SYSTEM "file:///etc/passwd">]>', 1
    ).replace(DIGEST_TEXT, "&e;"),
    "unknown entity": AS_PRINTED.replace(DIGEST_TEXT, "&e;"),
    "lone surrogate": AS_PRINTED.replace("E1", "\ud800"),
    "NUL": AS_PRINTED.replace("E1", "\0"),
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG.keys())
def test_anything_beyond_the_shape_of_the_standard_is_refused(text: str) -> None:
    refused(text)


def test_a_billion_laughs_stay_unheard() -> None:
    entities = '<!ENTITY a "ha">' + "".join(
        f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(9)
    )
    bomb = AS_PRINTED.replace("?>", f"?><!DOCTYPE Signature [{entities}]>", 1)
    start = time.process_time()
    refused(bomb.replace("E1", "&j;"))
    assert time.process_time() - start < 1


def test_depth_and_length_are_limited() -> None:
    start = time.process_time()
    deep = "<a>" * 4000 + "</a>" * 4000
    refused(f'<Signature xmlns="{XMLDSIG}">{deep}</Signature>')
    for filler in ("x", "A", " ", "<a/>"):
        refused(OWN.replace("E1", filler * (100_000_000 // len(filler))))
        refused(OWN.replace(VALUE_TEXT, filler * (100_000_000 // len(filler))))
    assert time.process_time() - start < 10
    assert len(OWN) * 10 < MAX_SIGNATURE_TEXT


@given(st.data())
def test_mutations_are_refused_or_keep_the_shape(data: st.DataObject) -> None:
    base = data.draw(st.sampled_from([OWN, AS_PRINTED]))
    at = data.draw(st.integers(0, len(base)))
    length = data.draw(st.integers(0, 40))
    inserted = data.draw(st.text(max_size=20) | st.sampled_from(["<", ">", "<a/>", "&lt;", '"']))
    text = base[:at] + inserted + base[at + length :]
    try:
        parsed = read(text, SHA512)
    except Refusal as refusal:
        assert refusal.rule is Rule.SEAL_SIGNATURE_FORM
    else:
        assert len(parsed.digest) == 64
        assert parsed.signed_info.count(b"DigestValue") == 2
