"""Duties: what the world does to one is survived, a programming error is not hidden."""

from __future__ import annotations

import asyncio

import pytest

from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.service import Duty, EndpointService, Restarts
from support.waiting import eventually

QUICK = Restarts(first=0.01, longest=0.02)


async def test_a_duty_that_the_world_stops_is_begun_again() -> None:
    begun = 0

    async def duty() -> None:
        nonlocal begun
        begun += 1
        if begun == 1:
            raise Refusal(Rule.STORE_FULL, "the disk is full")
        if begun == 2:
            raise OSError("the network is gone")
        await asyncio.Event().wait()

    task = asyncio.create_task(EndpointService([Duty("one", duty)], QUICK).run())
    await eventually(lambda: begun == 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_programming_error_ends_everything() -> None:
    stopped = asyncio.Event()

    async def wrong() -> None:
        raise KeyError("a bug")

    async def other() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    with pytest.raises(ExceptionGroup) as raised:
        await EndpointService([Duty("other", other), Duty("wrong", wrong)], QUICK).run()
    assert isinstance(raised.value.exceptions[0], KeyError)
    assert stopped.is_set()
