"""Kill -9 at random points: every accepted message ends RECEIVED exactly once, or FAILED with a reason."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from gridpost.client import AsyncEndpoint
from gridpost.core.refusal import Refusal
from support.network import Network
from support.soak import Soak

pytestmark = pytest.mark.asyncio(loop_scope="module")

TYPE = "SOAK"


class Application:
    """Sends with idempotency keys and repeats until it has an answer; receives and confirms."""

    def __init__(self, net: Network) -> None:
        self.net = net
        self.accepted: dict[str, str] = {}
        self.seen: set[str] = set()
        self.confirmed: Counter[str] = Counter()
        self.done = asyncio.Event()

    async def send(self, count: int) -> None:
        async with self.net.api("E1") as api:
            for number in range(count):
                key = f"soak-{number}"
                self.accepted[key] = await self._sent(api, key)

    async def _sent(self, api: AsyncEndpoint, key: str) -> str:
        while True:
            try:
                return await api.send("E2", TYPE, key.encode(), key=key)
            except Refusal as refusal:
                if not refusal.retryable:
                    raise
                await asyncio.sleep(0.1)

    async def receive(self) -> None:
        """As an application does it: the document is its own once the confirmation was answered."""
        async with self.net.api("E2") as api:
            while not self.done.is_set():
                try:
                    found = await api.receive(TYPE)
                    if found is None:
                        await asyncio.sleep(0.05)
                        continue
                    self.seen.add((found.content or b"").decode())
                    await api.confirm(found.message.message_id)
                except Refusal as refusal:
                    if not refusal.retryable:
                        raise
                    await asyncio.sleep(0.1)
                    continue
                self.confirmed[(found.content or b"").decode()] += 1


@pytest.mark.req("503-5.9-a", "503-5.9-b", component="endpoint")
@pytest.mark.timeout(7200)
async def test_every_message_ends_although_processes_are_killed(net: Network, soak: Soak) -> None:
    count, kills = soak.scale(5000), soak.scale(60)
    chance = random.Random(soak.seed)
    application = Application(net)
    sending = asyncio.create_task(application.send(count))
    receiving = asyncio.create_task(application.receive())

    async def killer() -> None:
        for number in range(kills):
            # Each at another point of the work, so that none comes when everything was accepted.
            goal = (number + chance.random()) * count / kills
            while len(application.accepted) < goal and not sending.done():
                await asyncio.sleep(0.005)
            await asyncio.sleep(chance.uniform(0.0, 0.2))
            victims = chance.choice([["E1"], ["E2"], ["B1"], ["E1", "E2"], ["E1", "E2", "B1"]])
            for code in victims:
                await net.components[code].kill()
            for code in victims:
                await net.components[code].start()

    killing = asyncio.create_task(killer())
    await asyncio.wait_for(asyncio.gather(sending, killing), 3600)
    async with net.api("E1") as api:
        waiting = dict(application.accepted)
        ended: dict[str, str] = {}
        async with asyncio.timeout(1200):
            while waiting:
                for key, message_id in list(waiting.items()):
                    found = await api.status(message_id)
                    if found.status not in ("RECEIVED", "FAILED"):
                        break
                    if found.status == "FAILED":
                        assert (await api.explain(message_id)).summary
                    ended[key] = found.status
                    del waiting[key]
                await asyncio.sleep(0.1)
    application.done.set()
    await receiving
    # The account: every key that was accepted ended, and its document has one message ID.
    assert set(ended) == {f"soak-{number}" for number in range(count)}
    assert len(set(application.accepted.values())) == count
    received = {key for key, status in ended.items() if status == "RECEIVED"}
    # What is RECEIVED was in the hands of the application; a confirmation whose answer a kill has
    # swallowed is no second hand-over, and none was answered twice.
    assert received <= application.seen
    assert [key for key, times in application.confirmed.items() if times > 1] == []
    assert set(application.confirmed) <= received
    soak.report(
        messages=count,
        kills=kills,
        received=len(received),
        failed=count - len(received),
        answers_lost=len(received - set(application.confirmed)),
        seed=soak.seed,
    )
