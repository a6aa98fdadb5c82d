"""The memory twin keeps the contract."""

import pytest

from gridpost.stores.memory import MemoryDisk, MemoryStore
from stores.contract import StoreContract
from stores.place import Place


class MemoryPlace:
    def __init__(self) -> None:
        self._disk = MemoryDisk()

    def open(self, component: str = "E1") -> MemoryStore:
        return MemoryStore(component, self._disk)


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def place(self) -> Place:
        return MemoryPlace()
