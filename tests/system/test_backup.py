"""Backup while a component runs, and what a restored one does: nothing invented, duplicates stopped."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import tarfile
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.directory_process import DirectoryProcess, TestRoot, running
from support.network import Network, cli, network, until_status


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("backup")


async def sent(net: Network, sender: str, receiver: str, document: bytes) -> str:
    async with net.api(sender) as api:
        message_id = await api.send(receiver, "A01", document)
        assert await until_status(api, message_id, "DELIVERED") == "DELIVERED"
        return message_id


async def taken(net: Network, code: str) -> list[str]:
    """Everything that waits for the application, received and confirmed."""
    found = []
    async with net.api(code) as api:
        while (received := await api.receive("A01")) is not None:
            found.append(received.message.message_id)
            await api.confirm(received.message.message_id)
    return found


@pytest.mark.timeout(240)
async def test_a_restored_network_loses_nothing_that_was_saved_and_stops_duplicates(folder):
    async with network(folder) as net:
        broker = await net.broker("B1", "file_threshold = 2000\n")
        await net.endpoint("E1", "INDIRECT:B1")
        await net.endpoint("E2", "INDIRECT:B1")
        await net.start("B1", "E1", "E2")
        await net.known("E1", "E2")

        first = await sent(net, "E1", "E2", b"first")
        # A message that lies in the broker, large enough to be a file, while its recipient is away.
        await net.components["E2"].stop()
        async with net.api("E1") as api:
            waiting = await api.send("E2", "A01", b"w" * 5000)
            async with asyncio.timeout(60):
                while (await api.status(waiting)).state != "DELIVERING":
                    await asyncio.sleep(0.05)
        archives = {}
        for code in ("B1", "E1", "E2"):
            archives[code] = folder / f"{code}.tar"
            config = ("--config", str(folder / f"{code}.toml"))
            result = await cli("backup", str(archives[code]), *config)
            assert result["code"] == code
        with tarfile.open(archives["B1"]) as tar:
            assert any(name.startswith("store/contents/") for name in tar.getnames())

        # Life goes on after the backup: the message is delivered, confirmed, and another follows.
        await net.start("E2")
        async with net.api("E1") as api:
            assert await until_status(api, waiting, "DELIVERED") == "DELIVERED"
        assert set(await taken(net, "E2")) == {first, waiting}
        async with net.api("E1") as api:
            assert await until_status(api, waiting, "RECEIVED") == "RECEIVED"

        # Broker and sender burn down and come back as of the backup; the recipient stays.
        for code in ("E1", "B1"):
            await net.components[code].stop()
            shutil.rmtree(folder / code)
            (folder / f"{code}.toml").rename(folder / f"{code}.old")
            back = await cli(
                "restore", str(archives[code]), "--config", str(folder / f"{code}.toml")
            )
            assert back["code"] == code
        await broker.start()
        await net.start("E1")
        said = {"B1": "delivered again", "E1": "although it may have arrived"}
        for code, missing in said.items():
            (line,) = net.components[code].logged("restored from a backup")
            assert missing in line["missing"]
            port = _operations(folder / f"{code}.toml")
            async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
                health = (await client.get(f"http://127.0.0.1:{port}/health")).json()
            assert health["restored"]["taken_at"]
            assert missing in health["restored"]["missing"]

        # The restored broker still has the message; the recipient knows its ID and takes nothing.
        after = await sent(net, "E1", "E2", b"after")
        assert await taken(net, "E2") == [after]


async def restored(directory: DirectoryProcess, archive: Path) -> dict[str, Any]:
    """The home is lost, the configuration is not; what health says of the directory that is back."""
    assert directory.stop() == 0
    shutil.rmtree(directory.home / "data")
    await cli("restore", str(archive), "--config", str(directory.file))
    directory.start()
    return dict(directory.administer("GET", "/health"))


@pytest.mark.timeout(240)
async def test_a_restored_directory_says_so_and_no_content_id_stands_for_two_contents(tmp_path):
    directory = DirectoryProcess(tmp_path / "cd", "CD-1", TestRoot(tmp_path / "root"))
    archive = tmp_path / "cd.tar"
    with running(directory):
        await asyncio.to_thread(directory.register, "E1")
        await cli("backup", str(archive), "--config", str(directory.file))
        saved = directory.content_ids()["CD-1"]
        await asyncio.to_thread(directory.register, "E2")
        lost = directory.content_ids()["CD-1"]
        assert saved != lost

        health = await restored(directory, archive)
        assert "have to be repeated" in health["restored"]["missing"]
        assert directory.codes() == {"CD-1", "E1"}
        assert directory.content_ids()["CD-1"] == saved
        # Whoever still has the lost content is told the new one: another component, another digest.
        _, party = await asyncio.to_thread(directory.register, "E3")
        assert directory.codes() == {"CD-1", "E1", "E3"}
        assert directory.content_ids()["CD-1"] not in (saved, lost)
        # Keys came back as well: what it issues now is believed.
        assert directory.request(party, "GET", "/api/v1/registrations/unknown").status_code == 404


def _operations(file: Path) -> int:
    import tomllib

    return int(tomllib.loads(file.read_text())["operations"]["port"])


async def backup_of(tmp_path: Path) -> tuple[Path, Path]:
    """A directory that never ran has no store; one that was made for this has."""
    home = tmp_path / "home"
    (home / "store").mkdir(parents=True)
    from gridpost.stores.sqlite import SqliteStore

    await SqliteStore.open(home / "store", "E9").close()
    file = tmp_path / "endpoint.toml"
    file.write_text(
        'component = "endpoint"\ncode = "E9"\nhome = "home"\n[contact]\norganization = "O"\n'
        'person = "P"\nemail = "e@example.invalid"\nphone = "1"\n'
    )
    archive = tmp_path / "e9.tar"
    await cli("backup", str(archive), "--config", str(file))
    return file, archive


async def test_a_restored_journal_goes_on_under_a_new_instance(tmp_path):
    file, archive = await backup_of(tmp_path)
    before = _meta(tmp_path / "home")
    shutil.rmtree(tmp_path / "home")
    await cli("restore", str(archive), "--config", str(file))
    after = _meta(tmp_path / "home")
    assert after["component"] == before["component"]
    assert after["instance"] != before["instance"]
    with sqlite3.connect(tmp_path / "home" / "store" / "gridpost.sqlite3") as database:
        (payload,) = database.execute(
            "SELECT payload FROM journal ORDER BY sequence DESC LIMIT 1"
        ).fetchone()
    assert json.loads(payload)["action"] == "restored from a backup"


def _meta(home: Path) -> dict[str, str]:
    with sqlite3.connect(home / "store" / "gridpost.sqlite3") as database:
        return dict(database.execute("SELECT name, value FROM meta"))


async def test_what_exists_is_never_overwritten(tmp_path):
    file, archive = await backup_of(tmp_path)
    config = ("--config", str(file))
    assert "exists" in (await cli("backup", str(archive), *config, expect=1))["refused"]["message"]
    refused = (await cli("restore", str(archive), *config, expect=1))["refused"]
    assert "is not empty" in refused["message"]


async def test_a_damaged_backup_leaves_nothing_behind(tmp_path):
    file, archive = await backup_of(tmp_path)
    shutil.rmtree(tmp_path / "home")
    data = bytearray(archive.read_bytes())
    data[len(data) // 2] ^= 1
    archive.write_bytes(data)
    refused = (await cli("restore", str(archive), "--config", str(file), expect=1))["refused"]
    assert refused["rule"] in ("STORE_DAMAGED", "USAGE")
    assert not (tmp_path / "home").exists()
    assert not list(tmp_path.glob(".restore-*"))
    archive.write_bytes(data[: len(data) // 3])
    await cli("restore", str(archive), "--config", str(file), expect=1)
    assert not (tmp_path / "home").exists()


async def test_a_backup_of_another_component_is_refused(tmp_path):
    file, archive = await backup_of(tmp_path)
    shutil.rmtree(tmp_path / "home")
    file.write_text(file.read_text().replace('"E9"', '"E8"'))
    refused = (await cli("restore", str(archive), "--config", str(file), expect=1))["refused"]
    assert "configures the endpoint E8" in refused["message"]


async def test_a_file_that_is_no_backup_is_refused(tmp_path):
    (tmp_path / "x.tar").write_bytes(b"hello")
    config = tmp_path / "endpoint.toml"
    refused = await cli("restore", str(tmp_path / "x.tar"), "--config", str(config), expect=1)
    assert "not a whole backup" in refused["refused"]["message"]
    assert not config.exists()
