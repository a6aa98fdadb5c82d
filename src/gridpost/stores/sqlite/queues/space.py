"""Whether there is room for new messages: free space of the disk, and size of the store itself.

Both marks leave a reserve. Below them nothing new is taken, while deliveries, which need a little
room before they give some back, go on.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

from gridpost.core.queues import Space

_LOOK_SECONDS = 0.25


class SpaceWatch:
    """Looks at most four times a second. `measure` runs in the committer, `look` in the loop."""

    def __init__(self, folder: Path, *, min_free: int, max_used: int) -> None:
        self.min_free = min_free
        self.max_used = max_used
        self._folder = folder
        self._file_octets = 0
        self._row_octets = 0
        self._looked = float("-inf")
        self._measured = float("-inf")
        self._space = Space(0, 0, refusing=False)

    def measure(self, connection: sqlite3.Connection) -> None:
        now = time.monotonic()
        if now - self._measured < _LOOK_SECONDS:
            return
        self._measured = now
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (free,) = connection.execute("PRAGMA freelist_count").fetchone()
        (files,) = connection.execute(
            "SELECT coalesce(sum(size), 0) FROM message WHERE file IS NOT NULL"
        ).fetchone()
        self._row_octets = size * (pages - free)
        self._file_octets = files

    def look(self) -> Space:
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return self._space
        self._looked = now
        disk = os.statvfs(self._folder)
        free = disk.f_bavail * disk.f_frsize
        used = self._row_octets + self._file_octets
        reason = ""
        if free < self.min_free:
            reason = f"{free} octets of the disk are free, the mark is {self.min_free}"
        elif self.max_used and used > self.max_used:
            reason = f"the store holds {used} octets, the mark is {self.max_used}"
        self._space = Space(free, used, refusing=bool(reason), reason=reason)
        return self._space
