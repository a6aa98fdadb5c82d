"""Metadata and sealed messages for tests: one plain example, and strategies for all of them."""

from __future__ import annotations

import base64
import string
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from hypothesis import strategies as st

from gridpost.core.identifiers import ComponentCode, MessageId, MessageType
from gridpost.core.instant import Instant
from gridpost.core.message import (
    Entry,
    InternalType,
    Metadata,
    Processor,
    SealedMessage,
    ValueType,
)

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MESSAGE_ID = MessageId("5f0c8d5e-3f51-4d6e-8a37-0e8c1a1c1f11")
ORIGINAL_ID = "0b7f3c52-77f0-4a7d-9a55-3b1f4f0e9d21"

PROCESSORS = (
    Processor(
        "signature",
        (
            Entry("Algorithm", ValueType.STRING, "SHA-512"),
            Entry("Certificate ID", ValueType.STRING, "CN=CD-1,O=Grid 4711"),
            Entry("Signature", ValueType.STRING, '<Signature xmlns="urn:x">\n a&b ]]></Signature>'),
        ),
    ),
    Processor(
        "encryption",
        (
            Entry("Cipher", ValueType.STRING, "AES-256"),
            Entry("Certificate ID", ValueType.STRING, "CN=CD-1,O=Grid 4712"),
            Entry("Session key", ValueType.BYTE_ARRAY, base64.b64encode(bytes(256)).decode()),
            Entry("Mode", ValueType.STRING, "GCM"),
        ),
    ),
)


def standard_message(**changes: object) -> Metadata:
    metadata = Metadata(
        message_id=MESSAGE_ID,
        receiver_code=ComponentCode("10X-RECIPIENT@E2"),
        message_type=MessageType("BP1-A"),
        generated=Instant.of(NOW - timedelta(seconds=2)),
        expiration_time=Instant.of(NOW + timedelta(hours=1)),
        sender_code=ComponentCode("10X-SENDER@E1"),
        internal_type=InternalType.STANDARD_MESSAGE,
        extension="xml",
        sender_application="SCADA-7",
        ba_message_id="ba-1",
        processors=PROCESSORS,
    )
    return replace(metadata, **changes)  # type: ignore[arg-type]


def internal_message(kind: InternalType) -> Metadata:
    """Each of the six kinds, with the elements that Table 11 gives it."""
    metadata = standard_message(internal_type=kind)
    if kind is InternalType.STANDARD_MESSAGE:
        return metadata
    if kind is InternalType.TRACING_MESSAGE:
        return replace(metadata, extension="")
    signed = kind is InternalType.DELIVERY_ACKNOWLEDGEMENT
    return replace(
        metadata,
        extension="",
        sender_application="",
        ba_message_id="",
        related_message_id=ORIGINAL_ID,
        processors=PROCESSORS[:1] if signed else (),
    )


def sealed(metadata: Metadata | None = None, body: bytes = b"\x00sealed\xff") -> SealedMessage:
    return SealedMessage(standard_message() if metadata is None else metadata, body)


# ---------------------------------------------------------------- strategies

# Every Char of XML 1.0.
xml_text = st.text(
    st.one_of(
        st.characters(
            exclude_categories=["Cs"], min_codepoint=0x20, exclude_characters="\ufffe\uffff"
        ),
        st.sampled_from("\t\n\r<>&'\"]"),
    ),
    max_size=40,
)
codes = st.text(string.ascii_letters + string.digits + "-@", min_size=1, max_size=40)
names = st.text(string.ascii_letters + string.digits + "-", min_size=1, max_size=40)
uuids = st.uuids().map(str) | st.uuids().map(lambda u: str(u).upper())


@st.composite
def instants(draw: st.DrawFn) -> Instant:
    """Any lexical form of xsd:dateTime that a peer may use."""
    days = draw(st.integers(2, date(9999, 12, 30).toordinal()))
    at = f"{date.fromordinal(days)}T{draw(st.times()).replace(microsecond=0)}"
    digits = draw(st.text(string.digits, max_size=12))
    zone = draw(st.sampled_from(["Z", "", "+00:00", "-00:00", "+02:00", "-05:30", "+14:00"]))
    return Instant.parse(at + (f".{digits}" if digits else "") + zone)


def entry_of(kind: ValueType) -> st.SearchStrategy[Entry]:
    value = {
        ValueType.STRING: xml_text,
        ValueType.LONG: st.integers(-(2**63), 2**63 - 1).map(str),
        ValueType.BYTE_ARRAY: st.binary(max_size=60).map(lambda b: base64.b64encode(b).decode()),
        ValueType.BOOLEAN: st.sampled_from(["true", "false"]),
    }[kind]
    return st.builds(Entry, xml_text, st.just(kind), value)


entries = st.sampled_from(ValueType).flatmap(entry_of)
processors = st.builds(Processor, xml_text, st.lists(entries, max_size=4).map(tuple))

metadatas = st.builds(
    Metadata,
    message_id=uuids.map(MessageId),
    receiver_code=codes.map(ComponentCode),
    message_type=names.map(MessageType),
    generated=instants(),
    expiration_time=st.none() | instants(),
    sender_code=codes.map(ComponentCode),
    internal_type=st.sampled_from(InternalType),
    extension=xml_text,
    related_message_id=xml_text,
    sender_application=xml_text,
    ba_message_id=xml_text,
    processors=st.lists(processors, max_size=3).map(tuple),
    message_mversion=st.integers(-(2**31), 2**31 - 1),
)


def texts(metadata: Metadata) -> tuple[str, str | None]:
    """The date-times as they were written: equality of instants does not look at them."""
    expiration = metadata.expiration_time
    return metadata.generated.text, None if expiration is None else expiration.text


@st.composite
def sealed_messages(draw: st.DrawFn) -> SealedMessage:
    """Messages as they are sent: alive at NOW, related to another message only as acknowledgement."""
    metadata = draw(metadatas)
    left = draw(st.timedeltas(timedelta(milliseconds=1), timedelta(days=3_000)))
    related = metadata.related_message_id if metadata.internal_type.is_acknowledgement else ""
    metadata = replace(metadata, expiration_time=Instant.of(NOW + left), related_message_id=related)
    return SealedMessage(metadata, draw(st.binary(max_size=600)))
