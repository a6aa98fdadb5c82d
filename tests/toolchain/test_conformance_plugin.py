"""The conformance plugin, run by an inner pytest over registers of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.register import Pair, RegisterError, read_registers

HEADER = "id,clause,level,component,requirement,verify\n"
ROWS = """\
x-1,1,MUST,endpoint,One component,Look
x-2,2,MUST,endpoint+broker,Two components,Look
x-3,3,SHOULD,broker,Another,Look
"""


@pytest.fixture
def run(pytester: pytest.Pytester):
    """Runs a test file against the registers; gives the result and the ledger that was written."""
    folder = pytester.mkdir("conformance")
    (folder / "doc.csv").write_text(HEADER + ROWS)
    pytester.makeconftest('pytest_plugins = ["support.conformance"]')
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")

    def run(source: str, *options: str) -> tuple[pytest.RunResult, str]:
        pytester.makepyfile(test_it="import pytest\n" + source)
        result = pytester.runpytest("--conformance=ledger.md", "-p", "no:cacheprovider", *options)
        ledger = pytester.path / "ledger.md"
        return result, ledger.read_text() if ledger.exists() else ""

    return run


def proof(ledger: str, row: str, component: str) -> str:
    """The last cell of a pair's line."""
    [line] = [line for line in ledger.splitlines() if line.startswith(f"| {row} | {component} |")]
    return line.split("|")[-2].strip()


def test_a_passing_test_proves_its_row_and_only_that(run):
    result, ledger = run("@pytest.mark.req('x-1')\ndef test_a(): pass\n")
    assert result.ret == 0
    assert proof(ledger, "x-1", "endpoint") == "`test_it.py::test_a`"
    assert proof(ledger, "x-3", "broker") == ""
    result.stdout.fnmatch_lines(["doc * MUST *1 *0 *3", "doc * SHOULD *0 *0 *1"])


def test_tests_spread_over_processes_write_the_same_ledger(run):
    source = (
        "@pytest.mark.req('x-1')\ndef test_a(): pass\n"
        "@pytest.mark.req('x-3')\n@pytest.mark.parametrize('n', range(4))\n"
        "def test_b(n): assert n != 2\n"
    )
    assert run(source, "-n", "2")[1] == run(source, "-n", "0")[1]


def test_a_row_of_several_components_is_proven_once_for_each(run):
    _, ledger = run("@pytest.mark.req('x-2', component='broker')\ndef test_a(): pass\n")
    assert proof(ledger, "x-2", "broker") == "`test_it.py::test_a`"
    assert proof(ledger, "x-2", "endpoint") == ""


def test_one_marker_may_name_several_rows_and_a_row_may_have_several_tests(run):
    _, ledger = run(
        "@pytest.mark.req('x-2', 'x-3', component='broker')\ndef test_a(): pass\n"
        "@pytest.mark.req('x-3')\ndef test_b(): pass\n"
    )
    assert proof(ledger, "x-2", "broker") == "`test_it.py::test_a`"
    assert proof(ledger, "x-3", "broker") == "`test_it.py::test_a`<br>`test_it.py::test_b`"


def test_a_failing_test_proves_nothing_and_takes_back_what_another_proves(run):
    result, ledger = run(
        "@pytest.mark.req('x-1')\ndef test_a(): assert False\n"
        "@pytest.mark.req('x-1')\ndef test_b(): pass\n"
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert proof(ledger, "x-1", "endpoint") == ""


@pytest.mark.parametrize("phase", ["setup", "teardown"])
def test_an_error_around_a_test_counts_as_its_failure(run, phase):
    body = {"setup": "    assert False\n    yield\n", "teardown": "    yield\n    assert False\n"}
    _, ledger = run(
        f"@pytest.fixture\ndef broken():\n{body[phase]}"
        "@pytest.mark.req('x-1')\ndef test_a(broken): pass\n"
    )
    assert proof(ledger, "x-1", "endpoint") == ""


@pytest.mark.parametrize(
    "test",
    [
        "@pytest.mark.skip\ndef test_a(): pass\n",
        "def test_a(): pytest.skip('no node here')\n",
        "@pytest.mark.xfail\ndef test_a(): assert False\n",
    ],
)
def test_a_skipped_or_expectedly_failing_test_proves_nothing(run, test):
    result, ledger = run("@pytest.mark.req('x-1')\n" + test)
    assert result.ret == 0
    assert proof(ledger, "x-1", "endpoint") == ""


def test_a_skipped_case_does_not_borrow_the_proof_of_another_case(run):
    _, ledger = run(
        "@pytest.mark.parametrize('n', [\n"
        "    pytest.param(1, marks=pytest.mark.req('x-1')),\n"
        "    pytest.param(2, marks=[pytest.mark.req('x-3'), pytest.mark.skip]),\n"
        "])\ndef test_a(n): pass\n"
    )
    assert proof(ledger, "x-1", "endpoint") == "`test_it.py::test_a`"
    assert proof(ledger, "x-3", "broker") == ""


@pytest.mark.parametrize(
    ("marker", "complaint"),
    [
        ("'x-9'", "*test_it.py::test_a: 'x-9' is not a requirement of any register*"),
        ("'x-2'", "*x-2 needs component=, one of: endpoint, broker*"),
        ("'x-1', component='node'", "*x-1 does not concern 'node', only: endpoint*"),
        ("", "*req takes ids and component=*"),
        ("'x-1', components='endpoint'", "*req takes ids and component=*"),
        ("1", "*req takes ids as text*"),
    ],
)
def test_a_wrong_marker_stops_the_run_before_any_test(run, marker, complaint):
    result, ledger = run(f"@pytest.mark.req({marker})\ndef test_a(): pass\n")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([complaint])
    assert ledger == ""


def test_a_wrong_marker_stops_ordinary_runs_as_well(run, pytester):
    pytester.makepyfile("import pytest\n@pytest.mark.req('x-9')\ndef test_a(): pass\n")
    assert pytester.runpytest().ret == pytest.ExitCode.USAGE_ERROR


def test_an_exception_is_shown_with_its_reason(run, pytester):
    (pytester.path / "conformance/exceptions.csv").write_text(
        "id,component,reason\nx-2,broker,no such broker\n"
    )
    _, ledger = run("def test_a(): pass\n")
    assert proof(ledger, "x-2", "broker") == "not implemented: no such broker"
    assert "| doc | MUST | 0 | 1 | 3 |" in ledger


def test_a_row_cannot_be_excepted_and_claimed(run, pytester):
    (pytester.path / "conformance/exceptions.csv").write_text(
        "id,component,reason\nx-1,endpoint,because\n"
    )
    result, _ = run("@pytest.mark.req('x-1')\ndef test_a(): pass\n")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*x-1 (endpoint) stands in exceptions.csv and is claimed*"])


def test_the_same_run_writes_the_same_ledger(run):
    source = "@pytest.mark.req('x-1')\ndef test_a(): pass\n"
    assert run(source)[1] == run(source)[1] != ""


@pytest.mark.parametrize(
    ("exceptions", "complaint"),
    [
        ("x-9,broker,why", "'x-9' is not a requirement"),
        ("x-2,,why", "x-2 needs component="),
        ("x-1,endpoint,", "without a reason"),
        ("x-1,endpoint", "not 3 columns"),
    ],
)
def test_a_wrong_exception_is_an_error(tmp_path: Path, exceptions, complaint):
    (tmp_path / "doc.csv").write_text(HEADER + ROWS)
    (tmp_path / "exceptions.csv").write_text(f"id,component,reason\n{exceptions}\n")
    with pytest.raises(RegisterError, match=complaint):
        read_registers(tmp_path)


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ("x-1,1,MUST,endpoint,a,b\nx-1,1,MUST,endpoint,a,b\n", "twice"),
        ("x-1,1,SHALL,endpoint,a,b\n", "level 'SHALL'"),
        ("x-1,1,MUST,endpoint+,a,b\n", "component"),
        ("x-1,1,MUST,endpoint,a,b,c\n", "not 6 columns"),
        ("", "no register"),
    ],
)
def test_a_wrong_register_is_an_error(tmp_path: Path, rows, complaint):
    (tmp_path / "doc.csv").write_text(HEADER + rows)
    with pytest.raises(RegisterError, match=complaint):
        read_registers(tmp_path)


def test_the_registers_of_the_project_can_be_read():
    registers = read_registers(Path(__file__).resolve().parents[2] / "conformance")
    assert len(registers.documents) == 5
    assert list(registers.claim(["503-2-a"], "broker")) == [Pair("503-2-a", "broker")]
