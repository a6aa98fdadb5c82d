"""One work and its reply, for a look at the system calls: `python -m stores.durable_writer FOLDER HOW FLAW`.

HOW is what is put: `small`, `staged` or `direct`. FLAW is `none`, or a mistake that the test of the
order must find; flaws exist only here.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from pathlib import Path

from gridpost.stores.sqlite import SqliteStore, database
from gridpost.stores.sqlite.bodies import Bodies
from support.boxed import box_entry, put

SIZES = {"small": 3_000, "staged": 300_000, "direct": 300_000}


def flaw(name: str) -> None:
    if name == "synchronous=OFF":
        database.WRITER_PRAGMAS = (*database.WRITER_PRAGMAS, "PRAGMA synchronous = OFF")
    elif name == "synchronous=NORMAL":
        database.WRITER_PRAGMAS = (*database.WRITER_PRAGMAS, "PRAGMA synchronous = NORMAL")
    elif name == "folder not synced":
        Bodies._sync_folder = lambda self: None  # type: ignore[method-assign]
    elif name == "file not synced":
        fsync = os.fsync
        os.fsync = lambda fd: fsync(fd) if stat.S_ISDIR(os.fstat(fd).st_mode) else None
    elif name not in ("none", "reply too early"):
        raise SystemExit(f"no flaw {name}")


async def main(folder: Path, how: str, name: str) -> None:
    flaw(name)
    store = SqliteStore.open(folder, "E1")
    content = b"c" * SIZES[how]
    os.write(1, b"begin\n")
    if name == "reply too early":
        os.write(1, b"accepted\n")
    if how == "staged":
        async with store.staged(content) as document:
            await store.run(lambda unit: put(unit, box_entry(), document))
    else:
        await store.run(lambda unit: put(unit, box_entry(), content))
    os.write(1, b"accepted\n")
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
