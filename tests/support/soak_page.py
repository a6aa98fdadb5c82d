"""Writes docs/soak.md from the JSON that `pytest --soak-report` leaves.

python tests/support/soak_page.py REPORT PAGE
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HEAD = """# Last full soaks

`make soak` runs the tests that `make test` runs in small, at their full numbers, and writes this page: of
each test the last full run. `make soak ARGS=tests/stores` runs and renews a part; `GRIDPOST_SEED` repeats
a run.

"""
COLUMNS = """| test | outcome | seconds | date | commit | seed | counts |
|---|---|---:|---|---|---:|---|
"""


def render(before: str, run: dict[str, Any], *, date: str, commit: str, machine: str) -> str:
    """The page after this run: tests that did not run keep the line they had."""
    lines = {_test_of(line): line for line in before.splitlines() if line.startswith("| `")}
    for record in run["records"]:
        # A test that has parameters now, or has lost them, is not two tests.
        name = record["test"].partition("[")[0]
        for other in [o for o in lines if o.partition("[")[0] == name]:
            if ("[" in other) != ("[" in record["test"]):
                del lines[other]
        counts = ", ".join(f"{name} {_number(value)}" for name, value in record["counts"].items())
        lines[record["test"]] = (
            f"| `{record['test']}` | {record['outcome']} | {record['seconds']:.1f} "
            f"| {date} | `{commit}` | {run['seed']} | {counts} |"
        )
    passed = sum("| passed |" in line for line in lines.values())
    return (
        f"{HEAD}{passed} of {len(lines)} passed; the last ran on {machine} at scale {run['scale']:g}.\n\n"
        + COLUMNS
        + "".join(f"{lines[test]}\n" for test in sorted(lines))
    )


def _test_of(line: str) -> str:
    return line.split("`")[1]


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,}"


def current_commit() -> str:
    """The commit that was tested; says so when the tree held changes beside it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout

    changed = git("status", "--porcelain", "--untracked-files=no").strip()
    return git("rev-parse", "--short=12", "HEAD").strip() + (" with changes" if changed else "")


def main(report: str, page: str) -> None:
    target = Path(page)
    run = json.loads(Path(report).read_text(encoding="utf-8"))
    if run["scale"] < 1:
        sys.exit(f"a soak at scale {run['scale']:g} is not written down")
    target.write_text(
        render(
            target.read_text(encoding="utf-8") if target.exists() else "",
            run,
            date=datetime.now(UTC).strftime("%Y-%m-%d"),
            commit=current_commit(),
            machine=f"{platform.machine()}, Python {platform.python_version()}",
        ),
        encoding="utf-8",
    )
    print(f"wrote {page}")


if __name__ == "__main__":
    main(*sys.argv[1:])
