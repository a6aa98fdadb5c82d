"""A message that comes in many frames: its octets in one piece of memory, moved there once.

AMQP does not say beforehand how large a message will be. Peers send many of the same size, so a link
remembers the last one; what does not fit moves to twice the room. Memory that was reserved and not
written costs nothing.
"""

from __future__ import annotations

from typing import Any, Final

from gridpost.transports.amqp10.engine import ffi, lib

_LEAST: Final = 256 * 1024
_MOST_AT_FIRST: Final = 4 * 1024 * 1024
# Python's own buffers would be filled with zeros first.
_reserve: Final = ffi.new_allocator(should_clear_after_alloc=False)


class Gathering:
    """What is here of one message."""

    __slots__ = ("_memory", "_room", "size")

    def __init__(self, expected: int) -> None:
        self._room = max(_LEAST, min(expected, _MOST_AT_FIRST))
        self._memory: Any = _reserve("char[]", self._room)
        self.size = 0

    def take(self, link: Any, octets: int) -> None:
        """Move so many octets of the link's current delivery behind those that are here."""
        if self.size + octets > self._room:
            self._grow(self.size + octets)
        while octets > 0:
            taken = lib.pn_link_recv(link, self._memory + self.size, octets)
            if taken <= 0:
                break
            self.size += taken
            octets -= taken

    def view(self) -> memoryview:
        """Good for as long as it is held; nothing may be taken after it."""
        return memoryview(ffi.buffer(self._memory, self.size)).toreadonly()

    def _grow(self, least: int) -> None:
        self._room = max(least, 2 * self._room)
        larger = _reserve("char[]", self._room)
        ffi.memmove(larger, self._memory, self.size)
        self._memory = larger
