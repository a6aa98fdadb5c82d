"""MADES 1.1 cl. 5.2.3: files in shared folders, between two endpoints of an old network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from support.folders import gone, there
from support.old_endpoint import OldGridpost
from support.old_site import OldSite

pytestmark = pytest.mark.asyncio(loop_scope="session")

CHANNEL = """[folders]
out = "files/OUT"
out_error = "files/OUT_ERROR"
out_log = "files/OUT_LOG"
retry = "300ms"
[folders.types."F-A"]
folder = "files/IN-A"
extension = "aaa"
[folders.types."F-B"]
folder = "files/IN-B"
extension = "bbb"
[users.folder]
channels = ["folder"]
send = ["F*"]
[[bindings]]
message_type = "F-A"
channel = "folder"
[[bindings]]
message_type = "F-B"
channel = "folder"
"""


class Files:
    def __init__(self, endpoint: OldGridpost) -> None:
        self.endpoint = endpoint
        base = endpoint.folder / "files"
        self.out, self.errors, self.logs = base / "OUT", base / "OUT_ERROR", base / "OUT_LOG"
        self.a, self.b = base / "IN-A", base / "IN-B"

    def write(self, name: str, content: bytes) -> Path:
        """As an application should: complete before it has its name."""
        unfinished = self.out / "unfinished.tmp"
        unfinished.write_bytes(content)
        return unfinished.rename(self.out / name)

    async def arrived(self, folder: Path, start: str) -> Path:
        async with asyncio.timeout(90):
            while True:
                for file in list(folder.iterdir()):  # noqa: ASYNC240
                    if file.name.startswith(start) and file.suffix not in (".tmp", ".TMP"):
                        return file
                await asyncio.sleep(0.02)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def both(old_site: OldSite) -> AsyncIterator[tuple[Files, Files]]:
    found = []
    for node, code in enumerate(("F1", "F2")):
        for name in ("OUT", "OUT_ERROR", "OUT_LOG", "IN-A", "IN-B"):
            (old_site.folder / code / "files" / name).mkdir(parents=True)
        found.append(Files(await old_site.gridpost(node, code, top=CHANNEL)))
    yield found[0], found[1]


@pytest.mark.req("m11-T31-a", component="endpoint")
@pytest.mark.req("m11-T31-b", component="endpoint")
@pytest.mark.req("m11-T31-c", component="endpoint")
@pytest.mark.req("m11-T31-e", component="endpoint")
@pytest.mark.req("m11-5.2.3.2-b", component="endpoint")
@pytest.mark.req("m11-5.2.3.4-b", component="endpoint")
async def test_a_file_goes_through_the_old_network(both: tuple[Files, Files]) -> None:
    one, two = both
    names = ["BA1_F2_F-A_ID1.xml", "_F2_F-A_.txt", "BA1_F2_F-A_ID2"]
    for number, name in enumerate(names):
        one.write(name, b"<%d/>" % number)
        await gone(one.out / name)
    for start, suffix, content in (
        ("BA1_F1_F-A_ID1_", ".xml", b"<0/>"),
        ("_F1_F-A__", ".txt", b"<1/>"),
    ):
        file = await two.arrived(two.a, start)
        assert file.suffix == suffix
        assert file.read_bytes() == content
    # Without an extension of its own it gets that of the type.
    async with asyncio.timeout(60):
        while not [f for f in two.a.iterdir() if f.suffix == ".aaa"]:
            await asyncio.sleep(0.02)
    (bare,) = [f for f in two.a.iterdir() if f.suffix == ".aaa"]
    assert bare.name.startswith("BA1_F1_F-A_ID2_")
    message_id = bare.stem.rpartition("_")[2]
    await one.endpoint.until(message_id, "RECEIVED")
    assert (await one.endpoint.entry(message_id)).route.old
    log = one.logs / "BA1_F2_F-A_ID1.xml.log"
    await there(log)
    async with asyncio.timeout(60):
        while "RECEIVED" not in log.read_text():
            await asyncio.sleep(0.02)
    assert len(log.read_text().splitlines()) >= 3


@pytest.mark.req("m11-T32-a", component="endpoint")
@pytest.mark.req("m11-5.2.3.2-c", component="endpoint")
@pytest.mark.req("m11-5.2.3.2-d", component="endpoint")
async def test_what_may_not_be_sent_is_put_aside(both: tuple[Files, Files]) -> None:
    one, _ = both
    bad = {
        "F2_F-A_x.xml": b"x",
        "APP_F2__id.xml": b"x",
        "APP__F-A_id.xml": b"x",
        "APP_F2_F-A_dot.": b"x",
        "APP_F2_F-A_empty.xml": b"",
        "APP_F2_F-A_\u00e9.xml": b"x",
        "APP_F2_F-A_a b.xml": b"x",
        "APP_F2_F-A_".ljust(201, "x"): b"x",
        "APP_NOBODY_F-A_id.xml": b"x",
    }
    for name, content in bad.items():
        (one.out / name).write_bytes(content)
    await there(*(one.errors / name for name in bad))
    for name, content in bad.items():
        assert (one.errors / name).read_bytes() == content
        assert not (one.out / name).exists()
        assert not (one.logs / f"{name}.log").exists()
    longest = one.write("APP_F2_F-A_".ljust(200, "y"), b"long")
    await gone(longest)
    await there(one.logs / f"{longest.name}.log")


@pytest.mark.req("m11-5.2.3.3.2-a", component="endpoint")
@pytest.mark.req("m11-5.2.3.4-a", component="endpoint")
async def test_only_listed_business_types_become_files(both: tuple[Files, Files]) -> None:
    one, two = both
    for name in ("x.tmp", "y.TMP"):
        (one.out / name).write_bytes(b"unfinished")
    one.write("A_F2_F-B_1.xml", b"listed")
    one.write("A_F2_F-C_1.xml", b"not listed")
    assert (await two.arrived(two.b, "A_F1_F-B_1_")).read_bytes() == b"listed"
    message_id, content = await two.endpoint.receive("F-C")
    assert content == b"not listed"
    assert not [f for f in (*two.a.iterdir(), *two.b.iterdir()) if message_id in f.name]
    for name in ("x.tmp", "y.TMP"):
        assert (one.out / name).exists()
    (one.out / "y.TMP").unlink()
    (one.out / "x.tmp").unlink()


@pytest.mark.req("m11-5.2.3.3.3-b", component="endpoint")
async def test_two_messages_are_two_files_whatever_else_is_equal(both: tuple[Files, Files]) -> None:
    one, two = both
    for content in (b"first", b"second"):
        await gone(one.write("BA1_F2_F-A_SAME.xml", content))
    start = "BA1_F1_F-A_SAME_"

    def found() -> list[Path]:
        return [f for f in two.a.iterdir() if f.name.startswith(start) and f.suffix == ".xml"]

    async with asyncio.timeout(90):
        while len(found()) < 2:
            await asyncio.sleep(0.02)
    assert {f.read_bytes() for f in found()} == {b"first", b"second"}
    for file in found():
        message_id = file.stem.removeprefix(start)
        entry = await one.endpoint.until(message_id, "RECEIVED")
        assert (entry.metadata.ba_message_id, entry.metadata.receiver_code) == ("SAME", "F2")
