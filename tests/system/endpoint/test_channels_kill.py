"""Kill -9 of the sender and of the recipient while files and AMQP messages are on their way.

Nothing that an application handed in is lost or sent twice, and every answer arrives.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gridpost.transports.free_port import free_port
from support.amqp_application import AmqpApplication
from support.folders import Folders, folder_network
from support.network import Network
from support.soak import Soak
from support.waiting import eventually

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(3600)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def net(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Network]:
    ports = {code: free_port() for code in ("E1", "E2")}
    async with folder_network(
        tmp_path_factory.mktemp("kill"),
        after=lambda code: (
            f'[amqp]\nport = {ports[code]}\n[[bindings]]\nmessage_type = "Q*"\nchannel = "amqp"\n'
        ),
    ) as found:
        for code, port in ports.items():
            found.ports[f"{code} amqp"] = port
        yield found


async def killed(net: Network, chance: random.Random, kills: int, done: asyncio.Event) -> int:
    """Kill endpoints at random moments, as often as wanted or until everything is done."""
    for count in range(kills):
        await asyncio.sleep(chance.uniform(0.2, 1.5))
        if done.is_set():
            return count
        component = net.components[chance.choice(["E1", "E2"])]
        await component.kill()
        await component.start()
    return kills


@pytest.mark.req("503-5.8.2-c")
async def test_amqp_messages_survive_kills(net: Network, soak: Soak) -> None:
    count, kills = soak.scale(2_000), soak.scale(30)
    chance = random.Random(soak.seed)
    done = asyncio.Event()
    async with (
        AmqpApplication(net.ports["E1 amqp"]) as sender,
        AmqpApplication(net.ports["E2 amqp"]) as recipient,
    ):
        sender.consume()
        recipient.consume()
        killing = asyncio.create_task(killed(net, chance, kills, done))
        keys = [f"k-{n}" for n in range(count)]
        room = asyncio.Semaphore(20)

        async def one(key: str) -> None:
            async with room:
                await sender.send(key)

        await asyncio.gather(*(one(key) for key in keys))
        times = await killing
        received = lambda: all((key, "RECEIVED") in sender.events for key in keys)  # noqa: E731
        await eventually(received, 1200)
        done.set()
        assert set(sender.replies) == set(keys)
        assert set(recipient.documents) == set(keys)
        # One message for each key, however often it was sent.
        assert recipient.message_ids == {key: {sender.replies[key]} for key in keys}
        # What the endpoint has answered does not come again; what a kill left unanswered may.
        assert recipient.answered
        assert recipient.after_answer == []
    again = sum(recipient.documents.values()) - count
    soak.report(
        messages=count,
        kills=times,
        handed_over_again_unanswered=again,
        handed_over_again_after_answer=len(recipient.after_answer),
    )


@pytest.mark.req("503-11.2.1-f")
@pytest.mark.req("503-11.2.3-c")
async def test_files_survive_kills(net: Network, soak: Soak) -> None:
    count, kills = soak.scale(2_000), soak.scale(30)
    chance = random.Random(soak.seed + 1)
    sender, recipient = Folders(net, "E1"), Folders(net, "E2")
    done = asyncio.Event()
    killing = asyncio.create_task(killed(net, chance, kills, done))
    await sender.many("APP", count)
    times = await killing

    def all_there() -> bool:
        return sum(1 for path in recipient.into.iterdir() if path.suffix == ".xml") >= count

    await eventually(all_there, 1200)
    done.set()
    files = await recipient.receive(count)
    assert sorted(files.values()) == sorted(f"APP {n}" for n in range(count))
    assert not list(sender.out.iterdir())
    assert not list(sender.errors.iterdir())
    assert not list(recipient.into.iterdir())
    for number in range(count):
        await sender.log_of(f"APP_E2_F01_{number}.xml.log", until="RECEIVED", seconds=60)
    soak.report(files=count, kills=times)
