"""Every MUST row of a broker is shown on a broker that runs, over AMQP, or a reason is written down."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.broker_proofs import COMPONENT, proven_by_processes
from support.register import Pair, Registers, read_registers

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def registers() -> Registers:
    return read_registers(ROOT / "conformance")


@pytest.fixture(scope="module")
def proven(registers: Registers) -> set[Pair]:
    return set(proven_by_processes(ROOT / "tests", registers))


def demanded(registers: Registers) -> set[Pair]:
    return {
        Pair(row.id, COMPONENT)
        for row in registers.rows.values()
        if row.id.startswith("503-") and row.level == "MUST" and COMPONENT in row.components
    }


def test_every_row_of_a_broker_is_shown_over_amqp_or_says_why_not(
    registers: Registers, proven: set[Pair]
) -> None:
    open_rows = (
        demanded(registers) - proven - registers.elsewhere.keys() - registers.exceptions.keys()
    )
    assert not open_rows


def test_no_reason_is_given_for_a_row_that_is_shown_over_amqp(
    registers: Registers, proven: set[Pair]
) -> None:
    assert not registers.elsewhere.keys() & proven


def test_reasons_are_given_for_rows_of_a_broker_only(registers: Registers) -> None:
    assert registers.elsewhere.keys() <= demanded(registers)


def test_a_test_without_a_broker_process_or_without_amqp_shows_nothing(
    registers: Registers, tmp_path: Path
) -> None:
    marked = (
        "import pytest\n{}\n@pytest.mark.req('503-T22-a')\nasync def test_it(broker):\n    {}\n"
    )
    process = "from support.broker_process import BrokerNetwork"
    for name, imports, body in (
        ("none", "", "await broker.connect('E1')"),
        ("silent", process, "assert broker.port"),
        ("speaks", process, "await broker.connect('E1')"),
        ("helped", f"{process}\nasync def go(b):\n    await b.raw('E1')\n", "await go(broker)"),
    ):
        (tmp_path / f"test_{name}.py").write_text(marked.format(imports, body))
    found = proven_by_processes(tmp_path, registers)
    assert found == {
        Pair("503-T22-a", COMPONENT): {"test_speaks.py::test_it", "test_helped.py::test_it"}
    }
