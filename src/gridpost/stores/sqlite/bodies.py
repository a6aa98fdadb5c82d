"""Contents that are too large for a row: files beside the database.

The law of this file: a file is complete and safe on disk, under its final name, before a row names
it, and it is removed only after the row that named it is gone for good. A crash therefore leaves at
most files that no row names; they are swept when the store opens.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from threading import Lock
from typing import NamedTuple
from uuid import uuid4

from gridpost.core.message_box import Content, Staged
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.sqlite.arriving import PART, Arriving, write_behind


def sync_folder(folder: Path) -> None:
    """Make names that were given or taken in a folder survive a power failure."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Bodies:
    """The folder of content files. Safe to use from several threads."""

    def __init__(self, folder: Path, threshold: int) -> None:
        self.folder = folder
        self.threshold = threshold
        # Names of complete files that no row names yet.
        self._staged: set[str] = set()
        self._lock = Lock()

    def stage(self, content: bytes) -> Staged:
        """Write a file and return when it is safe."""
        part = self.folder / (uuid4().hex + PART)
        return self._stage(part, len(content), lambda: self._write(part, content))

    def arriving(self) -> Arriving:
        """A place for a content that comes in."""
        return Arriving(self.folder, self.threshold)

    def adopt(self, arrived: Arriving) -> Content:
        """A content that came in completely; a large one is safe when this returns."""
        octets = arrived.octets()
        if octets is not None:
            return octets
        return self._stage(self.folder / arrived.finish(), arrived.size, lambda: None)

    def _stage(self, part: Path, size: int, write: Callable[[], None]) -> Staged:
        name = part.name.removesuffix(PART)
        try:
            write()
            self._rename(part, self.folder / name)
            self._sync_folder()
        except BaseException:
            part.unlink(missing_ok=True)
            (self.folder / name).unlink(missing_ok=True)
            raise
        with self._lock:
            self._staged.add(name)
        return Staged(name, size)

    def claim(self, staged: Staged) -> None:
        """A row is about to name this file. Each file can be named once."""
        with self._lock:
            if staged.name not in self._staged:
                raise ValueError("this content is not staged (any more): it can be put once")
            self._staged.remove(staged.name)

    def release(self, name: str) -> None:
        """The row that named this file was undone."""
        with self._lock:
            self._staged.add(name)

    def discard(self, staged: Staged) -> None:
        """Remove a staged file, unless a row names it or is about to."""
        with self._lock:
            if staged.name not in self._staged:
                return
            self._staged.remove(staged.name)
        self.remove([staged.name])

    def read(self, name: str, size: int) -> bytes:
        """The content of a file that a row names."""
        try:
            content = (self.folder / name).read_bytes()
        except FileNotFoundError:
            raise Refusal(
                Rule.STORE_DAMAGED, f"the content file {name} is missing: restore a backup"
            ) from None
        if len(content) != size:
            raise Refusal(
                Rule.STORE_DAMAGED,
                f"the content file {name} has {len(content)} bytes instead of {size}: "
                "restore a backup",
            )
        return content

    def remove(self, names: Iterable[str]) -> None:
        """After a crash before this reached the disk, the next start sweeps them."""
        for name in names:
            (self.folder / name).unlink(missing_ok=True)

    def sweep(self, named: Collection[str]) -> int:
        """Remove every file that no row names. Only while nobody else uses the store."""
        orphans = [name for name in os.listdir(self.folder) if name not in named]
        self.remove(orphans)
        return len(orphans)

    # -- the steps of stage(), each of which may be the last before a crash

    def _write(self, part: Path, content: bytes) -> None:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            write_behind(handle, content)
            os.fsync(handle)
        finally:
            os.close(handle)

    def _rename(self, part: Path, final: Path) -> None:
        part.rename(final)

    def _sync_folder(self) -> None:
        sync_folder(self.folder)


class Kept(NamedTuple):
    """Where a content went: the columns `body` and `file`, exactly one of them, and `size`."""

    body: bytes | None
    file: str | None
    size: int


class WorkFiles:
    """What one work did with contents: undone with the work, or finished after its commit."""

    __slots__ = ("_bodies", "_claimed", "_doomed", "_written", "bytes")

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._claimed: list[Staged] = []
        self._written: list[Staged] = []
        self._doomed: list[str] = []
        self.bytes = 0

    def keep(self, content: Content) -> Kept:
        if isinstance(content, bytes) and len(content) <= self._bodies.threshold:
            self.bytes += len(content)
            return Kept(content, None, len(content))
        if isinstance(content, bytes):
            content = self._bodies.stage(content)
            self._written.append(content)
        self._bodies.claim(content)
        self._claimed.append(content)
        return Kept(None, content.name, content.size)

    def load(self, kept: Kept) -> bytes:
        if kept.body is not None:
            return kept.body
        if kept.file is None:
            raise ValueError("a content has a body or a file")
        return self._bodies.read(kept.file, kept.size)

    def doom(self, file: str | None) -> None:
        """A row that names this file was deleted."""
        if file is not None:
            self._doomed.append(file)

    def undo(self) -> None:
        """The work was rolled back: its files are named by nobody, as before."""
        for staged in self._claimed:
            self._bodies.release(staged.name)
        for staged in self._written:
            self._bodies.discard(staged)
        self._claimed, self._written = [], []

    def finished(self) -> list[str]:
        """The work was committed: the files that can go now."""
        return self._doomed


class NoFiles(WorkFiles):
    """For work that changes nothing."""

    __slots__ = ()

    def keep(self, content: Content) -> Kept:
        raise RuntimeError("work that reads must not change anything")
