"""What the code of the pipeline must not do, so that it also runs on Spark Connect."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src/gridpost/pipeline"
FORBIDDEN = {"sparkContext", "_jvm", "_jsc", "_jdf", "rdd", "toJavaRDD", "SparkContext"}


def offences(text: str) -> list[str]:
    return [
        name
        for node in ast.walk(ast.parse(text))
        for name in (getattr(node, "attr", None), getattr(node, "id", None))
        if name in FORBIDDEN
    ]


@pytest.mark.parametrize("file", sorted(SOURCE.rglob("*.py")), ids=lambda f: f.name)
def test_only_what_spark_connect_has_is_used(file):
    assert offences(file.read_text(encoding="utf-8")) == []


def test_the_rule_finds_what_it_looks_for():
    assert offences("spark.sparkContext.parallelize([1])\nframe.rdd.map(f)") == [
        "sparkContext",
        "rdd",
    ]


def test_reading_tables_needs_no_spark():
    from support.child import run_python

    run = run_python(
        "-c",
        "import sys, gridpost.pipeline.key_figures, gridpost.pipeline.report; "
        "assert not any(m.startswith('pyspark') for m in sys.modules)",
    )
    assert run.returncode == 0, run.stderr


# Only here: the door itself, where Java and Python are looked for, and what the kernel says of processes.
DOORS = {"files.py", "session.py", "runs.py"}
KERNEL = {"shutil", "fcntl", "tempfile", "glob", "open"}


def kernel_calls(text: str) -> list[str]:
    """Ways to files that pyarrow does not know of. `os.PathLike` and `os.urandom` open none."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and node.id in KERNEL:
            found.append(node.id)
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "os"
            and node.attr not in ("PathLike", "cpu_count", "urandom")
        ):
            found.append(f"os.{node.attr}")
    return found


@pytest.mark.parametrize(
    "file", sorted(f for f in SOURCE.rglob("*.py") if f.name not in DOORS), ids=lambda f: f.name
)
def test_files_are_reached_through_one_door(file):
    assert kernel_calls(file.read_text(encoding="utf-8")) == []


def test_the_rule_of_the_door_finds_what_it_looks_for():
    text = "os.stat(x)\nshutil.rmtree(x)\nopen(x)\nos.urandom(2)"
    assert sorted(kernel_calls(text)) == ["open", "os.stat", "shutil"]
