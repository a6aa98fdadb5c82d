"""Bodies that are too large for a row: files beside the database, written before their rows.

The law of this file is that of `stores.sqlite.bodies`, with three differences for speed: bodies that
wait together share a file and its flush; names are made safe once for a whole group, by the committer,
just before the COMMIT whose rows use them; and a file whose last body has left becomes a spare one,
which the next bodies write over (ADR 4). A spare file is one that no row names, durably: whoever
reads a row and then its file looks at the row once more. A file that has a second name is a backup's
and is never written over, nor is any while a backup holds the folder's lock.
"""

from __future__ import annotations

import fcntl
import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Lock
from typing import NamedTuple
from uuid import uuid4

from gridpost.core.queues import Octets
from gridpost.core.refusal import Refusal, Rule

_PIECE = 1024 * 1024
_SPARE = 64 * 1024 * 1024
"""Octets of spare files that are kept."""


class Staged(NamedTuple):
    """Where a body lies: its octets are on the disk, the name of the file may not be yet."""

    name: str
    start: int
    size: int


class Files:
    """The folder of body files. Safe to use from several threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Names of one run begin alike: no system call for each of them.
        self._run = uuid4().hex
        self._numbers = count(1)
        self._lock = Lock()
        self._sizes: dict[str, int] = {}
        self.octets = 0
        """Of all files but the spare, with bodies that are gone while others of a file are not."""
        self._spare: dict[str, int] = {}
        self._undecided: Counter[str] = Counter()
        self._unsynced = False
        """A name was made since the last `sync_names`."""
        self._handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        self.shed()
        os.close(self._handle)

    def write(self, contents: Sequence[Octets]) -> list[Staged]:
        """One file for all of them; each is undecided until `decide` is told. One thread writes."""
        size = sum(map(len, contents))
        locked = bool(self._spare) and self._lock_out_backups()
        try:
            name, handle = (self._open_spare(size) if locked else None) or self._create()
            try:
                for content in contents:
                    rest = memoryview(content)
                    while rest:
                        rest = rest[os.write(handle, rest[:_PIECE]) :]
                os.fdatasync(handle)
                length = os.fstat(handle).st_size
            except BaseException:
                self.remove([name])
                # On a full disk every octet counts.
                self.shed()
                raise
            finally:
                os.close(handle)
        finally:
            if locked:
                fcntl.flock(self._handle, fcntl.LOCK_UN)
        staged = []
        start = 0
        for content in contents:
            staged.append(Staged(name, start, len(content)))
            start += len(content)
        with self._lock:
            self._sizes[name] = length
            self.octets += length
            self._undecided[name] = len(staged)
        return staged

    def _create(self) -> tuple[str, int]:
        name = f"{self._run}-{next(self._numbers):x}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        handle = os.open(name, flags, 0o600, dir_fd=self._handle)
        self._unsynced = True
        return name, handle

    def _open_spare(self, size: int) -> tuple[str, int] | None:
        """The smallest that needs not grow, or the largest: growing costs what a new file does."""
        with self._lock:
            if not self._spare:
                return None
            fitting = [name for name, length in self._spare.items() if length >= size]
            best = min if fitting else max
            name = best(fitting or self._spare, key=self._spare.__getitem__)
            del self._spare[name]
        handle = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=self._handle)
        if os.fstat(handle).st_nlink == 1:
            return name, handle
        os.close(handle)
        self.remove([name])
        return None

    def _lock_out_backups(self) -> bool:
        """False: one is being taken, and would see a file change under a row that it has read."""
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def decide(self, staged: Iterable[Staged]) -> None:
        """Whether rows name these bodies is settled: they were committed, or never will be."""
        with self._lock:
            for one in staged:
                self._undecided[one.name] -= 1
                if not self._undecided[one.name]:
                    del self._undecided[one.name]

    def undecided(self, name: str) -> bool:
        """Rows may still come to name this file, even if none does."""
        return name in self._undecided

    def sync_names(self) -> None:
        """After this, files that were written have their names on the disk as well."""
        if self._unsynced:
            self._unsynced = False
            try:
                os.fsync(self._handle)
            except BaseException:
                self._unsynced = True
                raise

    def read(self, staged: Staged) -> bytes:
        name, start, size = staged
        try:
            with open(self.folder / name, "rb", buffering=0) as file:
                content = os.pread(file.fileno(), size, start)
                while len(content) < size:
                    more = os.pread(file.fileno(), size - len(content), start + len(content))
                    if not more:
                        raise _damaged(name, f"ends before octet {start + size}")
                    content += more
        except FileNotFoundError:
            raise _damaged(name, "is missing") from None
        return content

    def spare(self, names: Iterable[str]) -> list[str]:
        """No row names them, and that is on the disk; those that are not kept, for `remove`."""
        rest = []
        with self._lock:
            room = _SPARE - sum(self._spare.values())
            for name in names:
                size = self._sizes.get(name)
                if size is None or size > room:
                    rest.append(name)
                else:
                    room -= size
                    self.octets -= size
                    self._spare[name] = self._sizes.pop(name)
        return rest

    def shed(self) -> None:
        """Give back the room of spare files."""
        with self._lock:
            names, self._spare = list(self._spare), {}
        self.remove(names)

    def remove(self, names: Iterable[str]) -> None:
        """After a crash before this reached the disk, the next start sweeps them."""
        for name in names:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._handle)
            with self._lock:
                self.octets -= self._sizes.pop(name, 0)

    def sweep(self, named: Collection[str]) -> None:
        """Remove every file that no row names. Only while nobody else uses the store."""
        self.remove([name for name in os.listdir(self.folder) if name not in named])
        self._sizes = {file.name: file.stat().st_size for file in os.scandir(self.folder)}
        self.octets = sum(self._sizes.values())


def _damaged(name: str, what: str) -> Refusal:
    return Refusal(Rule.STORE_DAMAGED, f"the body file {name} {what}: restore a backup")
