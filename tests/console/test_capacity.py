"""What operators of capacity do in its console, in a real browser, judged by axe."""

from __future__ import annotations

import pytest
import pytest_asyncio

from console.conftest import _HASH, PEOPLE, Site, drive
from support.capacity_market import DK1, EON, GROUP
from support.capacity_site import DE_DK_1000, capacity_csv, capacity_service, periods, rabbit

__all__ = ["rabbit"]

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(500)]

FLOWS = (
    "capacity publishes",
    "capacity chart",
    "capacity allocates on behalf",
    "capacity halts and resumes",
    "capacity events",
    "capacity users",
    "capacity audit",
    "capacity viewer",
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def flows(rabbit, tmp_path_factory):
    folder = tmp_path_factory.mktemp("capacity-console")
    console = {
        "port": 0,
        "certificate": rabbit.folder / "chain.pem",
        "key": rabbit.folder / "key.pem",
        "users": {name: {"role": role, "password": _HASH} for name, role in PEOPLE.items()},
    }
    async with capacity_service(rabbit, folder, console=console) as running:
        site = Site(folder, None)  # type: ignore[arg-type]
        port = running.running.console_port
        assert port is not None
        site.ports["CMM-1"] = port
        yield await drive(
            site,
            "capacity",
            capacity=capacity_csv(*DE_DK_1000),
            group=GROUP,
            areas=[EON, DK1],
            start=f"{periods()[12].start:%Y-%m-%d %H:%M}",
        )


@pytest.mark.parametrize("name", FLOWS)
async def test_a_flow_of_capacity_in_the_browser(flows: dict[str, str], name: str) -> None:
    assert flows[name] == ""


async def test_every_flow_of_capacity_is_listed_here(flows: dict[str, str]) -> None:
    assert set(flows) == set(FLOWS)
