"""Links of a server: what is refused and how, credit, sizes, settlement."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from gridpost.core.links import LinkRefused, Outcome, OutcomeKind, ReceivedDelivery
from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.amqp10 import AmqpLimits
from gridpost.transports.amqp10.engine import lib
from support.waiting import eventually

TAKEN = OutcomeKind.ACCEPTED


async def test_a_message_goes_from_a_producer_to_a_consumer(setup: Any, inbox: Any) -> None:
    connection = await setup.connect("E1")
    producer = await connection.attach_producer("E2")
    outcome = await producer.send(b"header-", b"bare message")
    assert outcome == Outcome(TAKEN)
    consumer = await setup.connect("E2")
    await consumer.attach_consumer("E2", inbox, credit=10)
    await eventually(lambda: inbox.messages == [b"header-bare message"])
    await eventually(lambda: setup.broker.outcomes == [Outcome(TAKEN)])


async def test_messages_of_any_size_on_one_link_arrive_as_they_were_sent(
    setup: Any, inbox: Any
) -> None:
    """Larger and smaller than the one before: in one frame, in several, in more than was expected."""
    chance = random.Random(4)
    sizes = (10, 130_560, 131_072, 262_144, 262_145, 5_000_000, 300_000, 1_048_576, 9_000_000,
             9_000_000, 9_050_000, 2_300_000, 6_000_000, 5_000_000)  # fmt: skip
    sent = [chance.randbytes(size) for size in sizes]
    producer = await (await setup.connect()).attach_producer("E2")
    outcomes = await asyncio.gather(*(producer.send(message) for message in sent))
    assert all(outcome.taken for outcome in outcomes)
    await (await setup.connect("E2")).attach_consumer("E2", inbox, credit=20)
    await eventually(lambda: len(inbox.messages) == len(sent))
    assert [bytes(message) for message in inbox.messages] == sent


@pytest.mark.parametrize(
    ("rule", "condition"),
    [
        (Rule.CONSUMER_NOT_OWN_QUEUE, "amqp:unauthorized-access"),
        (Rule.QUEUE_NOT_ALLOWED, "amqp:unauthorized-access"),
        (Rule.QUEUE_UNKNOWN, "amqp:not-found"),
        (Rule.CONSUMER_ON_ENDPOINT, "amqp:not-allowed"),
        (Rule.STORE_FULL, "amqp:resource-limit-exceeded"),
    ],
)
async def test_a_refused_attach_says_why_and_the_connection_lives_on(
    setup: Any, inbox: Any, rule: Rule, condition: str
) -> None:
    refusal = Refusal(rule, "not this one")
    setup.broker.refused = {("producer", "E2"): refusal, ("consumer", "E2"): refusal}
    connection = await setup.connect()
    described = rf"{condition}: not this one \[{rule.name} {refusal.id}\]"
    with pytest.raises(LinkRefused, match=described):
        await connection.attach_producer("E2")
    with pytest.raises(LinkRefused, match=described):
        await connection.attach_consumer("E2", inbox, credit=1)
    producer = await connection.attach_producer("E3")
    assert (await producer.send(b"x")).taken


async def test_a_handler_that_fails_in_an_attach_ends_only_that_connection(
    setup: Any, caplog: pytest.LogCaptureFixture
) -> None:
    other = await setup.connect("E2")
    connection = await setup.connect("E1")
    setup.broker.refused = {("producer", "E9"): RuntimeError("a bug")}
    with pytest.raises(LinkRefused, match="amqp:internal-error"):
        await connection.attach_producer("E9")
    assert "a bug" in caplog.text
    assert (await connection.lost)[0] == "amqp:internal-error"
    assert (await (await other.attach_producer("E3")).send(b"x")).taken


async def test_a_handler_that_fails_on_a_delivery_ends_only_that_connection(setup: Any) -> None:
    def fail(delivery: ReceivedDelivery) -> None:
        raise ValueError("a bug")

    other = await (await setup.connect("E2")).attach_producer("E3")
    connection = await setup.connect("E1")
    producer = await connection.attach_producer("E2")
    setup.broker.on_delivery = fail
    assert (await producer.send(b"x")).kind in (OutcomeKind.RELEASED, OutcomeKind.LOST)
    assert (await connection.lost)[0] == "amqp:internal-error"
    setup.broker.on_delivery = None
    assert (await other.send(b"x")).taken


async def test_a_message_that_breaks_a_rule_is_rejected_with_the_reason(setup: Any) -> None:
    def refuse(delivery: ReceivedDelivery) -> None:
        raise Refusal(Rule.SENDER_NOT_CONNECTED_PEER, "senderCode is E9")

    setup.broker.on_delivery = refuse
    producer = await (await setup.connect()).attach_producer("E2")
    outcome = await producer.send(b"x")
    assert outcome.kind is OutcomeKind.REJECTED
    assert outcome.condition == "amqp:unauthorized-access"
    assert outcome.description.startswith("senderCode is E9 [SENDER_NOT_CONNECTED_PEER ")


@pytest.mark.parametrize(
    ("decide", "expected"),
    [
        ("accept", Outcome(TAKEN)),
        ("release", Outcome(OutcomeKind.RELEASED)),
        ("fail", Outcome(OutcomeKind.MODIFIED, delivery_failed=True)),
        ("not here", Outcome(OutcomeKind.MODIFIED, undeliverable_here=True)),
    ],
)
async def test_every_outcome_reaches_the_sender(setup: Any, decide: str, expected: Outcome) -> None:
    def on_delivery(delivery: ReceivedDelivery) -> None:
        if decide == "accept":
            delivery.accept()
        elif decide == "release":
            delivery.release()
        else:
            delivery.modify(failed=decide == "fail", undeliverable_here=decide != "fail")
        delivery.accept()  # too late, and harmless

    setup.broker.on_delivery = on_delivery
    producer = await (await setup.connect()).attach_producer("E2")
    assert await producer.send(b"x") == expected


async def test_nothing_is_settled_before_the_handler_says_so(setup: Any) -> None:
    held: list[ReceivedDelivery] = []
    setup.broker.on_delivery = held.append
    producer = await (await setup.connect()).attach_producer("E2")
    sent = [producer.send(b"x") for _ in range(3)]
    await eventually(lambda: len(held) == 3)
    assert not any(future.done() for future in sent)
    held[1].accept()
    assert (await sent[1]).taken
    assert not sent[0].done()
    held[0].accept()
    held[2].release()
    assert (await sent[0]).taken
    assert (await sent[2]).kind is OutcomeKind.RELEASED


async def test_outcomes_of_one_turn_are_one_frame(setup: Any) -> None:
    held: list[ReceivedDelivery] = []
    setup.broker.on_delivery = held.append
    connection = await setup.connect()
    producer = await connection.attach_producer("E2")
    sent = [producer.send(b"x") for _ in range(200)]
    await eventually(lambda: len(held) == 200)
    server_side = next(iter(setup.server._connections))
    before = lib.pn_transport_get_frames_output(server_side.engine.transport)
    for delivery in held:
        delivery.accept()
    await asyncio.gather(*sent)
    frames = lib.pn_transport_get_frames_output(server_side.engine.transport) - before
    assert frames == 1


async def test_an_outcome_after_the_end_of_the_link_is_harmless(setup: Any) -> None:
    held: list[ReceivedDelivery] = []
    setup.broker.on_delivery = held.append
    connection = await setup.connect()
    producer = await connection.attach_producer("E2")
    future = producer.send(b"x")
    await eventually(lambda: held)
    producer.close()
    assert (await future).kind is OutcomeKind.LOST
    await eventually(lambda: not setup.broker.producers)
    held[0].accept()
    connection.close()
    await connection.lost
    await eventually(lambda: not setup.server.connections())
    held[0].reject(Refusal(Rule.INTERNAL, "late"))
    held[0].modify(failed=True)
    held[0].release()


async def test_when_the_server_closes_a_link_what_is_undecided_is_released(setup: Any) -> None:
    """Settled without a state would be read as success by some clients, proton's among them."""
    held: list[ReceivedDelivery] = []
    setup.broker.on_delivery = held.append
    connection = await setup.connect()
    producer = await connection.attach_producer("E2")
    future = producer.send(b"x")
    await eventually(lambda: held)
    setup.broker.producers[0].link.close(Refusal(Rule.PEER_UNKNOWN, "revoked"))
    assert (await future).kind in (OutcomeKind.RELEASED, OutcomeKind.LOST)
    await eventually(lambda: not producer.attached)


async def test_consumers_get_what_they_have_credit_for(setup: Any, closed_inbox: Any) -> None:
    connection = await setup.connect()
    producer = await connection.attach_producer("E1")
    await asyncio.gather(*(producer.send(b"%d" % n) for n in range(20)))
    await connection.attach_consumer("E1", closed_inbox, credit=5)
    await eventually(lambda: len(closed_inbox.messages) == 5)
    assert len(setup.broker.queues["E1"].messages) == 15
    for delivery in list(closed_inbox.deliveries):
        delivery.accept()
    await eventually(lambda: len(closed_inbox.messages) == 10)
    assert closed_inbox.messages == [b"%d" % n for n in range(10)]


async def test_a_consumer_that_disappears_gives_its_messages_back(
    setup: Any, closed_inbox: Any, inbox: Any
) -> None:
    first, second = await setup.connect("E1"), await setup.connect("E2")
    producer = await first.attach_producer("E2")
    await asyncio.gather(*(producer.send(b"%d" % n) for n in range(3)))
    await second.attach_consumer("E2", closed_inbox, credit=10)
    await eventually(lambda: len(closed_inbox.messages) == 3)
    second.abort()
    await second.lost
    third = await setup.connect("E2")
    await third.attach_consumer("E2", inbox, credit=10)
    await eventually(lambda: len(inbox.messages) == 3)
    assert sorted(message[-1:] for message in inbox.messages) == [b"0", b"1", b"2"]
    assert {outcome.kind for outcome in setup.broker.outcomes} >= {OutcomeKind.LOST}


class TestExactlyOnce:
    async def test_a_producer_settles_second_side_after_the_outcome(self, setup: Any) -> None:
        connection = await setup.connect()
        producer = await connection.attach_producer("E2", exactly_once=True)
        assert setup.broker.producers[0].link.attachment.exactly_once
        outcomes = await asyncio.gather(*(producer.send(b"x") for _ in range(5)))
        assert {outcome.kind for outcome in outcomes} == {TAKEN}
        assert not any(outcome.settled for outcome in outcomes)
        await eventually(lambda: len(setup.broker.settled_by_sender) == 5)

    async def test_a_consumer_waits_until_the_server_has_settled(
        self, setup: Any, inbox: Any
    ) -> None:
        connection = await setup.connect()
        producer = await connection.attach_producer("E1")
        await producer.send(b"x")
        consumer = await connection.attach_consumer("E1", inbox, credit=5, exactly_once=True)
        settled: list[Any] = []
        consumer.on_settled = settled.append  # type: ignore[method-assign]
        await eventually(lambda: settled)
        assert [outcome.settled for outcome in setup.broker.outcomes] == [False]


class TestSmallLimits:
    @pytest.fixture
    def limits(self) -> AmqpLimits:
        return AmqpLimits(
            close_seconds=0.5,
            max_message_size=10_000,
            max_incoming_octets=50_000,
            max_frame_size=2_048,
            max_links=3,
            credit=4,
            max_unsettled_sent=3,
        )

    async def test_the_maximum_size_is_announced_and_kept_by_our_client(self, setup: Any) -> None:
        producer = await (await setup.connect(limits=AmqpLimits())).attach_producer("E2")
        assert producer._max_message_size == 10_000
        outcome = await producer.send(b"x" * 10_001)
        assert outcome.condition == "amqp:link:message-size-exceeded"
        assert (await producer.send(b"x" * 10_000)).taken

    async def test_a_message_above_it_ends_the_link(self, setup: Any) -> None:
        connection = await setup.connect(limits=AmqpLimits())
        producer = await connection.attach_producer("E2")
        producer._max_message_size = 0
        outcome = await producer.send(b"x" * 100_000)
        assert outcome.kind in (OutcomeKind.LOST, OutcomeKind.RELEASED)
        await eventually(lambda: not producer.attached)
        assert next(iter(setup.server._connections)).ledger.used == 0
        again = await connection.attach_producer("E2")
        assert (await again.send(b"x" * 9_000)).taken

    async def test_links_have_a_limit(self, setup: Any) -> None:
        connection = await setup.connect()
        producers = [await connection.attach_producer(f"E{n}") for n in range(3)]
        with pytest.raises(LinkRefused, match="amqp:resource-limit-exceeded"):
            await connection.attach_producer("E9")
        producers[0].close()
        await eventually(lambda: len(setup.broker.producers) == 2)
        assert (await (await connection.attach_producer("E9")).send(b"x")).taken

    async def test_a_producer_has_no_more_open_than_the_window(self, setup: Any) -> None:
        held: list[ReceivedDelivery] = []
        setup.broker.on_delivery = held.append
        producer = await (await setup.connect()).attach_producer("E2")
        sent = [producer.send(b"x") for _ in range(10)]
        await eventually(lambda: len(held) == 4)
        await asyncio.sleep(0.05)
        assert len(held) == 4
        while len(held) < 10:
            for delivery in held:
                delivery.accept()
            await asyncio.sleep(0.005)
        held[-1].accept()
        held[-2].accept()
        assert all(outcome.taken for outcome in await asyncio.gather(*sent))

    async def test_a_consumer_that_settles_nothing_gets_no_more(
        self, setup: Any, closed_inbox: Any
    ) -> None:
        connection = await setup.connect(limits=AmqpLimits())
        producer = await connection.attach_producer("E1")
        await asyncio.gather(*(producer.send(b"%d" % n) for n in range(10)))
        await connection.attach_consumer("E1", closed_inbox, credit=1_000)
        await eventually(lambda: len(closed_inbox.messages) == 3)
        await asyncio.sleep(0.05)
        assert len(closed_inbox.messages) == 3
        closed_inbox.deliveries[0].accept()
        await eventually(lambda: len(closed_inbox.messages) == 4)

    async def test_octets_that_wait_for_a_decision_are_bounded(self, setup: Any) -> None:
        held: list[ReceivedDelivery] = []
        setup.broker.on_delivery = held.append
        connection = await setup.connect(limits=AmqpLimits())
        producers = [await connection.attach_producer(f"E{n}") for n in range(3)]
        sent = [p.send(b"x" * 9_000) for _ in range(4) for p in producers]
        server_side = next(iter(setup.server._connections))
        await eventually(lambda: server_side.stalled)
        assert len(held) == 5
        assert server_side.ledger.used <= 50_000
        decided = 0
        while decided < len(sent):
            while decided < len(held):
                held[decided].accept()
                decided += 1
            await asyncio.sleep(0.005)
        assert all(outcome.taken for outcome in await asyncio.gather(*sent))
        assert server_side.ledger.used == 0
