"""Shares of the rows of files: every row is in one of them, and they are alike in size."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from gridpost.bench._journals import generate
from gridpost.pipeline.build import BuildSettings
from gridpost.pipeline.file_rows import BATCH, shares, worked
from gridpost.pipeline.files import place

from .conftest import pipeline_at
from .places import mounted

NUMBER = pa.schema([("number", pa.int64())])
BOTH = pa.schema([("number", pa.int64()), ("word", pa.string())])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("rows")


def write(folder, files):
    """Files with row groups of these sizes; the rows of all of them are numbered."""
    found, at = [], 0
    for number, sizes in enumerate(files):
        file = folder / f"part-{number}.parquet"
        with parquet.ParquetWriter(file, NUMBER) as out:
            for size in sizes:
                out.write_table(pa.table({"number": range(at, at + size)}, schema=NUMBER))
                at += size
        found.append(place(file))
    return found, at


def numbers(share, columns=NUMBER):
    return [n for one in share for batch in one.read(columns) for n in batch["number"].to_pylist()]


@given(st.lists(st.lists(st.integers(0, 40), max_size=4), max_size=5), st.integers(1, 9))
def test_every_row_is_in_one_share_and_all_but_the_last_are_of_one_size(folder, files, tasks):
    places, total = write(folder, files)
    found = shares(places, tasks)
    read = [numbers(share) for share in found]
    assert [n for share in read for n in share] == list(range(total))
    assert len(found) <= tasks
    assert len({len(share) for share in read[:-1]}) <= 1
    assert [sum(one.rows for one in share) for share in found] == [len(share) for share in read]


def test_a_row_group_of_many_batches_is_shared_too(folder):
    places, total = write(folder, [[5 * BATCH + 7]])
    read = [numbers(share) for share in shares(places, 3)]
    assert [n for share in read for n in share] == list(range(total))
    assert max(map(len, read)) - min(map(len, read)) < 3


def test_a_column_that_a_file_of_an_older_version_lacks_is_null(folder):
    places, _ = write(folder, [[3]])
    ((stretch,),) = shares(places, 1)
    (batch,) = stretch.read(BOTH)
    assert batch.schema == BOTH
    assert batch["word"].to_pylist() == [None] * 3


def test_work_on_files_sees_the_same_rows_as_a_reader_of_spark(spark, folder):
    places, total = write(folder, [[1000, 1], [], [2500]])

    def doubled(batches):
        for batch in batches:
            yield pa.record_batch({"twice": [2 * n for n in batch["number"].to_pylist()]})

    made = worked(spark, places, NUMBER, doubled, "twice long").collect()
    assert sorted(row.twice for row in made) == [2 * n for n in range(total)]
    assert worked(spark, [], NUMBER, doubled, "twice long").collect() == []


@pytest.mark.parametrize("where", ["parquet", "delta", "elsewhere"])
def test_proofs_without_documents_are_judged_from_the_files_of_the_lake(
    spark, far, tmp_path, where
):
    journals = generate(3, 30, days=2)
    root = mounted(far, "audited") if where == "elsewhere" else tmp_path / "lake"
    pipeline = pipeline_at(root, spark, "" if where == "elsewhere" else where)
    journals.land(pipeline.lake.landing, segment_rows=100)
    pipeline.ingest()
    settings = BuildSettings(roots=journals.roots)
    pipeline.build(settings)
    pipeline.verify(settings)
    rows = pipeline.lake.table("gold", "proof_audit").read().to_pylist()
    assert {row["message_id"]: row["verdict"] for row in rows} == {
        message_id: answer.proof for message_id, answer in journals.answers.items()
    }
