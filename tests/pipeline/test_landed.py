"""Segments on their way to bronze, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from gridpost.core.segment import SegmentName
from gridpost.pipeline import landed
from gridpost.pipeline.bronze import balanced
from gridpost.pipeline.files import Place, place
from gridpost.pipeline.pseudonyms import hidden
from gridpost.pipeline.segment_pieces import LANDING, MIXED, columns_of

INSTANCE = "00000000-0000-4000-8000-000000000009"
AT = datetime(2026, 3, 1, tzinfo=UTC)


def segment(folder, rows, *, first=1, count=None, drop=(), more=None) -> Place:
    """A segment of rows that say only what a test is about."""
    schema = pa.schema([landed.COLUMNS.field(name) for name in sorted(LANDING)])
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


def pieces(file: Place) -> list[tuple[str, pa.Table]]:
    return [(piece.kind, piece.rows) for piece in landed.read(file)]


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
    ((kind, rows),) = pieces(file)
    assert kind == "message"
    assert not {"weather", "tracking"} & set(rows.column_names)
    assert rows["payload"].null_count == 1
    assert rows["message"][0].as_py()["message_id"] == "m1"


def test_an_older_struct_gets_the_columns_it_lacks(tmp_path):
    old = pa.StructArray.from_arrays([pa.array(["m1"])], ["message_id"])
    file = segment(tmp_path, [{"kind": "message"}], drop=["message"], more={"message": old})
    ((_, rows),) = pieces(file)
    assert rows["message"].type == columns_of("message").field("message").type
    assert rows["message"][0].as_py()["message_id"] == "m1"
    assert landed.reasons(rows, landed.known_versions()).to_pylist() == [
        "a row of message without its columns"
    ]


def test_a_struct_of_nulls_is_not_a_missing_one(tmp_path):
    empty = dict.fromkeys(field.name for field in landed.COLUMNS.field("entry").type)
    file = segment(tmp_path, [{"kind": "entry", "entry": empty}, {"kind": "entry"}])
    ((_, rows),) = pieces(file)
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


# ---------------------------------------------------------------- by kind

TRACKED = {"message_id": "m1", "side": "sent", "event": "ACCEPT", "state": "ACCEPTED"}
LINES = {
    "message": message(1),
    "of an application": message(2, "C", "D") | {"schema_version": 0},
    "tracking": {"kind": "tracking", "tracking": TRACKED},
    "incomplete": {"kind": "tracking", "tracking": {"side": "sent"}},
    "without its columns": {"kind": "entry"},
    "of a person": {"kind": "administration", "administration": {"actor": "ann", "action": "a"}},
    "newer": {"kind": "message", "schema_version": 99, "payload": '{"a": 1}'},
    "of nobody": {"kind": "weather", "payload": '{"fair": true}'},
    "of two kinds": message(3) | {"tracking": TRACKED},
}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    segments=st.lists(
        st.lists(st.sampled_from(sorted(LINES)), min_size=1, max_size=12), min_size=1, max_size=3
    ),
    row_group=st.integers(1, 9),
)
def test_rows_cut_by_kind_are_the_rows_that_landed(tmp_path, monkeypatch, segments, row_group):
    monkeypatch.setattr(landed, "_ROW_GROUP", row_group)
    with TemporaryDirectory(dir=tmp_path) as name:
        folder, files, first = Path(name), [], 1
        for kinds in segments:
            files.append(segment(folder, [LINES[kind] for kind in kinds], first=first))
            first += len(kinds)
        to = transcription(folder)
        found = to.write(0, files)
        written = sorted(to.folder.glob("*.parquet"), key=str)
        whole = to.folder / "part-00000.parquet"
        assert set(parquet.read_schema(whole.path).names) == set(landed.COLUMNS.names)
        got = {}
        for file in written:
            table = parquet.read_table(file.path, schema=landed.COLUMNS)
            for row in table.to_pylist():
                assert row["sequence"] not in got
                got[row["sequence"]] = row
        assert sorted(got) == list(range(1, first))
        for file in files:
            landing = parquet.read_table(file.path).select(sorted(LANDING))
            judged = landed.reasons(landing, to.versions).to_pylist()
            plain = hidden(landing, to.key).to_pylist()
            for row, reason in zip(plain, judged, strict=True):
                told = got[row["sequence"]]
                assert {name: told[name] for name in row} == row
                assert (told["reason"], told["segment"]) == (reason, file.name)
        assert [one.segment for one in found] == [file.name for file in files]
        assert sum(one.bad for one in found) == sum(
            row["reason"] is not None for row in got.values()
        )


def test_a_kind_that_fills_a_row_group_has_a_file_with_its_columns_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(landed, "_ROW_GROUP", 4)
    rows = [message(1), message(2), message(3), {"kind": "tracking", "tracking": TRACKED}]
    files = [segment(tmp_path, rows, first=first) for first in (1, 5)]
    to = transcription(tmp_path)
    to.write(0, files)
    own, rest = (to.folder / f"part-00000{end}" for end in (".message.parquet", ".parquet"))
    assert sorted(to.folder.entries(), key=str) == [own, rest]
    names = set(parquet.read_schema(own.path).names)
    assert "message" in names
    assert not {"tracking", "transfer"} & names
    assert parquet.read_metadata(own.path).num_rows == 6
    assert parquet.read_table(rest.path)["kind"].to_pylist() == ["tracking", "tracking"]
    # The list of texts that it was carried as is no matter of those who read it.
    assert parquet.read_schema(own.path).field("kind").type == pa.string()


def test_columns_of_another_kind_are_not_lost(tmp_path):
    file = segment(tmp_path, [message(1) | {"tracking": TRACKED}, message(2)])
    ((kind, rows),) = pieces(file)
    assert kind == MIXED
    assert rows["tracking"].to_pylist()[0]["message_id"] == "m1"
    assert rows["tracking"].null_count == 1
