"""A message while its frames come in: one piece of memory that grows, into which proton writes itself.

How long it will be is not known before its last frame; the one before it on the same link is the best
guess. Memory that nothing was written to costs nothing, so a guess may be too large.
"""

from __future__ import annotations

from typing import Any, Final

from gridpost.transports.amqp10.engine import ffi, lib

_LEAST: Final = 256 * 1024
_MOST: Final = 2 * 1024 * 1024
"""However large the message before it was: a guess is not more."""
_room: Final = ffi.new_allocator(should_clear_after_alloc=False)


class Gathered:
    __slots__ = ("_memory", "_size", "octets")

    def __init__(self, guess: int) -> None:
        self._size = min(max(guess, _LEAST), _MOST)
        self._memory: Any = _room("char[]", self._size)
        self.octets = 0
        """How many are here."""

    def take(self, pn: Any, waiting: int) -> None:
        """Move so many octets out of proton behind those that are here already."""
        if self.octets + waiting > self._size:
            self._grow(self.octets + waiting)
        while waiting > 0:
            taken = lib.pn_link_recv(pn, self._memory + self.octets, waiting)
            if taken <= 0:
                break
            self.octets += taken
            waiting -= taken

    def message(self) -> memoryview:
        """Everything; the memory lives as long as the view."""
        return memoryview(ffi.buffer(self._memory, self.octets))

    def _grow(self, needed: int) -> None:
        self._size = max(needed, 2 * self._size)
        memory = _room("char[]", self._size)
        ffi.memmove(memory, self._memory, self.octets)
        self._memory = memory
