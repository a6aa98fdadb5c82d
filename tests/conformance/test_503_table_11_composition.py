"""503 Tables 8 and 11: what an endpoint puts into the messages and acknowledgements it composes."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from gridpost.core.delivery import Side
from gridpost.core.message import InternalType, SealedMessage
from gridpost.services.endpoint.submission import Document
from gridpost.wire.amqp.sections import split
from gridpost.wire.mades.amqp_message import decode, read_fields
from support.post import Carried, World


async def exchanged() -> tuple[World, dict[InternalType, SealedMessage]]:
    """Every kind of internal message once, a second apart, as it passed."""
    world = World()
    seen: dict[InternalType, SealedMessage] = {}

    def tick(carried: Carried) -> Carried:
        message = decode(carried.data).message
        seen.setdefault(message.metadata.internal_type, message)
        world.clock.advance(timedelta(seconds=1))
        return carried

    world.post.bend = tick
    document = Document("E2", "BP1-A", b"<Schedule/>", "BA-7", "App-1", "xml")
    message_id = await world["E1"].submission.send("app", document)
    await world["E1"].submission.test_connectivity("app", "E2", "BP1-A")
    await world.carry()
    handed = await world["E2"].handover.receive("BP1-A")
    assert handed.entry is not None
    received = handed.entry.metadata
    assert (received.extension, received.ba_message_id, received.sender_application) == (
        "xml",
        "BA-7",
        "App-1",
    )
    await world["E2"].handover.confirm(message_id)
    await world.carry()

    def spoil(carried: Carried) -> Carried:
        tick(carried)
        if read_fields(split(carried.data)).internal_type.is_acknowledgement:
            return carried
        return replace(carried, data=carried.data[:-1] + bytes([carried.data[-1] ^ 1]))

    world.post.bend = spoil
    await world["E1"].send("E2")
    await world.carry()
    assert set(seen) == set(InternalType)
    return world, seen


@pytest.mark.req("503-T11-a")
@pytest.mark.req("503-T11-e")
async def test_each_internal_message_has_an_id_and_a_creation_time_of_its_own() -> None:
    world, seen = await exchanged()
    ids = [m.metadata.message_id for m in seen.values()]
    assert len({UUID(i) for i in ids}) == 6
    message = seen[InternalType.STANDARD_MESSAGE].metadata
    for kind in (InternalType.DELIVERY_ACKNOWLEDGEMENT, InternalType.RECEIVE_ACKNOWLEDGEMENT):
        acknowledgement = seen[kind].metadata
        assert acknowledgement.message_id != acknowledgement.related_message_id
        assert acknowledgement.generated > message.generated
    assert all(m.metadata.generated.at <= world.clock.now() for m in seen.values())


@pytest.mark.req("503-T11-d")
@pytest.mark.req("503-T11-j")
@pytest.mark.req("503-T11-k")
async def test_what_the_application_gives_travels_with_messages_only() -> None:
    _, seen = await exchanged()
    for kind, message in seen.items():
        given = (
            message.metadata.extension,
            message.metadata.sender_application,
            message.metadata.ba_message_id,
        )
        expected = ("xml", "App-1", "BA-7") if kind is InternalType.STANDARD_MESSAGE else ("",) * 3
        assert given == expected, kind


@pytest.mark.req("503-T11-i")
async def test_only_acknowledgements_name_a_related_message() -> None:
    _, seen = await exchanged()
    for kind, message in seen.items():
        assert bool(message.metadata.related_message_id) == kind.is_acknowledgement
    original = seen[InternalType.STANDARD_MESSAGE].metadata.message_id
    answered = seen[InternalType.DELIVERY_ACKNOWLEDGEMENT].metadata
    assert answered.related_message_id == original


@pytest.mark.req("503-T8-b")
async def test_element_2_of_a_message_is_its_encrypted_content() -> None:
    world, seen = await exchanged()
    message = seen[InternalType.STANDARD_MESSAGE]
    assert b"<Schedule/>" not in message.body
    content = await world["E2"].store.read(
        lambda work: work.box.content(Side.RECEIVED, message.metadata.message_id)
    )
    assert content == b"<Schedule/>"


@pytest.mark.req("503-T8-c")
async def test_element_2_of_an_acknowledgement_is_readable_text() -> None:
    _, seen = await exchanged()
    for kind, message in seen.items():
        if kind.is_acknowledgement:
            assert message.body.decode("utf-8").strip().isprintable()
