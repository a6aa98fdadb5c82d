"""The connection to RabbitMQ, against a real node."""

from __future__ import annotations

import asyncio
import gc
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gridpost.core.amqp091 import Incoming, Properties, Publication, RabbitConnection
from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.amqp091 import Amqp091Client, Amqp091Keeper
from gridpost.transports.free_port import free_port
from support.rabbitmq import Rabbit, write_certificate
from support.waiting import eventually

QUORUM = {"x-queue-type": "quorum"}


async def test_a_confirmed_message_comes_back_with_all_its_properties(rabbitmq: Rabbit) -> None:
    connection = await rabbitmq.client(virtual_host=rabbitmq.virtual_host()).connect("test")
    channel = await connection.channel()
    await channel.declare_queue("q")
    properties = Properties(
        headers={"a": 1, "b": "text", "c": True},
        content_type="application/xml",
        correlation_id="c-1",
        reply_to="there",
        message_id="m-1",
        timestamp=datetime(2026, 3, 1, 12, tzinfo=UTC),
        type="request",
        expiration=timedelta(seconds=90),
        priority=3,
        app_id="gridpost",
    )
    await channel.publish(b"x" * 300_000, properties, routing_key="q")
    found = await channel.get("q")
    assert found is not None
    assert found.body == b"x" * 300_000
    assert found.properties == properties
    assert await channel.get("q") is None
    assert connection.version >= (3, 10)
    await connection.close()


async def test_a_message_for_nobody_is_an_error_of_that_message_alone(rabbitmq: Rabbit) -> None:
    connection = await rabbitmq.client(virtual_host=rabbitmq.virtual_host()).connect()
    channel = await connection.channel()
    with pytest.raises(Refusal) as refused:
        await channel.publish(b"x", Properties(), routing_key="nowhere")
    assert refused.value.rule is Rule.AMQP091_UNROUTED
    await channel.declare_queue("q")
    await channel.publish(b"x", Properties(), routing_key="q")
    await connection.close()


async def test_what_is_published_together_keeps_its_order_and_each_hears_of_itself(
    rabbitmq: Rabbit,
) -> None:
    connection = await rabbitmq.client(virtual_host=rabbitmq.virtual_host()).connect()
    channel, quick = await connection.channel(), await connection.channel(confirms=False)
    await channel.declare_queue("q")
    large = b"x" * 300_000
    together = [
        Publication(large, Properties(message_id="m-1"), routing_key="q"),
        Publication(b"1", Properties(), routing_key="nowhere"),
        Publication(b"2", Properties(), routing_key="nowhere", mandatory=False),
        Publication(b"3", Properties(correlation_id="c-3"), routing_key="q"),
    ]
    told, alone = await asyncio.gather(
        channel.publish_all(together), channel.publish(b"4", Properties(), routing_key="q")
    )
    assert [refusal and refusal.rule for refusal in told] == [
        None, Rule.AMQP091_UNROUTED, None, None,
    ]  # fmt: skip
    assert alone is None
    assert await quick.publish_all([together[3]] * 2) == [None, None]
    got: list[Incoming] = []
    consumer = await channel.consume("q", got.append, prefetch=5)
    await eventually(lambda: len(got) == 5, 60)
    assert [one.body for one in got] == [large, b"3", b"4", b"3", b"3"]
    assert got[1].properties.correlation_id == "c-3"
    await channel.ack_all([one.tag for one in got])
    await channel.cancel(consumer)
    await channel.close()
    # Unsettled, they would stand in their queue again.
    assert await (await connection.channel()).get("q") is None
    with pytest.raises(Refusal) as refused:
        await channel.publish_all(together)
    assert refused.value.rule is Rule.AMQP091_UNREACHABLE
    await connection.close()


async def test_prefetch_limits_what_a_consumer_holds_and_what_it_returns_comes_again(
    rabbitmq: Rabbit,
) -> None:
    connection = await rabbitmq.client(virtual_host=rabbitmq.virtual_host()).connect()
    channel = await connection.channel()
    await channel.declare_queue("q", arguments=QUORUM)
    await asyncio.gather(
        *(channel.publish(b"%d" % at, Properties(), routing_key="q") for at in range(5))
    )
    got: list[Incoming] = []
    tag = await channel.consume("q", got.append, prefetch=2)
    await eventually(lambda: len(got) == 2, 60)
    await channel.nack(got[0].tag)
    await eventually(lambda: len(got) == 3, 60)
    for one in list(got[1:]):
        await channel.ack(one.tag)
    # RabbitMQ 3.10 puts what is given back behind everything else.
    await eventually(lambda: len(got) == 5, 60)
    await channel.ack(got[3].tag)
    await channel.ack(got[4].tag)
    await eventually(lambda: len(got) == 6, 60)
    assert [one.body for one in got] == [b"0", b"1", b"2", b"3", b"4", b"0"]
    assert got[5].redelivered
    assert got[5].properties.headers["x-delivery-count"] == 1
    await channel.cancel(tag)
    await connection.close()


@pytest.mark.parametrize(
    ("what", "rule"),
    [("missing", Rule.AMQP091_NOT_FOUND), ("unequal", Rule.AMQP091_FAILED)],
)
async def test_an_error_closes_its_channel_and_no_other(
    rabbitmq: Rabbit, what: str, rule: Rule
) -> None:
    connection = await rabbitmq.client(virtual_host=rabbitmq.virtual_host()).connect()
    channel, other = await connection.channel(), await connection.channel()
    await other.declare_queue("unequal", arguments=QUORUM)
    with pytest.raises(Refusal) as refused:
        await channel.declare_queue(what, passive=what == "missing")
    assert refused.value.rule is rule
    assert not other.closed
    await other.publish(b"x", Properties(), routing_key="unequal")
    await connection.close()


async def test_who_has_no_certificate_of_a_known_user_does_not_get_in(
    rabbitmq: Rabbit, tmp_path: Path
) -> None:
    stranger = rabbitmq.client("stranger")
    with pytest.raises(Refusal) as refused:
        await stranger.connect()
    assert refused.value.rule in (Rule.AMQP091_DENIED, Rule.AMQP091_UNREACHABLE)
    wrong = Amqp091Client(
        [rabbitmq.url], tls=rabbitmq.tls("edge").context, user="edge", password="guess"
    )
    with pytest.raises(Refusal):
        await wrong.connect()
    write_certificate(tmp_path, "edge")
    with pytest.raises(Refusal) as plain:
        await Amqp091Client([rabbitmq.url]).connect()
    assert plain.value.rule is Rule.USAGE


def test_a_connection_that_was_refused_leaves_nothing_behind() -> None:
    async def refused() -> None:
        client = Amqp091Client([f"amqp://127.0.0.1:{free_port()}"], user="u", password="p")
        with pytest.raises(Refusal):
            await client.connect()

    # A record of the log would keep the connection alive by its traceback.
    logging.disable()
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(refused())
        asyncio.set_event_loop(loop)
        # What was left unclosed wants to close itself now, in a loop that runs no more.
        gc.collect()
        assert asyncio.all_tasks(loop) == set()
    finally:
        asyncio.set_event_loop(None)
        loop.close()
        logging.disable(logging.NOTSET)


class Unready:
    """A RabbitMQ that refuses with these rules, one after the other."""

    def __init__(self, *rules: Rule) -> None:
        self.rules = list(rules)

    async def connect(self, purpose: str = "") -> RabbitConnection:
        raise Refusal(self.rules.pop(0), "not yet")


@pytest.mark.parametrize("last", [Rule.AMQP091_DENIED, Rule.AMQP091_FAILED])
async def test_a_patient_keeper_waits_for_recovery_but_not_for_a_wrong_configuration(
    last: Rule,
) -> None:
    async def work(connection: RabbitConnection) -> None: ...

    client = Unready(Rule.AMQP091_UNREACHABLE, Rule.AMQP091_NOT_FOUND, last)
    keeper = Amqp091Keeper(client, work, first=0.001)  # type: ignore[arg-type]
    with pytest.raises(Refusal) as caught:
        await keeper.start(patience=60)
    assert caught.value.rule is last
    assert client.rules == []
    assert keeper.why is not None
    assert keeper.why.rule is Rule.AMQP091_NOT_FOUND


async def test_a_keeper_gives_a_new_connection_for_each_that_is_lost(rabbitmq: Rabbit) -> None:
    host = rabbitmq.virtual_host()
    given: list[RabbitConnection] = []
    reasons: list[Refusal] = []

    async def work(connection: RabbitConnection) -> None:
        given.append(connection)

    keeper = Amqp091Keeper(
        rabbitmq.client(virtual_host=host, name=host), work, lost=reasons.append, first=0.05
    )
    await keeper.start()

    def close_by_force() -> int:
        for row in rabbitmq.api("GET", f"vhosts/{host}/connections").json():
            rabbitmq.api("DELETE", f"connections/{row['name']}")
        return len(given)

    async with asyncio.timeout(60):
        # The node lists a connection a moment after it was opened.
        while await asyncio.to_thread(close_by_force) < 2:
            await asyncio.sleep(0.2)
    assert reasons[0].rule is Rule.AMQP091_UNREACHABLE
    await eventually(lambda: keeper.connection is not None, 60)
    await keeper.close()
