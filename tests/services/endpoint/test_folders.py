"""Shared folders when the disk, the process or an application does not behave."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gridpost.core.delivery import Side, State
from gridpost.core.message_box import Search
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.folders import LOGGED, TAKEN
from gridpost.stores.folders import disk
from support.folder_child import FolderEndpoint
from support.post import World

NAME = "APP_E2_F01_id.xml"


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def files(world: World, tmp_path: Path) -> AsyncIterator[FolderEndpoint]:
    found = FolderEndpoint(world["E1"], tmp_path)
    yield found
    found.pool.shutdown()


async def sent(files: FolderEndpoint) -> list[str]:
    found = await files.one.store.read(
        lambda work: work.box.search(Search(side=Side.SENT), 10_000).entries
    )
    return [entry.message_id for entry in found]


async def notices(files: FolderEndpoint, channel: str) -> int:
    return len(await files.one.store.read(lambda work: work.notices.read(channel, 0, 10_000)))


def restarted(files: FolderEndpoint, folder: Path) -> FolderEndpoint:
    return FolderEndpoint(files.one, folder)


def failing(
    monkeypatch: pytest.MonkeyPatch, call: str, code: int, folder: Path
) -> Callable[[], None]:
    """Let a system call fail in one folder, until what is returned is called."""
    real = getattr(os, call)
    state = {"fails": True}

    def broken(path: Any, *rest: Any, **more: Any) -> Any:
        where = os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else os.fspath(path)
        if state["fails"] and Path(where).is_relative_to(folder):
            raise OSError(code, os.strerror(code), where)
        return real(path, *rest, **more)

    monkeypatch.setattr(disk.os, call, broken)
    return lambda: state.update(fails=False)


async def test_a_file_is_sent_once_and_forgotten_when_it_is_gone(files: FolderEndpoint) -> None:
    files.put(NAME)
    assert not await files.sending.round()
    assert not (files.out / NAME).exists()
    assert len(await sent(files)) == 1
    assert await notices(files, TAKEN) == 0
    # The same name again is another document.
    files.put(NAME)
    await files.sending.round()
    assert len(await sent(files)) == 2


@pytest.mark.req("503-T49-c")
async def test_codes_in_names_are_letters_digits_hyphens_and_at_signs_and_never_empty(
    tmp_path: Path,
) -> None:
    world = World(codes=("10X-A@B", "11x-Z@9"))
    one = FolderEndpoint(world["10X-A@B"], tmp_path / "one")
    other = FolderEndpoint(world["11x-Z@9"], tmp_path / "other")
    wrong = [f"APP_{code}_T_ID.xml" for code in ("", "11x+Z@9", "11x.Z", "11x Z@9", "11xÄ")]
    for name in ("APP_11x-Z@9_T_ID.xml", *wrong):
        one.put(name)
    await one.sending.round()
    assert {p.name for p in one.errors.iterdir() if p.suffix != ".reason"} == set(wrong)
    assert not list(one.out.iterdir())
    (message_id,) = await sent(one)
    await world.carry()
    await other.receiving.round()
    # Whoever sent it stands in the name of the received file.
    assert [p.name for p in other.into.iterdir()] == [f"APP_10X-A@B_T_ID_{message_id}.xml"]
    for files in (one, other):
        files.pool.shutdown()


async def test_a_stop_after_the_commit_neither_loses_the_file_nor_sends_it_twice(
    files: FolderEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message is stored, the process ends before the file is deleted."""

    async def never(taken: object) -> Any:
        raise asyncio.CancelledError

    files.put(NAME)
    monkeypatch.setattr(files.sending._out, "remove", never)
    with pytest.raises(asyncio.CancelledError):
        await files.sending.round()
    assert (files.out / NAME).exists()
    again = restarted(files, tmp_path)
    await again.sending._remember()
    await again.sending.round()
    assert not (files.out / NAME).exists()
    assert len(await sent(files)) == 1
    assert await notices(files, TAKEN) == 0
    again.pool.shutdown()


async def test_a_file_that_changed_after_it_was_taken_is_not_swallowed(
    files: FolderEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same name, inode and time, but another document: refused, and kept for the administrator."""

    async def none(taken: object) -> list[Any]:
        return []

    path = files.put(NAME, "first")
    monkeypatch.setattr(files.sending._out, "remove", none)
    assert await files.sending.round()
    status = path.stat()
    with path.open("w") as file:
        file.write("another one")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    await asyncio.sleep(0.02)
    await files.sending.round()
    assert (files.errors / NAME).read_text() == "another one"
    assert "CONVERSATION_REUSED" in (files.errors / f"{NAME}.reason").read_text()
    assert len(await sent(files)) == 1


async def test_files_that_cannot_be_deleted_are_reported_and_not_sent_again(
    files: FolderEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = files.put(NAME)
    real = Path.unlink

    def refuse(self: Path, missing_ok: bool = False) -> None:
        if self == path and broken:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        real(self, missing_ok)

    broken = True
    monkeypatch.setattr(Path, "unlink", refuse)
    for _ in range(3):
        assert await files.sending.round()
        await asyncio.sleep(0.02)
    assert len(await sent(files)) == 1
    (problem,) = files.health.view()
    assert problem["what"] == "OUT"
    broken = False
    assert not await files.sending.round()
    assert files.health.view() == []
    assert not path.exists()
    assert len(await sent(files)) == 1


@pytest.mark.parametrize(("call", "code"), [("open", errno.EROFS), ("fsync", errno.ENOSPC)])
async def test_an_in_folder_that_takes_nothing_keeps_the_message_waiting(
    world: World,
    files: FolderEndpoint,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    code: int,
) -> None:
    message_id = await world["E2"].send("E1", b"document")
    await world.carry()
    repair = failing(monkeypatch, call, code, files.into)
    assert await files.receiving.round()
    assert await files.one.state(Side.RECEIVED, message_id) is State.WAITING
    assert [p.name for p in files.into.iterdir() if p.suffix != ".tmp"] == []
    (problem,) = files.health.view()
    assert os.strerror(code) in problem["reason"]
    assert problem["hint"]
    repair()
    assert not await files.receiving.round()
    assert files.health.view() == []
    (file,) = files.into.iterdir()
    assert (file.read_bytes(), file.suffix) == (b"document", ".xml")
    assert await files.one.state(Side.RECEIVED, message_id) is State.CONFIRMED


async def test_a_stop_between_the_file_and_its_confirmation_makes_no_second_file(
    world: World, files: FolderEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message_id = await world["E2"].send("E1", b"document")
    await world.carry()

    async def stops(message_ids: object) -> Any:
        raise asyncio.CancelledError

    with monkeypatch.context() as patched:
        patched.setattr(files.one.handover, "confirm_all", stops)
        with pytest.raises(asyncio.CancelledError):
            await files.receiving._empty("BP1-A", files.receiving._settings.default)  # type: ignore[arg-type]
    (file,) = files.into.iterdir()
    before = file.stat()
    again = restarted(files, tmp_path)
    await again.receiving.round()
    (same,) = files.into.iterdir()
    assert (same.name, same.stat().st_ino) == (file.name, before.st_ino)
    assert await files.one.state(Side.RECEIVED, message_id) is State.CONFIRMED
    again.pool.shutdown()


async def test_log_lines_wait_for_their_folder_and_none_is_repeated(
    world: World, files: FolderEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.put(NAME)
    await files.sending.round()
    repair = failing(monkeypatch, "open", errno.EACCES, files.logs)
    assert await files.logging.round()
    assert await notices(files, LOGGED) == 1
    assert files.health.view()[0]["what"] == "OUT_LOG"
    repair()
    await world.carry()
    assert not await files.logging.round()
    text = (files.logs / f"{NAME}.log").read_text()
    states = [line.split("\t")[1] for line in text.splitlines()]
    assert states == ["ACCEPTED", "DELIVERED"]
    # Written, but the stop came before the store knew: the lines come again, the log stays.
    lines = await files.one.store.read(lambda work: work.box.trace(Side.SENT, "none"))
    assert list(lines) == []
    first = text.splitlines(keepends=True)[0].encode()
    await files.logging._logs.append([(f"{NAME}.log", first)])
    assert (files.logs / f"{NAME}.log").read_text() == text


async def test_half_a_line_is_completed(files: FolderEndpoint) -> None:
    log = files.logs / "x.log"
    log.write_bytes(b"whole\nhal")
    await files.logging._logs.append([("x.log", b"half\n"), ("x.log", b"next\n")])
    assert log.read_bytes() == b"whole\nhalf\nnext\n"


async def test_out_error_that_takes_nothing_leaves_the_file_in_out(
    files: FolderEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = files.put("bad.name")
    real = os.link

    def refuse(source: Any, target: Any, **more: Any) -> None:
        if broken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(source, target, **more)

    broken = True
    monkeypatch.setattr(disk.os, "link", refuse)
    assert await files.sending.round()
    assert path.exists()
    assert files.health.view()[0]["what"] == "OUT_ERROR"
    broken = False
    await asyncio.sleep(0.02)
    assert not await files.sending.round()
    assert (files.errors / "bad.name").exists()
    assert files.health.view() == []


async def test_a_missing_out_folder_is_reported_and_found_again(files: FolderEndpoint) -> None:
    away = files.out.rename(files.out.with_name("AWAY"))
    assert await files.sending.round()
    assert "create it" in files.health.view()[0]["hint"]
    away.rename(files.out)
    files.put(NAME)
    assert not await files.sending.round()
    assert files.health.view() == []
    assert len(await sent(files)) == 1


async def test_a_full_store_leaves_the_files_where_they_are(
    files: FolderEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = files.put(NAME)

    async def full(*arguments: object, **more: object) -> Any:
        raise Refusal(Rule.STORE_FULL, "the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(files.one.submission, "send", full)
        assert await files.sending.round()
    assert path.exists()
    assert not list(files.errors.iterdir())
    await asyncio.sleep(0.02)
    assert not await files.sending.round()
    assert not path.exists()
    assert len(await sent(files)) == 1


async def test_many_files_do_not_stall_the_loop_and_go_in_order_of_age(
    world: World, files: FolderEndpoint, soak: Any
) -> None:
    count = soak.scale(2_000)
    for number in range(count):
        path = files.put(f"APP_E2_F01_{number}.xml", str(number))
        os.utime(path, ns=(0, 1_000 * (count - number)))
    turns = 0
    running = True

    async def others() -> None:
        nonlocal turns
        while running:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    found = await files.sending._out.scan()
    assert found[0].name == f"APP_E2_F01_{count - 1}.xml"
    assert not await files.sending.round()
    running = False
    await task
    assert turns > count
    assert len(await sent(files)) == count
    assert not list(files.out.iterdir())
    soak.report(files=count)


@pytest.mark.req("503-11.2.4-d")
async def test_a_type_without_any_in_folder_stays_where_it_is_and_is_reported(
    world: World, files: FolderEndpoint
) -> None:
    message_id = await world["E2"].send("E1", b"document")
    await world.carry()
    receiving = files.receiving
    receiving._settings = replace(receiving._settings, default=None)
    await receiving.round()
    assert await files.one.state(Side.RECEIVED, message_id) is State.WAITING
    assert not list(files.into.iterdir())
    (problem,) = files.health.view()
    assert "BP1-A has no IN folder" in problem["reason"]


async def test_a_name_that_is_no_text_goes_to_out_error_like_any_other(
    files: FolderEndpoint,
) -> None:
    name = os.fsdecode(b"APP_E2_F01_\xff\xfe.xml")
    files.put(name)
    assert not await files.sending.round()
    assert name in os.listdir(files.errors)
    assert not await sent(files)


async def test_a_folder_in_out_is_left_alone(files: FolderEndpoint) -> None:
    (files.out / "APP_E2_F01_folder.xml").mkdir()
    files.put(NAME)
    assert not await files.sending.round()
    assert os.listdir(files.out) == ["APP_E2_F01_folder.xml"]
    assert len(await sent(files)) == 1
