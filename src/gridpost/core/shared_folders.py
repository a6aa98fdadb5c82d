"""What an endpoint needs of the folders that it shares with applications (503 cl. 11.2).

Everything that a call did is durable when it returns. A folder that does not keep what it is given
is refused with FOLDER_FAILED, and nothing that was there before is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gridpost.core.refusal import Refusal


@dataclass(frozen=True, slots=True)
class Found:
    """A file to be sent, as it was when it was seen."""

    name: str
    inode: int
    modified: int
    """Nanoseconds."""
    size: int

    @property
    def key(self) -> str:
        """Another file of the same name has another key."""
        return f"{self.name}/{self.inode}/{self.modified}"


@dataclass(frozen=True, slots=True)
class Received:
    """A document on its way into an IN folder."""

    name: str
    content: bytes


class OutFolder(Protocol):
    """OUT, and OUT_ERROR behind it."""

    async def scan(self) -> Sequence[Found]:
        """What waits there, oldest first. Files that are still being written are left out."""
        ...

    async def read(self, found: Found, limit: int) -> bytes | None:
        """The document; None: it is not there any more, or another one is."""
        ...

    async def remove(self, taken: Sequence[Found]) -> Sequence[Found]:
        """Delete files whose messages are stored; which of them are gone."""
        ...

    async def reject(self, found: Found, reason: str) -> str:
        """Move to OUT_ERROR, never over another file, with the reason beside it; its name there."""
        ...


class LogFolder(Protocol):
    """OUT_LOG."""

    async def choose(self, out_name: str) -> str:
        """A name that no log has, for the log of a file that is about to be accepted."""
        ...

    def remember(self, names: Sequence[str]) -> None:
        """After a restart: these were chosen, and have perhaps no line yet."""
        ...

    async def append(self, lines: Sequence[tuple[str, bytes]]) -> None:
        """Lines behind those that the named logs have; one that stands there last is not repeated."""
        ...


class InFolder(Protocol):
    async def write(self, files: Sequence[Received]) -> Sequence[Refusal | None]:
        """Each complete under its name, or refused; one that is there already is left as it is."""
        ...
