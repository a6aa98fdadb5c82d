"""Alerts that need no Spark to be evaluated."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
from pyarrow import parquet

from gridpost.pipeline.alerts import evaluate
from gridpost.pipeline.lake import Lake

NOW = datetime(2026, 4, 1, 12, tzinfo=UTC)


def told(lake: Lake) -> list[str]:
    return [alert["alert"] for alert in evaluate(lake, NOW, 1e9).values()]


def test_an_acknowledgement_of_an_unknown_message_is_told_once_its_journal_is_complete(tmp_path):
    lake = Lake.open(tmp_path / "lake", create=True)
    marks = lake.table("gold", "marks")

    def complete_up_to(at: datetime) -> None:
        marks.overwrite(marks.stage_arrow(pa.table({"component": ["E1"], "time": [at]})))

    words = lake.table("silver", "acknowledgements")
    row = {"component": "E1", "time": NOW, "message_id": "m1", "acknowledgement_id": "a1"}
    words.append(words.stage_arrow(pa.Table.from_pylist([row])))
    complete_up_to(NOW - timedelta(seconds=1))
    assert told(lake) == []
    complete_up_to(NOW)
    assert told(lake) == ["unmatched acknowledgement"]
    # Its message landed late: the build has placed it on a day.
    folder = words.new_folder() / "_partition=2026-04-01"
    folder.mkdir()
    parquet.write_table(pa.Table.from_pylist([row]), folder / "part-0.parquet")
    words.overwrite(words.parts_in(folder.parent))
    assert told(lake) == []
