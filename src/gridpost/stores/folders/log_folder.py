"""OUT_LOG: one log for each accepted file, appended to at each event (503 Table 48)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path

from gridpost.stores.folders.disk import flush_folder, off_loop, refusing
from gridpost.wire.fssf.names import log_name

_TAIL = 64 * 1024


class DiskLogFolder:
    """core.shared_folders.LogFolder."""

    def __init__(self, folder: Path, pool: Executor, mode: int = 0o640) -> None:
        self._folder = folder
        self._pool = pool
        self._mode = mode
        self._chosen: set[str] = set()
        """Given out, but perhaps not on the disk yet."""

    async def choose(self, out_name: str) -> str:
        name = await off_loop(self._pool, lambda: self._free(out_name))
        while name in self._chosen:
            # Two files of one name are accepted at the same time.
            name = await off_loop(self._pool, lambda: self._free(out_name))
        self._chosen.add(name)
        return name

    async def append(self, lines: Sequence[tuple[str, bytes]]) -> None:
        await off_loop(self._pool, lambda: self._append(lines))
        self._chosen.difference_update(name for name, _ in lines)

    def remember(self, names: Sequence[str]) -> None:
        self._chosen.update(names)

    def _free(self, out_name: str) -> str:
        def taken(count: int) -> bool:
            name = log_name(out_name, count)
            return name in self._chosen or os.path.lexists(self._folder / name)

        if not taken(0):
            return log_name(out_name)
        # Applications that number nothing use one name for ever: double, then halve.
        above = 1
        while taken(above):
            above *= 2
        below = above // 2
        while above - below > 1:
            middle = (above + below) // 2
            below, above = (middle, above) if taken(middle) else (below, middle)
        return log_name(out_name, above)

    def _append(self, lines: Sequence[tuple[str, bytes]]) -> None:
        by_name: dict[str, list[bytes]] = {}
        for name, line in lines:
            by_name.setdefault(name, []).append(line)
        created = False
        with refusing(self._folder):
            for name, texts in by_name.items():
                created |= self._append_one(self._folder / name, texts)
            if created:
                flush_folder(self._folder)

    def _append_one(self, path: Path, lines: list[bytes]) -> bool:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, self._mode)
        with open(descriptor, "r+b", buffering=0) as file:
            size = os.fstat(descriptor).st_size
            before = os.pread(descriptor, _TAIL, max(0, size - _TAIL))
            # Half a line: we stopped, or the disk was full, in the middle of it.
            whole = before[: before.rfind(b"\n") + 1]
            if len(whole) < len(before):
                os.ftruncate(descriptor, size - (len(before) - len(whole)))
            present = set(whole.splitlines(keepends=True))
            text = b"".join(line for line in lines if line not in present)
            view = memoryview(text)
            while view:
                view = view[file.write(view) or 0 :]
            os.fsync(descriptor)
        return size == 0
