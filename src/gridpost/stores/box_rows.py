"""Rows of the tables and the core values that they stand for. Only these types know columns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from gridpost.core.delivery import (
    EXPIRING_STATES,
    Delivery,
    Event,
    Side,
    State,
    TraceEntry,
    final_since,
)
from gridpost.core.identifiers import ComponentCode, MessageId, MessageType
from gridpost.core.instant import Instant
from gridpost.core.message import Entry, InternalType, Metadata, Processor, ValueType
from gridpost.core.message_box import BoxEntry, Brief
from gridpost.core.message_path import Route
from gridpost.stores.values import from_microseconds, to_microseconds
from gridpost.stores.values import read_processors as read_json_processors
from gridpost.stores.values import write_processors as write_json_processors

_DISTANT = datetime.max.replace(tzinfo=UTC)
# XML cannot hold this character, so processors that came over the wire never do.
_UNIT = "\x1f"


def write_processors(processors: tuple[Processor, ...]) -> str:
    """Fields with a separator before each: a signature is long, and escaping it as JSON is slow.

    Of a processor its id, the number of its entries, and their keys, types and values.
    """
    fields = [""]
    for processor in processors:
        fields += (processor.processor_id, str(len(processor.entries)))
        for entry in processor.entries:
            fields += (entry.key, entry.type.value, entry.value)
    text = _UNIT.join(fields)
    if text.isascii() and text.count(_UNIT) == len(fields) - 1:
        return text
    return write_json_processors(processors)


def read_processors(text: str) -> tuple[Processor, ...]:
    # What an older Gridpost wrote is JSON.
    if text.startswith("["):
        return read_json_processors(text)
    fields = iter(text.split(_UNIT)[1:])
    return tuple(
        Processor(
            processor_id,
            tuple(
                Entry(next(fields), ValueType(next(fields)), next(fields))
                for _ in range(int(next(fields)))
            ),
        )
        for processor_id in fields
    )


class MetadataRow(NamedTuple):
    """The columns of 503 Table 11, with the text of its times."""

    message_id: str
    receiver_code: str
    message_type: str
    generated_at: int
    generated: str
    expiration_at: int | None
    expiration: str | None
    sender_code: str
    internal_type: str
    extension: str
    related_message_id: str
    sender_application: str
    ba_message_id: str
    processors: str
    mversion: int

    @classmethod
    def from_metadata(cls, metadata: Metadata) -> MetadataRow:
        expiration = metadata.expiration_time
        return cls(
            metadata.message_id,
            metadata.receiver_code,
            metadata.message_type,
            to_microseconds(metadata.generated.at),
            metadata.generated.text,
            None if expiration is None else to_microseconds(expiration.at),
            None if expiration is None else expiration.text,
            metadata.sender_code,
            metadata.internal_type.value,
            metadata.extension,
            metadata.related_message_id,
            metadata.sender_application,
            metadata.ba_message_id,
            write_processors(_with_description(metadata)),
            metadata.message_mversion,
        )

    def to_metadata(self) -> Metadata:
        expiration = None
        if self.expiration_at is not None and self.expiration is not None:
            expiration = Instant(from_microseconds(self.expiration_at), self.expiration)
        processors, description = _without_description(read_processors(self.processors))
        return Metadata(
            MessageId(self.message_id),
            ComponentCode(self.receiver_code),
            MessageType(self.message_type),
            Instant(from_microseconds(self.generated_at), self.generated),
            expiration,
            ComponentCode(self.sender_code),
            InternalType(self.internal_type),
            self.extension,
            self.related_message_id,
            self.sender_application,
            self.ba_message_id,
            processors,
            self.mversion,
            description,
        )


# MADES 1.1 only: few messages have one, and an own column would be empty in all the others. No
# processor has this name: an unknown one is refused before anything is stored.
_DESCRIPTION = "(senderDescription)"


def _with_description(metadata: Metadata) -> tuple[Processor, ...]:
    if not metadata.sender_description:
        return metadata.processors
    entry = Entry("", ValueType.STRING, metadata.sender_description)
    return (*metadata.processors, Processor(_DESCRIPTION, (entry,)))


def _without_description(
    processors: tuple[Processor, ...],
) -> tuple[tuple[Processor, ...], str]:
    if not processors or processors[-1].processor_id != _DESCRIPTION:
        return processors, ""
    return processors[:-1], processors[-1].entries[0].value


class StateRow(NamedTuple):
    """What a decision changes of a message, and what is derived from it."""

    state: str
    expires_at: int
    changed_at: int
    status: str | None
    open_until: int | None
    final_at: int | None

    @classmethod
    def from_delivery(cls, delivery: Delivery) -> StateRow:
        status = delivery.status
        expires_at = to_microseconds(delivery.expires_at)
        # Final at the latest in the distant future: the same clock that final_since() tells.
        final_at = final_since(delivery, _DISTANT)
        return cls(
            delivery.state.value,
            expires_at,
            to_microseconds(delivery.changed_at),
            None if status is None else status.value,
            expires_at if delivery.state in EXPIRING_STATES else None,
            None if final_at is None else to_microseconds(final_at),
        )


class BoxRow(NamedTuple):
    """A message without its content."""

    number: int
    side: str
    route: str
    fingerprint: bytes
    size: int
    application: str
    conversation_id: str
    state: StateRow
    metadata: MetadataRow

    @classmethod
    def from_entry(cls, entry: BoxEntry) -> BoxRow:
        metadata, delivery = entry.metadata, entry.delivery
        if metadata.message_id != delivery.message_id:
            raise ValueError(f"the delivery of {delivery.message_id} with other metadata")
        return cls(
            entry.number,
            delivery.side.value,
            str(entry.route),
            entry.fingerprint,
            entry.size,
            entry.application,
            entry.conversation_id,
            StateRow.from_delivery(delivery),
            MetadataRow.from_metadata(metadata),
        )

    def to_entry(self) -> BoxEntry:
        metadata = self.metadata.to_metadata()
        return BoxEntry(
            Delivery(
                Side(self.side),
                metadata.message_id,
                State(self.state.state),
                from_microseconds(self.state.expires_at),
                from_microseconds(self.state.changed_at),
            ),
            metadata,
            Route.stored(self.route),
            self.fingerprint,
            self.size,
            self.application,
            self.conversation_id,
            self.number,
        )

    @classmethod
    def read(cls, columns: Sequence[Any]) -> BoxRow:
        """From a row of `SELECT {BOX_COLUMNS}`."""
        state = StateRow._make(columns[_STATE:_METADATA])
        return cls._make((*columns[:_STATE], state, MetadataRow._make(columns[_METADATA:])))

    @property
    def new_columns(self) -> tuple[object, ...]:
        """The values of NEW_COLUMNS."""
        sent = self.side == Side.SENT
        peer = self.metadata.receiver_code if sent else self.metadata.sender_code
        return (*self[1:_STATE], *self.state, *self.metadata, peer, self.state.changed_at, 1)


_STATE = BoxRow._fields.index("state")
_METADATA = _STATE + len(StateRow._fields)

_OWN_COLUMNS = (*BoxRow._fields[1:_STATE], *StateRow._fields, *MetadataRow._fields)
BOX_COLUMNS = ", ".join(("number", *_OWN_COLUMNS))
NEW_COLUMNS = (*_OWN_COLUMNS, "peer", "arrived_at", "has_content")


class TraceRow(NamedTuple):
    """One line of a trace."""

    at: int
    event: str
    state: str
    moved: bool
    detail: str
    acknowledgement_id: str

    @classmethod
    def from_entry(cls, entry: TraceEntry) -> TraceRow:
        return cls(
            to_microseconds(entry.at),
            entry.event.value,
            entry.state.value,
            entry.moved,
            entry.detail,
            entry.acknowledgement_id,
        )

    def to_entry(self) -> TraceEntry:
        return TraceEntry(
            from_microseconds(self.at),
            Event(self.event),
            State(self.state),
            bool(self.moved),
            self.detail,
            self.acknowledgement_id,
        )


class BriefRow(NamedTuple):
    arrived_at: int
    side: str
    state: str
    changed_at: int
    size: int

    def to_brief(self) -> Brief:
        return Brief(
            from_microseconds(self.arrived_at),
            Side(self.side),
            State(self.state),
            from_microseconds(self.changed_at),
            self.size,
        )
