"""Contents of a node lie on disk once from the first byte on, and nothing remains of what was refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import pytest

from gridpost.stores.sqlite import arriving as arriving_module
from gridpost.stores.sqlite.arriving import Arriving
from gridpost.stores.sqlite.bodies import Bodies
from gridpost.stores.sqlite.node_store import IN_ROWS, SqliteNodeStore
from support.directory_process import TestRoot
from support.old_network import TestNode

LARGE = os.urandom(3 * IN_ROWS + 7)


def test_a_small_content_never_touches_the_disk(tmp_path: Path) -> None:
    bodies = Bodies(tmp_path, 100)
    arriving = bodies.arriving()
    arriving.write(b"a" * 60)
    arriving.write(memoryview(b"b" * 40))
    assert os.listdir(tmp_path) == []
    assert bodies.adopt(arriving) == b"a" * 60 + b"b" * 40


def test_a_large_content_is_the_file_that_is_kept(tmp_path: Path) -> None:
    bodies = Bodies(tmp_path, 100)
    arriving = bodies.arriving()
    for start in range(0, len(LARGE), 1000):
        arriving.write(LARGE[start : start + 1000])
    (part,) = tmp_path.iterdir()
    inode = part.stat().st_ino
    staged = bodies.adopt(arriving)
    assert not isinstance(staged, bytes)
    (kept,) = tmp_path.iterdir()
    assert (kept.name, kept.stat().st_ino) == (staged.name, inode)
    assert kept.stat().st_mode & 0o777 == 0o600
    assert bodies.read(staged.name, staged.size) == LARGE
    arriving.close()  # as the reader of the request does: the file is no longer its own
    assert kept.exists()
    bodies.discard(staged)
    assert not kept.exists()


def test_a_large_content_goes_to_the_disk_while_the_rest_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mib = 1024 * 1024
    begun, real = [], arriving_module._sync_file_range

    def beginning(handle: int, start: int, count: int, flags: int) -> int:
        begun.append((start, start + count))
        return int(real(handle, start, count, flags))

    monkeypatch.setattr(arriving_module, "_sync_file_range", beginning)
    content = os.urandom(5 * mib + 11)
    bodies = Bodies(tmp_path, 100)
    arriving = bodies.arriving()
    for start in range(0, len(content), 300_000):
        arriving.write(content[start : start + 300_000])
    assert [start for start, _ in begun] == [0, *(end for _, end in begun[:-1])]
    assert begun[-1][1] > len(content) - mib - 300_000
    staged = bodies.adopt(arriving)
    assert not isinstance(staged, bytes)
    assert bodies.read(staged.name, staged.size) == content


def test_what_does_not_come_to_an_end_leaves_nothing(tmp_path: Path) -> None:
    arriving = Arriving(tmp_path, 100)
    arriving.write(LARGE)
    assert len(os.listdir(tmp_path)) == 1
    arriving.close()
    assert os.listdir(tmp_path) == []


async def test_a_part_that_a_crash_left_is_swept_at_the_start(tmp_path: Path) -> None:
    store = SqliteNodeStore.open(tmp_path, "N1")
    arriving = cast(Arriving, store.arriving())
    arriving.write(LARGE)
    folder = arriving._folder
    await store.close()
    assert len(os.listdir(folder)) == 1
    store = SqliteNodeStore.open(tmp_path, "N1")
    assert os.listdir(folder) == []
    await store.close()


async def test_refused_and_repeated_uploads_leave_no_files(tmp_path: Path) -> None:
    node = TestNode(tmp_path / "N1", "N1", TestRoot(tmp_path / "root"))
    async with node.run() as running:
        one, two = await node.endpoint("E1"), await node.endpoint("E2")
        folder = running.store._bodies.folder
        metadata, _ = await one.message(two)
        for _ in range(2):
            answer = await one.session().upload([(metadata, LARGE)])
            assert answer.uploaded == (metadata.message_id,)
            assert len(os.listdir(folder)) == 1
        other, _ = await one.message(two)
        answer = await two.session().upload([(other, LARGE)])
        assert [refused.message_id for refused in answer.refused] == [other.message_id]
        assert len(os.listdir(folder)) == 1
        ((_, content),), _ = await two.session().download()
        assert content == LARGE
