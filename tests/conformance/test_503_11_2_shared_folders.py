"""503 cl. 11.2: documents are exchanged as files, by applications that know nothing but folders."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from lxml import etree

from gridpost.assembly.check import check
from gridpost.assembly.endpoint_configuration import read_endpoint_configuration
from gridpost.core.refusal import Refusal
from gridpost.services.endpoint.soap_api import PATH
from support.folders import Folders, folder_network, gone, there
from support.network import API_PASSWORD, Network, until_status
from support.soap import envelope, field, request

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def net(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Network]:
    async with folder_network(tmp_path_factory.mktemp("folders")) as found:
        yield found


@pytest.fixture(scope="module")
def e1(net: Network) -> Folders:
    return Folders(net, "E1")


@pytest.fixture(scope="module")
def e2(net: Network) -> Folders:
    return Folders(net, "E2")


@pytest.mark.req("503-11.2.1-a")
@pytest.mark.req("503-11.2.1-b")
@pytest.mark.req("503-11.2.1-c")
@pytest.mark.req("503-11.2.1-e")
@pytest.mark.req("503-11.2.1-f")
@pytest.mark.req("503-11.2.1-g")
@pytest.mark.req("503-11.2.2-a")
@pytest.mark.req("503-T11-d")
@pytest.mark.req("503-T48-a", "503-T48-b", "503-T48-e", "503-T48-g", "503-T48-h")
@pytest.mark.req("503-T49-a", "503-T49-d", "503-T49-e")
@pytest.mark.req("m11-5.2.3.1-b")
@pytest.mark.req("m11-5.2.3.1-c")
@pytest.mark.req("m11-T61-d")
async def test_files_of_two_applications_arrive_with_everything_their_names_say(
    net: Network, e1: Folders, e2: Folders
) -> None:
    """The log in OUT_LOG is all that a sender sees; nobody confirms, writing the file does."""
    await e1.send("ONE_E2_F01_id-1.xml", "<one/>")
    await e1.send("TWO_E2_F01_id-2.txt", "two")
    received = await e2.receive(2)
    by_content = {content: name for name, content in received.items()}
    message_ids = {}
    for content, start, extension in (
        ("<one/>", "ONE_E1_F01_id-1_", "xml"),
        ("two", "TWO_E1_F01_id-2_", "txt"),
    ):
        name = by_content[content]
        stem, dot, ending = name.partition(".")
        assert stem.startswith(start)
        assert (dot, ending) == (".", extension)
        message_ids[content] = stem.removeprefix(start)
    await gone(e1.out / "ONE_E2_F01_id-1.xml", e1.out / "TWO_E2_F01_id-2.txt")
    lines = await e1.log_of("ONE_E2_F01_id-1.xml.log", until="RECEIVED")
    assert [line[1:3] for line in lines] == [
        ["ACCEPTED", "E1"],
        ["DELIVERED", "E2"],
        ["RECEIVED", "E2"],
    ]
    assert all(message_ids["<one/>"] in line[4] for line in lines)
    # Each line is an item of what the web service says of the message.
    assert lines == await soap_trace(net, message_ids["<one/>"])
    async with net.api("E1") as api:
        message = await api.status(message_ids["<one/>"])
        assert message.status == "RECEIVED"
        assert (message.sender_application, message.ba_message_id) == ("ONE", "id-1")
    async with net.api("E2") as api:
        (found,) = [m for m in await api.search() if m.message_id == message_ids["<one/>"]]
        assert (found.sender_application, found.ba_message_id) == ("ONE", "id-1")
    assert not list(e1.errors.iterdir())


async def soap_trace(net: Network, message_id: str) -> list[list[str]]:
    """The MessageTraceItems that CheckMessageStatus answers, in the order of their elements."""
    body = envelope("1.1", request("CheckMessageStatus", field("messageID", message_id)))
    async with httpx.AsyncClient(auth=("app", API_PASSWORD), timeout=60) as client:
        answer = await client.post(
            f"http://127.0.0.1:{net.ports['E1']}{PATH}",
            content=body.encode(),
            headers={"content-type": "text/xml; charset=utf-8", "soapaction": '""'},
        )
    items = etree.fromstring(answer.content).iterfind(".//messageStatus/trace/trace")
    return [[part.text or "" for part in item] for item in items]


@pytest.mark.req("503-11.2.2-c")
@pytest.mark.req("503-11.2.2-d")
@pytest.mark.req("503-T48-a", "503-T48-e", "503-T49-a", "503-T49-e")
async def test_empty_tokens_keep_their_underscores_and_no_extension_means_no_dot(
    e1: Folders, e2: Folders
) -> None:
    await e1.send("_E2_F01_", "bare")
    (name,) = await e2.receive(1)
    assert name.startswith("_E1_F01__")
    # Without an extension in the metadata the default one of the recipient counts.
    assert name.endswith(".dat")


@pytest.mark.req("503-11.2.2-a")
@pytest.mark.req("503-11.2.2-b")
@pytest.mark.req("503-11.2.2-c")
@pytest.mark.req("503-11.2.2-d")
@pytest.mark.req("503-11.2.2-f")
@pytest.mark.req("503-11.2.2-g")
@pytest.mark.req("503-11.2.2-h")
@pytest.mark.req("503-T48-a", "503-T48-c", "503-T48-g")
@pytest.mark.req("503-T49-b", "503-T49-e")
async def test_what_may_not_be_sent_goes_to_out_error_with_the_reason(
    net: Network, e1: Folders, e2: Folders
) -> None:
    async with net.api("E1") as api:
        before = [m.message_id for m in await api.search(limit="1")]
        bad = {
            "hello.xml": "x",
            "bad name.x": "x",
            "APP-E2-F01-ID.xml": "x",
            "APP__F01_ID.xml": "x",
            "APP_E2_F01_id.tar.gz": "x",
            "E2_F01.xml": "x",
            "APP_E2_F01.xml": "x",
            "APP_E2_F01_id_more.xml": "x",
            "APP_E2_F01_é.xml": "x",
            "APP_E2_F01_a b.xml": "x",
            "APP_E2_F01_a+b.xml": "x",
            "APP_E2_F01_a.b.xml": "x",
            "APP_E2_F01_dot.": "x",
            "APP_E2__id.xml": "x",
            "APP_E2_F01_empty.xml": "",
            "APP_NOBODY_F01_id.xml": "x",
            "APP_E2_OTHER_id.xml": "x",
            "APP_E2_F01_".ljust(201, "x"): "x",
        }
        for name, content in bad.items():
            (e1.out / name).write_text(content, encoding="utf-8")
        (e1.out / "APP_E2_F01_link.xml").symlink_to("/etc/passwd")
        os.mkfifo(e1.out / "APP_E2_F01_pipe.xml")
        names = [*bad, "APP_E2_F01_link.xml", "APP_E2_F01_pipe.xml"]
        await there(*(e1.errors / f"{name}.reason" for name in names))
        for name in names:
            assert name in os.listdir(e1.errors)
            assert name not in os.listdir(e1.out)
            reason = (e1.errors / f"{name}.reason").read_text(encoding="utf-8")
            assert reason.strip(), name
            assert not (e1.logs / f"{name}.log").exists()
        for name, content in bad.items():
            assert (e1.errors / name).read_text(encoding="utf-8") == content
        # Letters, digits, hyphens and @: a recipient, though nobody here has that code.
        unknown = "APP_10X-A@B_F01_id.xml"
        (e1.out / unknown).write_text("x")
        await there(e1.errors / f"{unknown}.reason")
        reason = (e1.errors / f"{unknown}.reason").read_text(encoding="utf-8")
        assert "10X-A@B" in reason
        assert "not the name of a file" not in reason
        assert "ACCESS_DENIED" in (e1.errors / "APP_E2_OTHER_id.xml.reason").read_text()
        assert [m.message_id for m in await api.search(limit="1")] == before
    await e1.send("APP_E2_F01_".ljust(200, "y"), "z")
    assert list((await e2.receive(1)).values()) == ["z"]
    for file in e1.errors.iterdir():
        file.unlink()


@pytest.mark.req("503-11.2.2-e")
@pytest.mark.req("503-11.2.3-a")
async def test_files_that_are_still_being_written_are_left_alone(e1: Folders, e2: Folders) -> None:
    for extension in ("tmp", "TMP"):
        (e1.out / f"APP_E2_F01_slow-{extension}.{extension}").write_text("half")
    await e1.send("APP_E2_F01_quick.xml", "whole")
    assert list((await e2.receive(1)).values()) == ["whole"]
    for extension in ("tmp", "TMP"):
        slow = e1.out / f"APP_E2_F01_slow-{extension}.{extension}"
        assert slow.read_text() == "half"
        slow.write_text("half and half")
        slow.rename(e1.out / f"APP_E2_F01_slow-{extension}.xml")
    assert sorted((await e2.receive(2)).values()) == ["half and half"] * 2


@pytest.mark.req("503-11.2.3-b")
@pytest.mark.req("m11-5.2.3.3.2-b", component="endpoint")
async def test_a_large_document_appears_complete_or_not_at_all(e1: Folders, e2: Folders) -> None:
    seen: dict[str, set[int]] = {}
    watching = True

    async def watch() -> None:
        while watching:
            for entry in list(os.scandir(e2.into)):
                # What is renamed meanwhile is looked at under its other name.
                with contextlib.suppress(FileNotFoundError):
                    size_now = entry.stat().st_size
                    seen.setdefault(entry.name, set()).add(size_now)
            await asyncio.sleep(0)

    task = asyncio.create_task(watch())
    size = 8 * 1024 * 1024
    content = "x" * size
    (e1.out / "big.tmp").write_text(content)
    (e1.out / "big.tmp").rename(e1.out / "APP_E2_F01_big.xml")
    lines = await e1.log_of("APP_E2_F01_big.xml.log", until="RECEIVED")
    watching = False
    await task
    assert lines
    for name, sizes in seen.items():
        if not name.endswith(".tmp"):
            assert sizes == {size}
    assert list((await e2.receive(1)).values()) == [content]


@pytest.mark.req("503-11.2.3-c")
@pytest.mark.req("503-11.2.3-e")
async def test_nothing_is_overwritten_where_names_repeat(e1: Folders, e2: Folders) -> None:
    for content in ("first", "second"):
        await e1.send("APP_E2_F01_same.xml", content)
        await gone(e1.out / "APP_E2_F01_same.xml")
    received = await e2.receive(2)
    assert sorted(received.values()) == ["first", "second"]
    for name in ("APP_E2_F01_same.xml.log", "APP_E2_F01_same.xml.1.log"):
        lines = await e1.log_of(name, until="RECEIVED")
        assert len({line[4].split()[1] for line in lines}) == 1
    for content in ("bad", "worse"):
        (e1.out / "same.bad").write_text(content)
        await gone(e1.out / "same.bad")
    await there(e1.errors / "same.1.bad.reason")
    assert (e1.errors / "same.bad").read_text() == "bad"
    assert (e1.errors / "same.1.bad").read_text() == "worse"


@pytest.mark.req("503-11.2.4-b")
@pytest.mark.req("503-11.2.4-c")
@pytest.mark.req("503-11.2.4-d")
@pytest.mark.req("503-11.2.4-e")
@pytest.mark.req("503-T49-b", "503-T49-e")
async def test_each_message_type_has_its_folder_and_its_default_extension(
    net: Network, e1: Folders, e2: Folders
) -> None:
    """Sent through the JSON API, a document has no extension of its own."""
    async with net.api("E1") as api:
        for message_type in ("F-A", "F-B", "F-C"):
            await api.send("E2", message_type, message_type.encode())
    for message_type, folder, extension in (
        ("F-A", "IN-A", ".aaa"),
        ("F-B", "IN-B", ".dat"),
        ("F-C", "IN", ".dat"),
    ):
        received = await e2.receive(1, folder)
        ((name, content),) = received.items()
        assert content == message_type
        assert name.endswith(extension)
    await e1.send("APP_E2_F-A_id.xml", "with its own")
    (name,) = await e2.receive(1, "IN-A")
    assert name.endswith(".xml")


@pytest.mark.req("503-5.12-j")
async def test_a_tracing_message_leaves_no_file(net: Network, e2: Folders) -> None:
    async with net.api("E1") as api:
        message_id = await api.test("E2", "F01")
        await until_status(api, message_id, "DELIVERED")
    assert not list(e2.into.iterdir())


@pytest.mark.req("503-T48-d", "503-T48-f", "503-T48-i")
async def test_files_stay_until_their_owners_remove_them_and_logs_only_grow(
    net: Network, e1: Folders, e2: Folders
) -> None:
    """OUT_ERROR and OUT_LOG are the administrator's, IN is the application's; over a restart too."""
    name = "APP_E2_F01_grows.xml"
    (e1.out / "no name.x").write_text("kept")
    await there(e1.errors / "no name.x.reason")
    await net.components["E2"].stop()
    await e1.send(name, "waits")
    await e1.log_of(f"{name}.log", until="ACCEPTED")
    before = (e1.logs / f"{name}.log").read_bytes()
    assert len(before.splitlines()) == 1
    kept = {file: file.read_bytes() for f in (e1.errors, e1.logs) for file in f.iterdir()}
    assert e1.errors / "no name.x" in kept
    await net.components["E1"].stop()
    await net.start("E1", "E2")
    await e1.log_of(f"{name}.log", until="RECEIVED")
    after = (e1.logs / f"{name}.log").read_bytes()
    assert after.startswith(before)
    assert [line.split(b"\t")[1] for line in after.splitlines()] == [
        b"ACCEPTED",
        b"DELIVERED",
        b"RECEIVED",
    ]
    for file, octets in kept.items():
        assert file.read_bytes().startswith(octets)
    (file,) = (f for f in e2.into.iterdir() if "_grows_" in f.name)
    message_id = file.stem.rpartition("_")[2]
    async with net.api("E2") as api:
        status = (await api.search(limit="1"))[0].status
        assert file.read_text() == "waits"
        file.unlink()
        assert (await api.search(limit="1"))[0].status == status
    async with net.api("E1") as api:
        assert (await api.status(message_id)).status == "RECEIVED"


def configuration(folder: Path, folders: str) -> Path:
    file = folder / "endpoint.toml"
    file.write_text(
        'component = "endpoint"\ncode = "E1"\nhome = "home"\n'
        '[contact]\norganization = "O"\nperson = "P"\nemail = "a@b.example"\nphone = "+1"\n'
        f'[users.folder]\nchannels = ["folder"]\n{folders}'
    )
    return file


@pytest.mark.req("503-11.2.4-a")
async def test_folders_have_the_names_that_the_administrator_gives(tmp_path: Path) -> None:
    text = '[folders]\nout = "a"\nout_error = "/b"\nout_log = "c/d"\n'
    file = configuration(tmp_path, text)
    found = read_endpoint_configuration(file).folders
    assert found is not None
    assert (found.out, found.out_error) == (tmp_path / "a", Path("/b"))
    assert found.out_log == tmp_path / "c" / "d"
    missing = [warning for warning in check(file).warnings if "does not exist" in warning]
    assert len(missing) == 3


@pytest.mark.req("m11-5.2.3.2-a")
@pytest.mark.parametrize(
    "text",
    [
        'out = "a"\nout_error = "a"\nout_log = "c"\n',
        'out = "a"\nout_error = "b"\nout_log = "b"\n',
        'out = "a"\nout_error = "b"\nout_log = "c"\n[folders.in]\nfolder = "a"\n',
        'out = "a"\nout_error = "b"\nout_log = "c"\n[folders.types.X]\nfolder = "c"\n',
    ],
)
async def test_two_kinds_of_files_do_not_share_a_folder(tmp_path: Path, text: str) -> None:
    with pytest.raises(Refusal):
        read_endpoint_configuration(configuration(tmp_path, "[folders]\n" + text))
