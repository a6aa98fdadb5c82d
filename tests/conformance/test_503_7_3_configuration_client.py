"""503 cl. 7.1 to 7.3: a component's own configuration data, checked, stored first, then pushed home."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from structlog.testing import capture_logs

from gridpost.core.component import Component, ComponentType
from gridpost.core.identifiers import ComponentCode
from gridpost.core.message_path import MessagePath, Restriction
from gridpost.core.own_entry import OwnEntry, confirm, same_data
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.directory_client.client import DirectoryClient
from gridpost.transports.https import ClientTls, HttpsClient
from support.builders import path
from support.directory_client import Crash, CrashingCaller, Machine, both, crashing
from support.fake_directory import FakeDirectory

T1 = datetime(2026, 1, 1, tzinfo=UTC)
T2, T3, T4 = (T1 + timedelta(days=n) for n in (1, 2, 3))


def changed(machine: Machine, phone: str = "2") -> Component:
    """A valid change of something that only this kind of component has."""
    component = machine.component(phone=phone)
    if machine.kind is ComponentType.BROKER:
        return replace(component, restriction=Restriction(frozenset({ComponentCode("E1")})))
    return replace(component, paths=(path("BP1-*", "INDIRECT:B1"),))


async def stored(machine: Machine) -> OwnEntry:
    entry = await machine.store.read(lambda work: work.own_entry.load())
    assert entry is not None
    return entry


async def pushed(client: DirectoryClient) -> None:
    running = asyncio.ensure_future(client.configuration.run())
    async with asyncio.timeout(60):
        while client.configuration.state.pending:
            await asyncio.sleep(0.01)
    running.cancel()


@both("503-7.1-e", "503-7.2-c", "503-7.3.3-a")
async def test_a_change_reaches_the_home_directory_by_one_push_and_nobody_else(
    kind: ComponentType,
) -> None:
    home, other, machine = FakeDirectory(), FakeDirectory("CD-2"), Machine(kind)
    async with home.running(), other.running():
        home.foreign["CD-2"] = other.subsystem()
        client = await machine.enrolled(home)
        await client.synchroniser.round()
        component = changed(machine)
        await client.configuration.change(component, by="administrator")
        assert client.configuration.state.pending
        await pushed(client)
        assert not await client.configuration.push()
        assert same_data(home.others[machine.code], component)
        assert (await stored(machine)).component == component
        # What others see after they synchronised.
        await client.synchroniser.round()
        seen = client.directory().find(machine.code, machine.clock.now())
        assert seen is not None
        assert same_data(seen, component)
    folder = "endpoints" if kind is ComponentType.ENDPOINT else "brokers"
    assert [s.path for s in home.of("PUT")] == [f"/api/v1/{folder}/{machine.code}"]
    assert other.seen == []


WRONG_URLS = ["amqps//x", "ftp://x", "https://x", "amqps://", "amqps://user@x"]


@both("503-7.3.1-a", "503-7.3.1-b", "503-7.3.1-c", "503-T18-e")
async def test_inconsistent_data_is_warned_of_and_never_pushed(kind: ComponentType) -> None:
    directory, machine = FakeDirectory(), Machine(kind)
    async with directory.running():
        client = await machine.enrolled(directory)
        for url in WRONG_URLS:
            wrong = replace(machine.component(), urls=("amqps://ok.example:5671", url))
            with capture_logs() as logs, pytest.raises(Refusal) as caught:
                await client.configuration.change(wrong, by="administrator")
            assert caught.value.rule is Rule.INCONSISTENT_CONFIGURATION
            assert url in caught.value.message + caught.value.details
            assert [line["log_level"] for line in logs] == ["warning"]
            assert url in logs[0]["problem"]
            await client.configuration.attempt()
        assert directory.of("PUT") == []
        right = replace(machine.component(), urls=("amqps://host:5671",))
        await client.configuration.change(right, by="administrator")
        await client.configuration.attempt()
    assert len(directory.of("PUT")) == 1


@pytest.mark.parametrize(
    ("paths", "consistent"),
    [
        pytest.param(
            [path("AB", start=T2, end=T2)],
            False,
            id="ends at its start",
            marks=pytest.mark.req("503-7.3.1-d"),
        ),
        pytest.param(
            [path("AB", start=T2, end=T1)],
            False,
            id="ends before its start",
            marks=pytest.mark.req("503-7.3.1-d"),
        ),
        pytest.param(
            [path("AB", start=T1, end=T3), path("AB", start=T2, end=T4)],
            False,
            id="overlap",
            marks=pytest.mark.req("503-7.3.1-e"),
        ),
        pytest.param(
            [path("AB", start=T1, end=T2), path("AB", start=T2, end=T3)],
            True,
            id="touch",
            marks=pytest.mark.req("503-7.3.1-e"),
        ),
        pytest.param(
            [path("AB", start=T1), path("AB", start=T3, end=T4)],
            False,
            id="open end and later",
            marks=pytest.mark.req("503-7.3.1-e"),
        ),
        pytest.param(
            [path("AB", start=T1), path("A*", start=T1)],
            True,
            id="different texts",
            marks=pytest.mark.req("503-7.3.1-f"),
        ),
    ],
)
async def test_usage_periods_are_checked_before_a_push(
    paths: list[MessagePath], consistent: bool
) -> None:
    directory, machine = FakeDirectory(), Machine()
    async with directory.running():
        client = await machine.enrolled(directory)
        component = machine.component(*paths)
        if consistent:
            await client.configuration.change(component, by="administrator")
        else:
            with capture_logs() as logs, pytest.raises(Refusal):
                await client.configuration.change(component, by="administrator")
            assert "AB" in logs[0]["problem"]
        await client.configuration.attempt()
    assert len(directory.of("PUT")) == (1 if consistent else 0)
    if consistent:
        assert directory.others["E1"].paths == tuple(paths)


@both("503-7.3.2-a")
async def test_own_data_that_the_system_makes_useless_is_warned_of(kind: ComponentType) -> None:
    directory, machine = FakeDirectory(), Machine(kind)
    async with directory.running():
        client = await machine.enrolled(directory)
        neighbour = Machine(
            ComponentType.ENDPOINT if kind is ComponentType.BROKER else ComponentType.BROKER
        )
        await neighbour.enrolled(directory)
        await client.synchroniser.round()
        with capture_logs() as logs:
            await client.configuration.change(changed(machine), by="administrator")
        assert [line for line in logs if line["log_level"] == "warning"] == []
        assert await client.configuration.warnings() == ()
        # The broker of the path, or the endpoint of the restriction, is revoked.
        del directory.others[neighbour.code]
        await client.synchroniser.round()
        (warning,) = await client.configuration.warnings()
    assert neighbour.code in warning


@both("503-7.3.3-b")
@pytest.mark.parametrize("point", ["before commit", "before push", "after push", "at confirmation"])
async def test_the_directory_never_holds_what_the_component_lacks(
    kind: ComponentType, point: str
) -> None:
    directory, machine = FakeDirectory(), Machine(kind)
    async with directory.running():
        client = await machine.enrolled(directory)
        before = directory.others[machine.code]
        component = changed(machine)
        run = machine.store.run
        if point == "before commit":
            machine.store.run = _dead  # type: ignore[method-assign]
            with crashing():
                await client.configuration.change(component, by="administrator")
        else:
            await client.configuration.change(component, by="administrator")
            if point == "at confirmation":
                machine.store.run = _dead  # type: ignore[method-assign]
            else:
                client.configuration._caller = CrashingCaller(  # type: ignore[assignment]
                    HttpsClient(ClientTls(client.tls)), after=point == "after push"
                )
            with crashing():
                await client.configuration.attempt()
        machine.store.run = run  # type: ignore[method-assign]
        held = directory.others[machine.code]
        if not same_data(held, before):
            assert same_data(held, (await stored(machine)).component)
        # Started again, the component brings both to the same state by itself.
        client = await machine.start()
        await client.configuration.attempt()
        if point != "before commit":
            assert same_data(directory.others[machine.code], component)
            assert not (await stored(machine)).pending


async def _dead(work: object) -> None:
    raise Crash


@both("503-7.3.3-c", "503-7.3.3-d")
async def test_a_failed_push_is_told_and_repeated_until_it_succeeds(kind: ComponentType) -> None:
    directory, machine = FakeDirectory(), Machine(kind)
    async with directory.running():
        client = await machine.enrolled(directory)
        port = directory.port
    running = asyncio.ensure_future(client.configuration.run())
    component = changed(machine)
    with capture_logs() as logs:
        await client.configuration.change(component, by="administrator")
        async with asyncio.timeout(60):
            while not client.configuration.state.reason:
                await asyncio.sleep(0.01)
    assert "cannot be reached" in client.configuration.state.reason
    assert any(line["event"] == "push failed" for line in logs)
    assert (await stored(machine)).component == component
    async with directory.running(port), asyncio.timeout(60):
        while client.configuration.state.pending:
            await asyncio.sleep(0.01)
        assert same_data(directory.others[machine.code], component)
    assert client.configuration.state.reason == ""
    running.cancel()


async def test_a_change_during_a_push_is_pushed_after_it() -> None:
    directory, machine = FakeDirectory(), Machine()
    async with directory.running():
        client = await machine.enrolled(directory)
        await client.configuration.change(changed(machine, "2"), by="administrator")
        entry = await stored(machine)
        await client.configuration.change(changed(machine, "3"), by="administrator")
        # The confirmation of the older revision arrives when the newer one is stored already.
        latest = confirm(await stored(machine), entry.revision)
        assert latest.pending
        await pushed(client)
    assert directory.others["E1"].contact.phone == "3"


async def test_the_same_data_again_is_not_a_change() -> None:
    directory, machine = FakeDirectory(), Machine()
    async with directory.running():
        client = await machine.enrolled(directory)
        for _ in range(3):
            await client.configuration.change(changed(machine), by="administrator")
            await client.configuration.attempt()
    assert len(directory.of("PUT")) == 1
    rows = await machine.store.read(lambda work: work.journal.read(0, 100))
    actions = [getattr(r.row, "action", "") for r in rows]
    assert actions.count("configuration changed") == 1


async def test_the_entry_of_another_component_is_not_ours_to_change() -> None:
    client = await Machine().start()
    other = Machine(ComponentType.BROKER).component()
    with pytest.raises(Refusal, match="this is ENDPOINT E1"):
        await client.configuration.change(other, by="administrator")
