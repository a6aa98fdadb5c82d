"""Python processes that tests start, observe and kill."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def environment() -> dict[str, str]:
    """A child imports the package and the tests as this process does, installed or not."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])}


def run_python(*arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run `python` with these arguments to its end."""
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=timeout,
        check=False,
    )
