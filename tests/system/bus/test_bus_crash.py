"""A bus that is killed between any two steps of a request: one effect, one reply, one event."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from gridpost.core.amqp091 import Incoming, Properties
from gridpost.envelope import RequestMessage, ResponseMessage, Result, Sender, decode, encode
from support.bus_processes import COUNTS, Buses, database, effects, write
from support.bus_site import CONTEXT
from support.bus_web import web_service
from support.rabbitmq import Rabbit
from support.soak import Soak
from support.waiting import eventually

QUEUE = f"{CONTEXT}.REQUESTS.Counts.create"
EVENTS = f"{CONTEXT}.EVENTS.Counts.*"


@pytest.fixture(scope="module")
def buses() -> Iterator[Buses]:
    found = Buses()
    yield found
    found.close()


@pytest.mark.req("100-3.3.17-a", component="bus")
@pytest.mark.req("100-4.3-a")
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.parametrize("stop_at", ["taken", "handler", "committed", "published", "settled"])
async def test_a_killed_bus_loses_nothing_and_does_nothing_twice(
    request: pytest.FixtureRequest,
    rabbitmq: Rabbit,
    buses: Buses,
    tmp_path: Path,
    stop_at: str,
    store: str,
) -> None:
    virtual_host = rabbitmq.virtual_host()
    postgres, section = database(request, store, tmp_path)
    file = write(rabbitmq, tmp_path, virtual_host, section)
    connection = await rabbitmq.client(virtual_host=virtual_host).connect()
    channel = await connection.channel()
    replies, _ = await channel.declare_queue(durable=False, auto_delete=False)
    events, _ = await channel.declare_queue(durable=False, auto_delete=False)
    await channel.declare_exchange(CONTEXT, "topic")
    await channel.bind(events, CONTEXT, EVENTS)
    sent = Sender("EMS", CONTEXT).request("create", "Counts", COUNTS)
    doomed = await buses.start(file, stop_at)
    await channel.publish(
        encode(sent),
        Properties(reply_to=replies, correlation_id="t", expiration=timedelta(minutes=10)),
        routing_key=QUEUE,
    )
    assert await buses.wait(doomed) == -9
    # Another process, with the same store, goes on.
    second = await buses.start(file, "never")
    try:
        got: list[bytes] = []
        told: list[bytes] = []
        await channel.consume(replies, lambda m: got.append(m.body), no_ack=True)
        await channel.consume(events, lambda m: told.append(m.body), no_ack=True)
        await eventually(lambda: got and told, 60)
    finally:
        await buses.kill(second)
        await connection.close()
    answer = decode(got[0])
    assert isinstance(answer, ResponseMessage)
    assert answer.reply.result is Result.OK
    # Sent again, perhaps, but always the same.
    assert len(set(got)) == len(set(told)) == 1
    assert effects(tmp_path, postgres) == [(sent.header.message_id,)]


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_a_callback_that_nobody_noted_is_made_again_with_the_same_bytes(
    request: pytest.FixtureRequest, rabbitmq: Rabbit, buses: Buses, tmp_path: Path, store: str
) -> None:
    """The client had it, and the bus died before it could write that down."""
    virtual_host = rabbitmq.virtual_host()
    postgres, section = database(request, store, tmp_path)
    file = write(rabbitmq, tmp_path, virtual_host, section)
    connection = await rabbitmq.client(virtual_host=virtual_host).connect()
    channel = await connection.channel()
    async with web_service() as client:
        doomed = await buses.start(file, "called")
        sent = Sender("EMS", CONTEXT).request("create", "Counts", COUNTS, reply_address=client.url)
        await channel.publish(encode(sent), Properties(), routing_key=QUEUE)
        assert await buses.wait(doomed) == -9
        assert len(client.taken) == 1
        second = await buses.start(file, "never")
        try:
            await eventually(lambda: len(client.taken) > 1)
        finally:
            await buses.kill(second)
            await connection.close()
        assert len({encode(reply) for reply in client.taken}) == 1
        assert client.taken[0].header.correlation_id == sent.header.correlation_id
    assert effects(tmp_path, postgres) == [(sent.header.message_id,)]


class Client:
    """Sends requests of every kind, some of them twice, and counts what it is told."""

    def __init__(self, channel, replies: str, url: str, chance: random.Random) -> None:
        self._channel, self._replies, self._url, self._chance = channel, replies, url, chance
        self._sender = Sender("EMS", CONTEXT)
        self.sent: dict[str, str] = {}
        """The kind of each, by its MessageID, which is its correlation as well."""
        self.replies: dict[str, Counter[bytes]] = {}
        self.events: dict[str, Counter[bytes]] = {}
        self.twice = 0

    def told(self, incoming: Incoming) -> None:
        self.note(self.replies, incoming.body)

    def heard(self, incoming: Incoming) -> None:
        self.note(self.events, incoming.body)

    def note(self, found: dict[str, Counter[bytes]], body: bytes) -> None:
        message = decode(body)
        if isinstance(message, ResponseMessage) and message.reply.more_follow:
            return  # that it was taken, of an asynchronous one
        found.setdefault(message.header.correlation_id, Counter())[body] += 1

    @property
    def open(self) -> int:
        """Requests of which not all is known that will be."""
        return sum(
            key not in self.events or (kind != "one way" and key not in self.replies)
            for key, kind in self.sent.items()
        )

    async def send(self) -> None:
        kind = self._chance.choice(("reply-to", "queue", "callback", "one way"))
        address = {"queue": f"queue:{self._replies}", "callback": self._url}.get(kind)
        made = self._sender.request(
            "create", "Counts", COUNTS, reply_address=address, one_way=kind == "one way"
        )
        header = made.header
        body = encode(made).replace(
            f">{header.correlation_id}<".encode(), f">{header.message_id}<".encode()
        )
        assert isinstance(decode(body), RequestMessage)
        self.sent[header.message_id or ""] = kind
        said = Properties(reply_to=self._replies) if kind == "reply-to" else Properties()
        times = 2 if self._chance.random() < 0.1 else 1
        self.twice += times - 1
        for _ in range(times):
            await self._channel.publish(body, said, routing_key=QUEUE)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_buses_that_are_killed_at_any_moment_do_everything_once(
    request: pytest.FixtureRequest,
    rabbitmq: Rabbit,
    buses: Buses,
    tmp_path: Path,
    store: str,
    soak: Soak,
) -> None:
    count, kills = soak.scale(2_000), max(2, soak.scale(40))
    chance = random.Random(soak.seed)
    virtual_host = rabbitmq.virtual_host()
    postgres, section = database(request, store, tmp_path)
    file = write(rabbitmq, tmp_path, virtual_host, section)
    connection = await rabbitmq.client(virtual_host=virtual_host).connect()
    channel = await connection.channel()
    replies, _ = await channel.declare_queue(durable=False, auto_delete=False)
    events, _ = await channel.declare_queue(durable=False, auto_delete=False)
    await channel.declare_exchange(CONTEXT, "topic")
    await channel.bind(events, CONTEXT, EVENTS)
    async with web_service() as service:
        client = Client(channel, replies, service.url, chance)
        await channel.consume(replies, client.told, no_ack=True)
        await channel.consume(events, client.heard, no_ack=True)
        alive = [await buses.start(file, "never")]
        await client.send()  # it makes the table, before two processes could at once
        await eventually(lambda: bool(client.events))
        alive.append(await buses.start(file, "never"))

        async def send_all() -> None:
            while len(client.sent) < count:
                # Never more than this under way, so that every kill meets some.
                await eventually(lambda: client.open < 50, 300)
                await client.send()
                for reply in service.taken:
                    client.note(client.replies, encode(reply))
                service.taken.clear()

        sending = asyncio.create_task(send_all())
        for number in range(kills):
            goal = (number + chance.random()) * count / kills
            while len(client.sent) < goal and not sending.done():
                await asyncio.sleep(0.001)
            await buses.kill(alive.pop(chance.randrange(len(alive))))
            alive.append(await buses.start(file, "never"))
        await sending
        while client.open:
            await asyncio.sleep(0.05)
            for reply in service.taken:
                client.note(client.replies, encode(reply))
            service.taken.clear()
        for pid in alive:
            await buses.kill(pid)
    _, dead = await channel.declare_queue(f"{CONTEXT}.DEAD", passive=True)
    await connection.close()
    done = Counter(str(message_id) for (message_id,) in effects(tmp_path, postgres))
    answered = {key for key, kind in client.sent.items() if kind != "one way"}
    soak.report(
        requests=count,
        kills=kills,
        sent_twice=client.twice,
        executed=len(done),
        executed_twice=sum(n - 1 for n in done.values()),
        replies=len(client.replies),
        events=len(client.events),
        sent_again=sum(
            n.total() - 1 for found in (client.replies, client.events) for n in found.values()
        ),
        lost=len(set(client.sent) - set(done)),
    )
    assert done == Counter(client.sent.keys())
    assert set(client.replies) == answered
    assert set(client.events) == set(client.sent)
    # Again, perhaps, but always the same.
    for found in (client.replies, client.events):
        assert {len(bodies) for bodies in found.values()} == {1}
    assert dead.messages == 0
