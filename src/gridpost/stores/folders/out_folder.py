"""OUT and OUT_ERROR: files of applications are found, read, and removed or moved aside (503 Table 48)."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path

from gridpost.core.refusal import Refusal, Rule
from gridpost.core.shared_folders import Found
from gridpost.stores.folders.disk import (
    flush_folder,
    move_unless_taken,
    off_loop,
    refusing,
    write_new,
)
from gridpost.wire.fssf.names import error_name, is_temporary, printable, reason_name


class DiskOutFolder:
    """core.shared_folders.OutFolder."""

    def __init__(self, out: Path, errors: Path, pool: Executor, mode: int = 0o640) -> None:
        self._out = out
        self._errors = errors
        self._pool = pool
        self._mode = mode

    async def scan(self) -> Sequence[Found]:
        return await off_loop(self._pool, self._scan)

    async def read(self, found: Found, limit: int) -> bytes | None:
        return await off_loop(self._pool, lambda: self._read(found, limit))

    async def remove(self, taken: Sequence[Found]) -> Sequence[Found]:
        return await off_loop(self._pool, lambda: self._remove(taken))

    async def reject(self, found: Found, reason: str) -> str:
        return await off_loop(self._pool, lambda: self._reject(found, reason))

    def _scan(self) -> list[Found]:
        found = []
        with refusing(self._out), os.scandir(self._out) as entries:
            for entry in entries:
                if is_temporary(entry.name):
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if not stat.S_ISDIR(status.st_mode):
                    found.append(_found(entry.name, status))
        found.sort(key=lambda one: (one.modified, one.name))
        return found

    def _read(self, found: Found, limit: int) -> bytes | None:
        path = self._out / found.name
        try:
            # A link would let an application send what only this service may read; a pipe would
            # make us wait.
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                raise _not_a_file(found.name) from error
            if error.errno == errno.EACCES:
                raise Refusal(
                    Rule.NOT_A_FILE,
                    f"'{printable(found.name)}' may not be read by this endpoint",
                ) from error
            with refusing(self._out):
                raise
        with refusing(self._out), open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise _not_a_file(found.name)
            if _found(found.name, status) != found:
                return None
            if status.st_size > limit:
                raise Refusal(
                    Rule.CONTENT_TOO_LARGE,
                    f"the document has {status.st_size} bytes; this endpoint accepts {limit}",
                )
            content = file.read()
            # Written to while we read: what we have may be half of each.
            return content if _found(found.name, os.fstat(descriptor)) == found else None

    def _remove(self, taken: Sequence[Found]) -> list[Found]:
        gone = []
        with refusing(self._out):
            for found in taken:
                path = self._out / found.name
                try:
                    # Another file may have taken the name in the meantime.
                    if _found(found.name, path.lstat()) == found:
                        path.unlink()
                    gone.append(found)
                except FileNotFoundError:
                    gone.append(found)
                except OSError:
                    # The others still go; the caller tries this one again.
                    continue
            if gone:
                flush_folder(self._out)
        return gone

    def _reject(self, found: Found, reason: str) -> str:
        with refusing(self._errors):
            count = 0
            while True:
                name = error_name(found.name, count)
                if os.path.lexists(self._errors / reason_name(name)):
                    count = max(1, 2 * count)
                    continue
                try:
                    if move_unless_taken(self._out / found.name, self._errors / name, self._mode):
                        break
                except FileNotFoundError:
                    if os.path.lexists(self._out / found.name):
                        raise
                    return ""
                count = max(1, 2 * count)
            text = f"{reason}\n".encode()
            with suppress(OSError):
                write_new(self._errors / reason_name(name), text, self._mode)
            flush_folder(self._errors)
        with refusing(self._out):
            flush_folder(self._out)
        return name


def _found(name: str, status: os.stat_result) -> Found:
    return Found(name, status.st_ino, status.st_mtime_ns, status.st_size)


def _not_a_file(name: str) -> Refusal:
    return Refusal(
        Rule.NOT_A_FILE,
        f"'{printable(name)}' is no ordinary file",
        "links, pipes and devices are not sent",
    )
