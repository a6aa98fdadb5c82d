"""Cross-border capacity by message: the service publishes, a participant allocates, all hear of it."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from gridpost.assembly import capacity_users
from gridpost.assembly.capacity_configuration import read_capacity_configuration
from gridpost.assembly.network import Placed
from gridpost.capacity import (
    AllocationsChanged,
    AsyncCapacityClient,
    AtcChanged,
    Heartbeat,
    Wanted,
    read_client_settings,
)
from gridpost.core.market_time import MarketTime
from gridpost.core.refusal import Refusal, Rule
from gridpost.demo.part import Done, ask, blaming, console_of, process_of
from gridpost.demo.processes import ComponentProcess
from gridpost.demo.rabbit import DemoRabbit

SERVICE, USER = "cmm-service", "trader"
ZONE = "Europe/Brussels"
OUT_AREA, IN_AREA = "10YDE-EON------1", "10YDK-1--------W"
GROUP = "11XEEX-INTRA---D"
OFFERED, ASKED = 100_000, 250
PATIENCE = timedelta(seconds=90)

CONFIGURATION = """# The capacity service of the demonstration.
component = "capacity"
code = "{code}"
home = "data"
zone = "{zone}"

[rabbitmq]
urls = ["{rabbit.url}"]
user = "{service}"
roots = "{rabbit.roots}"
certificate = "{certificate}"
key = "{key}"

[authority]
folder = "{rabbit.authority}"

[broadcasts]
heartbeat = "1s"

# A newcomer's machine may be slow.
[queues]
request_ttl = "90s"
expires = "90s"

[operations]
port = {operations}

[[balancing_groups]]
eic = "{group}"

[[borders]]
name = "DE-DK"
interconnectors = [["{out_area}", "{in_area}"]]
opening_days = 30

[[users]]
name = "{user}"
roles = ["explicit-participant", "allocation-reporting"]
balancing_groups = ["{group}"]
borders = ["DE-DK"]

"""


class CapacityPart:
    name: ClassVar[str] = "capacity"
    steps: ClassVar[tuple[str, ...]] = ("service active", "logged in", "published", "allocated",
                                        "broadcasts heard")  # fmt: skip

    def __init__(self, home: Path, placed: Placed, rabbit: DemoRabbit) -> None:
        self._placed = placed
        self._rabbit = rabbit
        self._process = process_of(home, placed)
        self._package = placed.folder / USER
        self._passphrase = self._package / "passphrase"

    @property
    def processes(self) -> tuple[ComponentProcess, ...]:
        return (self._process,)

    def prepare(self, at: datetime) -> dict[str, Any]:
        """Configuration and account package; gives what RabbitMQ has to know."""
        file = self._placed.configuration
        certificate, key = self._rabbit.certificate(SERVICE)
        file.touch(mode=0o600)
        file.write_text(
            CONFIGURATION.format(
                code=self._placed.code, zone=ZONE, rabbit=self._rabbit, service=SERVICE,
                certificate=certificate, key=key, operations=self._placed.ports["operations"],
                group=GROUP, out_area=OUT_AREA, in_area=IN_AREA, user=USER,
            )
            + console_of(self._placed, self._rabbit.server_certificate),
            encoding="utf-8",
        )  # fmt: skip
        configuration = read_capacity_configuration(file)
        if not self._passphrase.exists():
            passphrase = secrets.token_urlsafe(18)
            capacity_users.make_package(configuration, USER, self._package, passphrase, at)
            self._passphrase.touch(mode=0o600)
            self._passphrase.write_text(passphrase, encoding="ascii")
        return capacity_users.definitions(configuration)

    async def show(self, done: Done) -> dict[str, Any]:
        await self._process.start()
        done(self.steps[0])
        settings = replace(
            read_client_settings(
                self._package / "client.toml", self._passphrase.read_text(encoding="ascii")
            ),
            response_timeout=PATIENCE,
            login_timeout=PATIENCE,
        )
        async with blaming(self._process, USER), AsyncCapacityClient(settings) as client:
            done(self.steps[1])
            periods = _periods()
            await ask(self._placed, "publish", file=_offer(periods))
            done(self.steps[2])
            start, end = periods[12]
            found = await client.allocate([Wanted(OUT_AREA, IN_AREA, start, end, ASKED)])
            given = sum(item.confirmed or 0 for item in found.items if item.success)
            if given != ASKED:
                raise Refusal(Rule.INTERNAL, f"{ASKED} kW were asked for, {given} allocated")
            done(self.steps[3])
            heard = await _broadcasts(client)
            done(self.steps[4])
        return {"published_periods": len(periods), "allocated_kw": given, "broadcasts": heard}


async def _broadcasts(client: AsyncCapacityClient) -> dict[str, int]:
    """One of each kind at least: a heartbeat, what is available, what was allocated."""
    wanted = {Heartbeat: "heartbeats", AtcChanged: "atc", AllocationsChanged: "allocations"}
    heard = dict.fromkeys(wanted.values(), 0)
    async with asyncio.timeout(PATIENCE.total_seconds()):
        async for event in client.events():
            name = wanted.get(type(event))
            if name is not None:
                heard[name] += 1
            if all(heard.values()):
                break
    return heard


def _periods() -> list[tuple[datetime, datetime]]:
    """The hours of a delivery day that is open."""
    zone = MarketTime.of(ZONE)
    day = zone.day_of(datetime.now(UTC)) + timedelta(days=3)
    return [(p.start, p.end) for p in zone.periods(day, timedelta(hours=1))]


def _offer(periods: list[tuple[datetime, datetime]]) -> str:
    rows = [
        f"{areas[0]},{areas[1]},{start.isoformat()},{OFFERED}"
        for areas in ((OUT_AREA, IN_AREA), (IN_AREA, OUT_AREA))
        for start, _ in periods
    ]
    return "\n".join(["out_area,in_area,period_start,quantity_kw", *rows])
