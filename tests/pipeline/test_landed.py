"""Segments on their way to bronze, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyarrow import parquet

from gridpost.core.segment import SegmentName
from gridpost.pipeline import landed
from gridpost.pipeline.bronze import balanced
from gridpost.pipeline.files import Place, place

INSTANCE = "00000000-0000-4000-8000-000000000009"
AT = datetime(2026, 3, 1, tzinfo=UTC)


def segment(folder, rows, *, first=1, count=None, drop=(), more=None) -> Place:
    """A segment of rows that say only what a test is about."""
    schema = pa.schema([landed.COLUMNS.field(name) for name in sorted(landed._LANDING)])
    common = {"component": "E9", "instance": INSTANCE, "time": AT, "schema_version": 1}
    lines = [{**common, "sequence": first + at, **row} for at, row in enumerate(rows)]
    table = pa.Table.from_pylist(lines, schema=schema).drop_columns(list(drop))
    for name, column in (more or {}).items():
        table = table.append_column(name, column)
    name = SegmentName("E9", INSTANCE, first, first + (count or len(rows)) - 1)
    parquet.write_table(table, folder / name.file)
    return place(folder / name.file)


def transcription(folder, parties=()) -> landed.Transcription:
    to = place(folder / "bronze").mkdir()
    return landed.Transcription(to, "s", 3, b"k" * 32, parties, landed.known_versions())


def message(number: int, sender="A", receiver="B") -> dict:
    codes = {"sender_code": sender, "receiver_code": receiver}
    return {
        "kind": "message",
        "message": {"message_id": f"m{number}", "side": "sent", "generated": AT, **codes},
    }


def test_a_task_that_is_tried_again_leaves_one_file(tmp_path):
    file = segment(tmp_path, [message(1), message(2)])
    to = transcription(tmp_path)
    first = to.write(0, [file])
    assert to.write(0, [file]) == first
    assert [f.name for f in to.folder.entries()] == ["part-00000.parquet"]
    rows = parquet.read_table(tmp_path / "bronze" / "part-00000.parquet").to_pylist()
    assert [(row["sequence"], row["segment"], row["batch"]) for row in rows] == [
        (1, file.name, 3),
        (2, file.name, 3),
    ]


def test_a_task_that_fails_leaves_nothing(tmp_path):
    changed = segment(tmp_path, [message(1)], count=2)
    to = transcription(tmp_path)
    with pytest.raises(RuntimeError, match="changed after it was admitted"):
        to.write(0, [changed])
    assert to.folder.entries() == []


def test_columns_are_found_by_their_names(tmp_path):
    newer = {"weather": pa.array(["fair"])}
    file = segment(tmp_path, [message(1)], drop=["payload", "tracking"], more=newer)
    (rows,) = landed.read(file)
    assert "weather" not in rows.column_names
    assert rows["payload"].null_count == rows["tracking"].null_count == 1
    assert rows["message"][0].as_py()["message_id"] == "m1"


def test_an_older_struct_gets_the_columns_it_lacks(tmp_path):
    old = pa.StructArray.from_arrays([pa.array(["m1"])], ["message_id"])
    file = segment(tmp_path, [{"kind": "message"}], drop=["message"], more={"message": old})
    (rows,) = landed.read(file)
    assert rows["message"].type == landed.COLUMNS.field("message").type
    assert rows["message"][0].as_py()["message_id"] == "m1"
    assert landed.reasons(rows, landed.known_versions()).to_pylist() == [
        "a row of message without its columns"
    ]


def test_a_struct_of_nulls_is_not_a_missing_one(tmp_path):
    empty = dict.fromkeys(field.name for field in landed.COLUMNS.field("entry").type)
    file = segment(tmp_path, [{"kind": "entry", "entry": empty}, {"kind": "entry"}])
    (rows,) = landed.read(file)
    assert landed.reasons(rows, landed.known_versions()).to_pylist() == [
        None,
        "a row of entry without its columns",
    ]


def test_times_of_rows_that_are_set_aside_do_not_count(tmp_path):
    late = {**message(2), "time": datetime(2400, 1, 1, tzinfo=UTC)}
    file = segment(tmp_path, [message(1), late])
    (found,) = transcription(tmp_path).write(0, [file])
    assert (found.rows, found.bad, found.kinds) == (2, 1, ["message"])
    assert found.newest == found.oldest == AT.timestamp() * 1_000_000


@pytest.mark.parametrize(
    ("parties", "unknown"), [((), None), (("A", "B"), 0), (("A",), 2), (("X",), 3)]
)
def test_messages_of_unknown_parties_are_counted(tmp_path, parties, unknown):
    rows = [message(1), message(2), message(3, receiver="A"), message(4, None, None)]
    file = segment(tmp_path, rows)
    (found,) = transcription(tmp_path, parties).write(0, [file])
    assert found.unknown_eic == (None if not parties else unknown)


def test_groups_of_segments_are_about_the_same_size(tmp_path):
    files = [segment(tmp_path, [message(1)] * 9, first=1 + 9 * n) for n in range(7)]
    groups = balanced(files, 3)
    assert sorted(len(group) for group in groups) == [2, 2, 3]
    assert sorted(f.name for group in groups for f in group) == [f.name for f in files]
    assert len(balanced(files[:2], 8)) == 2
