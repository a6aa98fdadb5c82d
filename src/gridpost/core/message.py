"""The internal message of 503 cl. 6.5: metadata (Tables 11 to 17) and content."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from gridpost.core.identifiers import ComponentCode, MessageId, MessageType
from gridpost.core.instant import Instant

MVERSION = 2  # 503 cl. 9.1


class InternalType(StrEnum):
    """503 Table 12."""

    STANDARD_MESSAGE = "STANDARD_MESSAGE"
    DELIVERY_ACKNOWLEDGEMENT = "DELIVERY_ACKNOWLEDGEMENT"
    RECEIVE_ACKNOWLEDGEMENT = "RECEIVE_ACKNOWLEDGEMENT"
    FAILURE_ACKNOWLEDGEMENT = "FAILURE_ACKNOWLEDGEMENT"
    TRACING_MESSAGE = "TRACING_MESSAGE"
    TRACING_ACKNOWLEDGEMENT = "TRACING_ACKNOWLEDGEMENT"

    @property
    def is_acknowledgement(self) -> bool:
        return self not in (InternalType.STANDARD_MESSAGE, InternalType.TRACING_MESSAGE)

    @property
    def must_be_signed(self) -> bool:
        """503 cl. 6.5.4 and Table 1; see divergences for "if it is signed"."""
        return self in (
            InternalType.STANDARD_MESSAGE,
            InternalType.TRACING_MESSAGE,
            InternalType.DELIVERY_ACKNOWLEDGEMENT,
        )

    @property
    def must_be_encrypted(self) -> bool:
        """A tracing message is emitted encrypted, but 503 Table 8 lets peers send it plain."""
        return self is InternalType.STANDARD_MESSAGE

    @property
    def may_be_encrypted(self) -> bool:
        return not self.is_acknowledgement


class ValueType(StrEnum):
    """503 Table 17."""

    STRING = "STRING"
    LONG = "LONG"
    BYTE_ARRAY = "BYTE_ARRAY"
    BOOLEAN = "BOOLEAN"


@dataclass(frozen=True, slots=True)
class Entry:
    """503 Table 16: one attribute of a processor, its value as text."""

    key: str
    type: ValueType
    value: str


@dataclass(frozen=True, slots=True)
class Processor:
    """503 Table 14. Entries that nobody here knows are kept, in their order."""

    processor_id: str
    entries: tuple[Entry, ...] = ()

    def all(self, key: str) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries if entry.key == key)


SIGNATURE = "signature"
ENCRYPTION = "encryption"
COMPRESSOR = "compressor"
"""MADES 1.1 only (cl. 3.14.2)."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """503 Table 11. An absent, nil or empty optional attribute is the empty string."""

    message_id: MessageId
    receiver_code: ComponentCode
    message_type: MessageType
    generated: Instant
    expiration_time: Instant | None
    sender_code: ComponentCode
    internal_type: InternalType
    extension: str = ""
    related_message_id: str = ""
    sender_application: str = ""
    ba_message_id: str = ""
    processors: tuple[Processor, ...] = ()
    message_mversion: int = MVERSION
    sender_description: str = ""
    """MADES 1.1 only (Table 61): the display name of the sender, which its signatures cover."""

    def with_processors(self, processors: Iterable[Processor]) -> Metadata:
        # Spelled out: `replace` takes several times as long, and every message comes by here.
        return Metadata(
            self.message_id,
            self.receiver_code,
            self.message_type,
            self.generated,
            self.expiration_time,
            self.sender_code,
            self.internal_type,
            self.extension,
            self.related_message_id,
            self.sender_application,
            self.ba_message_id,
            tuple(processors),
            self.message_mversion,
            self.sender_description,
        )

    def processors_named(self, processor_id: str) -> tuple[Processor, ...]:
        return tuple(p for p in self.processors if p.processor_id == processor_id)


@dataclass(frozen=True, slots=True)
class InternalMessage:
    """A message or an acknowledgement whose content can be read."""

    metadata: Metadata
    content: bytes


@dataclass(frozen=True, slots=True)
class SealedMessage:
    """What travels: the metadata names the processors that made `body` from the content.

    A large body is a view of what arrived, or of where it was made: it is not held twice.
    """

    metadata: Metadata
    body: bytes | memoryview
