"""AMQP part 4 on the wire: what a coordinator is asked and answers, states that name a transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from gridpost.core.links import OutcomeKind, ReceivedDelivery
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.amqp.codec import encode, encode_composite
from gridpost.wire.amqp.types import Described, Symbol, UInt, ULong, Value
from support import amqp_frames as amqp
from support.amqp_frames import RECEIVER, SENDER, RawPeer
from support.waiting import eventually


def request(code: int | str, fields: list[Value]) -> bytes:
    descriptor: Value = ULong(code) if isinstance(code, int) else Symbol(code)
    return encode(Described(ULong(0x77), Described(descriptor, fields)))


def declare() -> bytes:
    return request(0x31, [])


def discharge(transaction: bytes, *, failed: bool) -> bytes:
    return request(0x32, [transaction, failed])


def in_transaction(transaction: bytes, outcome: Described | None = None) -> Described:
    fields: list[Value] = [transaction]
    if outcome is not None:
        fields.append(outcome)
    return Described(ULong(0x34), fields)


@pytest.fixture
async def peer(setup: Any) -> AsyncIterator[RawPeer]:
    raw = RawPeer(*await setup.raw())
    await raw.greet()
    await raw.say(
        amqp.open_(), amqp.begin(), amqp.attach("control", 9, SENDER, None, coordinator=True)
    )
    await raw.expect(amqp.ATTACH, amqp.FLOW)
    yield raw
    await raw.close()


async def begin(peer: RawPeer, number: int) -> bytes:
    await peer.say(amqp.transfer(9, number, declare()))
    state = (await peer.expect(amqp.DISPOSITION))[4]
    assert state.descriptor == 0x33
    transaction: bytes = state.value[0]
    return transaction


async def test_a_message_sent_in_a_transaction_is_there_after_the_commit(
    setup: Any, peer: RawPeer
) -> None:
    transaction = await begin(peer, 0)
    await peer.say(amqp.attach("out", 0, SENDER, "E2"))
    await peer.expect(amqp.ATTACH, amqp.FLOW)
    await peer.say(amqp.transfer(0, 1, b"x", state=in_transaction(transaction)))
    answer = await peer.expect(amqp.DISPOSITION)
    assert answer[3] is True
    assert answer[4] == in_transaction(transaction, Described(ULong(0x24), []))
    assert not setup.broker.queues["E2"].messages
    await peer.say(amqp.transfer(9, 2, discharge(transaction, failed=False)))
    assert (await peer.expect(amqp.DISPOSITION))[4].descriptor == 0x24
    assert len(setup.broker.queues["E2"].messages) == 1


@pytest.mark.parametrize(
    ("decide", "expected"),
    [
        ("release", Described(ULong(0x26), [])),
        ("modify", Described(ULong(0x27), [True, False])),
    ],
)
async def test_any_outcome_in_a_transaction_names_it(
    setup: Any, peer: RawPeer, decide: str, expected: Described
) -> None:
    def on_delivery(delivery: ReceivedDelivery) -> None:
        if decide == "release":
            delivery.release()
        else:
            delivery.modify(failed=True)

    setup.broker.on_delivery = on_delivery
    transaction = await begin(peer, 0)
    await peer.say(amqp.attach("out", 0, SENDER, "E2"))
    await peer.expect(amqp.ATTACH, amqp.FLOW)
    await peer.say(amqp.transfer(0, 1, b"x", state=in_transaction(transaction)))
    assert (await peer.expect(amqp.DISPOSITION))[4] == in_transaction(transaction, expected)


async def test_a_rejection_in_a_transaction_carries_its_reason(setup: Any, peer: RawPeer) -> None:
    def refuse(delivery: ReceivedDelivery) -> None:
        raise Refusal(Rule.MESSAGE_TYPE_NOT_ALLOWED, "no")

    setup.broker.on_delivery = refuse
    transaction = await begin(peer, 0)
    await peer.say(amqp.attach("out", 0, SENDER, "E2"))
    await peer.expect(amqp.ATTACH, amqp.FLOW)
    await peer.say(amqp.transfer(0, 1, b"x", state=in_transaction(transaction)))
    outcome = (await peer.expect(amqp.DISPOSITION))[4].value[1]
    assert outcome.descriptor == 0x25
    assert outcome.value[0].value[0] == "amqp:not-allowed"


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (Described(ULong(0x24), []), OutcomeKind.ACCEPTED),
        (
            Described(ULong(0x25), [Described(ULong(0x1D), [Symbol("amqp:decode-error"), "no"])]),
            OutcomeKind.REJECTED,
        ),
        (Described(ULong(0x26), []), OutcomeKind.RELEASED),
        (Described(ULong(0x27), [True, True]), OutcomeKind.MODIFIED),
        (None, OutcomeKind.RELEASED),
    ],
)
async def test_the_outcome_of_a_consumer_names_its_transaction(
    setup: Any, peer: RawPeer, outcome: Described | None, kind: OutcomeKind
) -> None:
    setup.broker.queues["E1"].put(b"x")
    transaction = await begin(peer, 0)
    await peer.say(amqp.attach("in", 0, RECEIVER, "E1"), amqp.flow(0, 1))
    await peer.expect(amqp.TRANSFER)
    fields: list[Value] = [RECEIVER, UInt(0), UInt(0), False, in_transaction(transaction, outcome)]
    await peer.say(amqp.frame(encode_composite(amqp.DISPOSITION, fields)))
    await eventually(lambda: setup.broker.outcomes)
    (said,) = setup.broker.outcomes
    assert said.kind is kind
    assert said.transaction == transaction
    assert not said.settled
    if kind is OutcomeKind.REJECTED:
        assert (said.condition, said.description) == ("amqp:decode-error", "no")
    if kind is OutcomeKind.MODIFIED:
        assert said.delivery_failed
        assert said.undeliverable_here
    await peer.say(amqp.transfer(9, 1, discharge(transaction, failed=False)))
    settled = await peer.expect(amqp.DISPOSITION)
    while settled[0] is not SENDER:
        settled = await peer.expect(amqp.DISPOSITION)
    assert settled[3] is True


@pytest.mark.parametrize("how", ["detach", "end", "loss"])
async def test_a_transaction_without_discharge_is_abandoned(
    setup: Any, peer: RawPeer, how: str
) -> None:
    transaction = await begin(peer, 0)
    if how == "detach":
        await peer.say(amqp.detach(9))
    elif how == "end":
        await peer.say(amqp.end())
    else:
        peer.writer.transport.abort()
    await eventually(lambda: setup.broker.abandoned == [transaction])


async def test_a_transaction_is_discharged_once(peer: RawPeer) -> None:
    transaction = await begin(peer, 0)
    for number, expected in ((1, 0x24), (2, 0x25)):
        await peer.say(amqp.transfer(9, number, discharge(transaction, failed=True)))
        state = (await peer.expect(amqp.DISPOSITION))[4]
        assert state.descriptor == expected
    assert state.value[0].value[0] == "amqp:transaction:unknown-id"


@pytest.mark.parametrize(
    ("message", "condition"),
    [
        (b"", "amqp:decode-error"),
        (b"\xff", "amqp:decode-error"),
        (request(0x99, []), "amqp:decode-error"),
        (request(0x32, []), "amqp:decode-error"),
        (request("amqp:discharge:list", [b"x"]), "amqp:transaction:unknown-id"),
        (request("amqp:declare:list", [b"somewhere else"]), "amqp:not-implemented"),
    ],
)
async def test_requests_that_are_none_are_rejected(
    peer: RawPeer, message: bytes, condition: str
) -> None:
    await peer.say(amqp.transfer(9, 0, message))
    state = (await peer.expect(amqp.DISPOSITION))[4]
    assert state.descriptor == 0x25
    assert state.value[0].value[0] == condition


async def test_a_state_that_names_no_transaction_ends_the_connection(
    setup: Any, peer: RawPeer
) -> None:
    await peer.say(amqp.attach("out", 0, SENDER, "E2"))
    await peer.expect(amqp.ATTACH, amqp.FLOW)
    await peer.say(amqp.transfer(0, 0, b"x", state=Described(ULong(0x34), [])))
    await peer.expect(amqp.CLOSE)
    assert setup.broker.deliveries == 0
