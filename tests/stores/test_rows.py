"""What a database holds is read back exactly as it was: entries, metadata, traces, journal rows."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridpost.core.delivery import EXPIRING_STATES, Side, State, TraceEntry, final_since
from gridpost.core.journal import KINDS, MessageRow, RefusalRow, UnknownRow
from gridpost.core.message import Entry, Metadata, Processor, ValueType
from gridpost.core.message_box import BoxEntry
from gridpost.stores import journal_rows, values
from gridpost.stores.box_rows import (
    BOX_COLUMNS,
    NEW_COLUMNS,
    BoxRow,
    MetadataRow,
    StateRow,
    TraceRow,
    read_processors,
    write_processors,
)
from gridpost.stores.journal_rows import Stored
from gridpost.stores.values import (
    from_microseconds,
    read_metadata,
    to_microseconds,
    write_metadata,
)
from support import strategies
from support.builders import NOW


def _texts(metadata: Metadata) -> list[str]:
    """What equality of Instants leaves out."""
    return [i.text for i in (metadata.generated, metadata.expiration_time) if i is not None]


@given(strategies.box_entries())
def test_an_entry_comes_back_from_its_row(entry: BoxEntry) -> None:
    row = BoxRow.from_entry(entry)
    again = row.to_entry()
    assert again == entry
    assert again.number == entry.number
    assert _texts(again.metadata) == _texts(entry.metadata)
    # As columns: what is inserted is what is selected.
    named = dict(zip(NEW_COLUMNS, row.new_columns, strict=True)) | {"number": row.number}
    assert BoxRow.read([named[column] for column in BOX_COLUMNS.split(", ")]) == row
    sent = entry.delivery.side is Side.SENT
    peer = entry.metadata.receiver_code if sent else entry.metadata.sender_code
    assert named["peer"] == peer


@given(strategies.metadatas)
def test_metadata_come_back_from_columns_and_from_text(metadata: Metadata) -> None:
    for again in (
        MetadataRow.from_metadata(metadata).to_metadata(),
        read_metadata(write_metadata(metadata)),
    ):
        assert again == metadata
        assert _texts(again) == _texts(metadata)


@given(strategies.metadatas)
def test_processors_that_an_older_version_wrote_as_json_are_read(metadata: Metadata) -> None:
    row = MetadataRow.from_metadata(metadata)
    older = row._replace(processors=values.write_processors(metadata.processors))
    assert older.to_metadata() == replace(metadata, sender_description="")


def test_the_text_of_a_signature_is_kept_as_it_is_and_other_texts_are_escaped() -> None:
    signature = Processor("signature", (Entry("signature", ValueType.STRING, '<a b="c">\n\\'),))
    assert (
        write_processors((signature,))
        == '\x1fsignature\x1f1\x1fsignature\x1fSTRING\x1f<a b="c">\n\\'
    )
    for text in ("a\x1fb", "\x1f", "\ud800", "ä"):
        processors = (replace(signature, entries=(Entry("k", ValueType.STRING, text),)), signature)
        assert write_processors(processors).startswith("[")
        assert read_processors(write_processors(processors)) == processors
    assert read_processors(write_processors(())) == read_processors("[]") == ()


@given(strategies.trace_entries)
def test_a_line_of_a_trace_comes_back(entry: TraceEntry) -> None:
    assert TraceRow.from_entry(entry).to_entry() == entry


@given(strategies.box_entries(), strategies.times)
def test_the_clock_of_retention_is_that_of_the_core(entry: BoxEntry, now: datetime) -> None:
    delivery = entry.delivery
    row = StateRow.from_delivery(delivery)
    since = final_since(delivery, now)
    if row.final_at is None:
        assert since is None
    else:
        # Whether something is due at `now` does not depend on which of the two one asks.
        due = row.final_at <= to_microseconds(now)
        assert due == (since is not None and since <= now)
    assert (row.open_until is not None) == (delivery.state in EXPIRING_STATES)


def test_expiry_moves_exactly_what_is_neither_final_nor_delivered() -> None:
    assert frozenset(State) - EXPIRING_STATES == {
        # Never stored: their first event happens in the same transaction.
        State.SENDING,
        State.ARRIVING,
        State.DELIVERED,
        State.RECEIVED,
        State.TRACED,
        State.FAILED,
        State.CONFIRMED,
        State.REFUSED,
        State.TRACE_ANSWERED,
        State.EXPIRED,
    }


@given(strategies.times)
def test_times_keep_their_microseconds(at: datetime) -> None:
    assert from_microseconds(to_microseconds(at)) == at


def test_a_time_without_a_zone_is_a_bug() -> None:
    with pytest.raises(TypeError):
        to_microseconds(datetime(2026, 1, 1))


# -- the journal


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_rows_of_every_kind_come_back_typed(kind: str, data: st.DataObject) -> None:
    row = data.draw(strategies.journal_rows(KINDS[kind]))
    stored = journal_rows.write(row)
    again = journal_rows.read(stored)
    assert again == row
    assert type(again) is KINDS[kind]
    assert (stored.kind, stored.schema_version) == (kind, KINDS[kind].SCHEMA_VERSION)
    # Enumerations come back as such, not as the text that they equal.
    for name in ("side", "event", "state"):
        if hasattr(row, name):
            assert type(getattr(again, name)) is type(getattr(row, name))


def test_a_payload_is_plain_json_with_bytes_as_base64() -> None:
    row = MessageRow(
        NOW, Side.SENT, "m", "STANDARD_MESSAGE", "E1", "E2", "A", NOW, NOW, "DIRECT", 3, b"\x00\xff"
    )
    payload = json.loads(journal_rows.write(row).payload)
    assert payload["fingerprint"] == "AP8="
    assert payload["generated"] == 1_772_366_400_000_000
    assert payload["content"] is None
    assert "at" not in payload


def test_a_row_of_an_older_version_takes_defaults_for_what_it_lacks() -> None:
    stored = journal_rows.write(RefusalRow(NOW, "id", "BUSY", "CONCURRENT_ERROR", "busy"))
    older = json.loads(stored.payload)
    del older["security"], older["peer"]
    row = journal_rows.read(stored._replace(payload=json.dumps(older)))
    assert row == RefusalRow(NOW, "id", "BUSY", "CONCURRENT_ERROR", "busy")


@pytest.mark.parametrize(
    ("kind", "version"), [("moon", 1), ("message", MessageRow.SCHEMA_VERSION + 1)]
)
def test_a_row_that_a_newer_version_wrote_is_reported_as_it_stands(kind: str, version: int) -> None:
    at = NOW + timedelta(microseconds=7)
    stored = Stored(to_microseconds(at), kind, version, '{"phase":"full"}')
    assert journal_rows.read(stored) == UnknownRow(at, kind, version, '{"phase":"full"}')
