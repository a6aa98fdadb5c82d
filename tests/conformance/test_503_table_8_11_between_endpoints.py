"""503 Tables 8 and 11: what two endpoints really put into messages and acknowledgements of all kinds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from gridpost.core.message import ENCRYPTION, InternalType, SealedMessage
from gridpost.wire.amqp.codec import decode as decode_value
from gridpost.wire.amqp.sections import Section, split
from gridpost.wire.mades.amqp_message import decode, encode
from gridpost.wire.seal import open_sealed
from support.post import Carried, World

DOCUMENT = b"<Document>\x00\xff</Document>"
MESSAGES = {InternalType.STANDARD_MESSAGE, InternalType.TRACING_MESSAGE}
ACKNOWLEDGEMENTS = set(InternalType) - MESSAGES


@dataclass(frozen=True)
class Transfer:
    """An internal message as it was on the wire, and the original if it is an acknowledgement."""

    data: bytes
    message: SealedMessage
    original: SealedMessage | None


async def transfers(world: World) -> dict[InternalType, Transfer]:
    """E1 sends E2 a document, a tracing-message and a document that is spoiled on the way."""
    spoil = False

    def bend(carried: Carried) -> Carried:
        # Time passes on the way, so that each internal message has its own.
        world.clock.advance(timedelta(seconds=7))
        message = decode(carried.data).message
        if spoil and not message.metadata.internal_type.is_acknowledgement:
            broken = replace(message, body=message.body[:-1] + bytes((message.body[-1] ^ 1,)))
            carried = replace(carried, data=encode(broken, None, world.clock.now()))
        return carried

    world.post.bend = bend
    extras = {"extension": "xml", "sender_application": "SCADA-7", "ba_message_id": "ba-1"}
    message_id = await world["E1"].send("E2", DOCUMENT, **extras)
    await world.carry()
    await world["E2"].handover.confirm(message_id)
    await world["E1"].submission.test_connectivity("app", "E2", "BP1-A")
    await world.carry()
    spoil = True
    await world["E1"].send("E2", DOCUMENT, **extras)
    await world.carry()

    sent = [(carried.data, decode(carried.data).message) for carried in world.post.carried]
    by_id = {message.metadata.message_id: message for _, message in sent}
    found: dict[InternalType, Transfer] = {}
    for data, message in sent:
        original = by_id.get(message.metadata.related_message_id)  # type: ignore[call-overload]
        found.setdefault(message.metadata.internal_type, Transfer(data, message, original))
    assert set(found) == set(InternalType)
    return found


def second_element(data: bytes) -> object:
    (body,) = split(data).body
    assert body.kind is Section.AMQP_SEQUENCE
    value = decode_value(body.value)
    assert isinstance(value, list)
    return value[1]


@pytest.mark.req("503-T8-b")
async def test_element_2_of_a_message_is_the_encrypted_document() -> None:
    world = World()
    transfer = (await transfers(world))[InternalType.STANDARD_MESSAGE]
    element = second_element(transfer.data)
    assert type(element) is bytes
    assert DOCUMENT not in transfer.data
    assert transfer.message.metadata.processors_named(ENCRYPTION)
    sender, recipient = world["E1"], world["E2"]
    opened = await open_sealed(
        SealedMessage(transfer.message.metadata, element),
        recipient.keyring.openers(),
        sender.certificates,
        recipient.context.settings.profile(sender.code),
    )
    assert opened.message.content == DOCUMENT


@pytest.mark.req("503-T8-c")
async def test_element_2_of_an_acknowledgement_is_plain_text() -> None:
    sent = await transfers(World())
    for kind in ACKNOWLEDGEMENTS:
        element = second_element(sent[kind].data)
        assert type(element) is bytes
        assert element.decode("utf-8").isprintable()
        assert element
        assert not sent[kind].message.metadata.processors_named(ENCRYPTION)


@pytest.mark.req("503-T11-a")
async def test_each_internal_message_has_an_id_of_its_own() -> None:
    sent = await transfers(World())
    identifiers = {transfer.message.metadata.message_id for transfer in sent.values()}
    assert len(identifiers) == len(InternalType)


@pytest.mark.req("503-T11-d")
async def test_only_a_message_has_the_extension_of_its_file() -> None:
    sent = await transfers(World())
    assert sent[InternalType.STANDARD_MESSAGE].message.metadata.extension == "xml"
    for kind in set(InternalType) - {InternalType.STANDARD_MESSAGE}:
        assert sent[kind].message.metadata.extension == ""
        assert b"<extension" not in sent[kind].data


@pytest.mark.req("503-T11-e")
async def test_each_internal_message_has_the_time_of_its_own_creation() -> None:
    world = World()
    start = world.clock.now()
    sent = await transfers(world)
    assert sent[InternalType.STANDARD_MESSAGE].message.metadata.generated.at == start
    for kind in ACKNOWLEDGEMENTS:
        original = sent[kind].original
        assert original is not None
        late = sent[kind].message.metadata.generated.at - original.metadata.generated.at
        assert late >= timedelta(seconds=7)


@pytest.mark.req("503-T11-i")
async def test_only_an_acknowledgement_is_related_to_another_message() -> None:
    sent = await transfers(World())
    for kind in MESSAGES:
        assert sent[kind].message.metadata.related_message_id == ""
        assert b"<relatedMessageID" not in sent[kind].data
    for kind in ACKNOWLEDGEMENTS:
        original = sent[kind].original
        assert original is not None
        assert sent[kind].message.metadata.related_message_id == original.metadata.message_id
        assert original.metadata.internal_type in MESSAGES


@pytest.mark.parametrize(
    ("attribute", "element", "value"),
    [
        pytest.param(
            "sender_application",
            b"senderApplication",
            "SCADA-7",
            marks=pytest.mark.req("503-T11-j"),
        ),
        pytest.param("ba_message_id", b"baMessageID", "ba-1", marks=pytest.mark.req("503-T11-k")),
    ],
)
async def test_what_the_sender_application_gives_reaches_the_recipient_as_it_is(
    attribute: str, element: bytes, value: str
) -> None:
    world = World()
    sent = await transfers(world)
    assert getattr(sent[InternalType.STANDARD_MESSAGE].message.metadata, attribute) == value
    for kind in ACKNOWLEDGEMENTS:
        assert getattr(sent[kind].message.metadata, attribute) == ""
        assert element not in sent[kind].data
    world.post.bend = lambda carried: carried
    extras = {"sender_application": "SCADA-7", "ba_message_id": "ba-1"}
    await world["E1"].send("E2", DOCUMENT, "BP1-B", **extras)
    await world.carry()
    handed = await world["E2"].handover.receive("BP1-B")
    assert handed.entry is not None
    assert getattr(handed.entry.metadata, attribute) == value
