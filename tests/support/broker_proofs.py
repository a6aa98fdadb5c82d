"""Which rows of a broker are proven by a test that talks AMQP to a running one; read from the sources.

The criterion: the test, or a function of its file that it calls or is given by, uses a broker process
of `support` and speaks AMQP with it: by our client, by frames made by hand, or by a client of interop.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from support.register import Pair, RegisterError, Registers

COMPONENT = "broker"
PROCESSES = frozenset(
    {"support.broker_process", "support.edges", "support.broker_fixture", "support.network"}
)
"""Modules that start `gridpost broker run`."""
SPEAKS = frozenset(
    {
        "connect", "send", "receive", "raw", "client", "open_connection",
        "attach_producer", "attach_consumer", "INTEROP",
    }
)  # fmt: skip
"""What a test calls to speak AMQP with it, or the folder whose clients it lets speak."""


def proven_by_processes(folder: Path, registers: Registers) -> dict[Pair, set[str]]:
    """The pairs of a broker, and the tests that show them on a broker that runs."""
    found: dict[Pair, set[str]] = {}
    for file in sorted(folder.rglob("test_*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        if not PROCESSES & set(_imports(tree)):
            continue
        functions = {
            node.name: node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        for name, function in functions.items():
            if name.startswith("test_") and _uses(function, functions) & SPEAKS:
                for pair in _claims(function, registers):
                    found.setdefault(pair, set()).add(f"{file.relative_to(folder)}::{name}")
    return found


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _uses(
    function: ast.FunctionDef | ast.AsyncFunctionDef,
    functions: Mapping[str, ast.FunctionDef | ast.AsyncFunctionDef],
) -> set[str]:
    """Names that the function calls, and those that functions of its file call for it."""
    called: set[str] = set()
    waiting, seen = [function], {function.name}
    while waiting:
        current = waiting.pop()
        names = {argument.arg for argument in current.args.args}
        for node in ast.walk(current):
            if isinstance(node, ast.Call):
                called |= {_last(node.func)} - {""}
            if isinstance(node, ast.Name):
                names.add(node.id)
                called |= {node.id} & {"INTEROP"}
        for name in (names | called) & functions.keys() - seen:
            seen.add(name)
            waiting.append(functions[name])
    return called


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _claims(
    function: ast.FunctionDef | ast.AsyncFunctionDef, registers: Registers
) -> Iterator[Pair]:
    for decorator in function.decorator_list:
        if not isinstance(decorator, ast.Call) or _last(decorator.func) != "req":
            continue
        given = [k.value for k in decorator.keywords if k.arg == "component"]
        component = ast.literal_eval(given[0]) if given and _literal(given[0]) else None
        if given and component is None:
            continue
        ids = [ast.literal_eval(argument) for argument in decorator.args if _literal(argument)]
        try:
            pairs = list(registers.claim(ids, component))
        except RegisterError:
            # The plugin says so at every run.
            continue
        yield from (pair for pair in pairs if pair.component == COMPONENT)


def _literal(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant)
