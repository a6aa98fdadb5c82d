"""503 cl. 5.6 and Table 1: statuses, tracking events and acknowledgements between two endpoints."""

from dataclasses import replace
from datetime import timedelta

import pytest

from gridpost.core.acknowledgement import compose, fingerprint_content
from gridpost.core.delivery import Event, Side, State, Status
from gridpost.core.identifiers import new_message_id
from gridpost.core.journal import AcknowledgementRow, RefusalRow
from gridpost.core.message import (
    ENCRYPTION,
    SIGNATURE,
    InternalType,
    SealedMessage,
)
from gridpost.core.message_path import DIRECT, Route
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.mades.amqp_message import decode, encode
from gridpost.wire.seal.closing import unencrypted
from gridpost.wire.seal.signing import sign
from support.builders import path
from support.post import BY_B1, START, Carried, World

DELIVERY = InternalType.DELIVERY_ACKNOWLEDGEMENT
RECEIVE = InternalType.RECEIVE_ACKNOWLEDGEMENT
FAILURE = InternalType.FAILURE_ACKNOWLEDGEMENT


def message_of(carried: Carried) -> SealedMessage:
    return decode(carried.data).message


def passed(world: World, kind: InternalType) -> list[SealedMessage]:
    messages = [message_of(c) for c in world.post.carried]
    return [m for m in messages if m.metadata.internal_type is kind]


def only(world: World, *kinds: InternalType) -> None:
    """Let these kinds through and lose the others on the way."""
    world.post.bend = lambda c: c if message_of(c).metadata.internal_type in kinds else None


async def confirmed(world: World) -> str:
    """One document from E1 to E2, delivered and confirmed."""
    message_id = await world["E1"].send("E2")
    await world.carry()
    await world["E2"].handover.confirm(message_id)
    await world.carry()
    return message_id


async def answer(
    world: World, message_id: str, kind: InternalType, content: bytes = b"x", **changed: object
) -> None:
    """An acknowledgement by E2, as E2's code would make it but for what the test changes."""
    entry = await world["E1"].enquiry.entry(Side.SENT, message_id)
    made = compose(
        kind, entry.metadata, content, message_id=new_message_id(), now=world.clock.now()
    )
    made = replace(made, metadata=replace(made.metadata, **changed))  # type: ignore[arg-type]
    if kind is DELIVERY:
        made = await sign(made, world["E2"].keyring.signers()[0])
    await inject(world, unencrypted(made))


async def inject(world: World, sealed: SealedMessage, route: Route = BY_B1) -> None:
    data = encode(sealed, None, world.clock.now())
    await world[sealed.metadata.receiver_code].arrival.arrive(data, route)


async def good_fingerprint(world: World, message_id: str) -> bytes:
    entry = await world["E1"].enquiry.entry(Side.SENT, message_id)
    return fingerprint_content(entry.fingerprint)


@pytest.mark.req("503-5.6.1-a")
async def test_the_status_of_a_sent_message_can_be_asked_for() -> None:
    world = World()
    message_id = await world["E1"].send("E2")
    assert await world["E1"].status(message_id) is Status.ACCEPTED
    await world.carry()
    assert await world["E1"].status(message_id) is Status.DELIVERED
    await world["E2"].handover.confirm(message_id)
    await world.carry()
    assert await world["E1"].status(message_id) is Status.RECEIVED
    with pytest.raises(Refusal) as caught:
        await world["E1"].status(new_message_id())
    assert caught.value.rule is Rule.MESSAGE_UNKNOWN


@pytest.mark.req("503-5.6.1-b")
async def test_the_status_is_what_the_sender_endpoint_knows() -> None:
    world = World()
    only(world, InternalType.STANDARD_MESSAGE)
    message_id = await world["E1"].send("E2")
    await world.carry()
    assert await world["E2"].state(Side.RECEIVED, message_id) is State.WAITING
    assert await world["E1"].status(message_id) is Status.ACCEPTED


@pytest.mark.req("503-5.6.1-c")
@pytest.mark.req("503-T1-a")
async def test_accepted_is_stored_before_the_application_gets_its_answer() -> None:
    world = World()
    message_id = await world["E1"].send("E2")
    entry = await world["E1"].enquiry.entry(Side.SENT, message_id)
    assert entry.delivery.state is State.ACCEPTED
    assert [t.event for t in await world["E1"].trace(message_id)] == [Event.ACCEPT]
    stored = await world["E1"].store.read(lambda work: work.box.content(Side.SENT, message_id))
    assert stored == b"document"
    assert world.post.carried == []


@pytest.mark.req("503-5.6.1-d")
async def test_delivered_means_opened_verified_and_stored_by_the_recipient() -> None:
    world = World()
    message_id = await world["E1"].send("E2")
    stored_when_acknowledged: list[bytes | None] = []

    async def watch(carried: Carried) -> Carried:
        if message_of(carried).metadata.internal_type is DELIVERY:
            stored = await world["E2"].store.read(
                lambda work: work.box.content(Side.RECEIVED, message_id)
            )
            stored_when_acknowledged.append(stored)
        return carried

    world.post.bend = watch
    await world.carry()
    assert stored_when_acknowledged == [b"document"]

    def break_signature(carried: Carried) -> Carried:
        message = message_of(carried)
        if message.metadata.internal_type is not InternalType.STANDARD_MESSAGE:
            return carried
        stripped = message.metadata.with_processors(
            p for p in message.metadata.processors if p.processor_id != SIGNATURE
        )
        data = encode(replace(message, metadata=stripped), None, world.clock.now())
        return replace(carried, data=data)

    world.post.bend = break_signature
    unsigned = await world["E1"].send("E2")
    await world.carry()
    assert await world["E1"].status(unsigned) is Status.FAILED


@pytest.mark.req("503-5.6.1-e")
async def test_received_needs_the_confirmation_of_an_application() -> None:
    world = World()
    message_id = await world["E1"].send("E2")
    await world.carry()
    assert (await world["E2"].handover.receive("BP1-A")).content == b"document"
    await world.carry()
    assert await world["E1"].status(message_id) is Status.DELIVERED
    await world["E2"].handover.confirm(message_id)
    await world.carry()
    assert await world["E1"].status(message_id) is Status.RECEIVED


@pytest.mark.req("503-5.6.1-f")
@pytest.mark.req("503-T1-h")
async def test_failed_means_that_no_delivery_can_be_guaranteed() -> None:
    world = World()
    only(world)
    message_id = await world["E1"].send("E2")
    await world.carry()
    world.clock.advance(timedelta(days=1))
    await world.expire()
    assert await world["E1"].status(message_id) is Status.FAILED
    last = (await world["E1"].trace(message_id))[-1]
    assert last.event is Event.EXPIRE
    assert "expired" in last.detail
    assert not [r for r in await world["E1"].journal() if isinstance(r, AcknowledgementRow)]


@pytest.mark.req("503-5.6.1-h")
async def test_late_and_repeated_acknowledgements_are_traced_and_move_nothing() -> None:
    world = World()
    message_id = await confirmed(world)
    before = len(await world["E1"].trace(message_id))
    for kind in (DELIVERY, RECEIVE, FAILURE):
        content = await good_fingerprint(world, message_id) if kind is DELIVERY else b"late"
        await answer(world, message_id, kind, content)
    assert await world["E1"].status(message_id) is Status.RECEIVED
    late = (await world["E1"].trace(message_id))[before:]
    assert [t.event for t in late] == [
        Event.DELIVERY_ACKNOWLEDGED,
        Event.RECEIVE_ACKNOWLEDGED,
        Event.FAILURE_ACKNOWLEDGED,
    ]
    assert not any(t.moved for t in late)


@pytest.mark.req("503-5.6.1-h")
async def test_a_receive_acknowledgement_waits_for_a_verified_delivery_acknowledgement() -> None:
    world = World()
    only(world, InternalType.STANDARD_MESSAGE)
    message_id = await world["E1"].send("E2")
    await world.carry()
    await answer(world, message_id, RECEIVE)
    assert await world["E1"].status(message_id) is Status.ACCEPTED
    await answer(world, message_id, DELIVERY, await good_fingerprint(world, message_id))
    assert await world["E1"].status(message_id) is Status.RECEIVED

    unproven = await world["E1"].send("E2")
    await answer(world, unproven, RECEIVE)
    world.clock.advance(timedelta(days=2))
    await world.expire()
    assert await world["E1"].status(unproven) is Status.FAILED
    assert "no verified DELIVERY" in (await world["E1"].trace(unproven))[-1].detail


@pytest.mark.req("503-5.6.2-a", component="endpoint")
@pytest.mark.req("503-5.6.2-b")
async def test_the_sender_notes_its_own_events_and_the_recipient_sends_acknowledgements() -> None:
    world = World()
    await confirmed(world)
    kinds = [message_of(c).metadata.internal_type for c in world.post.carried]
    assert kinds == [InternalType.STANDARD_MESSAGE, DELIVERY, RECEIVE]


@pytest.mark.req("503-5.6.2-e")
async def test_an_acknowledgement_of_an_unknown_message_changes_nothing_and_is_logged() -> None:
    world = World()
    message_id = await world["E1"].send("E2")
    await answer(world, message_id, RECEIVE, related_message_id=new_message_id())
    assert await world["E1"].state(Side.SENT, message_id) is State.ACCEPTED
    refusals = [r for r in await world["E1"].journal() if isinstance(r, RefusalRow)]
    assert [r.rule for r in refusals] == ["MESSAGE_UNKNOWN"]


@pytest.mark.req("503-5.6.2-f")
@pytest.mark.req("503-5.6.2-g")
@pytest.mark.req("503-T11-b")
@pytest.mark.req("503-T11-c")
@pytest.mark.req("503-T11-g")
async def test_acknowledgements_repeat_the_message_type_and_are_never_encrypted() -> None:
    world = World()
    await confirmed(world)
    world.post.bend = lambda c: replace(c, data=_other_key(world, c))
    await world["E1"].send("E2")
    await world.carry()
    for kind in (DELIVERY, RECEIVE, FAILURE):
        (acknowledgement,) = passed(world, kind)
        metadata = acknowledgement.metadata
        assert metadata.message_type == "BP1-A"
        assert (metadata.sender_code, metadata.receiver_code) == ("E2", "E1")
        assert not metadata.processors_named(ENCRYPTION)
        assert acknowledgement.body.decode("ascii").isprintable()


@pytest.mark.req("503-5.6.2-h")
async def test_acknowledgements_go_back_by_the_broker_the_message_came_by() -> None:
    """E1 publishes a path through B2 for its own incoming messages; that does not matter."""
    since = START - timedelta(days=1)
    world = World(path("BP1-A", "INDIRECT:B1", start=since), path("*", "INDIRECT:B2", start=since))
    await confirmed(world)
    assert {str(c.route) for c in world.post.carried} == {"INDIRECT:B1"}


@pytest.mark.req("503-5.6.2-i")
async def test_acknowledgements_of_a_direct_message_go_directly() -> None:
    world = World(path("*", "DIRECT", start=START - timedelta(days=1)), direct=True)
    message_id = await confirmed(world)
    assert {c.route for c in world.post.carried} == {DIRECT}
    assert await world["E1"].status(message_id) is Status.RECEIVED


@pytest.mark.req("503-T1-b")
async def test_event_2_is_a_signed_delivery_acknowledgement() -> None:
    world = World()
    message_id = await world["E1"].send("E2")
    await world.carry()
    (acknowledgement,) = passed(world, DELIVERY)
    assert len(acknowledgement.metadata.processors_named(SIGNATURE)) == 1
    assert await world["E1"].status(message_id) is Status.DELIVERED

    only(world, InternalType.STANDARD_MESSAGE)
    other = await world["E1"].send("E2")
    await world.carry()
    unsigned = SealedMessage(
        replace(acknowledgement.metadata, related_message_id=other, processors=()),
        await good_fingerprint(world, other),
    )
    await inject(world, unsigned)
    assert await world["E1"].status(other) is Status.ACCEPTED
    assert (await world["E1"].trace(other))[-1].event is Event.ACKNOWLEDGEMENT_REFUSED


@pytest.mark.req("503-T1-e")
async def test_event_2_with_another_fingerprint_fails_the_message() -> None:
    world = World()
    only(world, InternalType.STANDARD_MESSAGE)
    message_id = await world["E1"].send("E2")
    await world.carry()
    await answer(world, message_id, DELIVERY, fingerprint_content(bytes(64)))
    assert await world["E1"].status(message_id) is Status.FAILED
    assert "other than" in (await world["E1"].trace(message_id))[-1].detail


@pytest.mark.req("503-4.5.4-a")
async def test_an_acknowledgement_signed_by_somebody_else_does_not_count() -> None:
    world = World(codes=("E1", "E2", "E3"))
    only(world, InternalType.STANDARD_MESSAGE)
    message_id = await world["E1"].send("E2")
    await world.carry()
    entry = await world["E1"].enquiry.entry(Side.SENT, message_id)
    forged = compose(
        DELIVERY,
        entry.metadata,
        fingerprint_content(entry.fingerprint),
        message_id=new_message_id(),
        now=world.clock.now(),
    )
    await inject(world, unencrypted(await sign(forged, world["E3"].keyring.signers()[0])))
    assert await world["E1"].status(message_id) is Status.ACCEPTED
    journal = await world["E1"].journal()
    assert any(isinstance(r, RefusalRow) and r.security for r in journal)


@pytest.mark.req("503-T1-f")
@pytest.mark.req("503-T1-g")
async def test_event_3_is_an_unsigned_receive_acknowledgement_with_any_content() -> None:
    world = World()
    message_id = await confirmed(world)
    (acknowledgement,) = passed(world, RECEIVE)
    assert acknowledgement.metadata.processors == ()
    assert len(acknowledgement.body) >= 1
    assert await world["E1"].status(message_id) is Status.RECEIVED

    only(world, InternalType.STANDARD_MESSAGE, DELIVERY)
    other = await world["E1"].send("E2")
    await world.carry()
    await answer(world, other, RECEIVE, b"?")
    assert await world["E1"].status(other) is Status.RECEIVED


def _other_key(world: World, carried: Carried) -> bytes:
    """Spoil the body so that it cannot be decrypted."""
    message = message_of(carried)
    if message.metadata.internal_type is not InternalType.STANDARD_MESSAGE:
        return carried.data
    return encode(replace(message, body=message.body[:-1] + b"?"), None, world.clock.now())


@pytest.mark.req("503-T1-i")
@pytest.mark.req("503-T1-j")
async def test_event_5_is_an_unsigned_failure_acknowledgement_in_readable_english() -> None:
    world = World()
    world.post.bend = lambda c: replace(c, data=_other_key(world, c))
    message_id = await world["E1"].send("E2")
    await world.carry()
    (acknowledgement,) = passed(world, FAILURE)
    assert acknowledgement.metadata.processors == ()
    assert await world["E1"].status(message_id) is Status.FAILED
    last = (await world["E1"].trace(message_id))[-1]
    assert last.detail == acknowledgement.body.decode()
    assert "could not be decrypted and verified" in last.detail
    assert (await world["E2"].handover.receive("BP1-A")).entry is None


@pytest.mark.req("503-5.5-h")
@pytest.mark.parametrize(
    ("receiver", "message_type"), [("NOBODY", "BP1-A"), ("B1", "BP1-A"), ("E2", "CLOSED")]
)
async def test_a_refused_message_leaves_nothing_behind(receiver: str, message_type: str) -> None:
    world = World(path("BP1-*", start=START - timedelta(days=1)))
    with pytest.raises(Refusal):
        await world["E1"].send(receiver, b"x", message_type)
    await world.carry()
    assert await world["E1"].journal() == []
    assert world.post.carried == []


@pytest.mark.req("503-5.6.2-c", component="endpoint")
@pytest.mark.req("503-5.6.2-d")
async def test_a_failed_transfer_is_logged_and_tried_again() -> None:
    world = World()
    refuse = True

    def broker(carried: Carried) -> Carried:
        if refuse:
            raise Refusal(Rule.MESSAGE_TYPE_NOT_ALLOWED, "B1 lets no BP1-A pass")
        return carried

    world.post.bend = broker
    message_id = await world["E1"].send("E2")
    await world.carry()
    errors = [r for r in await world["E1"].journal() if isinstance(r, RefusalRow)]
    assert [(r.message_id, r.rule) for r in errors] == [(message_id, "MESSAGE_TYPE_NOT_ALLOWED")]
    refuse = False
    await world.carry()
    assert await world["E1"].status(message_id) is Status.ACCEPTED, "back-off is respected"
    world.clock.advance(timedelta(seconds=1))
    await world.carry()
    assert await world["E1"].status(message_id) is Status.DELIVERED
