"""Processes of one endpoint are upgraded one after the other over one database."""

from __future__ import annotations

import asyncio

import pytest

from gridpost.core.delivery import Side
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.postgres import endpoint
from gridpost.stores.postgres.endpoint import PostgresEndpointStore
from gridpost.stores.postgres.endpoint_schema import ENDPOINT
from support.boxed import box_entry, put
from support.postgres import PostgresDatabase

TOMORROW = (
    "ALTER TABLE message ADD COLUMN of_tomorrow text",
    "CREATE INDEX message_of_tomorrow ON message (of_tomorrow) WHERE of_tomorrow IS NOT NULL",
)


async def test_an_old_process_works_on_beside_a_newer_one_and_is_refused_when_it_comes_back(
    postgres: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = postgres.settings()

    async def opened() -> PostgresEndpointStore:
        async with asyncio.timeout(60):
            return await asyncio.to_thread(PostgresEndpointStore.open, settings, "E1")

    async def keep(store: PostgresEndpointStore, message_id: str) -> None:
        assert await store.run(lambda unit: put(unit, box_entry(message_id=message_id)))

    async def known(store: PostgresEndpointStore, message_id: str) -> bool:
        return await store.read(lambda unit: unit.box.find(Side.SENT, message_id)) is not None

    old = await opened()
    await keep(old, "before")
    box = ENDPOINT["message-box"]
    monkeypatch.setattr(endpoint, "ENDPOINT", {**ENDPOINT, "message-box": (*box, TOMORROW)})
    newer = await opened()
    # Both write and see what the other has written.
    await keep(old, "by the old one")
    await keep(newer, "by the newer one")
    for store in (old, newer):
        for message_id in ("before", "by the old one", "by the newer one"):
            assert await known(store, message_id)
    await old.close()
    monkeypatch.setattr(endpoint, "ENDPOINT", ENDPOINT)
    with pytest.raises(Refusal, match=f"this Gridpost knows versions up to {len(box)}") as refused:
        await opened()
    assert refused.value.rule is Rule.STORE_TOO_NEW
    assert await known(newer, "by the old one")
    await newer.close()
