"""Documents in all directions on all channels, followed until RECEIVED, and their proofs verified."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from types import TracebackType

from gridpost.assembly.directory_configuration import read_certificates
from gridpost.assembly.network import NetworkFiles, Placed
from gridpost.assembly.network.write import APPLICATION
from gridpost.client import AsyncEndpoint
from gridpost.core.refusal import Refusal, Rule
from gridpost.demo.channels import (
    AmqpChannel,
    Channel,
    FolderChannel,
    JsonChannel,
    SoapChannel,
)
from gridpost.wire.proof_file import decode
from gridpost.wire.seal.proof import verify_proof

PATH_SECONDS, RECEIVED_SECONDS = 90.0, 90.0
FINAL = frozenset({"RECEIVED", "FAILED"})
DOCUMENT = """<?xml version="1.0" encoding="UTF-8"?>
<Demonstration>
  <from>{sender}</from>
  <to>{receiver}</to>
  <number>{number}</number>
  <quantity unit="MW">{quantity}</quantity>
</Demonstration>
"""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One document of the demonstration, and what became of it."""

    channel: str
    sender: str
    receiver: str
    message_type: str
    message_id: str
    route: str
    status: str
    milliseconds: float
    """From the call that sent it until the sending application heard of RECEIVED."""
    proven: bool


class Follower:
    """Hears the status of every message that one endpoint sends, by its events."""

    def __init__(self, api: AsyncEndpoint) -> None:
        self._api = api
        self._heard: dict[str, tuple[str, float]] = {}
        self._news = asyncio.Condition()
        self._arrived: dict[str, asyncio.Event] = {}
        self._labels: dict[str, str] = {}

    async def listen(self) -> None:
        while True:
            async for event in self._api.events():
                async with self._news:
                    message_id = str(event.data["messageID"])
                    if event.name == "status":
                        self._heard[message_id] = (str(event.data["status"]), time.monotonic())
                        self._labels[str(event.data["baMessageID"])] = message_id
                    elif event.data["messageType"] in self._arrived:
                        self._arrived[event.data["messageType"]].set()
                    self._news.notify_all()

    def arrived_for(self, channel: type[Channel]) -> asyncio.Event:
        """Set when a document of this channel's message-type waits for an application."""
        return self._arrived.setdefault(channel.message_type, asyncio.Event())

    async def find(self, ba_message_id: str) -> str:
        """The message ID of a document that was handed over without an answer."""
        async with asyncio.timeout(RECEIVED_SECONDS), self._news:
            await self._news.wait_for(lambda: ba_message_id in self._labels)
            return self._labels[ba_message_id]

    async def until(
        self, message_id: str, wanted: Iterable[str], seconds: float
    ) -> tuple[str, float]:
        """Status and moment; the last status that was heard of when the time is over."""

        def known() -> tuple[str, float]:
            return self._heard.get(message_id, ("ACCEPTED", time.monotonic()))

        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._news:
                await self._news.wait_for(lambda: known()[0] in wanted)
        return known()


class Exchange:
    """The applications of all parties."""

    def __init__(self, files: NetworkFiles) -> None:
        self._files = files
        self._apis: dict[str, AsyncEndpoint] = {}
        self._followers: dict[str, Follower] = {}
        self._channels: dict[str, tuple[Channel, ...]] = {}
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Exchange:
        for placed in self._files.endpoints:
            api = await self._stack.enter_async_context(_api(self._files, placed))
            self._apis[placed.code] = api
            follower = self._followers[placed.code] = Follower(api)
            address = f"http://127.0.0.1:{placed.ports['api']}"
            password = self._files.password(placed).read_text(encoding="ascii").strip()
            amqp = AmqpChannel(placed.ports["amqp"], APPLICATION, password)
            self._channels[placed.code] = (
                SoapChannel(address, APPLICATION, password, follower.arrived_for(SoapChannel)),
                FolderChannel(placed.folder / "folders", follower.find),
                await self._stack.enter_async_context(amqp),
                JsonChannel(api, follower.arrived_for(JsonChannel)),
            )
        # One that fails ends the demonstration with its reason.
        group = await self._stack.enter_async_context(asyncio.TaskGroup())
        self._tasks = [group.create_task(f.listen()) for f in self._followers.values()]
        self._tasks += [
            group.create_task(channel.receive())
            for channels in self._channels.values()
            for channel in channels
        ]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        for task in self._tasks:
            task.cancel()
        return await self._stack.__aexit__(kind, error, trace)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        codes = list(self._apis)
        return [(sender, receiver) for sender in codes for receiver in codes if sender != receiver]

    def count(self, messages: int) -> int:
        return sum(messages * len(self._channels[sender]) for sender, _ in self.pairs)

    async def find_ways(self, found: Callable[[str], None]) -> None:
        """503 cl. 5.12: a tracing message each way, repeated until the directory copies agree."""

        async def one(sender: str, receiver: str) -> None:
            deadline = time.monotonic() + PATH_SECONDS
            while True:
                try:
                    message_id = await self._apis[sender].test(receiver, "CONNECTIVITY")
                    break
                except Refusal:
                    if time.monotonic() > deadline:
                        raise
                    await asyncio.sleep(0.2)
            remaining = max(1.0, deadline - time.monotonic())
            status, _ = await self._followers[sender].until(
                message_id, {"DELIVERED", "FAILED"}, remaining
            )
            if status != "DELIVERED":
                raise Refusal(
                    Rule.INTERNAL,
                    f"the connectivity test from {sender} to {receiver} is {status}",
                    (await self._apis[sender].explain(message_id)).summary,
                )
            found(f"{sender} -> {receiver}")

        async with asyncio.TaskGroup() as group:
            for sender, receiver in self.pairs:
                group.create_task(one(sender, receiver))

    async def run(self, messages: int, done: Callable[[Delivery], None]) -> list[Delivery]:
        roots = read_certificates(self._files.root)
        results: list[Delivery] = []
        limit = asyncio.Semaphore(64)

        async def one(channel: Channel, sender: str, receiver: str, number: int) -> None:
            async with limit:
                delivery = await self._deliver(channel, sender, receiver, number, roots)
            results.append(delivery)
            done(delivery)

        async with asyncio.TaskGroup() as group:
            for number in range(1, messages + 1):
                for sender, receiver in self.pairs:
                    for channel in self._channels[sender]:
                        group.create_task(one(channel, sender, receiver, number))
        return results

    async def _deliver(
        self, channel: Channel, sender: str, receiver: str, number: int, roots: tuple[bytes, ...]
    ) -> Delivery:
        document = DOCUMENT.format(
            sender=sender, receiver=receiver, number=number, quantity=100 + number
        ).encode()
        label = f"{channel.name}-{number}-{time.time_ns()}"
        started = time.monotonic()
        message_id = await channel.send(receiver, document, label)
        _, at = await self._followers[sender].until(message_id, FINAL, RECEIVED_SECONDS)
        api = self._apis[sender]
        message = await api.status(message_id)
        proven = False
        if message.status == "RECEIVED":
            verdict = verify_proof(decode(await api.proof(message_id)).proof, roots)
            proven = verdict.origin.proven and verdict.receipt.proven
        return Delivery(
            channel.name,
            sender,
            receiver,
            channel.message_type,
            message_id,
            message.route,
            message.status,
            round((at - started) * 1000, 1),
            proven,
        )

    async def explain(self, delivery: Delivery) -> str:
        return (await self._apis[delivery.sender].explain(delivery.message_id)).summary


def by_channel(deliveries: Iterable[Delivery]) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for delivery in deliveries:
        counts[delivery.channel] = counts.get(delivery.channel, 0) + (delivery.status == "RECEIVED")
    return counts


def _api(files: NetworkFiles, placed: Placed) -> AsyncEndpoint:
    password = files.password(placed)
    return AsyncEndpoint(
        f"http://127.0.0.1:{placed.ports['api']}",
        user=APPLICATION,
        password=password.read_text(encoding="ascii").strip(),
    )
