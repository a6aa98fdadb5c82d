"""What the bench of the pipeline says of sizes: how rates and memory grow, and that a disk is too small."""

from __future__ import annotations

import shutil
from collections import namedtuple

import pytest

from gridpost.bench import pipeline
from gridpost.bench._pipeline_sizes import Sized

Usage = namedtuple("Usage", "total used free")
FOUND = [Sized(10_000_000, 17_000_000, 34.0, 1500.0), Sized(50_000_000, 85_000_000, 200.0, 1650.0)]


def test_a_disk_that_is_too_small_is_told_and_what_fits_is_measured(tmp_path, monkeypatch, capsys):
    room = 2 * pipeline.OCTETS_PER_EVENT * 1000
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(room, 0, room))
    assert pipeline._size(tmp_path, 5000) == (1000, 1000)
    said = capsys.readouterr()
    assert said.out == ""
    assert "too small for 5,000 tracking events: 1,000 are measured" in said.err
    assert pipeline._size(tmp_path, 900) == (900, 1000)
    assert capsys.readouterr().err == ""


def test_the_largest_size_is_compared_with_the_smallest_and_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "CHART", str(tmp_path / "sizes.svg"))
    figures, ratios = pipeline._scaling(FOUND)
    assert figures["ingest_rows_per_s_at_10000000"] == 500_000
    assert figures["driver_peak_mib_at_50000000"] == 1650
    assert ratios["rows_per_s_largest_vs_smallest"] == pytest.approx(0.85)
    assert ratios["driver_memory_largest_vs_smallest"] == pytest.approx(1.1)
    chart = (tmp_path / "sizes.svg").read_text()
    assert chart.startswith("<svg ")
    for one in FOUND:
        assert f"{one.tracking_events:,} tracking events" in chart
        assert f"{one.rows_per_s:,.0f} rows/s" in chart


def test_sizes_follow_the_number_of_events():
    assert pipeline.SIZES == [pipeline.EVENTS, 5 * pipeline.EVENTS]


def test_one_size_alone_has_no_ratio():
    assert pipeline._scaling(FOUND[:1])[1] == {}
