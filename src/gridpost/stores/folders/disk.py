"""The few things that all shared folders do with a disk: flush, refuse, move without overwriting."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from gridpost.core.refusal import Refusal, Rule

T = TypeVar("T")

# Hard links are not known everywhere: FAT, some network file systems.
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


async def off_loop(pool: Executor, work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(pool, work)


@contextmanager
def refusing(folder: Path) -> Iterator[None]:
    """What the disk does not do becomes a refusal that names the folder."""
    try:
        yield
    except OSError as error:
        raise failed(folder, error) from error


def failed(folder: Path, error: OSError) -> Refusal:
    hint = {
        errno.ENOSPC: "the disk is full: make room",
        errno.EDQUOT: "the quota is used up: make room",
        errno.EROFS: "the file system is read-only: mount it for writing",
        errno.EACCES: "the endpoint may not write there: change owner or mode",
        errno.EPERM: "the endpoint may not write there: change owner or mode",
        errno.ENOENT: "the folder is missing: create it",
    }.get(error.errno or 0, "")
    return Refusal(Rule.FOLDER_FAILED, f"{folder}: {error.strerror or type(error).__name__}", hint)


def flush_folder(folder: Path) -> None:
    """Names that were added, changed or removed survive a power failure from here on."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_new(path: Path, content: bytes, mode: int) -> None:
    """A file that is complete and flushed when this returns; what was begun is removed on failure."""
    descriptor = os.open(
        path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode
    )
    try:
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise


def move_unless_taken(source: Path, target: Path, mode: int) -> bool:
    """False: something has the target's name. Never overwrites, also between file systems."""
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno == errno.EXDEV:
            return _move_across(source, target, mode)
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(target):
            return False
        source.rename(target)
        return True
    source.unlink()
    return True


def _move_across(source: Path, target: Path, mode: int) -> bool:
    if os.path.lexists(target):
        return False
    arriving = target.with_name(f"{target.name[:200]}.tmp")
    if source.is_symlink():
        os.symlink(os.readlink(source), arriving)
    else:
        with source.open("rb") as reading, arriving.open("wb") as writing:
            shutil.copyfileobj(reading, writing)
            writing.flush()
            os.fchmod(writing.fileno(), mode)
            os.fsync(writing.fileno())
    arriving.rename(target)
    flush_folder(target.parent)
    source.unlink()
    return True
