"""Alerts that need no Spark to be evaluated."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyarrow import parquet

from gridpost.pipeline.alerts import evaluate
from gridpost.pipeline.build import BuildSettings
from gridpost.pipeline.jobs import Pipeline
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


def test_a_message_becomes_stuck_though_its_quiet_journal_says_nothing_more(tmp_path):
    """The newest row of the sender is that of the message itself: only the wall clock goes on."""
    lake = Lake.open(tmp_path / "lake", create=True)
    waiting = lake.table("gold", "waiting")
    row = {
        "message_id": "m1",
        "message_type": "A01",
        "sender_code": "E1",
        "receiver_code": "E2",
        "seen_by": "E1",
        "stands": "ACCEPTED",
        "since": NOW,
        "as_of": NOW,
        "seconds": 0,
        "expiration_time": NOW + timedelta(hours=1),
        "stuck": False,
    }
    waiting.append(waiting.stage_arrow(pa.Table.from_pylist([row])))

    def after(minutes: int) -> list[str]:
        found = evaluate(lake, NOW + timedelta(minutes=minutes), 1e9, stuck_after=900)
        return [alert["text"] for alert in found.values()]

    assert after(15) == []
    assert after(16) == ["A01 from E1 to E2: ACCEPTED for 960 s, as E1 says"]
    # Past its expiration it is for its endpoint to say what became of it.
    assert after(61) == []
    # A late row says that it had been delivered: the build has taken it off the list.
    waiting.overwrite([])
    assert after(16) == []


def test_a_round_that_finds_another_writer_tells_alerts_and_goes_on(tmp_path):
    lake = Lake.open(tmp_path / "lake", create=True)
    marks = lake.table("gold", "marks")
    marks.overwrite(marks.stage_arrow(pa.table({"component": ["E1"], "time": [NOW]})))
    rounds: list[float] = []
    told: list[dict] = []

    def stop(seconds: float) -> bool:
        rounds.append(seconds)
        return len(rounds) == 2

    with lake.writing():
        Pipeline(lake, lambda: pytest.fail("no Spark is needed")).continuous(
            BuildSettings(), (), stop, interval=3.0, silence=900.0, told=told.append
        )
    assert len(rounds) == 2
    assert [line["alert"] for line in told] == ["silent component"]
