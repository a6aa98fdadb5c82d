"""What the administrator changes counts while the component runs (503 cl. 10), for endpoints and brokers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from gridpost.core.component import ComponentType
from gridpost.core.identifiers import ComponentCode
from gridpost.services.directory_client.client import DirectoryClient
from gridpost.services.directory_client.cycle import Cycle
from gridpost.transports.https import ClientTls, HttpsClient
from support.directory_client import QUICK, Machine, both
from support.fake_directory import FakeDirectory
from support.https import Proxy, listening
from support.waiting import eventually

HOURLY = replace(QUICK, cycle=timedelta(hours=1))
KINDS = pytest.mark.parametrize("kind", [ComponentType.ENDPOINT, ComponentType.BROKER])


def asked(directory: FakeDirectory) -> int:
    return sum(seen.path == "/api/v1/components" for seen in directory.seen)


@both("503-7.7.3-a")
async def test_a_new_cycle_counts_at_once(kind: ComponentType) -> None:
    directory, machine = FakeDirectory(), Machine(kind, settings=HOURLY)
    async with directory.running():
        client = await machine.enrolled(directory)
        running = asyncio.ensure_future(client.synchroniser.run())
        await eventually(lambda: asked(directory) > 0)
        await asyncio.sleep(0.5)
        before = asked(directory)
        await asyncio.sleep(0.5)
        assert asked(directory) == before
        client.configure(replace(HOURLY, cycle=timedelta(seconds=0.05)))
        await eventually(lambda: asked(directory) > before + 3)
        running.cancel()


async def test_a_change_during_an_attempt_is_not_left_to_the_end_of_the_delay() -> None:
    begun, go_on = asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def attempt() -> timedelta:
        begun.release()
        await go_on.acquire()
        return timedelta(hours=1)

    cycle = Cycle(attempt)
    running = asyncio.ensure_future(cycle.run())
    await begun.acquire()
    cycle.wake()
    go_on.release()
    await asyncio.wait_for(begun.acquire(), timeout=30)
    running.cancel()


@KINDS
async def test_a_new_list_of_directories_counts_for_the_next_request(kind: ComponentType) -> None:
    directory, machine = FakeDirectory(), Machine(kind)
    async with directory.running():
        client = await machine.enrolled(directory)
        assert client.synchroniser.directories() == ("CD-1",)
        client.configure(replace(QUICK, directories=(ComponentCode("CD-9"),)))
        assert client.synchroniser.directories() == ("CD-9",)


@KINDS
async def test_a_longer_time_before_the_end_of_certificates_is_looked_at_at_once(
    kind: ComponentType,
) -> None:
    settings = replace(QUICK, anticipation=timedelta(0))
    directory, machine = FakeDirectory(), Machine(kind, settings=settings)
    async with directory.running():
        client = await machine.enrolled(directory)
        life = machine.keys.certificates()[0]
        # In the second half of its life, where an extension may be asked for.
        machine.clock.ahead = (life.not_after - life.not_before) * 0.6
        running = asyncio.ensure_future(client.renewal.run())
        await asyncio.sleep(0.2)
        before = len(directory.of("POST"))
        client.configure(replace(settings, anticipation=life.not_after - life.not_before))
        await eventually(lambda: len(directory.of("POST")) > before)
        running.cancel()


@KINDS
async def test_a_new_proxy_leads_the_next_request(kind: ComponentType) -> None:
    directory, machine = FakeDirectory(), Machine(kind)
    async with directory.running():
        enrolled = await machine.enrolled(directory)
        client = DirectoryClient(
            machine.code,
            kind,
            store=machine.store,
            keys=machine.keys,
            clock=machine.clock,
            callers=lambda credentials: HttpsClient(
                ClientTls(credentials), proxy=lambda: client.context.settings.proxy
            ),
            settings=enrolled.context.settings,
        )
        await client.open()
        await client.synchroniser.round()
        proxy = Proxy()
        async with listening(proxy) as port:
            client.configure(replace(QUICK, proxy=f"http://127.0.0.1:{port}"))
            await client.synchroniser.round()
        assert proxy.targets
