"""503 cl. 7.1, 7.7: how endpoints and brokers keep their copy of the directory, over real TLS."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from gridpost.core.component import ComponentType
from gridpost.core.identifiers import ComponentCode
from gridpost.core.message_path import Restriction
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.synchronisation import Subsystem, content_id
from gridpost.services.directory_client.client import DirectoryClient
from gridpost.services.directory_client.context import ClientSettings
from gridpost.wire.directory import Query, decode_query
from support.builders import path
from support.directory_client import QUICK, Machine, both
from support.fake_directory import FakeDirectory
from support.https import live_pki


def queries(directory: FakeDirectory) -> list[Query]:
    return [decode_query(s.body) for s in directory.seen if s.path == "/api/v1/components"]


def foreign(directory: FakeDirectory, *codes: str, home: str = "CD-2") -> Subsystem:
    """A subsystem that `directory` has synchronised from another one."""
    pki = live_pki(home)
    endpoints = [
        replace(directory.entry, code=ComponentCode(c), type=ComponentType.ENDPOINT, urls=())
        for c in codes
    ]
    components = tuple(
        replace(
            c,
            component_directory=ComponentCode(home),
            certificates=pki.component(c.code).certificates,
        )
        for c in (replace(directory.entry, code=ComponentCode(home)), *endpoints)
    )
    valid_until = datetime.now(UTC) + timedelta(minutes=30)
    return Subsystem(ComponentCode(home), content_id(components), components, valid_until)


def codes(client: DirectoryClient) -> set[str]:
    return {c.code for c in client.directory().components(client.context.clock.now())}


@both("503-7.1-a", "503-7.7.2-h")
async def test_the_copy_holds_every_subsystem_and_follows_their_coming_and_going(
    kind: ComponentType,
) -> None:
    directory, machine = FakeDirectory(), Machine(kind)
    async with directory.running():
        client = await machine.enrolled(directory)
        await client.synchroniser.round()
        assert codes(client) == {"CD-1", machine.code}
        directory.foreign["CD-2"] = foreign(directory, "E7", "E8")
        await client.synchroniser.round()
        assert codes(client) == {"CD-1", machine.code, "CD-2", "E7", "E8"}
        del directory.foreign["CD-2"]
        await client.synchroniser.round()
        assert codes(client) == {"CD-1", machine.code}


@both("503-7.7.2-d", "503-7.7.2-e")
async def test_a_request_lists_what_is_held_and_the_first_lists_nothing(
    kind: ComponentType,
) -> None:
    directory, machine = FakeDirectory(), Machine(kind)
    directory.foreign = {
        "CD-2": foreign(directory, "E7"),
        "CD-3": foreign(directory, "E8", home="CD-3"),
    }
    async with directory.running():
        client = await machine.enrolled(directory)
        await client.synchroniser.round()
        await client.synchroniser.round()
    first, second = queries(directory)
    assert first == Query()
    assert set(second.couples) == set(client.directory().couples())
    assert {c.component_directory for c in second.couples} == {"CD-1", "CD-2", "CD-3"}
    assert second.only_home is False


@both("503-7.7.2-g")
async def test_a_changed_subsystem_replaces_the_copy_of_it_as_a_whole(kind: ComponentType) -> None:
    directory, machine = FakeDirectory(), Machine(kind)
    directory.foreign["CD-2"] = foreign(directory, "E7", "E8")
    async with directory.running():
        client = await machine.enrolled(directory)
        await client.synchroniser.round()
        directory.foreign["CD-2"] = foreign(directory, "E8", "E9")
        await client.synchroniser.round()
        assert codes(client) == {"CD-1", machine.code, "CD-2", "E8", "E9"}
        # An interruption midway leaves the old copy, in memory and after a restart.
        directory.foreign["CD-2"] = foreign(directory, "E1X")
        directory.cut = lambda seen: True
        with pytest.raises(Refusal):
            await client.synchroniser.round()
        assert codes(client) == codes(await machine.start())
        assert "E9" in codes(client)


async def test_unchanged_data_is_prolonged_without_being_sent_or_stored_again() -> None:
    directory, machine = FakeDirectory(), Machine()
    async with directory.running():
        client = await machine.enrolled(directory)
        await client.synchroniser.round()
        heard: list[frozenset[ComponentCode]] = []
        client.copy.on_change(lambda _, changed: heard.append(changed))
        before = client.directory().subsystems[ComponentCode("CD-1")]
        await client.synchroniser.round()
        after = client.directory().subsystems[ComponentCode("CD-1")]
    assert heard == [frozenset()]
    assert all(a is b for a, b in zip(after.components, before.components, strict=True))
    assert before.valid_until is not None
    assert after.valid_until is not None
    assert after.valid_until > before.valid_until


@both("503-7.7.1-d", "503-7.8.3-e")
async def test_data_whose_validity_has_ended_is_as_good_as_missing(kind: ComponentType) -> None:
    directory, machine = FakeDirectory(ttl=timedelta(seconds=60)), Machine(kind)
    async with directory.running():
        client = await machine.enrolled(directory)
        await client.synchroniser.round()
    machine.clock.ahead = timedelta(seconds=58)
    assert "CD-1" in codes(client)
    machine.clock.ahead = timedelta(seconds=61)
    assert codes(client) == set()
    assert client.directory().lapsed("CD-1", machine.clock.now())


@both("503-7.7.1-f")
async def test_data_never_lapses_while_a_directory_answers(kind: ComponentType) -> None:
    directory = FakeDirectory(ttl=timedelta(seconds=6))
    machine = Machine(kind, settings=ClientSettings(cycle=timedelta(minutes=5)))
    async with directory.running():
        client = await machine.enrolled(directory)
        await client.synchroniser.round()
        running = asyncio.ensure_future(client.synchroniser.run())
        end = asyncio.get_running_loop().time() + 13
        while asyncio.get_running_loop().time() < end:
            assert "CD-1" in codes(client)
            await asyncio.sleep(0.02)
        running.cancel()
    assert len(queries(directory)) >= 4


async def test_a_copy_that_lapsed_recovers_when_the_directory_is_back() -> None:
    directory, machine = FakeDirectory(ttl=timedelta(seconds=60)), Machine()
    async with directory.running():
        client = await machine.enrolled(directory)
        await client.synchroniser.round()
        port = directory.port
    machine.clock.ahead = timedelta(hours=5)
    with pytest.raises(Refusal) as caught:
        await client.synchroniser.round()
    assert caught.value.rule is Rule.UNREACHABLE
    assert codes(client) == set()
    async with directory.running(port):
        await client.synchroniser.round()
    assert codes(client) == {"CD-1", machine.code}


@both("503-7.7.3-a", "503-7.7.3-b")
async def test_the_cycle_is_a_setting_of_minutes_by_default(kind: ComponentType) -> None:
    assert timedelta(0) < ClientSettings().cycle <= timedelta(minutes=10)
    directory = FakeDirectory()
    shortest: list[float] = []
    for cycle in (timedelta(seconds=0.1), timedelta(seconds=2)):
        machine = Machine(kind, settings=replace(QUICK, cycle=cycle))
        async with directory.running():
            client = await machine.enrolled(directory)
            running = asyncio.ensure_future(client.synchroniser.run())
            times: list[float] = []
            while len(times) < 4:
                directory.asked.clear()
                await directory.asked.wait()
                times.append(asyncio.get_running_loop().time())
            running.cancel()
        shortest.append(min(b - a for a, b in pairwise(times)))
        assert shortest[-1] >= cycle.total_seconds() * 0.9
    assert shortest[0] < shortest[1]


@both("503-7.7.3-c", "503-7.7.3-e")
async def test_the_first_available_directory_of_the_list_is_asked(kind: ComponentType) -> None:
    first, second = FakeDirectory("CD-1"), FakeDirectory("CD-2")
    machine = Machine(kind)
    async with first.running(), second.running():
        # Each knows the other with its URL, by synchronisation between the two.
        first.foreign["CD-2"] = second.subsystem()
        client = await machine.enrolled(first)
        await client.synchroniser.round()
        second.foreign["CD-1"] = first.subsystem()
    machine.settings = replace(QUICK, directories=(ComponentCode("CD-1"), ComponentCode("CD-2")))
    client = await machine.start()
    async with second.running(second.port):
        assert await client.synchroniser.round() == "CD-2"
        async with first.running(first.port):
            assert await client.synchroniser.round() == "CD-1"
    # A new URL that a directory publishes is used without any local change.
    async with first.running(first.port), second.running():
        first.foreign["CD-2"] = second.subsystem()
        await client.synchroniser.round()
        machine.settings = replace(QUICK, directories=(ComponentCode("CD-2"),))
        assert await (await machine.start()).synchroniser.round() == "CD-2"


@both("503-7.7.3-d")
async def test_without_a_list_the_home_directory_is_asked(kind: ComponentType) -> None:
    directory, machine = FakeDirectory(), Machine(kind)
    async with directory.running():
        client = await machine.enrolled(directory)
        directory.foreign["CD-2"] = foreign(directory)
        assert client.synchroniser.directories() == ("CD-1",)
        assert await client.synchroniser.round() == "CD-1"


@both("503-7.3.2-b", "503-7.3.2-c")
async def test_dangling_and_useless_data_of_others_is_stored_as_it_is(kind: ComponentType) -> None:
    directory, machine = FakeDirectory(), Machine(kind)
    async with directory.running():
        client = await machine.enrolled(directory)
        broker = replace(
            directory.entry,
            code=ComponentCode("B9"),
            type=ComponentType.BROKER,
            urls=("amqps://b9.example",),
        )
        restricted = replace(broker, restriction=Restriction(frozenset({ComponentCode("NOBODY")})))
        endpoint = replace(
            directory.entry,
            code=ComponentCode("E9"),
            type=ComponentType.ENDPOINT,
            urls=(),
            paths=(path("A*", "INDIRECT:NOPE"), path("B*", "INDIRECT:B9", senders=["GHOST"])),
        )
        directory.others |= {"B9": restricted, "E9": endpoint}
        await client.synchroniser.round()
    now = machine.clock.now()
    assert client.directory().find("E9", now) == endpoint
    assert client.directory().find("B9", now) == restricted
    assert client.synchroniser.state.warnings == ()


async def test_a_certificate_that_cannot_be_read_costs_itself_and_leaves_a_warning() -> None:
    directory, machine = FakeDirectory(), Machine()
    async with directory.running():
        client = await machine.enrolled(directory)
        good = directory.me.authentication
        directory.others["E9"] = replace(
            directory.entry,
            code=ComponentCode("E9"),
            type=ComponentType.ENDPOINT,
            urls=(),
            certificates=(replace(good, der=b"no certificate", certificate_id="x"), good),
        )
        await client.synchroniser.round()
    found = client.directory().find("E9", machine.clock.now())
    assert found is not None
    assert [c.der for c in found.certificates] == [good.der]
    assert "of E9 is left out" in client.synchroniser.state.warnings[0]


async def test_a_server_with_another_certificate_than_the_dialled_directory_is_not_asked() -> None:
    directory, machine, impostor = FakeDirectory(), Machine(), FakeDirectory("CD-2")
    async with directory.running():
        client = await machine.enrolled(directory)
        await client.synchroniser.round()
        port = directory.port
    async with impostor.running(port):
        with pytest.raises(Refusal):
            await client.synchroniser.round()
    assert impostor.seen == []


async def test_before_registration_nobody_is_asked() -> None:
    client = await Machine().start()
    with pytest.raises(Refusal) as caught:
        await client.synchroniser.round()
    assert caught.value.rule is Rule.NOT_ENROLLED


async def test_failures_are_told_and_cleared_and_the_next_attempt_comes_sooner() -> None:
    directory, machine = (
        FakeDirectory(),
        Machine(settings=replace(QUICK, cycle=timedelta(minutes=2))),
    )
    async with directory.running():
        client = await machine.enrolled(directory)
        directory.fail = 500
        delays = [await client.synchroniser.attempt() for _ in range(3)]
        assert all(delay < timedelta(seconds=1) for delay in delays)
        assert "500" in client.synchroniser.state.reason
        directory.fail = 0
        assert await client.synchroniser.attempt() == timedelta(minutes=2)
        assert client.synchroniser.state.reason == ""
