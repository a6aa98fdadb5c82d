"""503 cl. 5.12: tracing-messages test a route with everything but an application."""

from dataclasses import replace
from datetime import timedelta

import pytest

from gridpost.core.delivery import Side, State, Status
from gridpost.core.message import (
    ENCRYPTION,
    SIGNATURE,
    InternalMessage,
    InternalType,
    SealedMessage,
)
from gridpost.wire.amqp.sections import split
from gridpost.wire.mades.amqp_message import decode, encode, read_fields
from gridpost.wire.seal.signing import sign
from support.builders import metadata, path
from support.post import BY_B1, START, Carried, World

TRACING = InternalType.TRACING_MESSAGE


async def traced(world: World, message_type: str = "BP1-A") -> str:
    message_id = await world["E1"].submission.test_connectivity("app", "E2", message_type)
    await world.carry()
    return message_id


@pytest.mark.req("503-5.12-b")
@pytest.mark.req("503-5.12-c")
@pytest.mark.req("503-5.12-d")
@pytest.mark.req("503-5.12-e")
@pytest.mark.req("503-5.12-i")
@pytest.mark.req("503-5.12-k")
async def test_a_trace_is_signed_encrypted_answered_and_delivered() -> None:
    world = World()
    message_id = await traced(world)
    sent, answered = (decode(c.data) for c in world.post.carried)
    assert sent.fields.internal_type is TRACING
    assert sent.message.metadata.internal_type is TRACING
    assert len(sent.message.metadata.processors_named(SIGNATURE)) == 1
    assert len(sent.message.metadata.processors_named(ENCRYPTION)) == 1
    stored = await world["E2"].store.read(lambda w: w.box.content(Side.RECEIVED, message_id))
    assert stored
    assert answered.fields.internal_type is InternalType.TRACING_ACKNOWLEDGEMENT
    assert await world["E1"].status(message_id) is Status.DELIVERED
    assert await world["E1"].state(Side.SENT, message_id) is State.TRACED


@pytest.mark.req("503-5.12-k")
async def test_an_unanswered_trace_fails_when_it_expires() -> None:
    world = World()
    world.post.bend = lambda carried: None
    message_id = await traced(world)
    assert await world["E1"].status(message_id) is Status.ACCEPTED
    world.clock.advance(timedelta(days=1))
    await world.expire()
    assert await world["E1"].status(message_id) is Status.FAILED


@pytest.mark.req("503-5.12-e")
@pytest.mark.req("503-5.12-c")
async def test_a_plain_trace_of_a_peer_with_any_content_is_answered_too() -> None:
    world = World()
    plain = metadata(TRACING, expires=START + timedelta(hours=1))
    plain = replace(plain, generated=replace(plain.generated, at=START, text=START.isoformat()))
    message = await sign(InternalMessage(plain, b"\x00"), world["E1"].keyring.signers()[0])
    data = encode(SealedMessage(message.metadata, message.content), None, world.clock.now())
    await world["E2"].arrival.arrive(data, BY_B1)
    await world["E2"].transfer.round()
    kinds = [read_fields(split(c.data)).internal_type for c in world.post.carried]
    assert kinds == [InternalType.TRACING_ACKNOWLEDGEMENT]


@pytest.mark.req("503-5.12-d")
@pytest.mark.req("503-5.12-f")
async def test_a_trace_that_does_not_verify_is_answered_with_a_failure() -> None:
    world = World()

    def spoil(carried: Carried) -> Carried:
        if read_fields(split(carried.data)).internal_type is not TRACING:
            return carried
        return replace(carried, data=carried.data[:-1] + bytes([carried.data[-1] ^ 1]))

    world.post.bend = spoil
    message_id = await traced(world)
    assert await world["E1"].status(message_id) is Status.FAILED
    kinds = [read_fields(split(c.data)).internal_type for c in world.post.carried]
    assert kinds == [TRACING, InternalType.FAILURE_ACKNOWLEDGEMENT]


@pytest.mark.req("503-5.12-g")
async def test_a_trace_takes_the_route_of_its_message_type() -> None:
    since = START - timedelta(days=1)
    world = World(path("A", "INDIRECT:B1", start=since), path("B", "INDIRECT:B2", start=since))
    await traced(world, "A")
    await traced(world, "B")
    assert [str(c.route) for c in world.post.carried] == ["INDIRECT:B1"] * 2 + ["INDIRECT:B2"] * 2


@pytest.mark.req("503-5.12-j")
async def test_a_trace_is_never_handed_to_an_application() -> None:
    world = World()
    await traced(world)
    handed = await world["E2"].handover.receive("BP1-A")
    assert (handed.entry, handed.remaining) == (None, 0)
