"""One file of an archive: it has its name only when everything in it can be read back from the disk."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile


def write_archive(file: Path, parts: Iterable[tuple[str, bytes]]) -> None:
    """Blocks. What raises leaves no file of this name."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = file.with_suffix(".part")
    with ZipFile(unfinished, "w", ZIP_DEFLATED) as archive:
        for name, content in parts:
            archive.writestr(name, content)
    with ZipFile(unfinished) as archive:
        bad = archive.testzip()
        if bad is not None:
            raise OSError(f"{unfinished}: {bad} cannot be read back")
    with unfinished.open("rb+") as written:
        os.fsync(written.fileno())
    unfinished.rename(file)
    handle = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
