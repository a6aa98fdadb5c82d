"""503 cl. 5.2: business applications and their message-types."""

from __future__ import annotations

import pytest

from gridpost.core.delivery import Side, Status
from gridpost.core.identifiers import (
    message_type,
)
from gridpost.core.refusal import Refusal, Rule
from support.post import World


@pytest.mark.req("503-5.2-b")
def test_a_message_type_must_be_given() -> None:
    with pytest.raises(Refusal) as caught:
        message_type("")
    assert caught.value.rule is Rule.BAD_MESSAGE_TYPE


@pytest.mark.req("503-5.2-d")
def test_message_types_are_free_texts_within_the_pattern() -> None:
    assert message_type("BP1-A") == "BP1-A"
    for strict, bad in ((True, "BP1-A"), (True, "A_B"), (False, "A_B")):
        with pytest.raises(Refusal):
            message_type(bad, strict=strict)


@pytest.mark.req("503-5.2-a")
async def test_an_endpoint_serves_concurrent_requests() -> None:
    import asyncio

    world = World()
    documents = [f"document {n}".encode() for n in range(50)]
    ids = await asyncio.gather(*(world["E1"].send("E2", d) for d in documents))
    assert len(set(ids)) == 50
    await world.carry()
    contents = await asyncio.gather(
        *(
            world["E2"].store.read(lambda work, i=i: work.box.content(Side.RECEIVED, i))  # type: ignore[misc]
            for i in ids
        )
    )
    assert contents == documents
    await asyncio.gather(*(world["E2"].handover.confirm(i) for i in ids))
    await world.carry()
    assert {await world["E1"].status(i) for i in ids} == {Status.RECEIVED}


@pytest.mark.req("503-5.2-b")
async def test_a_message_without_its_type_is_refused_and_nothing_stored() -> None:
    world = World()
    with pytest.raises(Refusal):
        await world["E1"].send("E2", message_type="")
    assert await world["E1"].journal() == []


@pytest.mark.req("503-5.2-c")
async def test_applications_get_only_the_message_type_they_ask_for() -> None:
    world = World()
    first = await world["E1"].send("E2", b"a", "TYPE-A")
    await world["E1"].send("E2", b"b", "TYPE-B")
    await world.carry()
    handed = await world["E2"].handover.receive("TYPE-A")
    assert handed.entry is not None
    assert (handed.entry.message_id, handed.content, handed.remaining) == (first, b"a", 0)
    assert (await world["E2"].handover.receive("TYPE")).entry is None
