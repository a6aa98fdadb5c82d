"""503 cl. 11.1.5: what a sender application is told of its message, state by state."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gridpost.core.delivery import Event, Side, State, TraceEntry
from gridpost.core.delivery_report import report
from gridpost.core.identifiers import MessageId
from gridpost.core.instant import Instant
from gridpost.core.message import InternalMessage, InternalType
from support.soap import Answer, SoapWorld, field, request


@pytest.fixture
def world() -> SoapWorld:
    return SoapWorld()


def trace(answer: Answer) -> list[dict[str, str | None]]:
    return [
        {str(part.tag): part.text for part in item}
        for item in answer.body.findall("messageStatus/trace/trace")
    ]


def states(answer: Answer) -> list[str | None]:
    return [item["state"] for item in trace(answer)]


@pytest.mark.req("503-T39-a")
@pytest.mark.req("503-T43-a")
@pytest.mark.req("503-11.1.7-h")
@pytest.mark.req("503-11.1.7-i")
@pytest.mark.req("503-11.1.7-j")
async def test_a_message_is_followed_from_accepted_to_received(world: SoapWorld) -> None:
    sent = await world.sender.sent()

    async def state() -> str | None:
        return (await world.sender.check(sent)).text("messageStatus/state")

    assert await state() == "ACCEPTED"
    world.post.bend = lambda carried: carried if carried.sender == "E1" else None
    await world.sender.endpoint.transfer.round()
    # Transferred, not acknowledged: DELIVERING is not said here.
    assert await state() == "ACCEPTED"
    world.post.bend = lambda carried: carried
    await world.carry()
    assert await state() == "DELIVERED"
    assert states(await world.sender.check(sent)) == ["ACCEPTED", "DELIVERED"]
    await world.recipient.confirm(sent)
    await world.carry()
    assert await state() == "RECEIVED"
    assert states(await world.sender.check(sent)) == ["ACCEPTED", "DELIVERED", "RECEIVED"]


@pytest.mark.req("503-T43-a")
@pytest.mark.req("503-T42-a")
async def test_a_message_that_expired_has_failed_at_the_sender(world: SoapWorld) -> None:
    sent = await world.sender.sent()
    world.clock.advance(timedelta(days=2))
    await world.expire()
    answer = await world.sender.check(sent)
    assert answer.text("messageStatus/state") == "FAILED"
    failed = trace(answer)[-1]
    assert (failed["state"], failed["component"]) == ("FAILED", "E1")


@pytest.mark.req("503-T41-a")
@pytest.mark.req("503-T41-b")
@pytest.mark.req("503-T41-c")
@pytest.mark.req("503-T42-a")
@pytest.mark.req("503-T40-a")
async def test_events_have_the_time_and_the_component_where_they_happened(
    world: SoapWorld,
) -> None:
    sent = await world.sender.sent()
    created = world.clock.now()
    world.clock.advance(timedelta(seconds=5))
    delivered = world.clock.now()
    await world.carry()
    assert (await world.sender.check(sent)).text("messageStatus/receiveTimestamp") is None
    world.clock.advance(timedelta(seconds=5))
    received = world.clock.now()
    await world.recipient.confirm(sent)
    # The acknowledgement arrives later than it was generated.
    world.clock.advance(timedelta(seconds=5))
    await world.carry()
    answer = await world.sender.check(sent)
    times = [f"{at:%Y-%m-%dT%H:%M:%S}.000Z" for at in (created, delivered, received)]
    assert answer.text("messageStatus/sendTimestamp") == times[0]
    assert answer.text("messageStatus/receiveTimestamp") == times[2]
    found = trace(answer)
    assert [item["timestamp"] for item in found] == times
    assert [item["component"] for item in found] == ["E1", "E2", "E2"]
    names = {c: world.directory.find(c, received).contact.organization for c in ("E1", "E2")}
    for item in found:
        assert item["componentDescription"] == names[item["component"] or ""]
        assert f"message {sent} " in (item["details"] or "")


async def test_a_held_received_acknowledgement_still_shows_both_events() -> None:
    world = SoapWorld()
    sent = await world.sender.sent()
    entry = await world["E1"].enquiry.entry(Side.SENT, sent)
    at = world.clock.now()
    lines = [
        TraceEntry(at, Event.ACCEPT, State.ACCEPTED, moved=True),
        TraceEntry(at, Event.RECEIVE_ACKNOWLEDGED, State.RECEIVE_HELD, True, "", "r"),
        TraceEntry(at, Event.DELIVERY_ACKNOWLEDGED, State.RECEIVED, True, "", "d"),
    ]
    kinds = {
        "r": (InternalType.RECEIVE_ACKNOWLEDGEMENT, at + timedelta(seconds=2)),
        "d": (InternalType.DELIVERY_ACKNOWLEDGEMENT, at + timedelta(seconds=1)),
    }
    kept = [
        InternalMessage(
            replace(
                entry.metadata,
                message_id=MessageId(key),
                internal_type=kind,
                generated=Instant.of(generated),
            ),
            b"x",
        )
        for key, (kind, generated) in kinds.items()
    ]
    found = report(entry.metadata, lines, kept)
    assert [event.status for event in found.events] == ["ACCEPTED", "DELIVERED", "RECEIVED"]
    assert [event.timestamp for event in found.events] == [
        Instant.of(at),
        Instant.of(at + timedelta(seconds=1)),
        Instant.of(at + timedelta(seconds=2)),
    ]
    assert found.received_at == Instant.of(at + timedelta(seconds=2))


async def test_only_who_may_send_a_type_may_ask_for_it(world: SoapWorld) -> None:
    sent = await world.sender.sent()
    body = request("CheckMessageStatus", field("messageID", sent))
    assert (await world.sender.call(body, user="narrow")).error_code == "AUTHENTICATION_ERROR"


async def test_a_received_message_is_no_message_of_ours(world: SoapWorld) -> None:
    sent = await world.sender.sent()
    await world.carry()
    assert (await world.recipient.check(sent)).error_code == "VALIDATION_ERROR"
