"""How fast the capacity service answers, beside an echo over the same broker.

Service, echo, clients and subscribers run in processes of their own against one private RabbitMQ with
TLS. The clients publish requests that were made before, so they cost the same in both cases; each differs
from those before it, as requests do. (Until 2026-11-17 all were the same, which is read more quickly.)
Both publish with confirms, mandatory, and settle afterwards; the echo does so for each request by
itself, the service for all that one commit made ready, and it publishes three broadcasts more.
Rate: 50 clients in a closed loop, nobody subscribed: their Login asks for a border that there is not,
so that nothing is bound (a binding that never matches is tried for each broadcast all the same).
p99: both at half the echo's rate. Figures are medians of three rounds (of two until 2026-11-18, when the
clients' own process also paused to look for garbage). Broadcasts: a fixed rate, first without and then
with 200 subscribers, whose process has the lowest claim to the processors that on other machines it
would not share with the service; the service itself measures the time from the delivery of a request to
the publication of its response.
"""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import cycle
from pathlib import Path

import httpx

from gridpost.assembly.capacity_configuration import read_capacity_configuration
from gridpost.assembly.operations_token import bearer
from gridpost.bench import Measurement
from gridpost.bench._asking import Ask, at_rate, with_rabbitmq
from gridpost.bench._beside_echo import BesideEcho
from gridpost.bench._capacity_site import (
    IN_AREA,
    OUT_AREA,
    SUBSCRIBERS,
    LoadClient,
    load_clients,
    process,
    wait_for_line,
    write_configuration,
)
from gridpost.core.allocation import AllocationType
from gridpost.core.market_time import MarketTime, Period
from gridpost.wire.cmm import Alc, AllocationReq, AllocationResp, Allocations, decode, encode

PREFETCH = 250
REQUESTS = 20_000
"""Different ones; then they begin again."""
WARM_UP, SECONDS = 2.0, 6.0
BROADCAST_RATE = 10.0
"""Requests per second while subscribers listen."""
BROADCASTS_OF_A_REQUEST = 2
"""One for each direction, to each subscriber; heartbeats come on top. The broker carries the rate
where no fewer arrive than are due."""
BROADCAST_SECONDS = 10.0
ROUNDS = 3
_COMMAND = "from gridpost.cli import main; main()"


def measure() -> Measurement:
    return with_rabbitmq(_measure)


async def _measure(folder: Path, url: str) -> Measurement:
    configuration, port = write_configuration(folder, url, PREFETCH)
    period = _period()
    requests = _requests(period)
    first = _response_size(requests[0])
    size = await _with_service(folder, url, configuration, port, period, first)
    beside = BesideEcho(1 / 2, WARM_UP, SECONDS)

    async def echo(clients: list[LoadClient]) -> None:
        await beside.ask_echo(_asking(clients, requests))

    async def service(clients: list[LoadClient]) -> None:
        await beside.ask_service(_asking(clients, requests))

    for _ in range(ROUNDS):
        # In turns, so that both see the same machine.
        await _with_echo(folder, url, size, echo)
        await _with_service(folder, url, configuration, port, period, service)
    alone, crowd, deliveries = await _broadcasting(
        folder, url, configuration, port, period, requests
    )
    figures = {
        **beside.figures(),
        "broadcast_requests_per_s": BROADCAST_RATE,
        "deliveries_per_s": deliveries,
        "deliveries_due_per_s": BROADCAST_RATE * BROADCASTS_OF_A_REQUEST * SUBSCRIBERS,
        "subscribers": float(SUBSCRIBERS),
        "service_time_ms": alone * 1000,
        "service_time_with_200_subscribers_ms": crowd * 1000,
    }
    return Measurement(
        {name: round(value, 3) for name, value in figures.items()},
        {
            **{name: round(value, 3) for name, value in beside.ratios().items()},
            "service_time_with_200_subscribers": round(crowd / alone, 3),
        },
    )


async def _with_echo(folder: Path, url: str, size: int, work):  # type: ignore[no-untyped-def]
    arguments = (str(folder), url, str(PREFETCH), str(size))
    with process(folder, "echo", "-m", "gridpost.bench._capacity_echo", *arguments):
        await asyncio.to_thread(wait_for_line, folder, "echo", "listening")
        async with AsyncExitStack() as stack:
            return await work(await load_clients(stack, folder, url, login=False))


async def _with_service(  # type: ignore[no-untyped-def]
    folder: Path, url: str, configuration: Path, port: int, period: Period, work
):
    arguments = ("-c", _COMMAND, "capacity", "run", "--config", str(configuration))
    with process(folder, "service", *arguments):
        await asyncio.to_thread(wait_for_line, folder, "service", '"active"')
        await _publish(port, period, bearer(read_capacity_configuration(configuration).home))
        async with AsyncExitStack() as stack:
            return await work(await load_clients(stack, folder, url, login=True))


async def _publish(port: int, period: Period, headers: dict[str, str]) -> None:
    rows = [
        f"{areas},{period.start.isoformat()},{10**12}"
        for areas in (f"{OUT_AREA},{IN_AREA}", f"{IN_AREA},{OUT_AREA}")
    ]
    text = "\n".join(["out_area,in_area,period_start,quantity_kw", *rows])
    async with httpx.AsyncClient(trust_env=False, timeout=60, headers=headers) as client:
        response = await client.post(f"http://127.0.0.1:{port}/publish", json={"file": text})
        response.raise_for_status()


def _period() -> Period:
    clock = MarketTime.of("Europe/Berlin")
    day = clock.day_of(datetime.now(UTC)) + timedelta(days=2)
    return clock.periods(day, timedelta(hours=1))[12]


def _requests(period: Period) -> list[bytes]:
    """All of one size."""
    asked = [
        Alc(f"bench-{100_000 + number}", period.start, period.end, 1 + number % 9)
        for number in range(REQUESTS)
    ]
    return [
        encode(AllocationReq(AllocationType.AON, (Allocations(IN_AREA, OUT_AREA, (alc,)),)))
        for alc in asked
    ]


def _response_size(request: bytes):  # type: ignore[no-untyped-def]
    async def ask(clients: list[LoadClient]) -> int:
        body = await clients[0].ask(request)
        response = decode(body)
        if not isinstance(response, AllocationResp) or not response.items[0].success:
            raise RuntimeError(f"the service does not allocate: {response}")
        return len(body)

    return ask


def _asking(clients: list[LoadClient], requests: list[bytes]) -> list[Ask]:
    bodies = cycle(requests)

    async def ask(client: LoadClient) -> object:
        return await client.ask(next(bodies))

    return [partial(ask, client) for client in clients]


async def _broadcasting(
    folder: Path, url: str, configuration: Path, port: int, period: Period, requests: list[bytes]
) -> tuple[float, float, float]:
    """Mean service time without and with subscribers, and deliveries per second to them."""

    async def work(clients: list[LoadClient]) -> tuple[float, float, float]:
        asking = _asking(clients, requests)
        await at_rate(asking, BROADCAST_RATE, WARM_UP)
        alone = await _service_time(port, asking)
        with process(
            folder, "subscribers", "-m", "gridpost.bench._capacity_site", str(folder), url
        ):
            await asyncio.to_thread(wait_for_line, folder, "subscribers", "subscribed", 300)
            await at_rate(asking, BROADCAST_RATE, WARM_UP)
            before = _received(folder)
            crowd = await _service_time(port, asking)
            after = _received(folder)
        deliveries = (after[0] - before[0]) / max(after[1] - before[1], 0.001)
        return alone, crowd, deliveries

    result: tuple[float, float, float] = await _with_service(
        folder, url, configuration, port, period, work
    )
    return result


def _received(folder: Path) -> tuple[int, float]:
    told = json.loads((folder / "received.json").read_text())
    return int(told["received"]), float(told["at"])


async def _service_time(port: int, asking: list[Ask]) -> float:
    async def totals() -> tuple[float, float]:
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            text = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
        return tuple(  # type: ignore[return-value]
            float(match[1])
            for name in ("sum", "count")
            if (
                match := re.search(rf"^gridpost_capacity_service_seconds_{name} (\S+)$", text, re.M)
            )
        )

    before = await totals()
    await at_rate(asking, BROADCAST_RATE, BROADCAST_SECONDS)
    after = await totals()
    return (after[0] - before[0]) / (after[1] - before[1])
