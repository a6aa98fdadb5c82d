"""A message while its frames come in: one piece of memory, into which proton writes itself.

How long it will be is not known before its last frame; the one before it on the same link is the best
guess. Memory that nothing was written to costs nothing, so a guess may be too large; but only who has
sent a good part of a large message gets room for all of it, and what turns out to be far too large is
not kept. What outgrows the guesses is held by a bytearray, which the system lets grow in its place:
never twice in memory.
"""

from __future__ import annotations

from typing import Any, Final

from gridpost.transports.amqp10.engine import BUFFERS, SCRATCH, ffi, lib

_LEAST: Final = 256 * 1024
_MOST: Final = 2 * 1024 * 1024
_VARIES: Final = 64 * 1024
"""By how much messages of one kind differ in what stands around their documents."""
_room: Final = ffi.new_allocator(should_clear_after_alloc=False)


class Gathered:
    __slots__ = ("_grown", "_guess", "_memory", "_size", "octets")

    def __init__(self, guess: int) -> None:
        self._guess = guess
        self._size = min(max(guess, _LEAST), _MOST)
        self._memory: Any = _room("char[]", self._size)
        self._grown: bytearray | None = None
        self.octets = 0
        """How many are here."""

    def take(self, pn: Any, waiting: int) -> None:
        """Move so many octets out of proton behind those that are here already."""
        if self._grown is None and self.octets + waiting > self._size:
            self._outgrow(waiting)
        while waiting > 0:
            if self._grown is None:
                taken = lib.pn_link_recv(pn, self._memory + self.octets, waiting)
            else:
                taken = lib.pn_link_recv(pn, BUFFERS.scratch, min(SCRATCH, waiting))
                if taken > 0:
                    self._grown += ffi.buffer(BUFFERS.scratch, taken)
            if taken <= 0:
                break
            self.octets += taken
            waiting -= taken

    def _outgrow(self, waiting: int) -> None:
        here = ffi.buffer(self._memory, self.octets)
        size = self._guess + _VARIES
        if self._size < self._guess and self.octets + waiting <= size:
            memory = _room("char[]", size)
            ffi.memmove(memory, here, self.octets)
            self._memory, self._size = memory, size
        else:
            self._grown = bytearray(here)
            self._memory = None

    def message(self) -> memoryview:
        """Everything; the memory lives as long as the view."""
        if self._grown is not None:
            return memoryview(self._grown)
        here = ffi.buffer(self._memory, self.octets)
        if self._size > _MOST and self.octets < self._size // 2:
            return memoryview(bytes(here))
        return memoryview(here)
