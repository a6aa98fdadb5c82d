"""What operators do in the consoles, in a real browser: each flow, in light and dark, judged by axe."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta

import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from console.conftest import ROOT, Site, drive
from gridpost.transports.free_port import free_port
from gridpost.wire.proof_file import decode as decode_proof
from gridpost.wire.seal.proof import verify_proof
from gridpost.wire.x509 import from_pem
from support.pki import rsa_key

# The network takes its time on a busy machine, and the first test waits for everything.
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(1200)]

BROKER = ("sign in", "broker queues", "broker connections", "broker restriction", "broker settings")
NODE = (
    "node overview", "node components", "node revokes", "node registers", "node renews",
    "node imports", "node peers", "node messages", "lock-out",
)  # fmt: skip
REST = (
    "broker refusals",
    "broker restriction lifted",
    "directory overview",
    "directory approves",
    "directory rejects",
    "directory components",
    "directory revokes",
    "directory settings",
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
    "key figures",
    "sign out",
    "a viewer sees no buttons",
    "small screens",
)


def papers() -> dict[str, str]:
    """What an endpoint's administrator hands in, and two node lists."""
    keys = {
        kind: rsa_key(f"console {kind}")
        for kind in ("authentication", "signing", "encryption", "renewed")
    }
    form = PublicFormat.SubjectPublicKeyInfo
    found = {
        k: key.public_key().public_bytes(Encoding.PEM, form).decode() for k, key in keys.items()
    }
    away = [f"{code} https://127.0.0.1:{free_port()}" for code in ("N2", "N3")]
    return found | {"nodes": "\n".join(away) + "\n"}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def flows(site: Site) -> dict[str, str]:
    """Everything once, in an order in which one flow prepares the next."""
    # E2 is down: its queue fills. The restriction then keeps it out when it comes back.
    done = await drive(site, "broker") | await drive(site, "node", papers=papers())
    await site.components["E2"].start()
    async with site.signed_in("B1", "vera") as client, asyncio.timeout(60):
        while "Peer not allowed" not in (await client.get("/refusals")).text:
            await asyncio.sleep(0.2)
    return done | await drive(site, "rest")


@pytest.mark.parametrize("name", [*BROKER, *NODE, *REST])
async def test_a_flow_in_the_browser(flows: dict[str, str], name: str) -> None:
    assert flows[name] == ""


async def test_every_flow_of_the_script_is_listed_here(flows: dict[str, str]) -> None:
    assert set(flows) == {*BROKER, *NODE, *REST}


async def test_what_was_saved_in_the_browser_stands_in_the_file_beside_the_comments(
    flows: dict[str, str], site: Site
) -> None:
    text = site.file("E1").read_text(encoding="utf-8")
    assert 'message_type = "SCHEDULE*"' in text
    assert 'senders = ["E2"]' in text
    assert 'default = "36h"' in text
    assert "max_content = 1000" in text
    broker = site.file("B1").read_text(encoding="utf-8")
    assert "components = []" in broker
    assert 'remove_after = "2h"' in broker


async def test_settings_of_broker_and_directory_count_without_a_restart_and_are_audited(
    flows: dict[str, str], site: Site
) -> None:
    running = site.components["B1"].running
    assert running.broker.context.settings.queue_idle == timedelta(hours=2)
    assert site.directory.publication.settings.installation_validity == timedelta(days=3)
    assert site.directory.publication.settings.ttl == timedelta(hours=12)
    for code in ("B1", "CD-1"):
        async with site.signed_in(code, "ada") as client:
            text = (await client.get("/audit")).text
        assert "settings changed" in text
        assert "ada (console)" in text


async def test_a_certificate_revoked_at_a_node_is_published_and_journalled(
    flows: dict[str, str], site: Site
) -> None:
    (entry,) = [
        c for c in site.components["N1"].running.administration.components() if c["code"] == "OLD-1"
    ]
    revoked = {c["type"]: c["revoked"] for c in entry["certificates"]}
    assert revoked == {"AUTHENTICATION": False, "SIGNING": True, "ENCRYPTION": False}
    async with site.signed_in("N1", "ada") as client:
        text = (await client.get("/audit")).text
    assert "the key was lost" in text
    async with site.signed_in("N1", "vera") as client:
        page = (await client.get("/components/OLD-2")).text
        assert "Revoke" not in page
        assert (await client.get("/components/OLD-2/revoke")).status_code == 403


async def test_what_an_administrator_does_at_a_node_is_published_and_journalled(
    flows: dict[str, str], site: Site
) -> None:
    async with site.signed_in("N1", "ada") as client:
        text = (await client.get("/audit")).text
        chain = from_pem((await client.get("/components/OLD-3/certificates.pem")).content)
    for action in ("register", "renew", "import"):
        assert action in text
    kinds = ["AUTHENTICATION", "SIGNING", "ENCRYPTION", "SIGNING"]
    node = site.components["N1"].running
    held = [k.certificate for k in node.directory.components["OLD-3"].certificates]
    assert sorted(c.kind.value for c in held) == sorted(kinds)
    assert set(chain) == {c.der for c in (*held, site.old_node.keys.authorities[0])}
    for person in ("vera", "oskar"):
        async with site.signed_in("N1", person) as client:
            token = re.search(r'name="csrf" value="([^"]+)"', (await client.get("/")).text)
            assert token is not None
            assert "Register an endpoint" not in (await client.get("/components")).text
            for path in ("/register", "/components/OLD-2/renew", "/nodes/import"):
                assert (await client.get(path)).status_code == 403
                origin = {"origin": site.url("N1")}
                answer = await client.post(path, data={"csrf": token[1]}, headers=origin)
                assert answer.status_code == 403
    async with site.signed_in("N1", "ada") as client:
        for path in ("/register", "/components/OLD-2/renew", "/nodes/import"):
            answer = await client.post(path, data={}, headers={"origin": site.url("N1")})
            assert answer.status_code == 403


async def test_the_downloaded_proof_verifies_offline(flows: dict[str, str], site: Site) -> None:
    file = decode_proof((ROOT / "var" / "console-proof.zip").read_bytes())
    verdict = verify_proof(file.proof, [site.root.certificate])
    assert verdict.origin.proven
    assert verdict.receipt.proven
