"""Bodies that are too large for a row: files beside the database, written before their row.

The law of this file is that of `stores.sqlite.bodies`, with one difference for speed: names are made
safe once for a whole group, by the committer, just before the COMMIT whose rows use them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from gridpost.core.queues import Octets
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.sqlite.bodies import sync_folder

_PIECE = 1024 * 1024


class Staged(NamedTuple):
    """A file whose octets are on the disk, but whose name may not be yet."""

    name: str
    size: int


class Files:
    """The folder of body files. Safe to use from several threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, content: Octets) -> Staged:
        name = uuid4().hex
        path = self.folder / name
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(handle, rest[:_PIECE]) :]
            os.fdatasync(handle)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)
        return Staged(name, len(content))

    def sync_names(self) -> None:
        sync_folder(self.folder)

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
            (self.folder / name).unlink(missing_ok=True)

    def sweep(self, named: Collection[str]) -> None:
        """Remove every file that no row names. Only while nobody else uses the store."""
        self.remove([name for name in os.listdir(self.folder) if name not in named])


def _damaged(name: str, what: str) -> Refusal:
    return Refusal(Rule.STORE_DAMAGED, f"the body file {name} {what}: restore a backup")
