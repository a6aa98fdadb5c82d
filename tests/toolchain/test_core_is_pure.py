"""`gridpost.core` imports the standard library alone, does no I/O and never reads the clock."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

CORE = Path(__file__).resolve().parents[2] / "src/gridpost/core"
FILES = sorted(CORE.rglob("*.py"))

# Of the standard library, what reads the clock or the world outside.
OUTSIDE = {
    "asyncio",
    "http",
    "io",
    "multiprocessing",
    "os",
    "pathlib",
    "select",
    "shutil",
    "signal",
}
OUTSIDE |= {"socket", "sqlite3", "ssl", "subprocess", "tempfile", "threading", "time"}
CLOCK = {"now", "utcnow", "today"}


def impurities(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = ["." * node.level + (node.module or "")]
        else:
            modules = []
        for module in modules:
            top = module.partition(".")[0]
            ours = module.startswith("gridpost.core.") or module == "gridpost.core"
            if top in OUTSIDE or not (ours or top in sys.stdlib_module_names):
                yield f"line {node.lineno}: imports {module}"
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            owner, _, name = called.rpartition(".")
            # `clock.now()` asks a port; `datetime.now()` and `date.today()` ask the machine.
            if name in CLOCK and owner.rpartition(".")[2] in {"date", "datetime"}:
                yield f"line {node.lineno}: reads the clock with {called}()"
            if called in {"open", "print", "input", "uuid1", "uuid.uuid1"}:
                yield f"line {node.lineno}: calls {called}()"


def test_there_is_a_core_to_look_at():
    assert FILES


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_core_files_are_pure(file):
    assert list(impurities(ast.parse(file.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from time import monotonic",
        "import lxml.etree",
        "from gridpost.wire import xml",
        "from . import delivery",
        "import datetime; datetime.datetime.now()",
        "from datetime import datetime, UTC; datetime.now(UTC)",
        "from datetime import date; date.today()",
        "from datetime import datetime; datetime.utcnow()",
        "open('x')",
    ],
)
def test_what_is_not_pure_is_found(source):
    assert list(impurities(ast.parse(source)))


def test_asking_the_clock_port_is_pure():
    assert list(impurities(ast.parse("def f(clock): return clock.now()"))) == []
