"""A series that a document cancels or withdraws ends, whoever asks and whenever the document lands."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import duckdb
import pytest

from gridpost.bench._documents import SeriesOfMany, document
from gridpost.bench._journals import Journals, generate
from gridpost.pipeline.build import BuildSettings
from gridpost.pipeline.incremental import read
from gridpost.pipeline.jobs import Pipeline
from gridpost.pipeline.market_holding import holding_documents, points_of
from gridpost.pipeline.silver.market import parse_document
from gridpost.pipeline.silver.market_views import ended_series, holding_points

from .conftest import SPRING, pipeline_at
from .test_faults import contents

pytestmark = pytest.mark.timeout(900)
KNOWN = datetime(2026, 3, 1, tzinfo=UTC)
# In the words of another engine, from the segments themselves: documents of the generator have a plain form.
VIEWS = """
CREATE VIEW journal AS SELECT DISTINCT message.message_id AS id, decode(message.content) AS text, time
  FROM read_parquet('{archive}/*/segment.*.parquet')
  WHERE kind = 'message' AND message.content IS NOT NULL;
CREATE VIEW document AS SELECT id, time AS known_at, text,
  regexp_extract(text, '<mRID>(.*?)</mRID>', 1) AS mrid,
  regexp_extract(text, '<revisionNumber>(.*?)</revisionNumber>', 1)::INT AS revision,
  contains(text, '<docStatus><value>A09</value>') AS ended,
  regexp_extract(text, '<period.timeInterval><start>(.*?)</start>', 1) AS day FROM journal;
CREATE VIEW series AS SELECT * EXCLUDE (text, block, ended),
  regexp_extract(block, '<mRID>(.*?)</mRID>', 1) AS series,
  regexp_matches(block, '<cancelledTS>A01<|<status><value>A13<') AS ended,
  len(regexp_extract_all(block, '<Point>')) AS points
  FROM (SELECT *, unnest(regexp_extract_all(text, '<TimeSeries>.*?</TimeSeries>')) AS block FROM document);
"""
HOLDING = """
WITH seen AS (SELECT * FROM document WHERE known_at <= $at),
newest AS (SELECT mrid, max((revision, known_at, id)) AS last FROM seen GROUP BY mrid)
SELECT s.id, s.series FROM series s JOIN seen d USING (id) JOIN newest n ON n.mrid = d.mrid
WHERE NOT d.ended AND (d.revision, d.known_at, d.id) = n.last AND NOT EXISTS (
  SELECT 1 FROM series e WHERE e.ended AND e.series = s.series AND e.known_at <= $at AND
    CASE WHEN e.mrid = s.mrid THEN (e.revision, e.known_at, e.id) >= (s.revision, s.known_at, s.id)
    ELSE e.day = s.day AND (e.known_at, e.id) > (s.known_at, s.id) END)
ORDER BY ALL
"""


def listed(**options: object) -> list[tuple[str, bool]]:
    row = parse_document(document(start=SPRING, hours=1, **options), "m", KNOWN)
    assert row["problem"] is None
    return [(one["series_mrid"], one["ended"]) for one in row["listed"]]


def test_a_series_is_ended_by_its_indicator_or_its_status():
    assert listed(series=3, cancelled=[2], withdrawn=[3]) == [
        ("1", False),
        ("2", True),
        ("3", True),
    ]


@pytest.mark.parametrize(("mark", "ended"), [("A01", True), ("A02", False), ("A09", True)])
def test_an_indicator_says_yes_or_no(mark, ended):
    content = document(start=SPRING, hours=1, cancelled=[1])
    content = content.replace(b"<cancelledTS>A01", f"<cancelledTS>{mark}".encode())
    (one,) = parse_document(content, "m", KNOWN)["listed"]
    assert one["ended"] is ended


def test_an_indicator_that_is_not_known_sets_the_document_aside():
    content = document(start=SPRING, hours=1, cancelled=[1])
    row = parse_document(content.replace(b"<cancelledTS>A01", b"<cancelledTS>A77"), "m", KNOWN)
    assert (row["problem"], row["listed"], row["values"]) == (
        "cancelledTS A77 is not known",
        [],
        [],
    )


def test_a_series_may_be_cancelled_without_a_period_and_have_another_kind_of_name():
    content = document(start=SPRING, hours=1, cancelled=[1])
    at = content.index(b"<Period>")
    content = content[:at] + content[content.index(b"</TimeSeries>") :]
    content = content.replace(b"TimeSeries>", b"Bid_TimeSeries>")
    row = parse_document(content, "m", KNOWN)
    assert [(one["ended"], one["points"]) for one in row["listed"]] == [(True, 0)]
    # An acknowledgement speaks of series of others.
    row = parse_document(content.replace(b"Bid_TimeSeries>", b"Rejected_TimeSeries>"), "m", KNOWN)
    assert row["listed"] == []


@pytest.fixture(scope="module")
def journals() -> Journals:
    return generate(5, 44, days=3, documents=SeriesOfMany(SPRING))


@pytest.fixture(scope="module")
def pipeline(journals, spark, tmp_path_factory) -> Pipeline:
    """Fed in two rounds: some of what ends a series lands later than what it ends."""
    found = pipeline_at(tmp_path_factory.mktemp("series") / "lake", spark)
    settings = BuildSettings(roots=journals.roots)
    for late in (False, True):
        journals.land(
            found.lake.landing,
            segment_rows=60,
            wanted=lambda name, late=late: (name.component in ("E1", "E3")) is late,
        )
        found.ingest()
        found.build(settings)
    return found


def test_series_hold_as_duckdb_says_whenever_one_asks(pipeline, spark):
    lake = pipeline.lake
    tables = ("market_points", "market_documents", "market_series")
    points, documents, series = (read(spark, lake.table("content", name)) for name in tables)
    answers = set()
    with duckdb.connect() as duck:
        duck.execute("SET TimeZone = 'UTC'")
        duck.execute(VIEWS.format(archive=lake.archive))
        moments = [at for (at,) in duck.execute("SELECT known_at FROM document").fetchall()]
        assert len(moments) > 15
        before = min(moments) - timedelta(seconds=1)
        for at in (before, *sorted(moments)[::4], max(moments)):
            wanted = duck.execute(HOLDING, {"at": at}).fetchall()
            answers.add(tuple(wanted))
            # With pyarrow alone, as the command asks.
            told = holding_documents(lake, at)
            found = points_of(lake, told)
            names = ("message_id", "series_mrid")
            rows = zip(*(found[name].to_pylist() for name in names), strict=True)
            assert sorted(set(rows)) == wanted
            # And in Spark.
            held = holding_points(points, documents, series, at).select(*names).distinct()
            assert sorted(map(tuple, held.collect())) == wanted
    assert len(answers) > 3
    ended = {tuple(row) for row in ended_series(series).collect()}
    own = {(r["message_id"], r["series_mrid"]) for r in series.where("ended").collect()}
    # Some were ended by another message than their own.
    assert own < ended


def test_a_late_document_ends_what_landed_before_it_as_in_a_rebuild(
    pipeline, journals, spark, tmp_path_factory
):
    whole = pipeline_at(tmp_path_factory.mktemp("whole") / "lake", spark)
    (whole.lake.root / "keys/pseudonyms").write(pipeline.lake.secret("pseudonyms"))
    journals.land(whole.lake.landing, segment_rows=60)
    whole.ingest()
    whole.build(BuildSettings(roots=journals.roots))
    one, other = contents(pipeline.lake), contents(whole.lake)
    names = [name for name in one if name.startswith("content.")]
    assert "content.market_series" in names
    for name in names:
        assert one[name] == other[name], name
    assert holding_documents(pipeline.lake) == holding_documents(whole.lake)
