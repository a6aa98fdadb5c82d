"""The soak plugin: sizes that follow GRIDPOST_SCALE, seeds, and the page that a full run writes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from support import soak_page

TESTS = """
def test_big(soak):
    soak.report(kills=soak.scale(500), rows=soak.scale(3), seed_used=soak.seed)

def test_small(): pass

def test_broken(soak):
    soak.report(kills=1)
    assert False
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    pytester.makeconftest('pytest_plugins = ["support.soak"]')
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    pytester.makepyfile(test_it=TESTS)
    for name in ("GRIDPOST_SCALE", "GRIDPOST_SEED"):
        monkeypatch.delenv(name, raising=False)

    def run(*options: str, **environment: str) -> tuple[pytest.RunResult, dict]:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        result = pytester.runpytest("--soak-report=out/soak.json", *options)
        report = pytester.path / "out/soak.json"
        return result, json.loads(report.read_text()) if report.exists() else {}

    return run


def test_sizes_are_scaled_by_a_tenth_and_the_run_says_so(run):
    result, report = run(GRIDPOST_SEED="7")
    result.stdout.fnmatch_lines(["gridpost: scale 0.1 (GRIDPOST_SCALE), seed 7 (GRIDPOST_SEED)"])
    big = report["records"][0]
    assert big["counts"] == {"kills": 50, "rows": 1, "seed_used": 7}
    assert big["outcome"] == "passed"


def test_a_full_run_takes_the_full_numbers(run):
    _, report = run(GRIDPOST_SCALE="1")
    assert report["scale"] == 1
    assert report["records"][0]["counts"]["kills"] == 500


def test_only_tests_that_ask_for_a_size_are_selected_as_soak_tests(run):
    result, report = run("-m", "soak")
    result.assert_outcomes(passed=1, failed=1, deselected=1)
    assert [record["outcome"] for record in report["records"]] == ["passed", "failed"]


@pytest.mark.parametrize(
    "environment",
    [{"GRIDPOST_SCALE": "much"}, {"GRIDPOST_SCALE": "0"}, {"GRIDPOST_SEED": "x"}],
)
def test_a_scale_or_seed_that_is_no_number_is_wrong_usage(run, environment):
    result, _ = run(**environment)
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_the_page_holds_counts_seed_date_commit_and_what_failed(run):
    _, report = run(GRIDPOST_SEED="7", GRIDPOST_SCALE="1")
    page = soak_page.render("", report, date="2030-01-02", commit="abc", machine="m")
    assert "1 of 2 passed" in page
    assert "| `test_it.py::test_broken` | failed |" in page
    (big,) = (line for line in page.splitlines() if "test_big" in line)
    assert "| passed |" in big
    assert "| 2030-01-02 | `abc` | 7 | kills 500" in big


def test_a_part_keeps_what_other_tests_have_shown():
    one = {"test": "t::a", "outcome": "failed", "seconds": 1, "counts": {"kills": 5}}
    other = {"test": "t::b", "outcome": "passed", "seconds": 2, "counts": {}}
    run = {"scale": 1, "seed": 7, "records": [one, other]}
    page = soak_page.render("", run, date="2030-01-02", commit="abc", machine="m")
    again = {"scale": 1, "seed": 8, "records": [{**one, "outcome": "passed"}]}
    page = soak_page.render(page, again, date="2030-01-03", commit="def", machine="m")
    assert "2 of 2 passed" in page
    assert "| `t::a` | passed | 1.0 | 2030-01-03 | `def` | 8 | kills 5 |" in page
    assert "| `t::b` | passed | 2.0 | 2030-01-02 | `abc` | 7 |  |" in page


def test_a_test_that_has_got_parameters_stands_there_once_for_each():
    def page(before: str, *tests: str) -> str:
        records = [{"test": t, "outcome": "passed", "seconds": 1, "counts": {}} for t in tests]
        run = {"scale": 1, "seed": 7, "records": records}
        return soak_page.render(before, run, date="2030-01-02", commit="abc", machine="m")

    now = page(page("", "t::a", "t::b"), "t::a[few]", "t::a[all]")
    assert "3 of 3 passed" in now
    assert "`t::a`" not in now
    assert "`t::b`" in page(now, "t::a[few]")


def test_the_page_is_written_from_the_file_and_names_the_commit(tmp_path: Path, capsys):
    report, page = tmp_path / "soak.json", tmp_path / "soak.md"
    record = {"test": "t::a", "outcome": "passed", "seconds": 1, "counts": {}}
    report.write_text(json.dumps({"scale": 1, "seed": 7, "records": [record]}))
    soak_page.main(str(report), str(page))
    head = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert head in page.read_text()


def test_a_small_run_is_not_written_down(tmp_path: Path):
    report, page = tmp_path / "soak.json", tmp_path / "soak.md"
    report.write_text(json.dumps({"scale": 0.1, "seed": 7, "records": []}))
    with pytest.raises(SystemExit):
        soak_page.main(str(report), str(page))
    assert not page.exists()
