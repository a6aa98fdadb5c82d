"""A content while it comes in: in memory when small, else already the file that a store will keep.

Nothing is written twice: what a peer sends goes into the folder of contents under a name for parts,
and is given its final name once it is complete (see `bodies`). A crash leaves a part, which is swept.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from uuid import uuid4

PART = ".part"

_BEHIND = 1024 * 1024
_WRITE = 2  # SYNC_FILE_RANGE_WRITE
_sync_file_range = ctypes.CDLL(None, use_errno=True).sync_file_range
_sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]


def write_behind(handle: int, content: bytes) -> None:
    """A whole content into a new file: the disk has most of it before the last of it is written.

    Given to the system in one piece, a large content costs several times the processor time, and the
    disk does nothing meanwhile.
    """
    rest, at = memoryview(content), 0
    while rest:
        written = os.write(handle, rest[:_BEHIND])
        _sync_file_range(handle, at, written, _WRITE)
        rest, at = rest[written:], at + written


class Arriving:
    """As much of a binary file as readers of requests use: written once, from start to end."""

    __slots__ = ("_folder", "_handle", "_head", "_in_memory", "_leaving", "_name", "size")

    def __init__(self, folder: Path, in_memory: int) -> None:
        self._folder = folder
        self._in_memory = in_memory
        self._head = bytearray()
        self._handle: int | None = None
        self._name = ""
        self._leaving = 0
        self.size = 0

    def write(self, data: bytes | memoryview) -> int:
        self.size += len(data)
        if self._handle is None and self.size <= self._in_memory:
            self._head += data
        elif self._handle is None:
            self._open()
            self._write(self._head)
            self._head = bytearray()
            self._write(data)
        else:
            self._write(data)
            self._begin_to_sync()
        return len(data)

    def octets(self) -> bytes | None:
        """All of it, when it was small."""
        return bytes(self._head) if self._handle is None else None

    def finish(self) -> str:
        """The name of the part, whose bytes are safe on disk; it is no longer ours to remove."""
        assert self._handle is not None
        os.fsync(self._handle)
        name, self._name = self._name, ""
        self.close()
        return name

    def close(self) -> None:
        """Nobody wants it: a part goes, with what it holds."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)
        if self._name:
            (self._folder / self._name).unlink(missing_ok=True)
            self._name = ""

    def _open(self) -> None:
        self._name = uuid4().hex + PART
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._handle = os.open(self._folder / self._name, flags, 0o600)

    def _begin_to_sync(self) -> None:
        """The disk works while the rest arrives, so that `finish` finds little to wait for.

        Only a hint: nothing is safe before `finish`, and what goes wrong here it will find.
        """
        if self.size - self._leaving >= _BEHIND:
            _sync_file_range(self._handle, self._leaving, self.size - self._leaving, _WRITE)
            self._leaving = self.size

    def _write(self, data: bytes | bytearray | memoryview) -> None:
        assert self._handle is not None
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._handle, rest) :]
