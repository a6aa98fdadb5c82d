"""The commands of the README, as a newcomer copies them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = ".venv/bin/gridpost"


def commands() -> list[list[str]]:
    """Every line of a code block that begins with a program; what follows two spaces explains it."""
    blocks = re.findall(r"^```\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.M | re.S)
    lines = [re.split(r" {2,}", line)[0] for block in blocks for line in block.splitlines()]
    return [shlex.split(line) for line in lines if line.startswith((PROGRAM, "make ", "gridpost"))]


def commands_of_the_readme(name: str) -> list[list[str]]:
    """The words after the program, of lines that use this command."""
    return [words[1:] for words in commands() if words[:2] == [PROGRAM, name]]
