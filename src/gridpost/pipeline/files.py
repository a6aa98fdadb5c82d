"""The one door to files: a place in any file system that pyarrow and Spark both know.

On local disks a write is safe before it counts: fsync, rename, rights, hard links and locks of the
kernel. Elsewhere the file system itself must give a file its name only when it is complete.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import uuid4

from pyarrow import fs

from gridpost.core.refusal import Refusal, Rule

# What Spark calls otherwise than pyarrow.
_SCHEMES = {"s3a": "s3", "s3n": "s3"}
_DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Place:
    """A file or a folder, there or not yet."""

    system: fs.FileSystem
    path: str
    """As pyarrow says it."""
    prefix: str = ""
    """What Spark needs in front of the path; empty: a local path."""

    def __str__(self) -> str:
        return self.prefix + self.path

    def __fspath__(self) -> str:
        if not self.local:
            raise TypeError(f"{self} is not on this machine")
        return self.path

    @property
    def local(self) -> bool:
        return isinstance(self.system, fs.LocalFileSystem)

    # ------------------------------------------------------------ names

    def __truediv__(self, name: str) -> Place:
        return Place(self.system, f"{self.path.rstrip('/')}/{name}", self.prefix)

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name

    @property
    def stem(self) -> str:
        return PurePosixPath(self.path).stem

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.path).suffix

    @property
    def parent(self) -> Place:
        return Place(self.system, str(PurePosixPath(self.path).parent), self.prefix)

    def with_name(self, name: str) -> Place:
        return self.parent / name

    def with_suffix(self, suffix: str) -> Place:
        return self.parent / f"{self.stem}{suffix}"

    def below(self, folder: Place) -> str:
        """The rest of the path, seen from a folder."""
        return PurePosixPath(self.path).relative_to(folder.path).as_posix()

    # ------------------------------------------------------------ looking

    def _info(self) -> fs.FileInfo:
        return self.system.get_file_info(self.path)

    def exists(self) -> bool:
        return bool(self._info().type != fs.FileType.NotFound)

    def is_file(self) -> bool:
        return bool(self._info().type == fs.FileType.File)

    def is_dir(self) -> bool:
        return bool(self._info().type == fs.FileType.Directory)

    def size(self) -> int:
        return int(self._info().size or 0)

    def modified(self) -> float:
        """Seconds since 1970. A folder that has no time of its own has that of its newest file."""
        info = self._info()
        if info.mtime_ns is not None:
            return float(info.mtime_ns / 1e9)
        return max((one.modified() for one in self.entries() if one.is_file()), default=0.0)

    def entries(self) -> list[Place]:
        """What lies in a folder; nothing where there is no folder."""
        return [self._at(info) for info in self._listed(recursive=False)]

    def folders(self) -> list[Place]:
        return [
            self._at(info)
            for info in self._listed(recursive=False)
            if info.type == fs.FileType.Directory
        ]

    def glob(self, pattern: str) -> list[Place]:
        """In order of their names; `*` stands for no slash."""
        parts = pattern.split("/")
        found = self._listed(recursive=len(parts) > 1)
        return sorted(
            (self._at(info) for info in found if self._matches(info.path, parts)),
            key=lambda place: place.path,
        )

    def rglob(self, pattern: str) -> list[Place]:
        """However deep, files only."""
        found = self._listed(recursive=True)
        return sorted(
            (
                self._at(info)
                for info in found
                if info.type == fs.FileType.File and fnmatchcase(info.base_name, pattern)
            ),
            key=lambda place: place.path,
        )

    def _matches(self, path: str, parts: list[str]) -> bool:
        names = PurePosixPath(path).relative_to(self.path).parts
        return len(names) == len(parts) and all(map(fnmatchcase, names, parts))

    def _listed(self, *, recursive: bool) -> list[fs.FileInfo]:
        chosen = fs.FileSelector(self.path, recursive=recursive, allow_not_found=True)
        found: list[fs.FileInfo] = self.system.get_file_info(chosen)
        return found

    def _at(self, info: fs.FileInfo) -> Place:
        return Place(self.system, info.path, self.prefix)

    # ------------------------------------------------------------ reading

    def read_bytes(self) -> bytes:
        """Raises FileNotFoundError."""
        with self.system.open_input_stream(self.path) as source:
            data: bytes = source.read()
            return data

    def read_text(self) -> str:
        return self.read_bytes().decode()

    def chunks(self, size: int = 1024 * 1024) -> Iterator[bytes]:
        with self.system.open_input_stream(self.path) as source:
            while chunk := source.read(size):
                yield chunk

    # ------------------------------------------------------------ writing

    def mkdir(self, mode: int = 0o750) -> Place:
        """With everything above it; rights are those of local disks."""
        if self.local:
            Path(self.path).mkdir(mode=mode, parents=True, exist_ok=True)
        else:
            self.system.create_dir(self.path, recursive=True)
        return self

    def write(self, data: bytes | memoryview, mode: int = 0o640) -> None:
        """All of it under its name, or nothing; what had the name before is replaced."""
        self._finish(self._unfinished(data, mode))

    def create(self, data: bytes) -> None:
        """As `write`, but never in place of another file: FileExistsError."""
        unfinished = self._unfinished(data, 0o640)
        try:
            if self.local:
                # The kernel decides who was first.
                os.link(unfinished.path, self.path)
                sync_folder(self.parent)
            elif self.exists():
                raise FileExistsError(str(self))
            else:
                self.system.move(unfinished.path, self.path)
        finally:
            if unfinished.exists():
                unfinished.unlink()

    def _unfinished(self, data: bytes | memoryview, mode: int) -> Place:
        # A dot in front: neither Spark nor the admission looks at it.
        place = self.with_name(f".{self.name}.{os.getpid()}.{uuid4().hex[:8]}")
        self.parent.mkdir()
        if self.local:
            handle = os.open(place.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            try:
                with os.fdopen(handle, "wb") as out:
                    out.write(data)
                    out.flush()
                    os.fsync(out.fileno())
            except BaseException:
                place.unlink()
                raise
        else:
            with self.system.open_output_stream(place.path) as out:
                out.write(data)
        return place

    def _finish(self, unfinished: Place) -> None:
        if self.local:
            Path(unfinished.path).replace(self.path)
            sync_folder(self.parent)
        else:
            self.system.move(unfinished.path, self.path)

    def rename(self, target: Place) -> None:
        """To a place that may lie in another file system: complete there before it has its name."""
        target.parent.mkdir()
        if self.system.equals(target.system):
            try:
                self.system.move(self.path, target.path)
            except OSError:
                if not self.local or not self.is_file():
                    raise
            else:
                if target.local:
                    sync_folder(target.parent)
                return
        target.write(self.read_bytes())
        self.unlink()

    def renew(self) -> None:
        """From now on it counts as new. Where times cannot be set, a file above a day is copied."""
        if self.local:
            os.utime(self.path)
        elif self.modified() < time.time() - _DAY_SECONDS:
            self.write(self.read_bytes())

    def unlink(self) -> None:
        with suppress(FileNotFoundError):
            self.system.delete_file(self.path)

    def rmtree(self) -> None:
        with suppress(FileNotFoundError):
            self.system.delete_dir(self.path)

    def vanish(self) -> None:
        """As `rmtree`; on local disks whoever looks sees all of the folder or none of it."""
        if self.local and not self.name.startswith("."):
            gone = self.with_name(f".{self.name}")
            with suppress(FileNotFoundError):
                self.rename(gone)
            gone.rmtree()
        else:
            self.rmtree()

    # ------------------------------------------------------------ one at a time

    @contextmanager
    def locked(self, what: str) -> Iterator[None]:
        """On local disks for all processes; elsewhere for those of this machine."""
        if self.local:
            file = self.path
        else:
            name = hashlib.sha256(str(self).encode()).hexdigest()[:32]
            file = str(Path(tempfile.gettempdir()) / f"gridpost-{os.getuid()}-{name}.lock")
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refusal(Rule.STORE_IN_USE, f"another process is writing into {what}") from None
        else:
            yield
        finally:
            os.close(handle)

    # ------------------------------------------------------------ a folder of segments

    def names(self, pattern: str) -> list[str]:
        return [place.name for place in self.glob(pattern)]

    def put(self, name: str, data: memoryview) -> None:
        (self / name).write(data)


def place(where: str | os.PathLike[str] | Place) -> Place:
    """A local path, or an address that pyarrow can open: hdfs, viewfs, s3, s3a, gs, abfs."""
    if isinstance(where, Place):
        return where
    text = os.fspath(where)
    scheme, mark, rest = text.partition("://")
    if not mark:
        return Place(fs.LocalFileSystem(), os.path.abspath(text))
    if scheme == "file":
        return Place(fs.LocalFileSystem(), "/" + rest.partition("/")[2])
    try:
        system, path = fs.FileSystem.from_uri(f"{_SCHEMES.get(scheme, scheme)}://{rest}")
    except (OSError, ValueError, NotImplementedError) as error:
        # pyarrow adds lines of its own code to some of these.
        reason = str(error).partition("\n")[0]
        raise Refusal(Rule.USAGE, f"{text} cannot be opened: {reason}") from None
    found = path.rstrip("/")
    address = text.rstrip("/").partition("?")[0]
    if not address.endswith(found):
        raise Refusal(Rule.USAGE, f"{text} cannot be opened: say the whole path")
    return Place(system, found, address.removesuffix(found))


def sync(files: Iterable[Place], folders: Iterable[Place]) -> None:
    """What Spark wrote is on the disk before a pointer names it; elsewhere it is when it is closed."""
    for file in files:
        if file.local:
            _fsync(file.path, os.O_RDONLY)
    for folder in folders:
        sync_folder(folder)


def sync_folder(folder: Place) -> None:
    if folder.local:
        _fsync(folder.path, os.O_RDONLY | os.O_DIRECTORY)


def _fsync(path: str, flags: int) -> None:
    handle = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def arguments(of: Place) -> dict[str, Any]:
    """For functions of pyarrow that take a file and its file system."""
    return {"filesystem": of.system}
