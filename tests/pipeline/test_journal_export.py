"""Journals become segments: all rows, in order, once, whatever the exporter died of."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from gridpost.core.delivery import Event, Side, State
from gridpost.core.journal import KINDS, Identity, TrackingRow, UnknownRow, values
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.segment import Manifest, SegmentName
from gridpost.pipeline.files import place
from gridpost.stores import journal_rows
from gridpost.stores.segments.columns import SCHEMA, to_table
from gridpost.stores.segments.export import Export, Exporter, component_cpu_seconds
from gridpost.stores.segments.landing import Landing
from gridpost.stores.sqlite import SqliteStore
from support import strategies
from support.boxed import note
from support.builders import NOW
from support.child import environment, run_python
from support.waiting import eventually

CLI = [sys.executable, "-c", "from gridpost.cli import main; main()"]
IDENTITY = Identity("E1", "0" * 8 + "-0000-4000-8000-" + "0" * 12)


def exporter(tmp_path: Path, rows: int = 100) -> Exporter:
    return Exporter(tmp_path / "store", Landing(place(tmp_path / "landing")), lambda: NOW, rows)


def only(runs: list[Export]) -> Export:
    (run,) = runs
    return run


def segments(tmp_path: Path) -> list[SegmentName]:
    names = (SegmentName.parse(file.name) for file in (tmp_path / "landing").glob("*.parquet"))
    return sorted(name for name in names if name is not None)


async def write(store: SqliteStore, count: int) -> None:
    for number in range(count):
        row = TrackingRow(NOW, Side.SENT, f"m{number}", Event.ACCEPT, State.ACCEPTED, True)
        await store.run(lambda unit, r=row: unit.journal.append(r))


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data())
def test_every_kind_of_row_keeps_its_values_in_a_segment(data):
    rows = [
        data.draw(strategies.journal_rows(kind))
        for kind in data.draw(st.lists(st.sampled_from(list(KINDS.values())), max_size=8))
    ]
    stored = [(number, *journal_rows.write(row)) for number, row in enumerate(rows, 1)]
    table = to_table(IDENTITY, stored)
    assert table.schema == SCHEMA
    for row, found in zip(rows, table.to_pylist(), strict=True):
        assert found["time"] == row.at
        assert found["kind"] == row.KIND
        expected = {name: _sound(value) for name, value in values(row).items() if name != "at"}
        assert found[row.KIND] == expected
        assert all(found[other] is None for other in KINDS if other != row.KIND)


def _sound(value: object) -> object:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def test_a_row_of_a_newer_version_keeps_its_payload():
    stored = journal_rows.Stored(0, "moon", 7, '{"phase":"full"}')
    (found,) = to_table(IDENTITY, [(1, *stored)]).to_pylist()
    assert (found["kind"], found["schema_version"]) == ("moon", 7)
    assert found["payload"] == '{"phase":"full"}'
    assert isinstance(journal_rows.read(stored), UnknownRow)


async def test_an_exporter_does_not_load_what_only_others_need(tmp_path):
    """It starts beside every component: pyarrow loads pandas when it is given a list."""
    store = SqliteStore.open(tmp_path / "home/store", "B1")
    await write(store, 3)
    await store.run(lambda unit: unit.journal.append(note("other")))
    await store.close()
    (tmp_path / "b.toml").write_text('component = "broker"\nhome = "home"\n')
    run = run_python(
        "-c",
        "import sys; from pathlib import Path; "
        "from gridpost.assembly.journal_export import export_job; "
        f"(done,) = export_job(Path({str(tmp_path / 'b.toml')!r}), None, 100).once(); "
        "print(done.rows, {'pandas', 'gridpost.assembly.broker_configuration'} & set(sys.modules))",
    )
    assert run.stdout.split(maxsplit=1) == ["4", "set()\n"], run.stderr


async def test_segments_hold_every_row_once_and_say_so(tmp_path):
    store = SqliteStore.open(tmp_path / "store", "E1")
    await write(store, 25)
    done = only(exporter(tmp_path, rows=10).run())
    assert [(m.name.first, m.name.last) for m in done.segments] == [(1, 10), (11, 20), (21, 25)]
    assert done.lost == ()
    assert only(exporter(tmp_path).run()).segments == ()
    await store.run(lambda unit: unit.journal.append(note("later")))
    again = only(exporter(tmp_path).run())
    assert [(m.name.first, m.name.last) for m in again.segments] == [(26, 26)]
    assert await store.read(lambda unit: unit.journal.exported()) == 26
    await store.close()
    for name in segments(tmp_path):
        file = tmp_path / "landing" / name.file
        manifest = Manifest.decode((tmp_path / "landing" / name.manifest).read_bytes())
        assert manifest.name == name
        assert manifest.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
        assert manifest.octets == file.stat().st_size
        table = parquet.read_table(file)
        assert table.num_rows == manifest.rows == name.rows
        assert table["sequence"].to_pylist() == list(range(name.first, name.last + 1))


async def test_an_exporter_that_died_before_it_noted_its_progress_repeats_nothing(tmp_path):
    store = SqliteStore.open(tmp_path / "store", "E1")
    await write(store, 5)
    dying = exporter(tmp_path)
    dying._mark = lambda sequence: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        dying.run()
    await write(store, 3)
    done = only(exporter(tmp_path).run())
    await store.close()
    assert [(m.name.first, m.name.last) for m in done.segments] == [(6, 8)]


async def test_rows_that_retention_took_first_are_reported_as_lost(tmp_path):
    store = SqliteStore.open(tmp_path / "store", "E1")
    await write(store, 5)
    await store.run(lambda unit: unit.journal.prune(NOW + timedelta(days=2), timedelta(days=1)))
    await write(store, 2)
    done = only(exporter(tmp_path).run())
    await store.close()
    assert done.lost == ((1, 5),)
    assert [(m.name.first, m.name.last) for m in done.segments] == [(6, 7)]


async def test_writers_and_exporter_at_the_same_time_leave_no_gap_and_no_repeat(tmp_path):
    store = SqliteStore.open(tmp_path / "store", "E1")
    await write(store, 1)
    writing = asyncio.gather(*(write(store, 50) for _ in range(6)))
    while not writing.done():
        await asyncio.to_thread(exporter(tmp_path, rows=37).run)
    await writing
    exporter(tmp_path).run()
    await store.close()
    numbers = [n for name in segments(tmp_path) for n in range(name.first, name.last + 1)]
    assert numbers == list(range(1, 302))


async def test_what_is_written_during_an_export_waits_for_the_next(tmp_path, monkeypatch):
    store = SqliteStore.open(tmp_path / "store", "E1")
    await write(store, 3)
    loop = asyncio.get_running_loop()
    put = Landing.put

    def busy(landing, *given):
        asyncio.run_coroutine_threadsafe(write(store, 2), loop).result()
        return put(landing, *given)

    monkeypatch.setattr(Landing, "put", busy)
    found = [only(await asyncio.to_thread(exporter(tmp_path).run)) for _ in range(3)]
    assert [[(s.first, s.last) for s in segments(tmp_path)][n] for n in range(3)] == [
        (1, 3),
        (4, 5),
        (6, 7),
    ]
    assert [len(run.segments) for run in found] == [1, 1, 1]
    await store.close()


def test_a_folder_without_a_store_is_refused(tmp_path):
    with pytest.raises(Refusal) as refused:
        exporter(tmp_path)
    assert refused.value.rule is Rule.USAGE


async def test_the_command_exports_beside_a_running_component(tmp_path):
    config = tmp_path / "endpoint.toml"
    config.write_text(
        'component = "endpoint"\ncode = "E1"\nhome = "home"\n[journal]\nlanding = "landed"\n'
    )
    store = SqliteStore.open(tmp_path / "home/store", "E1")
    await write(store, 7)
    command = [*CLI, "journal", "export", "--json"]
    run = await asyncio.to_thread(
        subprocess.run,
        [*command, "--config", str(config)],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    result = json.loads(run.stdout)
    assert (result["component"], result["segments"], result["rows"]) == ("E1", 1, 7)
    following = await asyncio.create_subprocess_exec(
        *command,
        *("--config", str(config), "--follow", "--interval", "0.1"),
        env=environment(),
        stdout=subprocess.PIPE,
    )
    landing = tmp_path / "landed"
    await write(store, 3)
    # This process is the component: it has the store open, and it has something to do for as long
    # as the exporter counts.
    while not list(landing.glob("*-0000000000000010.json")):
        hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 100_000)
        await asyncio.sleep(0.05)
    hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 500_000)
    following.terminate()
    out, _ = await following.communicate()
    await store.close()
    assert following.returncode == 0
    result = json.loads(out)
    assert result["rows"] == 3
    assert result["component_cpu_seconds"] > 0
    assert result["exporter_cpu_seconds"] > 0
    share = result["exporter_cpu_seconds"] / result["component_cpu_seconds"]
    assert result["cpu_share"] == pytest.approx(share, abs=0.01, rel=0.1)


def test_the_exporter_gives_way_to_its_component(tmp_path):
    from support.child import run_python

    config = tmp_path / "endpoint.toml"
    config.write_text('component = "endpoint"\ncode = "E1"\nhome = "home"\n')
    SqliteStore.open(tmp_path / "home/store", "E1")
    run = run_python(
        "-c",
        "import os; from pathlib import Path; from gridpost.assembly.journal_export import export_job; "
        f"export_job(Path({str(config)!r}), None, 9); "
        "print(os.nice(0), os.sched_getscheduler(0) == os.SCHED_BATCH)",
    )
    assert run.stdout.split() == ["19", "True"], run.stderr


async def test_what_a_component_used_is_known_only_while_it_runs(tmp_path):
    assert component_cpu_seconds(tmp_path) is None
    store = SqliteStore.open(tmp_path / "store", "E1")
    assert component_cpu_seconds(tmp_path / "store") > 0
    await store.close()
    assert component_cpu_seconds(tmp_path / "store") is None


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b'{"form": 2}', b'{"form": 1, "name": {}}', b"\xff", base64.b64encode(b"x")],
)
def test_a_manifest_that_is_none_is_told_apart(data):
    with pytest.raises(ValueError, match=r"."):
        Manifest.decode(data)


@pytest.mark.parametrize("name", ["segment.E1.x.1-2.parquet", "other.parquet", "segment.E1", ""])
def test_other_files_are_no_segments(name):
    assert SegmentName.parse(name) is None


async def test_every_stream_of_a_shared_database_is_exported_without_gaps(tmp_path, postgres):
    """Two processes write at the same time; some of what they write is rolled back."""
    from gridpost.stores.postgres.settings import PostgresSettings
    from gridpost.stores.segments.postgres import PostgresExporter
    from support.client_store import open_client_store

    settings = PostgresSettings(postgres.dsn)
    stores = [open_client_store(settings, "CD-1") for _ in range(2)]
    landing = Landing(place(tmp_path / "landing"))

    async def fill(store, turns: int) -> None:
        for turn in range(turns):

            def work(unit, turn: int = turn) -> None:
                unit.journal.append(note(f"row {turn}"))
                if turn % 3 == 0:
                    raise Refusal(Rule.USAGE, "changed my mind")

            with contextlib.suppress(Refusal):
                await store.run(work)

    writing = asyncio.gather(*(fill(store, 30) for store in stores for _ in range(2)))
    while not writing.done():
        await asyncio.to_thread(PostgresExporter(settings, landing, lambda: NOW, rows=7).run)
    await writing
    await asyncio.to_thread(PostgresExporter(settings, landing, lambda: NOW).run)
    again = await asyncio.to_thread(PostgresExporter(settings, landing, lambda: NOW).run)
    for store in stores:
        await store.close()
    assert {run.identity.component for run in again} == {"CD-1"}
    assert all(run.segments == () for run in again)
    numbers: dict[str, list[int]] = {}
    for name in segments(tmp_path):
        numbers.setdefault(name.instance, []).extend(range(name.first, name.last + 1))
    assert {tuple(found) for found in numbers.values()} == {tuple(range(1, 41))}
    assert set(numbers) == {store.identity.instance for store in stores}


async def test_rows_of_a_slow_transaction_are_exported_only_when_it_has_ended(tmp_path, postgres):
    """It holds numbers that others might get: nothing behind them is exported before."""
    from gridpost.stores.postgres.journal import PostgresJournal, streams
    from gridpost.stores.segments.postgres import PostgresExporter
    from support.client_store import open_client_store

    patient = postgres.settings(lock_timeout=timedelta(seconds=120))
    store = open_client_store(patient, "CD-1")
    exporter = PostgresExporter(patient, Landing(place(tmp_path / "landing")), lambda: NOW)

    def landed() -> list[tuple[int, int]]:
        return [(name.first, name.last) for name in segments(tmp_path)]

    async def append(text: str) -> int:
        return await store.run(lambda unit: unit.journal.append(note(text)))

    for ends in ("ROLLBACK", "COMMIT"):
        first = await append("before")
        with postgres.connect() as slow:
            slow.execute("SET search_path TO gridpost")
            slow.execute("BEGIN")
            (stream,) = streams(slow)
            assert PostgresJournal(slow, stream).append(note("slow")) == first + 1
            waiting = asyncio.create_task(append("behind it"))
            running = asyncio.create_task(asyncio.to_thread(exporter.run))
            await eventually(lambda last=first: landed()[-1:] == [(last, last)])
            assert not waiting.done()
            slow.execute(ends)
        # What was undone gives its number back.
        assert await waiting == first + (1 if ends == "ROLLBACK" else 2)
        await running
        await asyncio.to_thread(exporter.run)
        assert landed()[-1][1] == await waiting
    await store.close()
    numbers = [n for first, last in landed() for n in range(first, last + 1)]
    assert numbers == list(range(1, 6))


async def test_a_segment_compresses_what_it_tells_and_counts_the_nulls_of_everything_else(tmp_path):
    async with contextlib.AsyncExitStack() as resources:
        store = SqliteStore.open(tmp_path / "store", "E1")
        resources.push_async_callback(store.close)
        await write(store, 20)
    only(exporter(tmp_path).run())
    (file,) = (tmp_path / "landing").glob("*.parquet")
    group = parquet.read_metadata(file).row_group(0)
    columns = {c.path_in_schema: c for c in (group.column(n) for n in range(group.num_columns))}
    for path, column in columns.items():
        tells = path.partition(".")[0] in {*SCHEMA.names[:6], TrackingRow.KIND}
        assert (column.compression == "ZSTD") is tells, path
        # The pipeline leaves out columns by this count.
        assert (column.statistics.null_count == 20) or tells, path
    tracking = TrackingRow.KIND
    assert not columns[f"{tracking}.message_id"].has_dictionary_page
    assert columns[f"{tracking}.state"].has_dictionary_page
