"""A reader during every write, on both kinds of lake: no torn read, no hole, no row twice."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate

import pytest

from gridpost.bench._journals import generate
from gridpost.core.journal import Identity, TrackingRow
from gridpost.core.segment import SegmentName
from gridpost.pipeline.build import Builder, BuildSettings
from gridpost.pipeline.gold.sla import Agreement
from gridpost.pipeline.lake import DELTA, OUTDATED, PARQUET, Lake
from gridpost.stores.segments.columns import to_table
from gridpost.stores.segments.landing import Landing

from .conftest import pipeline_at

pytestmark = pytest.mark.timeout(900)
STRANGER = Identity("E9", "00000000-0000-4000-8000-00000000000a")
AT = 1_780_000_000_000_000
ANY = Agreement("any", 95.0, 60.0)
ROWS = {
    "bronze.journal": ("component", "instance", "sequence"),
    "bronze.quarantine": ("component", "instance", "sequence"),
    "silver.tracking_events": ("component", "instance", "sequence"),
    "silver.messages": ("message_id",),
    "gold.delivery": ("hour", "message_type", "route", "sender_code", "receiver_code"),
}
"""What makes a row of these tables one row."""


@dataclass(slots=True)
class Seen:
    """What a reader found in one table, one look after the other."""

    counts: list[int] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


@contextmanager
def reading(lake: Lake) -> Iterator[dict[str, Seen]]:
    """Readers without a lock, for as long as the block takes; each looks at least once at its end."""
    seen = {name: Seen() for name in ROWS}
    stop = threading.Event()

    def look(name: str) -> None:
        layer, _, table = name.partition(".")
        while True:
            last = stop.is_set()
            try:
                found = lake.table(layer, table).read(ROWS[name])
            except Exception as error:
                seen[name].faults.append(repr(error))
                return
            rows = [] if found is None else found.to_pylist()
            twice = [key for key, n in Counter(tuple(r.values()) for r in rows).items() if n > 1]
            if twice:
                seen[name].faults.append(f"{twice[:3]} twice")
            seen[name].counts.append(len(rows))
            if last:
                return
            stop.wait(0.05)  # the writer needs the processors as well

    threads = [threading.Thread(target=look, args=(name,)) for name in ROWS]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def whole(seen: dict[str, Seen], before: dict[str, int], after: dict[str, set[int]]) -> None:
    """Only states that there have been, in their order."""
    for name, found in seen.items():
        assert found.faults == [], name
        allowed = {before[name], *after.get(name, {before[name]})}
        assert set(found.counts) <= allowed, name
        assert found.counts == sorted(found.counts), name


def sizes(lake: Lake) -> dict[str, int]:
    return {name: lake.table(*name.split(".")).pointer().rows for name in ROWS}


def steps_of(lake: Lake) -> set[int]:
    """How many rows bronze had after each of its batches."""
    rows = lake.table("bronze", "quality").read().to_pylist()
    counts = [row["rows_out"] for row in rows if row["component"] is None]
    return set(accumulate(counts))


def unknown_rows(lake: Lake) -> None:
    """Of a version that this one does not know yet."""
    told = '{"side":"sent","message_id":"m","event":"ACCEPT","state":"ACCEPTED","moved":true}'
    rows = [(number, AT, "tracking", 9, told) for number in (1, 2)]
    name = SegmentName(STRANGER.component, STRANGER.instance, 1, 2)
    Landing(lake.landing).put(name, to_table(STRANGER, rows), 0)


@pytest.mark.parametrize("format", [PARQUET, DELTA])
def test_a_reader_sees_tables_before_or_after_a_write_whatever_is_written(
    tmp_path, spark, monkeypatch, format
):
    pipeline = pipeline_at(tmp_path / "lake", spark, format)
    lake, settings = pipeline.lake, BuildSettings()
    journals = generate(7, 30, days=2)
    total = sum(len(rows) for rows in journals.rows.values())
    middle = {who: len(rows) // 2 for who, rows in journals.rows.items()}
    journals.land(lake.landing, segment_rows=40, wanted=lambda n: n.first <= middle[n.identity])
    pipeline.ingest()
    pipeline.build(settings)
    before = sizes(lake)
    assert 0 < before["bronze.journal"] < total

    # The rest in several batches, rows that were here already, and some that nobody knows.
    journals.land(lake.landing, segment_rows=40, wanted=lambda n: n.first > middle[n.identity])
    journals.land(lake.landing, segment_rows=30, wanted=lambda n: n.first == 1)
    unknown_rows(lake)
    with reading(lake) as seen:
        done = pipeline.ingest(max_files=5)
    assert done["batches"] > 1
    assert done["repeated"] > 0
    assert done["quarantined"] == 2
    after = sizes(lake)
    assert after["bronze.journal"] == total
    whole(seen, before, {"bronze.journal": steps_of(lake), "bronze.quarantine": {2}})

    before = after
    with reading(lake) as seen:
        pipeline.build(settings)
    after = sizes(lake)
    assert after["silver.messages"] > before["silver.messages"]
    whole(seen, before, {name: {count} for name, count in after.items()})

    with reading(lake) as seen:
        assert pipeline.compact(grace=3600)["merged_parts"] > 0
    assert sizes(lake) == after
    whole(seen, after, {})

    with reading(lake) as seen:
        assert pipeline.erase(sorted(journals.answers)[:2])["parts"] > 0
    assert sizes(lake) == after
    whole(seen, after, {})

    monkeypatch.setattr(TrackingRow, "SCHEMA_VERSION", 9)
    with reading(lake) as seen:
        assert pipeline.replay() == {"replayed": 2, "quarantined": 0}
    assert seen["bronze.quarantine"].counts[-1] == 0
    seen["bronze.quarantine"].counts.reverse()
    whole(seen, after, {"bronze.journal": {total + 2}, "bronze.quarantine": {0}})


@pytest.mark.parametrize("format", [PARQUET, DELTA])
def test_a_reader_keeps_the_old_tables_until_a_full_build_has_new_ones(
    tmp_path, spark, monkeypatch, format
):
    pipeline = pipeline_at(tmp_path / "lake", spark, format)
    lake, settings = pipeline.lake, BuildSettings(agreements=(ANY,))
    generate(7, 30, days=2).land(lake.landing)
    pipeline.ingest()
    pipeline.build(settings)
    pipeline.verify(settings)
    before = sizes(lake)
    rows = contents(lake)
    assert {"gold.sla", "gold.proof_audit"} <= rows.keys()

    with monkeypatch.context() as patched, reading(lake) as seen:
        patched.setattr(Builder, "_gold", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pipeline.build(settings, full=True)
    whole(seen, before, {})
    assert contents(lake) == rows

    # The next build goes on where that one stopped. An agreement that is no more has no figures.
    with reading(lake) as seen:
        again = pipeline.build(BuildSettings())
    assert again["rows"]["gold.delivery"] == before["gold.delivery"]
    assert "silver.messages" not in again["rows"]
    whole(seen, before, {})
    assert contents(lake) == {name: found for name, found in rows.items() if name != "gold.sla"}
    pipeline.verify(settings)
    assert contents(lake)["gold.proof_audit"] == rows["gold.proof_audit"]
    assert not any(OUTDATED in table.pointer().meta for table in lake.tables())


def interrupted(_: Builder) -> None:
    raise KeyboardInterrupt


def contents(lake: Lake) -> dict[str, Counter[str]]:
    """Every row of silver and gold, but for the build that made it."""
    found = {}
    for table in lake.tables():
        rows = None if table.name.startswith("bronze.") else table.read()
        if rows is not None:
            kept = [name for name in rows.column_names if name != "build"]
            found[table.name] = Counter(repr(row) for row in rows.select(kept).to_pylist())
    return found
