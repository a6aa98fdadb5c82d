"""An IN folder: received documents appear complete or not at all (503 cl. 11.2.3)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path

from gridpost.core.refusal import Refusal
from gridpost.core.shared_folders import Received
from gridpost.stores.folders.disk import failed, flush_folder, off_loop, write_new
from gridpost.wire.fssf.names import temporary_name


class DiskInFolder:
    """core.shared_folders.InFolder."""

    def __init__(self, folder: Path, pool: Executor, mode: int = 0o640) -> None:
        self._folder = folder
        self._pool = pool
        self._mode = mode

    async def write(self, files: Sequence[Received]) -> Sequence[Refusal | None]:
        return await off_loop(self._pool, lambda: self._write(files))

    def _write(self, files: Sequence[Received]) -> list[Refusal | None]:
        outcomes = [self._write_one(file) for file in files]
        try:
            # One flush for all names: only after it may anybody believe that they stay.
            flush_folder(self._folder)
        except OSError as error:
            refusal = failed(self._folder, error)
            return [outcome or refusal for outcome in outcomes]
        return outcomes

    def _write_one(self, file: Received) -> Refusal | None:
        target = self._folder / file.name
        arriving = self._folder / temporary_name(file.name)
        try:
            if os.path.lexists(target):
                # Complete since its rename: we stopped before its message was confirmed.
                with suppress(OSError):
                    arriving.unlink()
                return None
            write_new(arriving, file.content, self._mode)
            arriving.rename(target)
        except OSError as error:
            return failed(self._folder, error)
        return None
