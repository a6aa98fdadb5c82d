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


def render(run: dict[str, Any], *, date: str, commit: str, machine: str) -> str:
    records = sorted(run["records"], key=lambda record: record["test"])
    failed = sum(record["outcome"] != "passed" for record in records)
    lines = [
        "# Last full soak",
        "",
        "`make soak` runs the tests that `make test` runs in small, at their full numbers, and writes",
        "this page. `GRIDPOST_SEED` repeats a run.",
        "",
        "| | |",
        "|---|---|",
        f"| date | {date} |",
        f"| commit | `{commit}` |",
        f"| scale | {run['scale']:g} |",
        f"| seed | {run['seed']} |",
        f"| machine | {machine} |",
        f"| result | {len(records) - failed} of {len(records)} passed |",
        "",
        "| test | outcome | seconds | counts |",
        "|---|---|---:|---|",
    ]
    for record in records:
        counts = ", ".join(f"{name} {_number(value)}" for name, value in record["counts"].items())
        lines.append(
            f"| `{record['test']}` | {record['outcome']} | {record['seconds']:.1f} | {counts} |"
        )
    return "\n".join(lines) + "\n"


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,}"


def current_commit() -> str:
    """The commit that was tested; says so when the tree held changes beside it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout

    changed = git("status", "--porcelain", "--untracked-files=no").strip()
    return git("rev-parse", "--short=12", "HEAD").strip() + (" with changes" if changed else "")


def main(report: str, page: str) -> None:
    Path(page).write_text(
        render(
            json.loads(Path(report).read_text(encoding="utf-8")),
            date=datetime.now(UTC).strftime("%Y-%m-%d"),
            commit=current_commit(),
            machine=f"{platform.machine()}, Python {platform.python_version()}",
        ),
        encoding="utf-8",
    )
    print(f"wrote {page}")


if __name__ == "__main__":
    main(*sys.argv[1:])
