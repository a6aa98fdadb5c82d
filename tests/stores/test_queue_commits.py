"""What shares a commit of the embedded queues, and in which order it is done."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gridpost.stores.sqlite.queues import QueueSettings, SqliteQueueStore
from support.queues import SetClock, commit, put, queued


async def stored(store: SqliteQueueStore, count: int) -> None:
    await asyncio.gather(*(commit(store, put()) for _ in range(count)))


async def test_what_one_turn_of_the_loop_submits_is_one_commit(tmp_path: Path) -> None:
    commits: list[int] = []
    store = SqliteQueueStore.open(
        tmp_path, "B1", SetClock(), observe=lambda seconds, operations: commits.append(operations)
    )
    await stored(store, 50)
    assert commits == [50]
    await store.close()


async def test_a_commit_has_no_more_than_its_settings_allow(tmp_path: Path) -> None:
    commits: list[int] = []
    settings = QueueSettings(max_group=8, max_group_octets=5_000)
    store = SqliteQueueStore.open(
        tmp_path, "B1", SetClock(), settings, lambda seconds, operations: commits.append(operations)
    )
    await stored(store, 20)
    assert commits == [8, 8, 4]
    commits.clear()
    await asyncio.gather(*(commit(store, put(message=queued(bytes(2_000)))) for _ in range(4)))
    assert commits == [3, 1]
    await store.close()


async def test_other_work_finds_what_was_submitted_before_it(tmp_path: Path) -> None:
    store = SqliteQueueStore.open(tmp_path, "B1", SetClock())
    under_way = asyncio.ensure_future(commit(store, put()))
    await asyncio.sleep(0)
    rows = await store.journal(lambda journal: journal.read(0, 10))
    assert len(rows) == 1
    await under_way
    await store.close()


async def test_what_was_submitted_just_before_the_end_is_stored(tmp_path: Path) -> None:
    store = SqliteQueueStore.open(tmp_path, "B1", SetClock())
    waiting = [asyncio.ensure_future(commit(store, put())) for _ in range(3)]
    await asyncio.sleep(0)
    await store.close()
    await asyncio.gather(*waiting)
    store = SqliteQueueStore.open(tmp_path, "B1", SetClock())
    assert len(await store.read("E2", 0, 10, 1_000)) == 3
    await store.close()
