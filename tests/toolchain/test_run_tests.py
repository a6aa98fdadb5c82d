"""scripts/run_tests.sh: what fails beside others runs once more, alone, and is named."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STEADY = "def test_steady(): pass\n"
BROKEN = "def test_broken(): assert False\n"
UNSTABLE = """
from pathlib import Path

def test_unstable():
    seen = Path("seen")
    if not seen.exists():
        seen.touch()
        assert False
"""


@pytest.fixture
def run(tmp_path: Path):
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/run_tests.sh", tmp_path / "scripts")
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\ntestpaths = ["tests"]\n')
    (tmp_path / "tests").mkdir()
    # The tests that run this one hand their own settings down.
    ours = ("PYTEST_", "COV_", "COVERAGE_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(ours)} | {"WORKERS": "1"}

    def run(*options: str, **files: str) -> subprocess.CompletedProcess[str]:
        for name, text in files.items():
            (tmp_path / f"tests/test_{name}.py").write_text(text)
        return subprocess.run(
            [tmp_path / "scripts/run_tests.sh", *options],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_all_pass_at_once(run, tmp_path: Path) -> None:
    done = run(steady=STEADY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "UNSTABLE" not in done.stdout
    assert not (tmp_path / "var/unstable.txt").exists()


def test_one_that_passes_alone_is_named(run, tmp_path: Path) -> None:
    done = run(steady=STEADY, unstable=UNSTABLE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "UNSTABLE" in done.stdout
    kept = (tmp_path / "var/unstable.txt").read_text()
    assert kept == "tests/test_unstable.py::test_unstable\n"


def test_one_that_fails_alone_too_fails_the_build(run, tmp_path: Path) -> None:
    done = run(steady=STEADY, unstable=UNSTABLE, broken=BROKEN)
    assert done.returncode == 1
    assert "1 failed, 1 passed" in done.stdout
    assert not (tmp_path / "var/unstable.txt").exists()


def test_what_is_not_a_failed_test_fails_the_build(run) -> None:
    done = run(broken="import nothing_like_this\n")
    assert done.returncode == 2, done.stdout + done.stderr
    assert run("--no-such-option").returncode == 4


def test_too_little_coverage_is_not_forgiven_with_an_unstable_test(run, tmp_path: Path) -> None:
    (tmp_path / "thing.py").write_text("def covered(): return 1\n\n\ndef never():\n    return 2\n")
    test = UNSTABLE + "    import sys; sys.path.insert(0, '.'); import thing; thing.covered()\n"
    assert run("--cov=.", "--cov-fail-under=99", unstable=test).returncode == 2
