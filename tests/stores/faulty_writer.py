"""Writes while its disk fails: `python -m stores.faulty_writer FOLDER COUNT`, or `found` for COUNT.

Says `accepted ID` or `refused ID RULE` for each message; with `found`, the ids that are in the store.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from gridpost.core.message_box import Search
from gridpost.core.refusal import Refusal
from gridpost.stores.sqlite import Settings, SqliteStore
from support.boxed import box_entry, put


async def main(folder: Path, count: str) -> None:
    store = SqliteStore.open(folder, "E1", Settings(file_threshold=10_000))
    if count == "found":
        for entry in await store.read(lambda unit: unit.box.search(Search(), 1_000).entries):
            content = await store.read(
                lambda unit, e=entry: unit.box.content(e.delivery.side, e.message_id)
            )
            assert content is not None
            assert len(content) == entry.size
            print(entry.message_id)
    else:
        for number in range(int(count)):
            size = 20_000 if number % 4 == 0 else 3_000
            entry = box_entry(size=size)
            try:
                async with store.staged(b"x" * size) as document:
                    await store.run(lambda unit, e=entry, d=document: put(unit, e, d))
            except Refusal as refusal:
                print("refused", entry.message_id, refusal.rule.name)
            else:
                print("accepted", entry.message_id)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
