"""The commands of the README run as they are written there.

Those of the demonstration are run by test_demo.py, which takes them from the README as well.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.network import CLI, environment
from support.readme import PROGRAM, ROOT, commands

HERE = [words for words in commands() if words[0] == PROGRAM and words[1] != "demo"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readme")


@pytest.mark.parametrize("words", HERE, ids=" ".join)
def test_a_command_of_the_readme_does_what_it_says(folder: Path, words: list[str]) -> None:
    """One after the other, in one folder: `init` comes first."""
    run = subprocess.run(
        [*CLI, *words[1:]], capture_output=True, text=True, check=False, cwd=folder,
        env=environment(),
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    if words[1] == "init":
        assert (folder / "mine" / "README.md").exists()


@pytest.mark.parametrize(
    ("target", "recipe"), [("demo", ".venv/bin/gridpost demo"), ("test", "scripts/run_tests.sh")]
)
def test_the_two_make_targets_run_what_they_promise(target: str, recipe: str) -> None:
    assert ["make", target] in commands()
    told = subprocess.run(
        ["make", "--dry-run", target], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert recipe in told.stdout


def test_no_command_of_the_readme_is_left_untried() -> None:
    known = [words for words in commands() if words[:2] == [PROGRAM, "demo"]]
    rest = [words for words in commands() if words not in known and words not in HERE]
    assert len(known) == 2
    assert len(HERE) >= 4
    assert rest == [["make", "demo"], ["make", "test"]]
