"""503 cl. 5.7: every internal message has an end, and nothing passes after it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from gridpost.core.acceptance import MaximumDurations
from gridpost.core.delivery import Event, Side, State, Status
from gridpost.core.identifiers import MessageTypePattern
from gridpost.core.instant import Instant
from gridpost.core.journal import RefusalRow
from gridpost.core.message import InternalType
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.context import EndpointSettings
from gridpost.wire.amqp.sections import split
from gridpost.wire.mades.amqp_message import decode, read_fields
from support.post import Carried, World

HOUR = timedelta(hours=1)
SETTINGS = EndpointSettings(
    durations=MaximumDurations(HOUR, {MessageTypePattern("SHORT"): timedelta(seconds=60)})
)


def kind_of(carried: Carried) -> InternalType:
    return read_fields(split(carried.data)).internal_type


async def all_six_types() -> World:
    """A world over which each of the six internal types has passed once."""
    world = World(settings=SETTINGS)
    message_id = await world["E1"].send("E2")
    await world["E1"].submission.test_connectivity("app", "E2", "BP1-A")
    await world.carry()
    await world["E2"].handover.confirm(message_id)
    await world.carry()
    world.post.bend = lambda c: (
        replace(c, data=c.data[:-1] + bytes([c.data[-1] ^ 1]))
        if kind_of(c) is InternalType.STANDARD_MESSAGE
        else c
    )
    await world["E1"].send("E2")
    await world.carry()
    return world


@pytest.mark.req("503-5.7-a")
@pytest.mark.req("503-5.7-f")
@pytest.mark.req("503-T11-f")
@pytest.mark.req("503-6.5.2-a")
async def test_all_six_types_carry_their_expiration_three_times() -> None:
    world = await all_six_types()
    seen = set()
    for carried in world.post.carried:
        received = decode(carried.data)
        expiration = received.message.metadata.expiration_time
        assert expiration is not None
        assert received.fields.absolute_expiry == expiration
        left = expiration.milliseconds - Instant.of(world.clock.now()).milliseconds
        assert received.fields.ttl == left
        seen.add(received.fields.internal_type)
    assert seen == set(InternalType)


@pytest.mark.req("503-5.7-b")
@pytest.mark.req("503-5.7-c")
@pytest.mark.req("503-5.7-d")
@pytest.mark.req("m11-3.11.2-b", component="endpoint")
async def test_the_duration_of_the_message_type_counts_from_acceptance() -> None:
    world = World(settings=SETTINGS)
    accepted = world.clock.now()
    short = await world["E1"].send("E2", message_type="SHORT")
    other = await world["E1"].send("E2")
    world.clock.advance(timedelta(seconds=30))
    await world.carry()
    expirations = {
        m.metadata.message_id: m.metadata.expiration_time
        for m in (decode(c.data).message for c in world.post.carried)
        if not m.metadata.internal_type.is_acknowledgement
    }
    assert expirations[short] == Instant.of(accepted + timedelta(seconds=60))
    assert expirations[other] == Instant.of(accepted + HOUR)


@pytest.mark.req("503-5.7-e")
async def test_an_acknowledgement_expires_with_its_original() -> None:
    world = await all_six_types()
    expirations = {
        m.metadata.message_id: m.metadata.expiration_time
        for m in (decode(c.data).message for c in world.post.carried)
    }
    for carried in world.post.carried:
        metadata = decode(carried.data).message.metadata
        if metadata.related_message_id:
            original = expirations[metadata.related_message_id]  # type: ignore[index]
            assert metadata.expiration_time is not None
            assert original is not None
            assert metadata.expiration_time.text == original.text


@pytest.mark.req("503-5.7-g")
async def test_an_expired_message_or_acknowledgement_is_never_transferred() -> None:
    world = World(settings=SETTINGS)
    await world["E1"].send("E2")
    world.clock.advance(HOUR)
    await world.carry()
    assert world.post.carried == []

    await world["E1"].send("E2")
    await world["E1"].transfer.round()
    world.clock.advance(HOUR)
    await world.carry()
    assert [kind_of(c) for c in world.post.carried] == [InternalType.STANDARD_MESSAGE]


@pytest.mark.req("503-5.7-i")
@pytest.mark.req("503-5.7-m")
async def test_an_expired_message_is_not_handed_over_and_nobody_is_told() -> None:
    world = World(settings=SETTINGS)
    message_id = await world["E1"].send("E2")
    await world.carry()
    world.clock.advance(HOUR)
    for _ in range(2):  # before and after the EXPIRE event is written
        handed = await world["E2"].handover.receive("BP1-A")
        assert (handed.entry, handed.remaining) == (None, 0)
        with pytest.raises(Refusal) as caught:
            await world["E2"].handover.confirm(message_id)
        assert caught.value.rule is Rule.MESSAGE_EXPIRED
        await world.expire()
    await world.carry()
    assert await world["E2"].state(Side.RECEIVED, message_id) is State.EXPIRED
    assert InternalType.FAILURE_ACKNOWLEDGEMENT not in {kind_of(c) for c in world.post.carried}


@pytest.mark.req("503-5.7-j", component="endpoint")
async def test_a_message_that_arrives_expired_is_accepted_and_ignored() -> None:
    world = World(settings=SETTINGS)

    def slow(carried: Carried) -> Carried:
        world.clock.advance(HOUR)
        return carried

    world.post.bend = slow
    message_id = await world["E1"].send("E2")
    assert await world["E1"].transfer.round() == 1
    await world.carry()
    with pytest.raises(Refusal):
        await world["E2"].enquiry.entry(Side.RECEIVED, message_id)
    assert len(world.post.carried) == 1
    (noted,) = [r for r in await world["E2"].journal() if isinstance(r, RefusalRow)]
    assert (noted.rule, noted.message_id) == ("MESSAGE_EXPIRED", message_id)


@pytest.mark.req("503-5.7-k")
@pytest.mark.req("503-5.7-l")
@pytest.mark.req("m11-3.11.1-a", component="endpoint")
@pytest.mark.req("m11-3.11.3-b", component="endpoint")
async def test_expiration_fails_accepted_messages_and_leaves_all_others() -> None:
    world = World(settings=SETTINGS)
    received = await world["E1"].send("E2")
    delivered = await world["E1"].send("E2")
    await world.carry()
    await world["E2"].handover.confirm(received)
    await world.carry()
    world.post.bend = lambda carried: None
    transferred = await world["E1"].send("E2")
    await world.carry()
    waiting = await world["E1"].send("E2")
    world.clock.advance(HOUR)
    await world.expire()
    statuses = [await world["E1"].status(m) for m in (received, delivered, transferred, waiting)]
    assert statuses == [Status.RECEIVED, Status.DELIVERED, Status.FAILED, Status.FAILED]
    traced = len(await world["E1"].trace(delivered))
    await world.expire()
    assert len(await world["E1"].trace(delivered)) == traced
    assert (await world["E1"].trace(waiting))[-1].event is Event.EXPIRE


@pytest.mark.req("503-T5-a")
async def test_the_time_to_live_shrinks_with_every_try() -> None:
    world = World(settings=SETTINGS)
    ttls: list[int] = []

    def lossy(carried: Carried) -> Carried:
        ttls.append(read_fields(split(carried.data)).ttl)
        raise Refusal(Rule.UNREACHABLE, "the line is down")

    world.post.bend = lossy
    await world["E1"].send("E2")
    await world.carry()
    world.clock.advance(timedelta(seconds=5))
    await world.carry()
    assert ttls == [3_600_000, 3_595_000]
