"""Bodies that are too large for a row: files beside the database, written before their row.

The law of this file is that of `stores.sqlite.bodies`, with one difference for speed: names are made
safe once for a whole group, by the committer, just before the COMMIT whose rows use them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from gridpost.core.queues import Octets
from gridpost.core.refusal import Refusal, Rule

_PIECE = 1024 * 1024


class Staged(NamedTuple):
    """A file whose octets are on the disk, but whose name may not be yet."""

    name: str
    size: int


class Files:
    """The folder of body files. Safe to use from several threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Names of one run begin alike: no system call for each of them.
        self._run = uuid4().hex
        self._numbers = count(1)
        self._handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self._handle)

    def write(self, content: Octets) -> Staged:
        name = f"{self._run}-{next(self._numbers):x}"
        handle = os.open(
            name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self._handle
        )
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(handle, rest[:_PIECE]) :]
            os.fdatasync(handle)
        except BaseException:
            self.remove([name])
            raise
        finally:
            os.close(handle)
        return Staged(name, len(content))

    def sync_names(self) -> None:
        """After this, files that were written have their names on the disk as well."""
        os.fsync(self._handle)

    def read(self, name: str, size: int) -> bytes:
        try:
            content = (self.folder / name).read_bytes()
        except FileNotFoundError:
            raise _damaged(name, "is missing") from None
        if len(content) != size:
            raise _damaged(name, f"has {len(content)} octets instead of {size}")
        return content

    def remove(self, names: Iterable[str]) -> None:
        """After a crash before this reached the disk, the next start sweeps them."""
        for name in names:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._handle)

    def sweep(self, named: Collection[str]) -> None:
        """Remove every file that no row names. Only while nobody else uses the store."""
        self.remove([name for name in os.listdir(self.folder) if name not in named])


def _damaged(name: str, what: str) -> Refusal:
    return Refusal(Rule.STORE_DAMAGED, f"the body file {name} {what}: restore a backup")
