"""Whether there is room for new messages: free space of the disk, and size of the store itself.

Both marks leave a reserve. Below them nothing new is taken, while deliveries, which need a little
room before they give some back, go on. What they give back stays in the database as free pages, so
these count as room; a part of the reserve has to be free on the disk itself, for the log.

The law of this file: new messages never use the reserve up, so that a disk which somebody else filled
is enough for us again when it has the room that it had. Pages that are in the log only are owed to
the database: until it is as long as that, copying the log back takes new room, and as long as that
fails the log does not end. So what is owed does not count as free, nor what was taken and is not
written yet. Spare files and the log are given back before the mark is reached. And it is not time alone
that says when to look again: a fast disk is full within a quarter of a second.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from gridpost.core.queues import Space
from gridpost.stores.sqlite.database import DATABASE
from gridpost.stores.sqlite.queues.files import Files

_LOOK_SECONDS: Final = 0.25
_SHRINK_SECONDS: Final = 2.0
_SHRINK_PATIENCE: Final = 200
"""Milliseconds that a commit may wait for those who read the log, when it is to be given back."""
_IN_LOG: Final = 64 * 1024
"""What a message adds to the log, at most, besides its body: pages of tables and indexes."""
_ON_DISK: Final = 4
"""Of the mark for free space: what must be free outside of the database; and how near it is near."""
_STEP: Final = 16
"""Of the mark for free space: how much may be taken before we look again."""


class SpaceWatch:
    """`measure` runs in the committer, everything else in the loop."""

    def __init__(self, folder: Path, files: Files, *, min_free: int, max_used: int) -> None:
        self.min_free = min_free
        self.max_used = max_used
        self._folder = folder
        self._files = files
        self._row_octets = 0
        self._reusable = 0
        self._owed = 0
        self._coming = 0
        self._unseen = 0
        self._unmeasured = 0
        self._shrunk = float("-inf")
        self._shrink_again = float("-inf")
        self._looked = float("-inf")
        self._measured = float("-inf")
        self._space = Space(0, 0, refusing=False)

    def taking(self, octets: int) -> None:
        """Bodies are on their way to the disk."""
        self._coming += octets
        self._unseen += octets + _IN_LOG

    def taken(self, octets: int) -> None:
        """They are there, or never will be."""
        self._coming -= octets

    def measure(self, connection: sqlite3.Connection, operations: int, octets: int) -> None:
        """After a commit of so many operations. It is done, whatever happens here."""
        now = time.monotonic()
        self._unmeasured += octets + operations * _IN_LOG
        if now - self._measured < _LOOK_SECONDS and self._unmeasured < self._step:
            return
        self._measured = now
        self._unmeasured = 0
        with suppress(OSError, sqlite3.Error):
            self._count(connection)
            if self._is_time_to_shrink(now):
                self._shrunk = now
                self._files.shed()
                if not shrink_log(connection):
                    self._shrink_again = now + _SHRINK_SECONDS
                self._count(connection)

    @property
    def _step(self) -> float:
        return self.min_free / _STEP or float("inf")

    def _count(self, connection: sqlite3.Connection) -> None:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (free,) = connection.execute("PRAGMA freelist_count").fetchone()
        self._row_octets = size * (pages - free)
        self._reusable = size * free
        self._owed = max(0, size * pages - os.stat(self._folder / DATABASE).st_size)

    def _is_time_to_shrink(self, now: float) -> bool:
        if now < self._shrink_again:
            return False
        if self._space.refusing and now - self._shrunk > _SHRINK_SECONDS:
            return True
        margin = self.min_free // _ON_DISK
        if not self._space.refusing and self._free() - self._owed >= self.min_free + margin:
            return False
        try:
            return os.stat(self._folder / f"{DATABASE}-wal").st_size >= self._step
        except FileNotFoundError:
            return False

    def _free(self) -> int:
        disk = os.statvfs(self._folder)
        return disk.f_bavail * disk.f_frsize

    def look(self) -> Space:
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS and self._unseen < self._step:
            return self._space
        self._looked = now
        self._unseen = 0
        free = max(0, self._free() - self._owed - self._coming)
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


def shrink_log(connection: sqlite3.Connection) -> bool:
    """Copy the log into the database and give its place back, if disk and readers let us."""
    (patience,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute(f"PRAGMA busy_timeout = {_SHRINK_PATIENCE}")
    try:
        (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.Error:
        return False
    finally:
        connection.execute(f"PRAGMA busy_timeout = {patience}")
    return not busy
