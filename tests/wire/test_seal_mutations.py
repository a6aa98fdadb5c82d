"""Whatever happens to a sealed message on its way: the original arrives, or a refusal."""

from __future__ import annotations

import asyncio
from dataclasses import fields, replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridpost.core.identifiers import ComponentCode
from gridpost.core.instant import Instant
from gridpost.core.message import Entry, InternalType, Metadata, Processor, SealedMessage, ValueType
from gridpost.core.refusal import Refusal
from gridpost.wire.seal import DEFAULT, Profile, seal_message, verify
from gridpost.wire.seal.manifest import signed_attributes
from support.messages import CONTENT, acknowledgement, message
from support.pki import NOW
from support.sealing import OLD, e1, e2, opened

TEXTS = [
    f.name
    for f in fields(Metadata)
    if f.type in ("str", "ComponentCode", "MessageId", "MessageType")
]


@cache
def original(profile: Profile) -> SealedMessage:
    return asyncio.run(seal_message(message(), e1().signer, e2().encryption, profile))


@st.composite
def spoiled_text(draw: st.DrawFn, text: str) -> str:
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(len(text), start + 20)))
    return text[:start] + draw(st.text(max_size=8)) + text[end:]


@st.composite
def spoiled_bytes(draw: st.DrawFn, data: bytes) -> bytes:
    start = draw(st.integers(0, len(data)))
    end = draw(st.integers(start, min(len(data), start + 20)))
    return data[:start] + draw(st.binary(max_size=20)) + data[end:]


@st.composite
def spoiled_processors(draw: st.DrawFn, processors: tuple[Processor, ...]) -> tuple[Processor, ...]:
    kind = draw(st.sampled_from(["value", "type", "key", "drop", "repeat", "shuffle", "name"]))
    at = draw(st.integers(0, len(processors) - 1))
    chosen = processors[at]
    number = draw(st.integers(0, len(chosen.entries) - 1))
    entry = chosen.entries[number]
    match kind:
        case "shuffle":
            return tuple(draw(st.permutations(processors)))
        case "name":
            changed = Processor(draw(spoiled_text(chosen.processor_id)), chosen.entries)
        case "drop":
            changed = Processor(
                chosen.processor_id, chosen.entries[:number] + chosen.entries[number + 1 :]
            )
        case "repeat":
            changed = Processor(chosen.processor_id, (*chosen.entries, entry))
        case _:
            new = {
                "value": lambda: replace(entry, value=draw(spoiled_text(entry.value))),
                "type": lambda: replace(entry, type=draw(st.sampled_from(ValueType))),
                "key": lambda: replace(entry, key=draw(spoiled_text(entry.key))),
            }[kind]()
            entries: list[Entry] = list(chosen.entries)
            entries[number] = new
            changed = Processor(chosen.processor_id, tuple(entries))
    return (*processors[:at], changed, *processors[at + 1 :])


@st.composite
def spoiled(draw: st.DrawFn, sealed: SealedMessage) -> SealedMessage:
    metadata, body = sealed.metadata, sealed.body
    for _ in range(draw(st.integers(1, 2))):
        what = draw(st.sampled_from(["text", "body", "processors", "generated", "kind"]))
        match what:
            case "text":
                name = draw(st.sampled_from(TEXTS))
                changed = draw(spoiled_text(getattr(metadata, name)))
                metadata = replace(metadata, **{name: changed})
            case "body":
                body = draw(spoiled_bytes(body))
            case "processors" if metadata.processors and all(
                p.entries for p in metadata.processors
            ):
                metadata = replace(
                    metadata, processors=draw(spoiled_processors(metadata.processors))
                )
            case "generated":
                metadata = replace(
                    metadata,
                    generated=draw(
                        st.sampled_from(
                            [
                                Instant.of(NOW),
                                Instant.parse("2026-03-01T12:00:00Z"),
                                Instant.parse("2020-01-01T00:00:00Z"),
                                Instant.parse("2090-01-01T00:00:00Z"),
                            ]
                        )
                    ),
                )
            case _:
                kind = draw(st.sampled_from(InternalType))
                metadata = replace(metadata, internal_type=kind)
    return SealedMessage(metadata, body)


@pytest.mark.parametrize("profile", [DEFAULT, OLD], ids=["GCM", "CBC"])
@given(data=st.data())
def test_the_original_or_a_refusal(profile: Profile, data: st.DataObject) -> None:
    good = original(profile)
    bad = data.draw(spoiled(good))
    try:
        arrived = asyncio.run(opened(bad, profile=profile))
    except Refusal:
        return
    # An unsigned kind claims nothing: it brings no certificate of a signer.
    if arrived.signing_certificate is None:
        assert not bad.metadata.internal_type.must_be_signed
        return
    assert arrived.signing_certificate == e1().signing
    if profile is DEFAULT:
        assert arrived.message.content == CONTENT
        assert signed_attributes(bad.metadata) == signed_attributes(good.metadata)
    else:
        # Without associated data bytes may have moved between neighbours, and nothing more.
        moved = arrived.message.content + "".join(signed_attributes(bad.metadata)).encode()
        assert moved == CONTENT + "".join(signed_attributes(good.metadata)).encode()


@cache
def signed_acknowledgement() -> SealedMessage:
    return asyncio.run(seal_message(acknowledgement(b"digest"), e2().signer, None))


@given(data=st.data())
def test_an_acknowledgement_is_the_signed_one_or_refused(data: st.DataObject) -> None:
    good = signed_acknowledgement()
    bad = data.draw(spoiled(good))
    try:
        arrived = asyncio.run(opened(bad, openers=[], certificates=e2().certificates))
    except Refusal:
        return
    if arrived.signing_certificate is not None:
        moved = bad.body + "".join(signed_attributes(bad.metadata)).encode()
        assert moved == good.body + "".join(signed_attributes(good.metadata)).encode()
        assert verify(arrived.message, e2().certificates).certificate == e2().signing


def test_the_spoiler_spoils() -> None:
    assert len(TEXTS) == 9
    assert ComponentCode("E1") == original(DEFAULT).metadata.sender_code
