"""503 cl. 8.6 and 7.7.1 at an endpoint: what it does not know, or no longer knows, it does not use."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gridpost.core.delivery import Side, State, Status
from gridpost.core.identifiers import ComponentCode
from gridpost.core.journal import RefusalRow
from gridpost.core.message_box import Search
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.synchronisation import Directory, Subsystem
from support.builders import directory
from support.post import START, Carried, World


async def stored(world: World, code: str) -> int:
    found = await world[code].store.read(lambda unit: unit.box.search(Search(), 10).entries)
    return len(found)


@pytest.mark.req("503-8.6-d")
async def test_nothing_is_accepted_for_a_revoked_endpoint() -> None:
    world = World()
    world.directory = world.describe(without="E2")
    with pytest.raises(Refusal) as refused:
        await world["E1"].send("E2")
    assert refused.value.rule is Rule.RECIPIENT_UNKNOWN
    assert await stored(world, "E1") == 0


@pytest.mark.req("503-8.6-e")
async def test_nothing_is_accepted_that_would_pass_a_revoked_broker() -> None:
    world = World()
    known = [c for s in world.directory.subsystems.values() for c in s.components]
    world.directory = directory(*(c for c in known if c.code != "B1"))
    with pytest.raises(Refusal) as refused:
        await world["E1"].send("E2")
    assert refused.value.rule is Rule.BROKER_UNKNOWN
    assert await stored(world, "E1") == 0


@pytest.mark.req("503-8.6-h")
async def test_a_message_of_a_revoked_sender_is_not_delivered() -> None:
    world = World()
    message_id = await world["E1"].send("E2")

    def revoked_meanwhile(carried: Carried) -> Carried:
        world.directory = world.describe(without="E1")
        return carried

    world.post.bend = revoked_meanwhile
    await world.carry()
    assert (await world["E2"].handover.receive("BP1-A")).entry is None
    rows = [r for r in await world["E2"].journal() if isinstance(r, RefusalRow)]
    assert [r.message_id for r in rows] == [message_id]
    assert await world["E1"].status(message_id) not in (Status.DELIVERED, Status.RECEIVED)


@pytest.mark.req("503-7.7.1-e", component="endpoint")
async def test_a_message_fails_when_what_is_known_of_its_sender_has_lapsed() -> None:
    world = World()
    message_id = await world["E1"].send("E2")
    lapsed = START - timedelta(seconds=1)

    def foreign(valid_until: object) -> Directory:
        """E1 is of another subsystem, whose replica is valid until then."""
        home = world.describe(without="E1").subsystems[ComponentCode("CD-1")]
        other = ComponentCode("CD-2")
        sender = world.describe().find("E1", START)
        assert sender is not None
        moved = replace(sender, component_directory=other)
        return Directory.of([home, Subsystem(other, "1", (moved,), valid_until)])

    def lapses(carried: Carried) -> Carried:
        world.directory = foreign(lapsed)
        return carried

    world.post.bend = lapses
    await world.carry()
    assert (await world["E2"].handover.receive("BP1-A")).entry is None
    (row,) = [r for r in await world["E2"].journal() if isinstance(r, RefusalRow)]
    assert row.message_id == message_id
    assert "E1" in row.message + row.details
    # As long as it is valid, the very same message is delivered.
    again = World()
    message_id = await again["E1"].send("E2")
    again.directory = foreign(START + timedelta(days=1))
    await again.carry()
    assert await again["E2"].state(Side.RECEIVED, message_id) is State.WAITING
