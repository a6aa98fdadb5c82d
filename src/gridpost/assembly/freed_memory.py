"""What becomes of memory that a component has freed.

Left to itself, the allocator of glibc gives every thread a store of its own, where the memory of one
large document waits for another one in the same thread, and hands that of the first thread back to the
system at once, page by page, only to ask for it again. Here all threads share one store, and as much
of it is kept as a few large documents take.
"""

from __future__ import annotations

import ctypes
import os

_MIB = 1024 * 1024
# malloc.h
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8

KEPT = 64 * _MIB
"""Free memory at the end of the store up to here is not given back."""
APART = 32 * _MIB
"""Larger pieces are the system's again as soon as they are free: no more than this can be chosen."""


def share_freed_memory() -> bool:
    """Before the first thread starts. False: an operator, or another C library, has its own way."""
    if any(name.startswith("MALLOC_") for name in os.environ) or "GLIBC_TUNABLES" in os.environ:
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    chosen = ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, APART), (_TRIM_THRESHOLD, KEPT))
    done = [mallopt(option, value) for option, value in chosen]
    return all(done)
