"""Envelopes in the lake: response times and service levels per verb and noun, and what was carried."""

from __future__ import annotations

import duckdb
import pytest

from gridpost.pipeline.key_figures import overview
from gridpost.pipeline.report import render
from gridpost.pipeline.silver.envelopes import read_payload

from .bus_journal import AGREED, METER, envelope_rows, readings

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def duck(world):
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        files = f"{world.lake.archive}/*/segment.*.parquet"
        connection.execute(
            "CREATE VIEW envelope AS SELECT time, component, e.* FROM (SELECT time, component, "
            f"envelope AS e FROM read_parquet('{files}') WHERE kind = 'envelope')"
        )
        connection.execute(
            "CREATE VIEW request AS SELECT *, nullif(milliseconds, -1) AS took FROM envelope "
            "WHERE direction = 'in' AND message_kind = 'request'"
        )
        yield connection


def rows(world, layer: str, name: str) -> list[dict]:
    return world.lake.table(layer, name).read().to_pylist()


def test_every_envelope_has_one_row_with_what_was_measured(world):
    found = rows(world, "silver", "envelopes")
    told = envelope_rows()
    assert len(found) == len(told)
    by_id = {row["message_id"]: row for row in found}
    for row in told:
        there = by_id[row.message_id]
        assert (there["direction"], there["message_kind"]) == (row.direction, row.message_kind)
        assert (there["verb"], there["noun"], there["size"]) == (row.verb, row.noun, row.size)
        assert there["correlation_id"] == row.correlation_id
        assert there["milliseconds"] == (None if row.milliseconds < 0 else row.milliseconds)
        assert there["result"] == (row.result or None)
        assert there["codes"] == (row.codes.split() or None)
        assert there["has_content"] is (row.content is not None)
    assert "content" not in found[0]


def test_response_times_are_those_of_duckdb(world, duck):
    expected = duck.execute(
        "SELECT date_trunc('hour', time), context, verb, noun, count(*), count(took), "
        "count(*) FILTER (took <= sla_milliseconds), count(*) FILTER (took > sla_milliseconds), "
        "quantile_disc(took, 0.5), quantile_disc(took, 0.95), quantile_disc(took, 0.99), max(took), "
        "sum(size)::BIGINT FROM request GROUP BY ALL"
    ).fetchall()
    names = ("hour", "context", "verb", "noun", "requests", "answered", "within", "beyond")
    names += ("p50_ms", "p95_ms", "p99_ms", "longest_ms", "octets")
    found = rows(world, "gold", "response_times")
    assert sorted(tuple(row[n] for n in names) for row in found) == sorted(expected)
    assert sum(row["requests"] - row["answered"] for row in found) == 2


@pytest.mark.req("100-6.14-a")
def test_service_levels_hold_or_not_per_verb_and_noun(world, duck):
    found = {(r["agreement"], r["day"], r["verb"]): r for r in rows(world, "gold", "response_sla")}
    verdicts = set()
    for agreement in AGREED:
        limit = agreement.within_seconds * 1000
        where = "true" if agreement.verb == "*" else f"verb = '{agreement.verb}'"
        expected = duck.execute(
            f"SELECT time::date, verb, count(*), count(*) FILTER (took <= {limit}), "
            f"quantile_disc(took, {agreement.percent / 100}) FROM request WHERE {where} GROUP BY ALL"
        ).fetchall()
        assert expected
        for day, verb, requests, within, exact in expected:
            row = found.pop((agreement.name, day, verb))
            assert (row["requests"], row["within"], row["percentile_ms"]) == (
                requests,
                within,
                exact,
            )
            assert row["conforms"] == (within * 100 >= requests * agreement.percent)
            # A request that was never answered is not within anything.
            assert within < requests
            verdicts.add(row["conforms"])
    assert not found
    assert verdicts == {True, False}


def test_traffic_counts_every_kind_either_way(world, duck):
    expected = duck.execute(
        "SELECT direction, message_kind, verb, noun, nullif(result, ''), count(*), "
        "sum(size)::BIGINT FROM envelope GROUP BY ALL"
    ).fetchall()
    names = ("direction", "message_kind", "verb", "noun", "result", "envelopes", "octets")
    found = [tuple(row[n] for n in names) for row in rows(world, "gold", "envelope_traffic")]
    assert sorted(found, key=str) == sorted(expected, key=str)


def test_what_was_carried_is_a_table_where_it_is_journalled(world):
    payloads = {row["message_id"]: row for row in rows(world, "content", "envelope_payloads")}
    assert set(payloads) == {f"q{n}" for n in range(0, 60, 3) if n != 9}
    assert payloads["q12"]["element"] == "MeterReadings"
    assert payloads["q12"]["namespace"] == METER
    assert payloads["q12"]["mrid"] == "M12"
    values = [r for r in rows(world, "content", "envelope_values") if r["message_id"] == "q12"]
    top = "MeterReadings/MeterReading"
    assert [(v["path"], v["value"]) for v in sorted(values, key=lambda v: v["number"])] == [
        (f"{top}/@unit", "kWh"),
        (f"{top}/Meter/mRID", "M12"),
        (f"{top}/Readings/value", "12.5"),
        (f"{top}/Readings/value", "12.75"),
    ]
    (broken,) = rows(world, "content", "envelope_quarantine")
    assert broken["message_id"] == "q9"
    assert broken["problem"]


def test_the_report_and_the_console_show_them(world):
    known = overview(world.lake)
    assert [(r["verb"], r["requests"]) for r in known["response_times"]] == [
        ("create", 20),
        ("get", 40),
    ]
    assert {r["agreement"] for r in known["response_sla"]} == {a.name for a in AGREED}
    assert "Bus: response times" in render(world.lake)


@pytest.mark.parametrize(
    ("data", "payloads", "problem"),
    [(readings(1), 1, False), (b"", 0, True), (b"<a/>", 0, True), (b"<!DOCTYPE a><a/>", 0, True)],
)
def test_only_envelopes_have_payloads(data, payloads, problem):
    found = read_payload(data)
    assert len(found["payloads"]) == payloads
    assert bool(found["problem"]) is problem
