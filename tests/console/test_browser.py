"""What operators do in the consoles, in a real browser: each flow, in light and dark, judged by axe."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from console.conftest import ROOT, Site, drive
from gridpost.wire.proof_file import decode as decode_proof
from gridpost.wire.seal.proof import verify_proof

# The network takes its time on a busy machine, and the first test waits for everything.
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(500)]

BROKER = ("sign in", "broker queues", "broker connections", "broker restriction")
REST = (
    "broker refusals",
    "broker restriction lifted",
    "directory overview",
    "directory approves",
    "directory rejects",
    "directory components",
    "directory revokes",
    "directory peers",
    "audit log",
    "endpoint overview",
    "light and dark",
    "local time on hover",
    "keyboard",
    "message search",
    "message page",
    "send a document",
    "connectivity test",
    "pauses and maintenance",
    "send a failed message again",
    "message paths",
    "which path",
    "settings",
    "sign out",
    "a viewer sees no buttons",
    "small screens",
)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def flows(site: Site) -> dict[str, str]:
    """Everything once, in an order in which one flow prepares the next."""
    # E2 is down: its queue fills. The restriction then keeps it out when it comes back.
    done = await drive(site, "broker")
    await site.components["E2"].start()
    async with site.signed_in("B1", "vera") as client, asyncio.timeout(60):
        while "Peer not allowed" not in (await client.get("/refusals")).text:
            await asyncio.sleep(0.2)
    return done | await drive(site, "rest")


@pytest.mark.parametrize("name", [*BROKER, *REST])
async def test_a_flow_in_the_browser(flows: dict[str, str], name: str) -> None:
    assert flows[name] == ""


async def test_every_flow_of_the_script_is_listed_here(flows: dict[str, str]) -> None:
    assert set(flows) == {*BROKER, *REST}


async def test_what_was_saved_in_the_browser_stands_in_the_file_beside_the_comments(
    flows: dict[str, str], site: Site
) -> None:
    text = site.file("E1").read_text(encoding="utf-8")
    assert 'message_type = "SCHEDULE*"' in text
    assert 'senders = ["E2"]' in text
    assert 'default = "36h"' in text
    assert "max_content = 1000" in text
    assert "components = []" in site.file("B1").read_text(encoding="utf-8")


async def test_the_downloaded_proof_verifies_offline(flows: dict[str, str], site: Site) -> None:
    file = decode_proof((ROOT / "var" / "console-proof.zip").read_bytes())
    verdict = verify_proof(file.proof, [site.root.certificate])
    assert verdict.origin.proven
    assert verdict.receipt.proven
