"""Where the data of a store under test live: they stay when the store is closed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

import pytest

from gridpost.core.ports import Store


class Place(Protocol):
    def open(self, component: str = "E1") -> Store:
        """A store on the data of this place; only one is open at a time."""
        ...


class Contract:
    """What all parts of the contract use."""

    @pytest.fixture
    def place(self) -> Place:
        raise NotImplementedError("a store under test says where its data live")

    @pytest.fixture
    async def store(self, place: Place) -> AsyncIterator[Store]:
        store = place.open()
        yield store
        await store.close()


async def restarted(place: Place, store: Store) -> Store:
    await store.close()
    return place.open()
