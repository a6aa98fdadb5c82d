"""The store in memory: the twin of every other one, for tests and for demonstrations."""

from gridpost.stores.memory.state import MemoryDisk
from gridpost.stores.memory.store import MemoryStore

__all__ = ["MemoryDisk", "MemoryStore"]
