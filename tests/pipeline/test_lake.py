"""What a table promises, whether its pointer is a file of ours or the log of Delta Lake."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from gridpost.bench._journals import Journals, generate
from gridpost.core.refusal import Refusal, Rule
from gridpost.pipeline.build import BuildSettings
from gridpost.pipeline.files import Place, arguments
from gridpost.pipeline.jobs import Pipeline
from gridpost.pipeline.lake import DELTA, PARQUET, Lake
from gridpost.pipeline.session import delta_jars

from .places import in_memory

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(params=["local", "memory"])
def where(request, tmp_path) -> Path | Place:
    return tmp_path / "lake" if request.param == "local" else in_memory()


@pytest.fixture(params=[PARQUET, DELTA])
def lake(request, where) -> Lake:
    return Lake.open(where, create=True, format=request.param)


@pytest.fixture
def delta(spark):
    """A session that reads Delta Lake with the code of its own authors."""
    if not delta_jars():
        reason = "the jars of Delta Lake are not here: make setup fetches them with Maven"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return spark


@pytest.fixture(scope="module")
def journals() -> Journals:
    return generate(5, 20, days=2)


def test_a_table_is_what_its_pointer_says(lake):
    table = lake.table("gold", "x")
    assert table.read() is None
    table.append(table.stage_arrow(pa.table({"a": [1, 2]})))
    staged = table.stage_arrow(pa.table({"a": [3]}))
    assert table.read()["a"].to_pylist() == [1, 2]
    table.overwrite(staged)
    assert table.read()["a"].to_pylist() == [3]
    assert table.vacuum(3600) == 0
    assert table.vacuum(0) == 1
    assert table.read()["a"].to_pylist() == [3]


def test_whoever_reads_what_is_replaced_has_time_however_old_it_is(lake):
    table = lake.table("gold", "x")
    table.append(table.stage_arrow(pa.table({"a": [1]})))
    (old,) = (table.folder / "data").folders()
    if not old.local:
        pytest.skip("nothing in memory can be made older")
    os.utime(old.path, (0, 0))
    table.overwrite(table.stage_arrow(pa.table({"a": [2]})))
    assert table.vacuum(3600) == 0
    assert old.is_dir()
    os.utime(old.path, (0, 0))
    assert table.vacuum(3600) == 1
    assert table.read()["a"].to_pylist() == [2]


def test_partitions_of_one_write_are_removed_one_by_one(lake):
    table = lake.table("silver", "x")
    folder = table.new_folder()
    for day in ("2026-03-28", "2026-03-29"):
        file = (folder / f"_partition={day}").mkdir() / "part-0.parquet"
        parquet.write_table(pa.table({"a": [day]}), file.path, **arguments(file))
    table.append(table.parts_in(folder))
    assert table.pointer().partitions() == {"2026-03-28", "2026-03-29"}
    table.overwrite([], {"2026-03-28"})
    assert table.vacuum(0) == 1
    assert table.read()["a"].to_pylist() == ["2026-03-29"]
    assert len(list(lake.root.rglob("*.parquet"))) == 1


def test_a_write_that_did_not_see_the_newest_state_is_refused(where):
    table = Lake.open(where, create=True, format=DELTA).table("gold", "x")
    seen = table.pointer()
    table.append(table.stage_arrow(pa.table({"a": [1]})))
    with pytest.raises(Refusal) as refused:
        table.publish(seen)
    assert refused.value.rule is Rule.STORE_IN_USE
    assert table.read()["a"].to_pylist() == [1]


@pytest.mark.parametrize("format", [PARQUET, DELTA])
def test_what_is_removed_while_it_is_read_is_read_from_its_new_place(tmp_path, format):
    """As erasure does it: no row is missing because its folder was just being removed."""
    table = Lake.open(tmp_path / "lake", create=True, format=format).table("silver", "things")
    rows = pa.table({"number": range(1000)})
    halves = [rows.slice(0, 500), rows.slice(500)]
    table.append([part for half in halves for part in table.stage_arrow(half)])
    stop, seen, faults = threading.Event(), [], []

    def look() -> None:
        while not stop.is_set():
            try:
                found = table.read()
                seen.append(0 if found is None else len(set(found["number"].to_pylist())))
                assert found is not None
                assert found.num_rows == seen[-1]
                assert table.octets() > 0
            except Exception as error:
                faults.append(error)

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(25):
            table.overwrite([part for half in halves for part in table.stage_arrow(half)])
            assert table.vacuum(0) == 2
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert faults == []
    assert set(seen) == {1000}


def test_a_part_that_is_gone_is_not_an_empty_one(lake):
    table = lake.table("silver", "things")
    (part,) = table.stage_arrow(pa.table({"number": [1]}))
    table.append([part])
    (table.folder / part.path).rmtree()
    with pytest.raises(FileNotFoundError):
        table.read()


def test_the_format_of_a_lake_is_decided_once(lake):
    other = {PARQUET: DELTA, DELTA: PARQUET}[lake.format]
    assert Lake.open(lake.root).format == lake.format
    with pytest.raises(Refusal, match="is kept as"):
        Lake.open(lake.root, create=True, format=other)
    with pytest.raises(Refusal, match="no format"):
        Lake.open(lake.root, format="iceberg")


def plain(rows) -> list[str]:
    return sorted(
        repr(
            sorted((k, v.hex() if isinstance(v, bytes | bytearray) else v) for k, v in row.items())
        )
        for row in rows
    )


def same_for_delta(spark, table) -> int:
    """What the authors of Delta read is what our own reader reads."""
    theirs = spark.read.format("delta").load(str(table.folder)).toArrow()
    ours = table.read()
    assert plain(theirs.to_pylist()) == plain(ours.select(theirs.column_names).to_pylist())
    return ours.num_rows


def test_delta_reads_every_version_of_a_table(delta, tmp_path):
    table = Lake.open(tmp_path / "lake", create=True, format=DELTA).table("gold", "x")
    table.append(table.stage_arrow(pa.table({"a": [1, 2], "b": ["x", None]})))
    table.append(table.stage_arrow(pa.table({"a": [3], "b": ["y"], "c": [True]})))
    assert same_for_delta(delta, table) == 3
    table.overwrite(table.stage_arrow(pa.table({"a": [4], "b": ["z"], "c": [False]})))
    assert same_for_delta(delta, table) == 1
    reader = delta.read.format("delta")
    counts = [reader.option("versionAsOf", n).load(str(table.folder)).count() for n in range(3)]
    assert counts == [2, 3, 1]
    history = delta.sql(f"DESCRIBE HISTORY delta.`{table.folder}`").collect()
    assert [row.version for row in history] == [2, 1, 0]


def test_what_another_writer_of_delta_did_is_not_overlooked(delta, tmp_path):
    table = Lake.open(tmp_path / "lake", create=True, format=DELTA).table("gold", "x")
    table.append(table.stage_arrow(pa.table({"a": [1, 2]})))
    delta.sql(f"DELETE FROM delta.`{table.folder}` WHERE a = 1")
    with pytest.raises(Refusal, match="another writer"):
        table.read()


def test_a_delta_lake_takes_journals_like_any_other(delta, journals, tmp_path, soak):
    pipeline = Pipeline(Lake.open(tmp_path / "lake", create=True, format=DELTA), lambda: delta)
    journals.land(pipeline.lake.landing, segment_rows=60, wanted=lambda n: n.component != "E1")
    pipeline.ingest()
    journals.land(pipeline.lake.landing, segment_rows=60)
    done = pipeline.ingest()
    assert done["rows"] == sum(
        len(rows) for who, rows in journals.rows.items() if who.component == "E1"
    )
    bronze = pipeline.lake.table("bronze", "journal")
    assert same_for_delta(delta, bronze) == sum(map(len, journals.rows.values()))
    entries = sorted((bronze.folder / "_delta_log").glob("*.json"), key=str)
    assert len(entries) == 2
    actions = [json.loads(line) for line in entries[-1].read_text().splitlines()]
    assert any("add" in action for action in actions)
    if soak.run.scale >= 1:
        pipeline.build(BuildSettings())
        names = {table.name for table in pipeline.lake.tables() if table.read() is not None}
        assert {"silver.messages", "gold.delivery"} <= names
        for table in pipeline.lake.tables():
            if table.name in names:
                same_for_delta(delta, table)
        message_id = next(iter(journals.answers))
        assert pipeline.erase([message_id])["erased"] == 1
