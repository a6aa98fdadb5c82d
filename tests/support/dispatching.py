"""A dispatcher that runs, with a courier that a test holds back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from gridpost.core.identifiers import ComponentCode
from gridpost.core.links import Octets
from gridpost.core.message_path import Route
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.dispatch import Dispatcher
from gridpost.services.endpoint.transfer import BackOff, Transfer
from gridpost.wire.amqp.sections import split
from gridpost.wire.mades.amqp_message import read_fields
from support.post import TestEndpoint

QUICK = BackOff(timedelta(milliseconds=20), timedelta(milliseconds=50))


class Courier:
    """Keeps what it is given until the test lets it go."""

    def __init__(self) -> None:
        self.given: list[tuple[str, bytes]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.refuse: set[str] = set()
        self.broken: set[str] = set()
        self.at_once = 0
        self.most = 0

    async def deliver(self, route: Route, receiver: ComponentCode, *octets: Octets) -> None:
        data = b"".join(octets)
        fields = read_fields(split(data))
        self.given.append((fields.message_id, data))
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await self.open.wait()
        finally:
            self.at_once -= 1
        if fields.message_id in self.refuse:
            raise Refusal(Rule.UNREACHABLE, "the post is closed")
        if fields.message_id in self.broken:
            raise ZeroDivisionError

    @property
    def ids(self) -> list[str]:
        return [message_id for message_id, _ in self.given]


@asynccontextmanager
async def dispatching(
    endpoint: TestEndpoint, courier: Courier, **options: object
) -> AsyncIterator[Dispatcher]:
    transfer = Transfer(endpoint.context, courier, QUICK)
    dispatcher = Dispatcher(endpoint.context, transfer, back_off=QUICK, **options)  # type: ignore[arg-type]
    task = asyncio.create_task(dispatcher.run())
    try:
        yield dispatcher
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
