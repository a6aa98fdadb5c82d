"""Whether there is room for new messages: free space of the disk, and size of the store itself.

Both marks leave a reserve. Below them nothing new is taken, while deliveries, which need a little
room before they give some back, go on. What they give back stays in the database as free pages, so
these count as room; a part of the reserve has to be free on the disk itself, for the log.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path

from gridpost.core.queues import Space
from gridpost.stores.sqlite.queues.files import Files

_LOOK_SECONDS = 0.25
_SHRINK_SECONDS = 2.0
# Of the mark for free space: what must be free outside of the database.
_ON_DISK = 4


class SpaceWatch:
    """Looks at most four times a second. `measure` runs in the committer, `look` in the loop."""

    def __init__(self, folder: Path, files: Files, *, min_free: int, max_used: int) -> None:
        self.min_free = min_free
        self.max_used = max_used
        self._folder = folder
        self._files = files
        self._row_octets = 0
        self._reusable = 0
        self._shrunk = float("-inf")
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
        self._row_octets = size * (pages - free)
        self._reusable = size * free
        if self._space.refusing and now - self._shrunk > _SHRINK_SECONDS:
            self._shrunk = now
            self._files.shed()
            shrink_log(connection)

    def look(self) -> Space:
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return self._space
        self._looked = now
        disk = os.statvfs(self._folder)
        free = disk.f_bavail * disk.f_frsize
        used = self._row_octets + self._files.octets
        reason = ""
        room = free + self._reusable
        if room < self.min_free or free < self.min_free // _ON_DISK:
            reason = (
                f"{free} octets of the disk and {self._reusable} of the database are free, "
                f"the mark is {self.min_free}"
            )
        elif self.max_used and used > self.max_used:
            reason = f"the store holds {used} octets, the mark is {self.max_used}"
        self._space = Space(free, used, refusing=bool(reason), reason=reason)
        return self._space


def shrink_log(connection: sqlite3.Connection) -> None:
    """Copy the log into the database and give its place back, as far as the disk lets us."""
    with suppress(sqlite3.Error):
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
