"""A message that arrives in several frames, held once however large it becomes.

A large one gets memory of its own from the system: it grows without being copied, and all of it
goes back when the last view of it is dropped, which the heap does not promise.
"""

from __future__ import annotations

import mmap
from typing import Final

from gridpost.core.links import Octets

OWN_MEMORY: Final = 1024 * 1024


class Assembly:
    """Octets one after the other."""

    __slots__ = ("_heap", "_own", "size")

    def __init__(self) -> None:
        self._heap = bytearray()
        self._own: mmap.mmap | None = None
        self.size = 0

    def append(self, octets: memoryview) -> None:
        end = self.size + len(octets)
        if end <= OWN_MEMORY:
            self._heap += octets
        else:
            own = self._room_for(end)
            own[self.size : end] = octets
        self.size = end

    def take(self) -> Octets:
        """Everything, as a view that keeps the memory."""
        if self._own is None:
            return memoryview(self._heap)
        return memoryview(self._own)[: self.size]

    def _room_for(self, end: int) -> mmap.mmap:
        if self._own is None:
            self._own = mmap.mmap(-1, 4 * OWN_MEMORY, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self._own[: self.size] = bytes(self._heap)
            self._heap = bytearray()
        while end > len(self._own):
            # Pages that nothing was written to cost nothing.
            self._own.resize(2 * len(self._own))
        return self._own
