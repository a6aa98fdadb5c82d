"""Every figure against the answers of the generator, and against DuckDB on the same segments."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

import duckdb
import pytest

from gridpost.pipeline.key_figures import key_figures
from gridpost.pipeline.percentile import bucket, percentile

pytestmark = pytest.mark.timeout(900)

# The same questions in the words of another engine, from the segments themselves.
MATRIX = ("day", "message_type", "route", "sender_code", "receiver_code")
VIEWS = """
CREATE VIEW journal AS SELECT * FROM (
  SELECT *, row_number() OVER (PARTITION BY component, instance, sequence ORDER BY filename) AS copy
  FROM read_parquet('{archive}/*/segment.*.parquet', filename=true)) WHERE copy = 1;
CREATE VIEW sent AS SELECT message.*, component, time FROM journal
  WHERE kind = 'message' AND message.side = 'sent';
CREATE VIEW came AS SELECT message.*, component, time FROM journal
  WHERE kind = 'message' AND message.side = 'received';
CREATE VIEW told AS SELECT tracking.*, component, sequence, time FROM journal WHERE kind = 'tracking';
CREATE VIEW story AS SELECT message_id,
  min(time) FILTER (event = 'ACCEPT') AS accepted_at,
  min(time) FILTER (event = 'DELIVERY_ACKNOWLEDGED' AND moved) AS delivered_at,
  min(time) FILTER (event = 'RECEIVE_ACKNOWLEDGED' AND moved) AS received_at,
  min(time) FILTER (event = 'CONFIRM') AS confirmed_at,
  arg_max(state, (time, sequence)) FILTER (side = 'sent' AND moved) AS state,
  arg_max(state, (time, sequence)) FILTER (side = 'received' AND moved) AS recipient_state,
  arg_max(event, (time, sequence)) FILTER (side = 'sent' AND moved AND state = 'FAILED') AS failure,
  arg_max(detail, (time, sequence)) FILTER (side = 'sent' AND moved AND state = 'FAILED') AS reason,
  count(*) FILTER (event = 'ARRIVED_AGAIN') AS again,
  count(*) FILTER (event IN ('TRANSFERRED', 'TRANSFER_FAILED')) AS attempts
  FROM told GROUP BY message_id;
CREATE VIEW message AS SELECT s.*, t.* EXCLUDE (message_id),
  CASE t.state WHEN 'DELIVERING' THEN 'ACCEPTED' ELSE t.state END AS status,
  came.time AS arrived_at, came.fingerprint AS came_fingerprint, came.message_id AS came_id
  FROM sent s JOIN story t USING (message_id) LEFT JOIN came USING (message_id);
"""


@pytest.fixture(scope="module")
def duck(world):
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for statement in VIEWS.format(archive=world.lake.archive).split(";"):
        if statement.strip():
            connection.execute(statement)
    yield connection
    connection.close()


def rows(world, layer: str, table: str) -> list[dict]:
    found = world.lake.table(layer, table).read()
    return [] if found is None else found.to_pylist()


def by_id(world, layer: str, table: str) -> dict[str, dict]:
    return {row["message_id"]: row for row in rows(world, layer, table)}


def test_every_message_has_one_row_with_the_known_story(world):
    found = by_id(world, "silver", "messages")
    assert len(rows(world, "silver", "messages")) == len(found) == len(world.journals.answers)
    for message_id, answer in world.journals.answers.items():
        row = found[message_id]
        assert row["status"] == answer.status, answer
        assert row["recipient_state"] == answer.recipient_state, answer
        assert row["accepted_at"] == answer.accepted_at
        assert row["delivered_at"] == answer.delivered_at
        assert row["received_at"] == answer.received_at
        assert (row["sender_code"], row["receiver_code"]) == (answer.sender, answer.receiver)
        assert row["sent_segment"].startswith(f"segment.{answer.sender}.")
        assert row["day"] == row["generated"].date()


def test_reconciliation_has_the_known_verdicts(world):
    found = by_id(world, "gold", "reconciliation")
    for message_id, answer in world.journals.answers.items():
        assert found[message_id]["verdict"] == answer.verdict, (answer, found[message_id])
    reasons = Counter(row["reason"] for row in found.values() if row["verdict"] == "mismatch")
    assert "the fingerprints differ" in reasons or not any(
        a.story == "altered" and a.verdict == "mismatch" for a in world.journals.answers.values()
    )


def test_a_journal_with_a_hole_decides_nothing_against_anybody(world):
    """While a segment of E2 was missing, nothing that E2 might have said was a mismatch."""
    assert world.first_gaps == 1
    assert world.lake.table("gold", "gaps").pointer().rows == 0
    final = Counter(answer.verdict for answer in world.journals.answers.values())
    assert world.first_verdicts.get("mismatch", 0) <= final["mismatch"]
    assert world.first_verdicts["not yet known"] > final["not yet known"]


def test_the_audit_gives_each_proof_its_verdict_and_reason(world):
    found = by_id(world, "gold", "proof_audit")
    for message_id, answer in world.journals.answers.items():
        row = found[message_id]
        assert row["verdict"] == answer.proof, (answer, row)
        assert (row["origin_reason"] + row["receipt_reason"] == "") == (answer.proof == "proven")
    # Signatures are about the fingerprint: only a document that was journalled can show this.
    reasons = [row["origin_reason"] for row in found.values()]
    assert reasons.count("the document is not the one of the fingerprint") == 1
    assert world.audit["verdicts"] == dict(
        Counter(answer.proof for answer in world.journals.answers.values())
    )


def test_delivery_figures_are_those_of_duckdb(world, duck):
    expected = duck.execute(
        """SELECT date_trunc('hour', accepted_at), message_type, route, sender_code, receiver_code,
        count(*), count(came_id), count(*) FILTER (status = 'ACCEPTED'),
        count(*) FILTER (status = 'DELIVERED'), count(*) FILTER (status = 'RECEIVED'),
        count(*) FILTER (status = 'FAILED'), count(*) FILTER (status = 'FAILED' AND failure = 'EXPIRE'),
        sum(size), sum(attempts) FROM message GROUP BY ALL"""
    ).fetchall()
    counts = "sent arrived accepted delivered received failed expired octets transfer_attempts"
    names = ["hour", *MATRIX[1:], *counts.split()]
    found = [tuple(row[name] for name in names) for row in rows(world, "gold", "delivery")]
    assert sorted(found) == sorted(expected)


def test_latency_histograms_and_percentiles_are_those_of_duckdb(world, duck):
    pairs = {
        "accept_to_deliver": "delivered_at - accepted_at",
        "deliver_to_receive": "received_at - delivered_at",
        "accept_to_receive": "received_at - accepted_at",
        "recipient_arrive_to_confirm": "confirmed_at - arrived_at",
        "cross_clock_accept_to_arrive": "arrived_at - accepted_at",
    }
    found: dict[str, Counter] = {}
    totals: Counter = Counter()
    for row in rows(world, "gold", "latency_histograms"):
        found.setdefault(row["measure"], Counter())[row["bucket"]] += row["messages"]
        totals[row["measure"]] += row["total_us"]
    for measure, span in pairs.items():
        start, end = span.split(" - ")[1], span.split(" - ")[0]
        spans = [
            us
            for (us,) in duck.execute(
                f"SELECT epoch_us({end}) - epoch_us({start}) FROM message WHERE {end} IS NOT NULL "
                f"AND {start} IS NOT NULL"
            ).fetchall()
        ]
        assert found[measure] == Counter(map(bucket, spans)), measure
        assert totals[measure] == sum(spans)
    # Clocks that disagree show as negative values, which are counted.
    assert found["cross_clock_accept_to_arrive"][-1] > 0
    assert found["accept_to_deliver"][-1] == 0
    (figures,) = key_figures(world.lake)
    for share, of in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        (exact,) = duck.execute(
            f"SELECT quantile_disc(epoch_us(delivered_at) - epoch_us(accepted_at), {of}) FROM message"
        ).fetchone()
        ours = figures[f"accept_to_deliver_{share}_ms"] * 1000
        assert exact <= ours * 1.001
        assert ours <= exact * 1.126
        assert ours == pytest.approx(percentile(found["accept_to_deliver"], of), rel=1e-3)


def test_each_hour_has_the_percentiles_of_its_own_histogram(world):
    histograms: dict[tuple, Counter] = {}
    key = ("hour", "message_type", "route", "sender_code", "receiver_code")
    for row in rows(world, "gold", "latency_histograms"):
        if row["measure"] == "accept_to_deliver":
            group = histograms.setdefault(tuple(row[k] for k in key), Counter())
            group[row["bucket"]] += row["messages"]
    for row in rows(world, "gold", "delivery"):
        counts = histograms.get(tuple(row[k] for k in key), {})
        for share, of in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
            assert row[f"accept_to_deliver_{share}_us"] == percentile(counts, of)


def test_the_other_figures_are_those_of_duckdb(world, duck):
    matrix = duck.execute(
        "SELECT generated::date, sender_code, receiver_code, message_type, route, count(*), sum(size)"
        " FROM message GROUP BY ALL"
    ).fetchall()
    names = ["day", "sender_code", "receiver_code", "message_type", "route", "messages", "octets"]
    assert sorted(matrix) == sorted(
        tuple(row[n] for n in names) for row in rows(world, "gold", "traffic_matrix")
    )
    failures = duck.execute(
        "SELECT generated::date, message_type, sender_code, receiver_code, failure, reason, count(*)"
        " FROM message WHERE status = 'FAILED' GROUP BY ALL"
    ).fetchall()
    names = ["day", "message_type", "sender_code", "receiver_code", "event", "reason", "messages"]
    assert sorted(failures) == sorted(
        tuple(row[n] for n in names) for row in rows(world, "gold", "failure_reasons")
    )
    again = duck.execute("SELECT message_id, again FROM message WHERE again > 0").fetchall()
    assert sorted(again) == sorted(
        (row["message_id"], row["arrived_again"]) for row in rows(world, "gold", "duplicates")
    )
    used = duck.execute(
        "SELECT generated::date, signing_certificate_id, count(*) FROM message GROUP BY ALL"
    ).fetchall()
    assert sorted(used) == sorted(
        (row["day"], row["certificate_id"], row["messages"])
        for row in rows(world, "gold", "certificate_usage")
        if row["role"] == "signing"
    )
    waiting = duck.execute(
        "SELECT message_id, component FROM message WHERE status IN ('ACCEPTED', 'DELIVERED') UNION "
        "SELECT message_id, receiver_code FROM message WHERE recipient_state = 'WAITING'"
    ).fetchall()
    assert sorted(waiting) == sorted(
        (row["message_id"], row["seen_by"]) for row in rows(world, "gold", "waiting")
    )
    marks = duck.execute(
        "SELECT component, max(time), max(sequence) FROM journal GROUP BY 1"
    ).fetchall()
    assert sorted(marks) == sorted(
        (row["component"], row["time"], row["sequence"]) for row in rows(world, "gold", "marks")
    )


def test_every_row_of_gold_says_up_to_when_it_is_complete(world, duck):
    """The least mark of the journals behind it, but not after its day; DuckDB knows the marks."""
    marks = dict(duck.execute("SELECT component, max(time) FROM journal GROUP BY 1").fetchall())
    tables = {t.name.removeprefix("gold.") for t in world.lake.tables() if t.name[:5] == "gold."}
    assert len(tables) >= 17
    of_day = 0
    for name in tables:
        for row in rows(world, "gold", name):
            parties = ("component", "sender_code", "receiver_code", "seen_by")
            behind = row.get("journals") or [row[code] for code in parties if code in row]
            least = min(marks[code] for code in behind if code in marks)
            if "day" in row:
                end = datetime.combine(row["day"], time(), UTC) + timedelta(days=1)
                of_day += end < least
                least = min(least, end)
            assert row["complete_up_to"] == least, (name, row)
    assert of_day > 0
    # Together: no journal that still has to say something about one of the days is behind.
    (total,) = key_figures(world.lake)
    figures = rows(world, "gold", "delivery")
    open_ = [r["complete_up_to"] for r in figures if r["complete_up_to"].time() != time()]
    assert datetime.fromisoformat(total["complete_up_to"]) == min(open_)
    by_day = {row["day"]: row["complete_up_to"] for row in key_figures(world.lake, ["day"])}
    assert all(by_day.values())
    assert any(str(date.fromisoformat(day) + timedelta(days=1)) in at for day, at in by_day.items())


def test_service_levels_are_exact(world, duck):
    conditions = {
        "prices": ("delivered_at", "message_type LIKE 'A44%'", 95, 2_000_000),
        "everything": ("received_at", "true", 50, 500_000),
    }
    found = {(row["agreement"], row["day"]): row for row in rows(world, "gold", "sla")}
    for name, (end, where, percent, limit) in conditions.items():
        span = f"epoch_us({end}) - epoch_us(accepted_at)"
        expected = duck.execute(
            f"SELECT generated::date, count(*), count(*) FILTER ({span} <= {limit}), "
            f"quantile_disc({span}, {percent / 100}) FROM message WHERE ({where}) AND "
            f"({end} IS NOT NULL OR status = 'FAILED') GROUP BY 1"
        ).fetchall()
        assert expected
        for day, messages, within, exact in expected:
            row = found[name, day]
            assert (row["messages"], row["within"]) == (messages, within)
            assert row["percentile_us"] == exact
            assert row["conforms"] == (within * 100 >= messages * percent)


def test_people_are_only_known_by_a_keyed_hash(world):
    actors = [row["actor"] for row in rows(world, "silver", "administration")]
    assert len(actors) == 5
    assert all(re.fullmatch("[0-9a-f]{32}", actor) for actor in actors)
    import hashlib
    import hmac

    key = world.lake.secret("pseudonyms")
    expected = {
        hmac.new(key, f"operator.of.{code}".encode(), hashlib.sha256).hexdigest()[:32]
        for code in ("E1", "E2", "E3", "E4", "B1")
    }
    assert set(actors) == expected


def test_quality_counts_rows_in_out_and_repeated(world):
    sums = [row for row in rows(world, "bronze", "quality") if row["component"] is None]
    total = sum(len(lines) for lines in world.journals.rows.values())
    assert sum(row["rows_out"] for row in sums) == total
    repeated = sum(row["repeated"] for row in sums)
    assert repeated == sum(
        len(lines) for who, lines in world.journals.rows.items() if who.component == "E3"
    )
    assert all(
        row["rows_in"] == row["rows_out"] + row["quarantined"] + row["repeated"] for row in sums
    )
    assert sum(done["repeated"] for done in world.rounds) == repeated


def test_bronze_holds_every_journal_row_once_with_its_lineage(world):
    found = (
        world.lake.table("bronze", "journal")
        .read(["component", "instance", "sequence", "segment", "stream", "batch"])
        .to_pylist()
    )
    keys = Counter((row["component"], row["instance"], row["sequence"]) for row in found)
    assert set(keys.values()) == {1}
    assert set(keys) == {
        (who.component, who.instance, number)
        for who, lines in world.journals.rows.items()
        for number in range(1, len(lines) + 1)
    }
    assert all(row["segment"].startswith(f"segment.{row['component']}.") for row in found)
    assert not list(world.lake.admitted.rglob("*.parquet"))


def test_tables_have_the_columns_that_their_readers_rely_on(world):
    """`tables.txt` is the contract: columns come to it, at the end; none goes and none changes."""
    lines = Path(__file__).with_name("tables.txt").read_text(encoding="utf-8").splitlines()
    promised = dict(line.split(": ", 1) for line in lines)
    found = {
        table.name: ", ".join(f"{field.name} {field.type}" for field in content.schema)
        for table in world.lake.tables()
        if not table.name.startswith("bronze.") and (content := table.read()) is not None
    }
    assert set(found) == set(promised)
    for name, columns in found.items():
        assert columns == promised[name], name
    # Never doubles for what is counted, measured in energy or paid.
    assert not [name for name, columns in found.items() if re.search(r"\b(double|float)", columns)]


def test_a_build_without_news_writes_nothing(world):
    before = {table.name: table.pointer() for table in world.lake.tables()}
    done = world.pipeline.build(world.settings)
    assert done["days"] == []
    assert sum(done["rows"].values()) == 0
    after = {table.name: table.pointer() for table in world.lake.tables()}
    same = {name for name in before if before[name] == after[name]}
    assert set(before) - same <= {"gold.marks", "gold.gaps", "bronze.runs"}


def test_the_report_stands_alone(world, tmp_path):
    from gridpost.pipeline.report import write_report

    done = write_report(world.lake, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert done["octets"] == len(page.encode())
    assert "<svg" in page
    assert not re.search(r"""(?:src|href|url)\s*[=(]\s*["']?\s*(?:https?:)?//""", page)
    assert "<script" not in page
    assert f"<b>{len(world.journals.answers):,}</b>messages" in page
    assert page.count("<th>complete up to</th>") >= 7
    assert "octets per million messages" in page
    assert "CPU seconds per million messages" in page


def test_what_the_commands_cost_is_summed_up(world):
    from gridpost.pipeline.runs import totals

    known = totals(world.lake)
    assert {"ingest", "build", "verify"} <= set(known)
    assert known["ingest"]["rows"] == sum(len(lines) for lines in world.journals.rows.values())
    # Spark is a process below this one: its time counts too.
    assert all(row["cpu_seconds"] > 0 for row in known.values())
    assert known["build"]["runs"] >= 2


def test_the_commands_that_need_no_spark_read_the_same_lake(world, tmp_path):
    from typer.testing import CliRunner

    from gridpost.cli.pipeline import app

    run = CliRunner().invoke(app, ["kpi", "--lake", str(world.lake.root), "--json", "--by", "day"])
    assert run.exit_code == 0, run.output
    figures = json.loads(run.stdout)["figures"]
    assert sum(row["messages"] for row in figures) == len(world.journals.answers)
    assert all(row["complete_up_to"] for row in figures)
    out = tmp_path / "r.html"
    run = CliRunner().invoke(app, ["report", "--lake", str(world.lake.root), "--out", str(out)])
    assert run.exit_code == 0
    assert out.is_file()
    points = tmp_path / "points.csv"
    where = ["market", "--lake", str(world.lake.root), "--json"]
    run = CliRunner().invoke(app, [*where, "--out", str(points)])
    assert run.exit_code == 0, run.output
    told = json.loads(run.stdout)
    assert [(row["document_mrid"], row["revision"]) for row in told["documents"]] == [("D0", 6)]
    assert (told["points"], len(points.read_text().splitlines())) == (23, 24)
    run = CliRunner().invoke(app, [*where, "--known-at", "2026-01-01"])
    assert json.loads(run.stdout)["documents"] == []
    assert CliRunner().invoke(app, [*where, "--known-at", "soon"]).exit_code == 2
    run = CliRunner().invoke(app, [*where, "--out", str(tmp_path / "points.xls")])
    assert "end the name with .parquet or .csv" in str(run.exception)


def test_alerts_come_and_go(world):
    from gridpost.pipeline.alerts import changes, evaluate

    marks = [row["time"] for row in rows(world, "gold", "marks")]
    quiet = evaluate(world.lake, max(marks), 3600)
    assert {key for key in quiet if key.startswith("silent/")} == {
        "silent/E4",
        "silent/CMM",
        "silent/BUS1",
    }
    mismatches = {
        f"mismatch/{i}" for i, a in world.journals.answers.items() if a.verdict == "mismatch"
    }
    assert mismatches <= set(quiet)
    later = evaluate(world.lake, max(marks) + timedelta(hours=2), 3600)
    raised = [line for line in changes(quiet, later) if line["raised"]]
    assert {line["alert"] for line in raised} == {"silent component"}
    assert {line["component"] for line in raised} == {"E1", "E2", "E3", "B1"}
    assert [line["raised"] for line in changes(later, {})].count(False) == len(later)


def test_continuous_rounds_tell_what_stands_and_what_went(world):
    told: list[dict] = []
    rounds: list[float] = []

    def stop(seconds: float) -> bool:
        rounds.append(seconds)
        return len(rounds) == 2

    world.pipeline.continuous(
        world.settings, (), stop, interval=7.0, silence=3600.0, told=told.append
    )
    assert rounds == [7.0, 7.0]
    kinds = Counter(line["alert"] for line in told)
    assert kinds["silent component"] == 7
    assert kinds["mismatch"] == sum(
        answer.verdict == "mismatch" for answer in world.journals.answers.values()
    )
    # The second round found the same: nothing is told twice.
    assert all(line["raised"] for line in told)
