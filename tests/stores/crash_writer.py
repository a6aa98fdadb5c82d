"""A process that writes until it is killed: `python -m stores.crash_writer FOLDER SEED`.

Says `open` once it has the store, then what was confirmed, one line each.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from random import Random

from gridpost.stores.sqlite import SqliteStore, database
from stores.crash_work import SETTINGS, Writer

CLIENTS = 6

# Copy the log into the database all the time, so that many crashes happen while that goes on.
database.WRITER_PRAGMAS = (*database.WRITER_PRAGMAS, "PRAGMA wal_autocheckpoint = 20")


def tell(line: str) -> None:
    # One write: a line arrives entirely or not at all.
    os.write(1, f"{line}\n".encode())


async def main(folder: Path, seed: int) -> None:
    store = SqliteStore.open(folder, "E1", SETTINGS)
    tell("open")

    async def client(number: int) -> None:
        writer, random = Writer(store, tell), Random(seed * 100 + number)
        while True:
            await writer.anything(random)

    await asyncio.gather(*(client(number) for number in range(CLIENTS)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
