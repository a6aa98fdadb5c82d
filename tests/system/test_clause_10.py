"""503 cl. 10 on brokers and endpoints as processes: warnings in good time, parameters that change live."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from gridpost.assembly.broker_configuration import read_broker_configuration
from gridpost.assembly.endpoint_configuration import read_endpoint_configuration
from gridpost.core.refusal import Refusal
from support.network import Network, cli, network
from support.waiting import eventually

DAY = timedelta(days=1)


async def days_left(net: Network, kind: str, code: str) -> int:
    """Until the first of its certificates ends."""
    told = await cli(kind, "certificates", "--config", str(net.folder / f"{code}.toml"))
    ends = [datetime.fromisoformat(c["not_after"]) for c in told["certificates"]]
    return (min(ends) - datetime.now(UTC)) // DAY


async def alerts(file: Path) -> set[str]:
    read = read_broker_configuration if file.stem.startswith("B") else read_endpoint_configuration
    port = read(file).operations.port
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        health = (await client.get(f"http://127.0.0.1:{port}/health")).json()
    return {alert["kind"] for alert in health["alerts"]}


def anticipate(net: Network, code: str, days: int) -> None:
    """How many days before its end a certificate is warned of."""
    file = net.folder / f"{code}.toml"
    more = f'[alerts]\ncycle = "200ms"\n[alerts.rules]\ncertificate_expiry = "{days}d"\n'
    if code.startswith("E"):
        more += f'[certificates]\nexpiry_warning = "{days}d"\nrenew_before = "1d"\n'
    file.write_text(file.read_text() + more)


@pytest.mark.timeout(240)
@pytest.mark.req("503-10-k", component="broker")
@pytest.mark.req("503-10-k", component="endpoint")
@pytest.mark.req("503-10-j", component="endpoint")
async def test_a_certificate_that_ends_soon_is_warned_of_and_parameters_change_live(
    tmp_path: Path,
) -> None:
    async with network(tmp_path) as net:
        for code in ("B1", "B2"):
            await net.broker(code)
        for code in ("E1", "E2"):
            await net.endpoint(code, "INDIRECT:B1")
        for code in ("B1", "B2", "E1", "E2"):
            left = await days_left(net, "broker" if code.startswith("B") else "endpoint", code)
            anticipate(net, code, left + (1 if code.endswith("1") else -1))
        await net.start()
        for code in ("B1", "E1"):
            component = net.components[code]
            await eventually(
                lambda c=component: any(
                    a.get("kind") == "certificate_expiry" for a in c.logged("alert")
                )
            )
            assert await alerts(tmp_path / f"{code}.toml") == {"certificate_expiry"}
        for code in ("B2", "E2"):
            assert await alerts(tmp_path / f"{code}.toml") == set()
        await net.known("E1", "E2")
        await _live(net)


async def _live(net: Network) -> None:
    one = net.components["E1"]
    good = one.file.read_text()
    async with net.api("E1") as api:
        await api.send("E2", "A01", b"x" * 2000)
        one.file.write_text("max_content = 1000\n" + good)
        await eventually(lambda: one.logged("configuration reloaded"))
        with pytest.raises(Refusal, match=r"1000|1,000"):
            await api.send("E2", "A01", b"x" * 2000)
        one.file.write_text("max_content = -1\n" + good)
        await eventually(lambda: one.logged("configuration not reloaded"))
        # What was right before still counts, and the service goes on.
        with pytest.raises(Refusal, match=r"1000|1,000"):
            await api.send("E2", "A01", b"x" * 2000)
        assert await api.send("E2", "A01", b"x" * 999)
