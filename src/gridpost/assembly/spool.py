"""Where documents lie while they come in: in memory when small, else in files that nobody else can open."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, cast

IN_MEMORY = 256 * 1024


def spooling(folder: Path) -> Callable[[], BinaryIO]:
    """In the component's own folder: the one for temporary files may be memory, or open to others."""

    def spool() -> BinaryIO:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return cast(BinaryIO, SpooledTemporaryFile(max_size=IN_MEMORY, dir=str(folder)))

    return spool
