"""A bus that is killed between any two steps of what it hands to others: nothing is lost on the way.

Web-service listeners, routes to a queue and to a web service, and the bridge to other parties.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gridpost.client import AsyncEndpoint, Received
from gridpost.core.amqp091 import Channel, Incoming, Properties
from gridpost.envelope import (
    AnyMessage,
    EventMessage,
    RequestMessage,
    ResponseMessage,
    Result,
    Sender,
    complete,
    decode,
    encode,
)
from support.bus_processes import COUNTS, Buses, effects, write
from support.bus_site import CONTEXT
from support.bus_web import web_service
from support.network import API_PASSWORD, Network, network
from support.rabbitmq import Rabbit
from support.waiting import eventually

ROUTED = '<r:Routed xmlns:r="urn:routed"/>'
OTHER = f"{CONTEXT}.OTHER"


@pytest.fixture(scope="module")
def buses() -> Iterator[Buses]:
    found = Buses()
    yield found
    found.close()


@asynccontextmanager
async def broker(rabbit: Rabbit, virtual_host: str) -> AsyncIterator[Channel]:
    connection = await rabbit.client(virtual_host=virtual_host).connect()
    yield await connection.channel()
    await connection.close()


@asynccontextmanager
async def after_a_kill(buses: Buses, file: Path, doomed: int) -> AsyncIterator[None]:
    """Once it has killed itself, another process with the same store goes on."""
    assert await buses.wait(doomed) == -9
    second = await buses.start(file, "never")
    try:
        yield
    finally:
        await buses.kill(second)


async def none_dead(channel: Channel) -> None:
    _, dead = await channel.declare_queue(f"{CONTEXT}.DEAD", passive=True)
    assert dead.messages == 0


@pytest.mark.parametrize("stop_at", ["event taken", "event delivered", "event noted"])
async def test_events_reach_a_web_service_listener_in_order_whenever_the_bus_is_killed(
    rabbitmq: Rabbit, buses: Buses, tmp_path: Path, stop_at: str
) -> None:
    virtual_host = rabbitmq.virtual_host()
    sender = Sender("EMS", CONTEXT)
    events = [sender.event("changed", "Others", f'<o:Others xmlns:o="urn:{n}"/>') for n in "abc"]
    async with web_service() as listener, broker(rabbitmq, virtual_host) as channel:
        section = f'[[subscribers]]\nname = "gis"\nnoun = "Others"\nto = "{listener.url}"\n'
        file = write(rabbitmq, tmp_path, virtual_host, section)
        doomed = await buses.start(file, stop_at)
        for event in events:
            await channel.publish(
                encode(event),
                Properties(),
                exchange=CONTEXT,
                routing_key=f"{CONTEXT}.EVENTS.Others.changed",
            )
        async with after_a_kill(buses, file, doomed):
            await eventually(lambda: _ids(listener.taken)[-1:] == _ids(events)[-1:], 60)
        seen = _ids(listener.taken)
        # The first one again, perhaps; none is missing, and none comes before its turn.
        assert seen in (_ids(events), [_ids(events)[0], *_ids(events)])
        await none_dead(channel)


def _ids(messages: list[AnyMessage] | list[EventMessage]) -> list[str]:
    return [message.header.message_id for message in messages]


@pytest.mark.parametrize("stop_at", ["taken", "route written", "route passed on", "route answered"])
async def test_a_route_to_a_queue_passes_every_request_on_whenever_the_bus_is_killed(
    rabbitmq: Rabbit, buses: Buses, tmp_path: Path, stop_at: str
) -> None:
    virtual_host = rabbitmq.virtual_host()
    file = write(rabbitmq, tmp_path, virtual_host, _route(f"queue:{OTHER}"))
    request = Sender("EMS", CONTEXT).request("create", "Routed", ROUTED)
    async with broker(rabbitmq, virtual_host) as channel:
        replies, _ = await channel.declare_queue(durable=False, auto_delete=False)
        taken, got = await _serve(channel, OTHER), list[bytes]()
        await channel.consume(replies, lambda m: got.append(m.body), no_ack=True)
        doomed = await buses.start(file, stop_at)
        await _put(channel, request, reply_to=replies, correlation_id="t")
        async with after_a_kill(buses, file, doomed):
            await eventually(lambda: bool(got), 60)
        # At least once, as the documentation says, and always the same bytes.
        assert set(taken) == {encode(request)}
        answer = decode(got[0])
        assert isinstance(answer, ResponseMessage)
        assert answer.header.correlation_id == request.header.correlation_id
        await none_dead(channel)


@pytest.mark.parametrize(
    "stop_at", ["taken", "route written", "called", "route passed on", "route answered"]
)
async def test_a_route_to_a_web_service_calls_it_whenever_the_bus_is_killed(
    rabbitmq: Rabbit, buses: Buses, tmp_path: Path, stop_at: str
) -> None:
    virtual_host = rabbitmq.virtual_host()
    request = Sender("EMS", CONTEXT).request("create", "Routed", ROUTED, one_way=True)
    async with web_service() as partner, broker(rabbitmq, virtual_host) as channel:
        file = write(rabbitmq, tmp_path, virtual_host, _route(partner.url))
        doomed = await buses.start(file, stop_at)
        await _put(channel, request)
        async with after_a_kill(buses, file, doomed):
            await eventually(lambda: bool(partner.taken), 60)
        assert len({encode(one) for one in partner.taken}) == 1
        assert partner.taken[0].header == decode(encode(request)).header
        await none_dead(channel)


def _route(target: str) -> str:
    return f'[[routes]]\nverb = "create"\nnoun = "Routed"\n[[routes.targets]]\nto = "{target}"\n'


async def _put(channel: Channel, request: RequestMessage, **properties: str) -> None:
    queue = f"{CONTEXT}.REQUESTS.{request.header.noun}.create"
    await channel.publish(encode(request), Properties(**properties), routing_key=queue)


async def _serve(channel: Channel, queue: str) -> list[bytes]:
    """Somebody else on a queue, who answers to reply-to."""
    await channel.declare_queue(queue)
    taken: list[bytes] = []
    working: list[asyncio.Future[None]] = []

    def take(incoming: Incoming) -> None:
        taken.append(incoming.body)
        request, found = decode(incoming.body), incoming.properties
        body = encode(Sender("OTHER", CONTEXT).response(request, complete()))
        said = Properties(correlation_id=found.correlation_id)
        answering = channel.publish(body, said, routing_key=found.reply_to or "")
        working.append(asyncio.ensure_future(answering))

    await channel.consume(queue, take, no_ack=True)
    return taken


REQUESTS, RESPONSES = "A61968-REQUEST", "A61968-RESPONSE"
OUT = (
    "taken",
    "route written",
    "route passed on",
    "route answered",
    "party received",
    "party taken",
)
IN = ("party received", "handler", "party served", "party taken", "party confirmed")


@pytest.mark.timeout(600)
async def test_the_bridge_carries_every_envelope_once_whenever_the_bus_is_killed(
    rabbitmq: Rabbit, buses: Buses, tmp_path: Path
) -> None:
    (tmp_path / "network").mkdir()
    async with network(tmp_path / "network") as net:
        for code in ("E1", "E2"):
            await net.endpoint(code, "DIRECT", direct=True)
        await net.start("E1", "E2")
        await net.known("E1", "E2")
        await net.known("E2", "E1")
        async with net.api("E2") as party:
            for stop_at in OUT:
                folder = _folder(tmp_path, f"out {stop_at}")
                await _ask_the_party(rabbitmq, buses, net, party, folder, stop_at)
            for stop_at in IN:
                folder = _folder(tmp_path, f"in {stop_at}")
                await _asked_by_the_party(rabbitmq, buses, net, party, folder, stop_at)


def _folder(parent: Path, name: str) -> Path:
    found = parent / name.replace(" ", "-")
    found.mkdir()
    return found


def _bridge(net: Network) -> str:
    return (
        f'[mades]\nurl = "http://127.0.0.1:{net.ports["E1"]}"\nuser = "app"\n'
        f'password = "{API_PASSWORD}"\ncontext = "{CONTEXT}"\nevery = "100ms"\n'
    )


async def _ask_the_party(
    rabbitmq: Rabbit,
    buses: Buses,
    net: Network,
    party: AsyncEndpoint,
    folder: Path,
    stop_at: str,
) -> None:
    """A request leaves through the endpoint, and its reply comes back to the client's queue."""
    virtual_host = rabbitmq.virtual_host()
    file = write(rabbitmq, folder, virtual_host, _route("mades:E2") + _bridge(net))
    request = Sender("EMS", CONTEXT).request("create", "Routed", ROUTED)
    async with broker(rabbitmq, virtual_host) as channel:
        replies, _ = await channel.declare_queue(durable=False, auto_delete=False)
        got: list[bytes] = []
        await channel.consume(replies, lambda m: got.append(m.body), no_ack=True)
        doomed = await buses.start(file, stop_at)
        await _put(channel, request, reply_to=replies, correlation_id="t")
        answering = asyncio.create_task(_answer(party))
        async with after_a_kill(buses, file, doomed):
            asked = await answering
            await eventually(lambda: bool(got), 60)
            # Whatever was sent a second time would be here by now.
            assert await party.receive(REQUESTS) is None, stop_at
        assert asked == encode(request), stop_at
        assert len(set(got)) == 1, stop_at
        answer = decode(got[0])
        assert isinstance(answer, ResponseMessage)
        assert answer.reply.result is Result.OK, stop_at
        assert answer.header.correlation_id == request.header.correlation_id
        await none_dead(channel)


async def _answer(party: AsyncEndpoint) -> bytes:
    """What the other party was asked; it answers once."""
    found = await _next(party, REQUESTS)
    body = encode(Sender("PARTY", CONTEXT).response(decode(found.content or b""), complete()))
    await party.send("E1", RESPONSES, body, key=f"answer-{found.message.message_id}")
    await party.confirm(found.message.message_id)
    return found.content or b""


async def _next(party: AsyncEndpoint, message_type: str) -> Received:
    async with asyncio.timeout(60):
        while True:
            found = await party.receive(message_type)
            if found is not None:
                return found
            await asyncio.sleep(0.05)


async def _asked_by_the_party(
    rabbitmq: Rabbit,
    buses: Buses,
    net: Network,
    party: AsyncEndpoint,
    folder: Path,
    stop_at: str,
) -> None:
    """A request of another party is done once, and its reply goes back once."""
    virtual_host = rabbitmq.virtual_host()
    file = write(rabbitmq, folder, virtual_host, _bridge(net))
    request = Sender("PARTY", CONTEXT).request("create", "Counts", COUNTS)
    doomed = await buses.start(file, stop_at)
    await party.send("E1", REQUESTS, encode(request), key=request.header.message_id)
    async with after_a_kill(buses, file, doomed):
        found = await _next(party, RESPONSES)
        await party.confirm(found.message.message_id)
        answer = decode(found.content or b"")
        async with net.api("E1") as own:
            await _until_empty(own)
        assert await party.receive(RESPONSES) is None, stop_at
    assert isinstance(answer, ResponseMessage)
    assert answer.reply.result is Result.OK, stop_at
    assert answer.header.correlation_id == request.header.correlation_id
    assert effects(folder, None) == [(request.header.message_id,)], stop_at


async def _until_empty(own: AsyncEndpoint) -> None:
    """The bus has confirmed what the other party sent."""
    async with asyncio.timeout(60):
        while await own.receive(REQUESTS, content=False) is not None:
            await asyncio.sleep(0.05)
