"""Two processes of one endpoint whose keys are in a folder that both read, or in a token that both use."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from support.network import Network, add_process, cli, network, until_status
from support.postgres import PostgresServer
from support.token import LABEL, PIN, make_token, module
from support.token_network import register

FIRST, SECOND = "E1", "E1b"


async def _certificates(net: Network, code: str) -> str:
    """What the process itself says of those it has."""
    async with httpx.AsyncClient(timeout=60) as client:
        url = f"http://127.0.0.1:{net.ports[f'{code} operations']}/metrics"
        lines = (await client.get(url)).text.splitlines()
    return "\n".join(line for line in lines if "certificate_expiry" in line)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("place", ["folder", "token"])
async def test_processes_use_the_same_keys_and_hear_of_new_ones(
    tmp_path: Path,
    own_postgres_server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    keys = f'[keys]\nfolder = "{tmp_path / "keys"}"\n'
    if place == "token":
        monkeypatch.setenv("SOFTHSM2_CONF", "")
        make_token(tmp_path)
        keys += f'[keys.token]\nmodule = "{module()}"\nlabel = "{LABEL}"\npin = "{PIN}"\n'
        keys += 'kinds = ["SIGNING"]\n'
    database = own_postgres_server.create_database().section(tmp_path)
    async with network(tmp_path) as net:
        await net.broker("B1")
        one = await net.endpoint(
            FIRST,
            "INDIRECT:B1",
            more='store = "postgres"\n',
            last='[postgres]\nschema = "e1"\n'
            + "".join(f'{name} = "{value}"\n' for name, value in database.items())
            + keys,
            enrol=False,
        )
        assert await register(net, one, FIRST) == (0, "")
        add_process(net, FIRST, SECOND)
        await net.endpoint("E2", "INDIRECT:B1")
        await net.start("B1", FIRST, SECOND, "E2")
        for code in (FIRST, SECOND):
            await net.known(code, "E2")
        await net.known("E2", FIRST)
        assert not any((tmp_path / home / "keys").exists() for home in (FIRST, SECOND))
        await _exchange(net, "BEFORE")
        # An administrator renews; that is a third process.
        before = await cli("endpoint", "certificates", "--config", str(one.file))
        await cli("endpoint", "renew", "--wait", "120", "--config", str(one.file))
        after = await cli("endpoint", "certificates", "--config", str(one.file))
        old = {c["id"] for c in before["certificates"]}
        new = {c["id"] for c in after["certificates"]} - old
        assert len(new) == len(old) == 3
        for code in (FIRST, SECOND):
            async with asyncio.timeout(60):
                while any(
                    name not in said for said in [await _certificates(net, code)] for name in new
                ):
                    await asyncio.sleep(0.1)
        await _exchange(net, "AFTER")


async def _exchange(net: Network, message_type: str) -> None:
    """Both processes sign, and what was encrypted for the endpoint is opened whichever gets it."""
    async with net.api("E2") as peer:
        for code in (FIRST, SECOND):
            async with net.api(code) as api:
                sent = await api.send("E2", message_type, code.encode())
                await until_status(api, sent, "DELIVERED")
        for number in range(6):
            came = await peer.send(FIRST, message_type, b"%d" % number)
            await until_status(peer, came, "DELIVERED")
