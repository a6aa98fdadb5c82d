"""Crashes at every step of a fixed story: `python -m stores.crash_points FOLDER`.

A step is any call that could be the last one before a crash: each SQL statement, each write, sync,
rename and removal of a content file, and the moment before callers are told. The story is played
once for each step in a forked process that ends just before it; then the store is judged. Prints one
line of JSON: the steps that were reached, and what was found wrong.

This process itself has no threads, so that it may fork.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NoReturn
from uuid import UUID

from gridpost.core import identifiers
from gridpost.stores.sqlite import SqliteStore
from gridpost.stores.sqlite.committer import Committer
from stores.crash_work import SETTINGS, Writer, check, content_of

CRASHED = 42


async def story(folder: Path, tell: Callable[[str], None]) -> None:
    """Everything that a store can do to its disk, one after the other."""
    store = SqliteStore.open(folder, "E1", SETTINGS)
    writer = Writer(store, tell)
    await asyncio.gather(writer.receive(), writer.send(), writer.fail(), writer.receive())
    await _until_large(writer.receive, lambda: writer.waiting[-1].message_id)
    await _until_large(writer.send, lambda: writer.sending[-1][0].message_id)
    while writer.waiting:
        await writer.confirm()
    while writer.sending:
        await writer.settle()
    await writer.purge()
    await store.close()
    store = SqliteStore.open(folder, "E1", SETTINGS)
    await Writer(store, tell).receive()
    await store.close()


async def _until_large(work: Callable[[], Any], last: Callable[[], str]) -> None:
    while True:
        await work()
        if len(content_of(last())) > SETTINGS.file_threshold:
            return


def play(folder: Path, crash_at: int, says: int) -> NoReturn:
    """In a process of its own: the story until just before step `crash_at`."""
    steps = 0

    def step(name: str) -> None:
        nonlocal steps
        steps += 1
        if steps == crash_at:
            _say(says, f"step {name}")
            os._exit(CRASHED)

    def stepping(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*arguments: Any, **options: Any) -> Any:
            step(name)
            return function(*arguments, **options)

        return stepped

    connect = sqlite3.connect

    def connect_stepping(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **options)
        connection.set_trace_callback(lambda sql: step(f"sql {' '.join(sql.split())[:30]}"))
        return connection

    sqlite3.connect = connect_stepping  # type: ignore[assignment]
    # The same ids and therefore the same contents each time.
    ids = Random(1)
    identifiers.uuid4 = lambda: UUID(int=ids.getrandbits(128), version=4)  # type: ignore[assignment]
    for name in ("write", "fsync", "rename", "unlink"):
        setattr(os, name, stepping(name, getattr(os, name)))
    Committer._resolve = stepping("resolve", Committer._resolve)  # type: ignore[method-assign]
    asyncio.run(story(folder, lambda line: _say(says, line)))
    os._exit(0)


def _say(pipe: int, line: str) -> None:
    # Not os.write, which is a step of the story.
    os.writev(pipe, [f"{line}\n".encode()])


def forked(child: Callable[[int], None]) -> tuple[int, list[str]]:
    """Run a function in a process of its own: its exit code, and the lines it has said."""
    listens, says = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(listens)
            child(says)
            os._exit(0)
        except BaseException:
            os.writev(says, [traceback.format_exc().encode()])
            os._exit(1)
    os.close(says)
    with os.fdopen(listens, encoding="utf-8") as pipe:
        lines = pipe.read().splitlines()
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), lines


def main(base: Path, first: int, stride: int) -> None:
    names: dict[str, int] = {}
    wrong: list[str] = []
    crash_at = first
    while True:
        folder = base / f"crash-{crash_at}"
        code, said = forked(partial(play, folder, crash_at))
        steps = [line for line in said if line.startswith("step ")]
        told = [line for line in said if not line.startswith("step ")]
        if code not in (0, CRASHED):
            wrong.append(f"at {crash_at}: the story failed: {' / '.join(said[-5:])}")
        elif folder.exists():
            verdict, why = forked(partial(judge, folder, told))
            if verdict != 0:
                wrong.append(f"at {crash_at} before {steps}: {' / '.join(why[-3:])}")
        shutil.rmtree(folder, ignore_errors=True)
        if code != CRASHED:
            break
        name = steps[0].removeprefix("step ")
        names[name] = names.get(name, 0) + 1
        crash_at += stride
    print(json.dumps({"steps": names, "last": crash_at, "wrong": wrong}))


def judge(folder: Path, told: list[str], says: int) -> None:
    """In a process of its own, because an open store has threads."""
    asyncio.run(check(folder, told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
