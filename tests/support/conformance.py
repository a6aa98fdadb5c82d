"""pytest plugin: tests claim requirements with `@pytest.mark.req`, the run decides what is proven.

    @pytest.mark.req("503-5.3-a")
    @pytest.mark.req("503-5.4-a", "503-5.4-b", component="broker")

A wrong claim (unknown id, a component the row does not name, no component where the row names
several) stops every run, not only `pytest --conformance=PAGE`, which also writes the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ledger import FAILED, PASSED, SKIPPED, Ledger
from support.register import Pair, RegisterError, Registers, read_registers

LEDGER = pytest.StashKey[Ledger]()
CLAIMS = pytest.StashKey[list[tuple[str, str]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance")
    group.addoption(
        "--conformance",
        metavar="PAGE",
        help="print what this run proves of the registers and write the ledger to PAGE",
    )
    parser.addini("conformance_registers", "folder of the registers", "string", "conformance")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "req(*ids, component=None): the test proves these requirements of conformance/*.csv; "
        "component= says for which component, where a row names several",
    )
    try:
        registers = read_registers(config.rootpath / config.getini("conformance_registers"))
    except RegisterError as error:
        raise pytest.UsageError(f"conformance registers: {error}") from error
    ledger = config.stash[LEDGER] = Ledger(registers)
    config.pluginmanager.register(_Recorder(ledger))


def claimed_pairs(item: pytest.Item, registers: Registers) -> Iterator[Pair]:
    """The pairs that a test claims. Raises RegisterError for a claim that cannot be right."""
    for marker in item.iter_markers("req"):
        if not marker.args or set(marker.kwargs) - {"component"}:
            raise RegisterError("req takes ids and component=")
        if not all(isinstance(id_, str) for id_ in marker.args):
            raise RegisterError(f"req takes ids as text, not {marker.args!r}")
        yield from registers.claim(marker.args, marker.kwargs.get("component"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    registers = config.stash[LEDGER].registers
    wrong = []
    for item in items:
        try:
            pairs = claimed_pairs(item, registers)
            item.stash[CLAIMS] = sorted({(pair.row, pair.component) for pair in pairs})
        except RegisterError as error:
            wrong.append(f"{item.nodeid}: {error}")
    if wrong:
        raise pytest.UsageError("wrong requirement markers:\n" + "\n".join(wrong))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[None]:  # the value sent in is the report
    report = yield
    # With the report, because another process may write the ledger than the one that ran the test.
    report.claims = item.stash.get(CLAIMS, [])
    return report


class _Recorder:
    """Runs in the process that sees the reports of all tests."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._ledger.claim(report.nodeid, {Pair(*pair) for pair in getattr(report, "claims", [])})
        if report.failed:  # in any phase: a test whose teardown fails has not shown its point
            self._ledger.record(report.nodeid, FAILED)
        elif report.skipped:  # expected failures arrive here too
            self._ledger.record(report.nodeid, SKIPPED)
        elif report.when == "call":
            self._ledger.record(report.nodeid, PASSED)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: pytest.ExitCode, config: pytest.Config
) -> None:
    page, ledger = config.getoption("conformance"), config.stash[LEDGER]
    # A run that was cut short says nothing about the tests it did not reach.
    ran = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    if not page or not ran:
        return
    target = Path(page)
    target.write_text(ledger.markdown(), encoding="utf-8")
    terminalreporter.section("conformance")
    for line in ledger.table():
        terminalreporter.write_line(line)
    terminalreporter.write_line(f"ledger written to {target}")
