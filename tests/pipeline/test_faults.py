"""Nothing is lost, nothing comes twice: torn, repeated and late segments, crashes, lost checkpoints."""

from __future__ import annotations

import hashlib
import hmac
import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from gridpost.bench._journals import Journals, generate
from gridpost.core.journal import (
    AdministrationRow,
    AllocationRow,
    Identity,
    MessageRow,
    TrackingRow,
)
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.segment import SegmentName
from gridpost.pipeline import admit, bronze
from gridpost.pipeline.build import BuildSettings
from gridpost.pipeline.files import arguments
from gridpost.pipeline.incremental import keys_of
from gridpost.pipeline.jobs import Pipeline
from gridpost.pipeline.lake import DELTA, PARQUET, Lake, Table
from gridpost.pipeline.pseudonyms import USERS
from gridpost.pipeline.session import delta_jars
from gridpost.stores.journal_rows import Stored
from gridpost.stores.segments.columns import to_table
from gridpost.stores.segments.landing import Landing

from .conftest import pipeline_at
from .places import full_run, in_memory, mounted

pytestmark = pytest.mark.timeout(900)
NOW = datetime(2026, 4, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def journals() -> Journals:
    return generate(5, 20, days=2)


@pytest.fixture
def lake(tmp_path) -> Lake:
    return Lake.open(tmp_path / "lake", create=True)


@pytest.fixture(params=["local", "memory"])
def anywhere(request, tmp_path) -> Lake:
    where = tmp_path / "lake" if request.param == "local" else in_memory()
    return Lake.open(where, create=True)


def keys(lake: Lake) -> Counter:
    found = lake.table("bronze", "journal").read(["component", "instance", "sequence"])
    return (
        Counter() if found is None else Counter(map(tuple, (r.values() for r in found.to_pylist())))
    )


def everything(journals: Journals) -> Counter:
    return Counter(
        (who.component, who.instance, number)
        for who, lines in journals.rows.items()
        for number in range(1, len(lines) + 1)
    )


def test_what_is_not_as_its_manifest_says_goes_aside_with_the_reason(anywhere, journals):
    lake = anywhere
    written = journals.land(lake.landing, segment_rows=20)
    torn, changed, lonely, lying, good = (m.name for m in written[:5])
    file = lake.landing / torn.file
    file.write(file.read_bytes()[:-100])
    file = lake.landing / changed.file
    file.write(file.read_bytes()[:-1] + b"?")
    (lake.landing / lonely.file).unlink()
    # A segment that holds other rows than its name says, with a manifest that agrees with the file.
    other = parquet.read_table((lake.landing / good.file).path, **arguments(lake.root))
    Landing(lake.landing).put(replace(lying, last=lying.first + other.num_rows - 1), other, 0)
    done = admit.admit(lake, (lake.landing,), NOW)
    reasons = dict(done.quarantined)
    assert "torn" in reasons[str(torn)]
    assert "SHA-256" in reasons[str(changed)]
    assert "no segment" in reasons[str(lonely)]
    assert any("not those" in reason or "not all of" in reason for reason in reasons.values())
    assert good in done.admitted
    for name in reasons:
        assert list(lake.quarantine.glob(f"{name}*.reason"))
    note = json.loads((lake.quarantine / f"{torn.file}.reason").read_text())
    assert "torn" in note["reason"]
    # The same segment again, unchanged: already here.
    journals.land(lake.landing, segment_rows=20, wanted=lambda name: name == good)
    again = admit.admit(lake, (lake.landing,), NOW)
    assert again.admitted == ()
    assert "already" in dict(again.quarantined)[str(good)]


def test_a_segment_without_its_manifest_waits(anywhere, journals):
    lake = anywhere
    (first, *_) = journals.land(lake.landing, segment_rows=5000)
    (lake.landing / first.name.manifest).rename(lake.root / "landing" / ".later")
    assert first.name not in admit.admit(lake, (lake.landing,), NOW).admitted
    (lake.landing / ".later").rename(lake.landing / first.name.manifest)
    assert admit.admit(lake, (lake.landing,), NOW).admitted == (first.name,)


def test_an_admission_that_stopped_between_its_two_moves_goes_on(anywhere, journals):
    lake = anywhere
    (first, *_) = journals.land(lake.landing, segment_rows=5000)
    day = lake.admitted / "2026-04-01"
    (lake.landing / first.name.manifest).rename(day / first.name.manifest)
    assert first.name in admit.admit(lake, (lake.landing,), NOW).admitted
    assert (day / first.name.file).is_file()


class Crash(Exception):
    """The driver dies here."""


@pytest.mark.parametrize("moment", ["before the pointer", "after the pointer"])
def test_a_driver_that_dies_loses_nothing_and_repeats_nothing(
    tmp_path, spark, journals, monkeypatch, moment
):
    pipeline = pipeline_at(tmp_path / "lake", spark)
    lake = pipeline.lake
    journals.land(lake.landing, segment_rows=60)
    publish = Table.publish

    def dying(self, pointer):
        if self.name == "bronze.journal":
            if moment == "after the pointer":
                publish(self, pointer)
            raise Crash
        return publish(self, pointer)

    monkeypatch.setattr(Table, "publish", dying)
    with pytest.raises(Exception, match="Crash"):
        pipeline.ingest()
    monkeypatch.setattr(Table, "publish", publish)
    before = keys(lake)
    assert set(before.values()) <= {1}
    # Spark replays its batch 0; in the second case the lake holds it already.
    monkeypatch.setattr(bronze, "committed_segments", lambda lake: set())
    pipeline.ingest()
    assert keys(lake) == everything(journals)
    monkeypatch.undo()
    assert pipeline.ingest()["rows"] == 0
    assert not list(lake.admitted.rglob("*.parquet"))


def test_a_lost_or_older_checkpoint_changes_nothing(tmp_path, spark, journals, monkeypatch):
    pipeline = pipeline_at(tmp_path / "lake", spark)
    lake = pipeline.lake
    half = {who.component for who in list(journals.rows)[:2]}
    parties = lake.table("silver", "parties")
    parties.overwrite(parties.stage_arrow(pa.table({"code": ["E1", "E2"]})))
    journals.land(lake.landing, segment_rows=60, wanted=lambda n: n.component in half)
    # Nothing is archived: the next stream sees the old files as well.
    monkeypatch.setattr(admit, "archive", lambda lake, committed: 0)
    pipeline.ingest()
    older = tmp_path / "older"
    shutil.copytree(lake.checkpoint, older)
    journals.land(lake.landing, segment_rows=60, wanted=lambda n: n.component not in half)
    pipeline.ingest()
    assert keys(lake) == everything(journals)
    strangers = sum(
        not {row.sender_code, row.receiver_code} <= {"E1", "E2"}
        for rows in journals.rows.values()
        for row in rows
        if isinstance(row, MessageRow)
    )
    counts = lake.table("bronze", "quality").read(["component", "unknown_eic"]).to_pylist()
    assert sum(c["unknown_eic"] for c in counts if c["component"] is None) == strangers > 0
    shutil.rmtree(lake.checkpoint)
    done = pipeline.ingest()
    assert (done["rows"], done["repeated"]) == (0, sum(everything(journals).values()))
    shutil.rmtree(lake.checkpoint)
    shutil.copytree(older, lake.checkpoint)
    monkeypatch.undo()
    pipeline.ingest()
    assert keys(lake) == everything(journals)
    streams = lake.table("bronze", "quality").read(["stream"])["stream"].to_pylist()
    assert len(set(streams)) == 2


ACTOR = 'alice "the operator" \\ Ä'
ALLOCATION = {"allocation_id": 1, "period_start": 1_780_000_000_000_000, "quantity": 5}


def pseudonym(lake: Lake, name: str) -> str:
    key = lake.secret("pseudonyms")
    return hmac.new(key, name.encode(), hashlib.sha256).hexdigest()[:32]


def test_bad_rows_go_to_quarantine_and_can_be_replayed(tmp_path, spark, monkeypatch):
    pipeline = pipeline_at(tmp_path / "lake", spark)
    who = Identity("E9", "00000000-0000-4000-8000-000000000009")
    tracking = '{"side":"sent","message_id":"m","event":"ACCEPT","state":"ACCEPTED","moved":true}'
    good = 1_780_000_000_000_000
    stored = [
        Stored(good, "tracking", 1, tracking),
        Stored(good, "moon", 1, '{"phase":"full"}'),
        Stored(good, "tracking", 9, tracking),
        Stored(-(10**15), "tracking", 1, tracking),
        Stored(good, "tracking", 1, '{"side":"sent","event":"ACCEPT"}'),
        Stored(
            good, "administration", 9, json.dumps({"actor": ACTOR, "action": f"not by {ACTOR}"})
        ),
        # As it was ingested by a version that did not know that this kind names people.
        Stored(good, "capacity-allocation", 9, json.dumps({**ALLOCATION, "user": "u7"})),
    ]
    monkeypatch.delitem(USERS, "capacity-allocation")
    table = to_table(who, [(number, *row) for number, row in enumerate(stored, 1)])
    Landing(pipeline.lake.landing).put(SegmentName(who.component, who.instance, 1, 7), table, 0)
    done = pipeline.ingest()
    assert (done["rows"], done["quarantined"], done["repeated"]) == (1, 6, 0)
    rows = pipeline.lake.table("bronze", "quarantine").read().to_pylist()
    reasons = {row["sequence"]: row["reason"] for row in rows}
    assert reasons == {
        2: "an unknown kind",
        3: "a newer version of tracking",
        4: "an impossible time",
        5: "a row of tracking without its columns",
        6: "a newer version of administration",
        7: "a newer version of capacity-allocation",
    }
    # Who it was is hidden from the text as well, and nothing else.
    hidden = pseudonym(pipeline.lake, ACTOR)
    (text,) = (row["payload"] for row in rows if row["sequence"] == 6)
    assert json.loads(text) == {"actor": hidden, "action": f"not by {ACTOR}"}
    assert {row["payload"] for row in rows if row["sequence"] == 2} == {'{"phase":"full"}'}
    # After an update that knows version 9.
    monkeypatch.undo()
    for kind in (TrackingRow, AdministrationRow, AllocationRow):
        monkeypatch.setattr(kind, "SCHEMA_VERSION", 9)
    assert pipeline.replay() == {"replayed": 3, "quarantined": 3}
    assert pipeline.replay() == {"replayed": 0, "quarantined": 3}
    found = {r["sequence"]: r for r in pipeline.lake.table("bronze", "journal").read().to_pylist()}
    assert found[3]["tracking"]["message_id"] == "m"
    assert found[3]["tracking"]["moved"] is True
    assert found[6]["administration"]["actor"] == hidden
    assert found[7]["capacity-allocation"]["user"] == pseudonym(pipeline.lake, "u7")
    assert [row["payload"] for row in found.values()] == [None] * 4


# ---------------------------------------------------------------- one lake, made anew from landing


IGNORED = {"build", "segment", "sent_segment", "received_segment", "stream", "batch"}


def contents(lake: Lake) -> dict[str, list[str]]:
    found = {}
    for table in lake.tables():
        if table.name.startswith("bronze."):
            continue
        rows = table.read()
        found[table.name] = sorted(
            repr(sorted((k, v) for k, v in row.items() if k not in IGNORED))
            for row in ([] if rows is None else rows.to_pylist())
        )
    return found


# A lake of the other format in another file system; in full runs also one like the first.
KINDS_OF_LAKES = [(DELTA, "mounted"), *([(PARQUET, "local")] if full_run() else [])]


@pytest.fixture(scope="module", params=KINDS_OF_LAKES, ids="-".join)
def rebuilt(request, world, spark, far, tmp_path_factory) -> Pipeline:
    format, kind = request.param
    local = tmp_path_factory.mktemp("rebuilt") / "lake"
    where = mounted(far, "rebuilt") if kind == "mounted" else local
    pipeline = pipeline_at(where, spark, format)
    # Names of people become the same hashes.
    (pipeline.lake.root / "keys/pseudonyms").write(world.lake.secret("pseudonyms"))
    world.journals.land(pipeline.lake.landing, segment_rows=100)
    pipeline.ingest()
    pipeline.build(world.settings)
    pipeline.verify(world.settings)
    return pipeline


def test_days_rebuilt_one_by_one_are_those_of_a_rebuild_from_landing(world, rebuilt):
    one, other = contents(world.lake), contents(rebuilt.lake)
    assert set(one) == set(other)
    assert len(one) > 15
    for name in sorted(one):
        assert one[name] == other[name], name


def test_compaction_changes_no_row_whenever_it_dies(world, monkeypatch):
    lake = world.lake
    before = contents(lake)
    known = keys(lake)
    counted = lake.table("bronze", "quality").read().to_pylist()
    seen: list[int] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            seen.append(sum(keys(lake).values()))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        stage, calls = Table.stage, []

        def dying(self, frame, partition_by=None):
            calls.append(self.name)
            parts = stage(self, frame, partition_by)
            if len(calls) == 2:
                raise Crash
            return parts

        monkeypatch.setattr(Table, "stage", dying)
        with pytest.raises(Crash):
            world.pipeline.compact(grace=3600)
        monkeypatch.setattr(Table, "stage", stage)
        assert contents(lake) == before
        done = world.pipeline.compact(grace=3600)
    finally:
        stop.set()
        reader.join()
    assert done["merged_parts"] > 0
    assert contents(lake) == before
    assert keys(lake) == known
    assert set(seen) == {sum(known.values())}
    # What was counted of batches is one part now, in the same order.
    quality = lake.table("bronze", "quality")
    assert len(quality.pointer().parts) == 1
    assert quality.read().to_pylist() == counted
    # Tables remember the parts that there are, not all that there ever were.
    there = set(keys_of(lake.table("bronze", "journal").pointer().parts))
    for name in ("message_views", "acknowledgements", "atc"):
        assert set(lake.table("silver", name).pointer().meta["sources"]) == there
    assert world.pipeline.ingest()["rows"] == 0
    # Nothing is made anew because of it.
    assert world.pipeline.build(world.settings)["days"] == []


def test_what_is_erased_is_nowhere_and_does_not_come_back(world, rebuilt, spark):
    lake = rebuilt.lake
    message_id, _ = next(
        item for item in world.journals.answers.items() if item[1].story == "normal"
    )
    row = next(
        r
        for r in lake.table("silver", "messages").read().to_pylist()
        if r["message_id"] == message_id
    )
    text = row["ba_message_id"]
    assert text in everywhere(lake, message_id)
    concerned = [
        file
        for file in lake.archive.rglob("segment.*.parquet")
        if any(
            (told := row[kind]) is not None and told["message_id"] == message_id
            for row in parquet.read_table(file.path, **arguments(file)).to_pylist()
            for kind in ("message", "tracking", "transfer", "refusal")
        )
    ]
    done = rebuilt.erase([message_id])
    assert done["erased"] == 1
    # Both ends tell of it, in one segment or in several.
    assert done["segments"] == len(concerned) >= 2
    assert text not in everywhere(lake, message_id)
    assert not any(text in log.read_text() for log in lake.root.rglob("*.json"))
    if lake.format == DELTA and delta_jars():
        assert text not in history(spark, lake.table("silver", "messages"))
        assert text not in history(spark, lake.table("bronze", "journal"))
    rebuilt.build(world.settings, full=True)
    assert text not in everywhere(lake, message_id)
    rows = {r["message_id"]: r for r in lake.table("silver", "messages").read().to_pylist()}
    assert rows[message_id]["sent_fingerprint"] == row["sent_fingerprint"]
    assert rows[message_id]["status"] == "RECEIVED"
    # An archived segment that changed still is as its manifest says.
    for file in lake.archive.rglob("segment.*.parquet"):
        manifest = json.loads(file.with_suffix(".json").read_text())
        assert manifest["octets"] == file.size()


def history(spark, table: Table) -> set[str]:
    """What Delta Lake still tells of any version of a table; the newest must be readable."""
    told: set[str] = set()
    newest = table.pointer().version - 1
    for number in range(newest + 1):
        reader = spark.read.format("delta").option("versionAsOf", number)
        try:
            rows = reader.load(str(table.folder)).toArrow().to_pylist()
        except Exception:
            assert number != newest
            continue
        lines = [line for row in rows for line in (row, row.get("message") or {})]
        told |= {line["ba_message_id"] for line in lines if "ba_message_id" in line}
    assert told
    return told


def everywhere(lake: Lake, message_id: str) -> set[str]:
    """Every text that stands beside this message id in any file of the lake."""
    found: set[str] = set()
    for file in lake.root.rglob("*.parquet"):
        for row in parquet.read_table(file.path, **arguments(file)).to_pylist():
            lines = [row, *(v for v in row.values() if isinstance(v, dict))]
            if any(line.get("message_id") == message_id for line in lines):
                found |= {v for line in lines for v in line.values() if isinstance(v, str)}
    return found


# ---------------------------------------------------------------- the lake and its door


def test_a_lake_of_a_newer_version_and_a_wrong_path_are_refused_in_one_line(tmp_path):
    with pytest.raises(Refusal) as refused:
        Lake.open(tmp_path / "nothing")
    assert refused.value.rule is Rule.USAGE
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").touch()
    with pytest.raises(Refusal, match="other things"):
        Lake.open(tmp_path / "other", create=True)
    Lake.open(tmp_path / "lake", create=True)
    (tmp_path / "lake/lake.json").write_text('{"form": 99}')
    with pytest.raises(Refusal) as refused:
        Lake.open(tmp_path / "lake")
    assert refused.value.rule is Rule.STORE_TOO_NEW


def test_one_writer_at_a_time(anywhere):
    lake = anywhere
    with lake.writing(), pytest.raises(Refusal) as refused, Lake.open(lake.root).writing():
        pass
    assert refused.value.rule is Rule.STORE_IN_USE


def test_documents_lie_in_a_folder_that_only_its_owner_reads(lake):
    lake.table("bronze", "journal").append(
        lake.table("bronze", "journal").stage_arrow(pa.table({"a": [1]}))
    )
    assert Path(lake.root / "restricted").stat().st_mode & 0o777 == 0o700
    lake.secret("pseudonyms")
    assert Path(lake.root / "keys/pseudonyms").stat().st_mode & 0o777 == 0o600


def test_ctrl_c_ends_a_continuous_ingest_after_its_round(journals, lake):
    from support.child import environment

    journals.land(lake.landing, segment_rows=60)
    running = subprocess.Popen(
        [
            *(sys.executable, "-c", "from gridpost.cli import main; main()"),
            *("pipeline", "ingest", "--continuous", "--interval", "600"),
            *("--lake", str(lake.root), "--master", "local[1]"),
        ],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while keys(lake) != everything(journals) and running.poll() is None:
        time.sleep(0.2)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=600)
    assert running.returncode == 0, said
    assert "Traceback" not in said
    # What it had begun is whole: there is nothing left to build.
    assert lake.table("silver", "messages").read() is not None


def test_no_java_is_one_clear_line(monkeypatch, tmp_path):
    from gridpost.pipeline.session import SessionSettings, start

    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(Refusal, match="no Java found"):
        start(SessionSettings())
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    with pytest.raises(Refusal, match="Java 8 is too old"):
        start(SessionSettings())


@pytest.mark.parametrize("words", [["ingest"], ["build"], ["ingest", "--continuous"]])
def test_no_spark_is_one_clear_line(tmp_path, words):
    """An installation without `gridpost[pipeline]`."""
    from support.child import run_python

    argv = ["gridpost", "pipeline", *words, "--lake", str(tmp_path / "lake")]
    run = run_python(
        "-c",
        f"import sys; sys.modules['pyspark'] = None; sys.argv = {argv!r}; "
        "from gridpost.cli import main; main()",
        timeout=240,
    )
    assert run.returncode == 1
    (line,) = run.stderr.splitlines()
    assert "Spark is not installed: pip install 'gridpost[pipeline]'" in line
    assert not (tmp_path / "lake").exists()


def test_another_version_of_spark_is_one_clear_line(monkeypatch):
    from gridpost.pipeline import session

    monkeypatch.setattr(session, "version", lambda name: "3.5.1")
    with pytest.raises(Refusal, match=r"Spark 3\.5\.1 is installed, 4\.2 is needed"):
        session.check_spark()


@pytest.mark.parametrize("words", [["build"], ["ingest", "--continuous"]])
def test_a_zone_that_is_none_is_one_clear_line(words):
    from typer.testing import CliRunner

    from gridpost.cli.pipeline import app

    run = CliRunner().invoke(app, [*words, "--zone", "Europe/Nowhere"])
    assert isinstance(run.exception, Refusal)
    assert "Europe/Nowhere is not a zone" in run.exception.message


def test_agreements_are_checked(tmp_path):
    from gridpost.pipeline.gold.sla import read_agreements

    file = Path(tmp_path / "a.toml")
    file.write_text('[[agreement]]\nname = "x"\npercent = 99.0\nwithin_seconds = 60\n')
    (one,) = read_agreements(file).deliveries
    assert (one.name, one.measure) == ("x", "accept_to_deliver")
    file.write_text('[[agreement]]\nname = "x"\npercent = 199.0\nwithin_seconds = 60\n')
    with pytest.raises(Refusal, match="impossible"):
        read_agreements(file)
    file.write_text('[[response]]\nname = "y"\nverb = "get"\npercent = 9.0\nwithin_seconds = 0\n')
    with pytest.raises(Refusal, match="impossible"):
        read_agreements(file)
    with pytest.raises(Refusal):
        read_agreements(tmp_path / "none.toml")
    assert BuildSettings().agreements == ()
