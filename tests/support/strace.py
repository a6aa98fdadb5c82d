"""System calls of a child process, in the order in which the kernel saw them begin and end."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.child import environment

_LINE = re.compile(r"(?P<pid>\d+) +(?P<call>\w+)\((?P<rest>.*)")
_RESUMED = re.compile(r"(?P<pid>\d+) +<\.\.\. (?P<call>\w+) resumed>(?P<rest>.*)")
_UNFINISHED = "<unfinished ...>"
_DESCRIPTOR = re.compile(r"\d+<([^>]*)>")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_RESULT = re.compile(r"= (-?\d+)")

available = shutil.which("strace") is not None


@dataclass(frozen=True, slots=True)
class Call:
    """A system call at the moment it begins, or at the moment it returns (`result` is set)."""

    name: str
    path: str
    texts: tuple[str, ...]
    result: int | None = None


def trace(
    arguments: Sequence[str], calls: str, log: Path, *options: str, timeout: float = 120
) -> tuple[subprocess.CompletedProcess[str], list[Call]]:
    """Run `python` with these arguments and record the named calls of all its threads."""
    command = ["strace", "-f", "-y", "-s", "64", "-o", str(log), "-e", f"trace={calls}", *options]
    done = subprocess.run(
        [*command, sys.executable, *arguments],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=timeout,
        check=False,
    )
    return done, list(read(log.read_text(errors="replace").splitlines()))


def read(lines: Sequence[str]) -> Iterator[Call]:
    """Every call twice: as it begins and as it ends."""
    pending: dict[str, Call] = {}
    for line in lines:
        if resumed := _RESUMED.match(line):
            begun = pending.pop(resumed["pid"], None)
            if begun is not None:
                yield _ended(begun, resumed["rest"])
        elif begins := _LINE.match(line):
            rest = begins["rest"]
            descriptor = _DESCRIPTOR.match(rest)
            call = Call(
                begins["call"], descriptor[1] if descriptor else "", tuple(_QUOTED.findall(rest))
            )
            yield call
            if rest.rstrip().endswith(_UNFINISHED):
                pending[begins["pid"]] = call
            else:
                yield _ended(call, rest)


def _ended(call: Call, rest: str) -> Call:
    results = _RESULT.findall(rest)
    return Call(call.name, call.path, call.texts, int(results[-1]) if results else -1)
