"""Bodies that are too large for a row: files beside the database, written before their rows.

The law of this file is that of `stores.sqlite.bodies`, with two differences for speed: bodies that
wait together share a file and its flush, and names are made safe once for a whole group, by the
committer, just before the COMMIT whose rows use them. A file goes with the last of its bodies.
"""

from __future__ import annotations

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
        self._undecided: Counter[str] = Counter()
        self._handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self._handle)

    @property
    def octets(self) -> int:
        """Of all files, with bodies that are gone while others of the same file are not."""
        with self._lock:
            return sum(self._sizes.values())

    def write(self, contents: Sequence[Octets]) -> list[Staged]:
        """One file for all of them; each is undecided until `decide` is told."""
        name = f"{self._run}-{next(self._numbers):x}"
        handle = os.open(
            name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self._handle
        )
        try:
            for content in contents:
                rest = memoryview(content)
                while rest:
                    rest = rest[os.write(handle, rest[:_PIECE]) :]
            os.fdatasync(handle)
        except BaseException:
            self.remove([name])
            raise
        finally:
            os.close(handle)
        staged = []
        start = 0
        for content in contents:
            staged.append(Staged(name, start, len(content)))
            start += len(content)
        with self._lock:
            self._sizes[name] = start
            self._undecided[name] = len(staged)
        return staged

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
        os.fsync(self._handle)

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

    def remove(self, names: Iterable[str]) -> None:
        """After a crash before this reached the disk, the next start sweeps them."""
        for name in names:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._handle)
            with self._lock:
                self._sizes.pop(name, None)

    def sweep(self, named: Collection[str]) -> None:
        """Remove every file that no row names. Only while nobody else uses the store."""
        self.remove([name for name in os.listdir(self.folder) if name not in named])
        self._sizes = {file.name: file.stat().st_size for file in os.scandir(self.folder)}


def _damaged(name: str, what: str) -> Refusal:
    return Refusal(Rule.STORE_DAMAGED, f"the body file {name} {what}: restore a backup")
