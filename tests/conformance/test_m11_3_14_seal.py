"""MADES 1.1 cl. 3.14: what is compressed, signed and encrypted, and in which order."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from dataclasses import replace
from io import BytesIO
from typing import Any
from zipfile import ZipFile

import pytest

from gridpost.core.identifiers import MessageId
from gridpost.core.instant import Instant
from gridpost.core.message import (
    COMPRESSOR,
    ENCRYPTION,
    SIGNATURE,
    InternalMessage,
    InternalType,
    SealedMessage,
)
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.mades11.compression import compress, expand
from gridpost.wire.seal import manifest, open_sealed, seal_message
from support.messages import CONTENT, message
from support.sealing import e1, e2

OLD: dict[str, Any] = {"message_mversion": 1, "sender_description": "Netz Österreich"}


@pytest.mark.req("m11-3.14.2-b")
@pytest.mark.req("m11-3.14.2-c")
@pytest.mark.req("m11-T7-a")
@pytest.mark.req("m11-3.14.2-d")
def test_compression() -> None:
    plain = message(CONTENT * 100, **OLD)
    packed = compress(plain)
    with ZipFile(BytesIO(packed.content)) as archive:
        assert len(archive.namelist()) == 1
    (processor,) = packed.metadata.processors_named(COMPRESSOR)
    assert [(e.key, e.type.value, e.value) for e in processor.entries] == [
        ("Compression", "BOOLEAN", "true")
    ]
    document, raw = CONTENT * 100, zlib.compressobj(wbits=-15)
    forms = [
        packed.content,
        gzip.compress(document),
        zlib.compress(document),
        raw.compress(document) + raw.flush(),
    ]
    for form in forms:
        assert expand(replace(packed, content=form), 1_000_000) == document
        with pytest.raises(Refusal) as refused:
            expand(replace(packed, content=form), len(document) - 1)
        assert refused.value.rule is Rule.CONTENT_TOO_LARGE
        with pytest.raises(Refusal):
            expand(replace(packed, content=form[:-9]), 1_000_000)
    no = replace(processor, entries=(replace(processor.entries[0], value="false"),))
    for processors in ((no,), ()):
        as_is = InternalMessage(plain.metadata.with_processors(processors), b"PK\x03\x04")
        assert expand(as_is, 10) == b"PK\x03\x04"
    for kind in InternalType:
        other = message(b"-", internal_type=kind, **OLD)
        assert (compress(other) is other) == (kind is not InternalType.STANDARD_MESSAGE)


@pytest.mark.req("m11-3.14.3-d")
@pytest.mark.req("m11-3.14.3-e")
@pytest.mark.req("m11-3.14.3-f")
@pytest.mark.req("m11-T8-a")
@pytest.mark.req("m11-T9-a")
async def test_manifest_signature_and_encryption() -> None:
    plain = compress(message(CONTENT, **OLD))
    m = plain.metadata
    expected = plain.content + (
        m.ba_message_id + m.extension + m.generated.text + m.internal_type.value + m.message_id
        + m.related_message_id + m.receiver_code + m.sender_code + "Netz Österreich"
        + m.sender_application + m.message_type
    ).encode()  # fmt: skip
    assert manifest(m, plain.content) == expected
    sealed = await seal_message(plain, e1().signer, e2().encryption)
    (signature,) = sealed.metadata.processors_named(SIGNATURE)
    assert [(e.key, e.type.value) for e in signature.entries] == [
        ("Algorithm", "STRING"),
        ("Certificate ID", "STRING"),
        ("Signature", "STRING"),
    ]
    assert signature.entries[0].value == "SHA-512"
    assert signature.entries[1].value == e1().signing.certificate_id
    (encryption,) = sealed.metadata.processors_named(ENCRYPTION)
    assert [(e.key, e.type.value) for e in encryption.entries[:3]] == [
        ("Cipher", "STRING"),
        ("Certificate ID", "STRING"),
        ("Session key", "BYTE_ARRAY"),
    ]
    opened = await open_sealed(sealed, [e2().opener], [e1().signing])
    assert opened.fingerprint == hashlib.sha512(expected).digest()
    assert expand(opened.message, 10_000) == CONTENT
    for change in (
        {"sender_description": "Netz Osterreich"},
        {"sender_description": ""},
        {"ba_message_id": "BA2"},
        {"generated": Instant.parse("2026-03-01T12:00:00Z")},
        {"message_id": MessageId("11111111-1111-4111-8111-111111111111")},
    ):
        spoiled = SealedMessage(replace(sealed.metadata, **change), sealed.body)  # type: ignore[arg-type]
        with pytest.raises(Refusal):
            await open_sealed(spoiled, [e2().opener], [e1().signing])
