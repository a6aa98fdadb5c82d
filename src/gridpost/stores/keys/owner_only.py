"""Files that only their owner may read: how they come to be, and when they are not believed.

A file that this module has written survives a power cut, whole or not at all: its bytes are on disk
before it gets its name, and its name is on disk before the caller hears of success.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gridpost.core.refusal import Refusal, Rule

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH

MAX_FILE = 1024 * 1024


def make_directory(path: Path) -> None:
    """The directory, readable by its owner only, with its own name on disk."""
    with _told(path):
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            check_directory(path)
        else:
            _sync_directory(path.parent)


def check_directory(path: Path) -> None:
    """Whoever may write to the directory may replace the keys in it."""
    status = path.stat()
    if not stat.S_ISDIR(status.st_mode):
        raise Refusal(Rule.KEY_PROTECTION, f"{path} is not a directory")
    if status.st_mode & _OTHERS_WRITE or status.st_uid not in (0, os.geteuid()):
        raise Refusal(
            Rule.KEY_PROTECTION,
            f"others can write to {path}: make it belong to the user of this service and run "
            f"chmod 700 {path}",
        )


def write(path: Path, data: bytes) -> None:
    """Create or replace a file, atomically and durably."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with _told(path):
        try:
            _write_and_sync(temporary, data)
            temporary.rename(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_directory(path.parent)


def _write_and_sync(path: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(path: Path) -> bytes:
    """The bytes, unless someone else could have read or written them."""
    with _told(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE:
            raise Refusal(Rule.KEY_PROTECTION, f"{path} is not a key file")
        if status.st_mode & _OTHERS or status.st_uid not in (0, os.geteuid()):
            raise Refusal(
                Rule.KEY_PROTECTION,
                f"others can read or write {path}: make it belong to the user of this service and "
                f"run chmod 600 {path}; if others had access, renew the key",
            )
        return os.read(descriptor, MAX_FILE)
    finally:
        os.close(descriptor)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What the operating system refuses is the operator's to mend."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise Refusal(
            Rule.STORE_FULL if full else Rule.KEY_PROTECTION, f"{path}: {error.strerror}"
        ) from error
