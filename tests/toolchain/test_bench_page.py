"""docs/bench.md: what was measured beside what is wanted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bench_page(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import bench_page

    yield bench_page
    sys.modules.pop("bench_page")


def result(name: str, **ratios: float) -> dict:
    return {"name": name, "machine": {"cores": 2}, "figures": {"p50_ms": 12.5}, "ratios": ratios}


def test_a_result_says_whether_it_meets_its_goal(bench_page) -> None:
    text = bench_page.section(
        result("broker", msgs_1k_vs_rabbitmq=1.2, deep_vs_shallow=0.5, other=3.0),
        date="2030-01-02",
        commit="abc",
    )
    assert "| `msgs_1k_vs_rabbitmq` | 1.2 | at least 1 | met |" in text
    assert "| `deep_vs_shallow` | 0.5 | at least 0.8 | **missed** |" in text
    assert "| `other` | 3 |  |  |" in text
    assert "2030-01-02, `abc`, cores 2" in text


def test_an_upper_limit_is_missed_above_it(bench_page) -> None:
    for value, verdict in ((250.0, "met"), (250.1, "**missed**")):
        text = bench_page.section(
            {"name": "delivery", "machine": {}, "figures": {"p50_ms": value}, "ratios": {}},
            date="",
            commit="",
        )
        assert f"| `p50_ms` | {value:,.6g} | at most 250 | {verdict} |" in text


def test_a_bench_that_did_not_run_keeps_its_section(bench_page) -> None:
    page = bench_page.render("", {n: f"\n## {n}\n\nfirst {n}\n" for n in ("seal", "box")})
    renewed = bench_page.render(page, {"seal": "\n## seal\n\nsecond seal\n"})
    assert "first box" in renewed
    assert "second seal" in renewed
    assert "first seal" not in renewed
    assert renewed.index("## box") < renewed.index("## seal")
    assert bench_page.render(renewed, {}) == renewed
