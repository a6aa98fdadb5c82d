"""Certificates in files that an operator renews: read again when they change, without a restart.

Files are replaced one after the other. What cannot be used, such as a certificate whose key is
still the old one, is warned of, and what was read last goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from gridpost.core.refusal import Refusal

T = TypeVar("T")
log = structlog.get_logger(__name__)


class RenewedFiles(Generic[T]):
    """Called for every new connection."""

    def __init__(self, files: Sequence[Path], read: Callable[[], T]) -> None:
        """`read` raises when the files do not fit together; here it does so to the caller."""
        self._files = tuple(files)
        self._read = read
        self._state = self._look()
        self._last = read()

    def __call__(self) -> T:
        state = self._look()
        if state != self._state:
            self._state = state
            names = [str(file) for file in self._files]
            try:
                self._last = self._read()
            except (Refusal, OSError, ValueError) as error:
                # ssl.SSLError is an OSError.
                log.warning("certificate not taken over", files=names, reason=str(error))
            else:
                log.info("certificate taken over", files=names)
        return self._last

    def _look(self) -> list[tuple[int, int, int] | None]:
        found: list[tuple[int, int, int] | None] = []
        for file in self._files:
            try:
                status = file.stat()
            except OSError:
                found.append(None)
            else:
                found.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return found
