"""IEC 62325-503 cl. 7.7 and 7.3.2 between component-directories, and what they grant to clients."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from gridpost.core.https import Authorise, HttpAnswer, HttpRequest
from gridpost.core.identifiers import ComponentCode
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.synchronisation import Couple
from gridpost.services.component_directory.settings import Peer
from gridpost.wire.directory import Query, decode_query
from support.component_directory import TestClock, TestDirectory
from support.pki import TestPki
from support.virtual_time import run_in_virtual_time

CD = "component-directory"
HOUR = timedelta(hours=1)


class TestNetwork:
    """Component-directories that reach each other; each asks with its own certificate."""

    __test__ = False

    def __init__(self, *codes: str, ttl: timedelta = HOUR) -> None:
        self.clock = TestClock()
        self.down: set[str] = set()
        self.asked: list[tuple[str, str, Query]] = []
        self.directories = {
            code: TestDirectory(
                code,
                clock=self.clock,
                ask=self._ask(code),
                ttl=ttl,
                peers=tuple(
                    Peer(ComponentCode(other), (f"https://{other.lower()}.example",))
                    for other in codes
                    if other != code
                ),
            )
            for code in codes
        }

    def _ask(self, asking: str):  # type: ignore[no-untyped-def]
        async def ask(peer: Peer, request: HttpRequest, authorise: Authorise) -> HttpAnswer:
            if peer.code in self.down:
                raise Refusal(Rule.UNREACHABLE, f"{peer.code} is down")
            self.asked.append((asking, peer.code, decode_query(request.body)))
            server = self.directories[peer.code]
            authorise(server.own.chain)
            response = await server.request(
                request.method,
                request.path,
                request.body,
                chain=self.directories[asking].own.chain,
            )
            return HttpAnswer(response.status_code, (response.content,), peer.urls[0])

        return ask

    async def start(self) -> TestNetwork:
        for directory in self.directories.values():
            await directory.started()
        return self

    async def cycle(self, *codes: str) -> None:
        for code in codes or tuple(self.directories):
            await self.directories[code].synchroniser.cycle()

    def __getitem__(self, code: str) -> TestDirectory:
        return self.directories[code]


async def codes_at(directory: TestDirectory) -> set[str]:
    content = await directory.publication.directory()
    return {c.code for c in content.components(directory.clock.now())}


async def replica(directory: TestDirectory, code: str):  # type: ignore[no-untyped-def]
    return (await directory.publication.directory()).subsystems.get(ComponentCode(code))


@pytest.fixture
async def three() -> TestNetwork:
    return await TestNetwork("CD-1", "CD-2", "CD-3").start()


@pytest.mark.req("503-4.4.3-d", "503-7.1-f", "503-7.7.2-j", "503-7.7.2-k")
@pytest.mark.req("503-7.1-a", component=CD)
async def test_all_pairs_synchronise_each_others_own_subsystem_until_all_hold_all(
    three: TestNetwork,
) -> None:
    await three["CD-2"].register("E2")
    await three.cycle()
    assert {(a, b) for a, b, _ in three.asked} == {
        (a, b) for a in three.directories for b in three.directories if a != b
    }
    assert all(query.only_home for _, _, query in three.asked)
    for directory in three.directories.values():
        assert await codes_at(directory) == {"CD-1", "CD-2", "CD-3", "E2"}
    await three["CD-3"].register("E3")
    await three.cycle()
    for directory in three.directories.values():
        assert "E3" in await codes_at(directory)


@pytest.mark.req("503-7.7.2-i")
async def test_the_query_has_one_couple_at_most(three: TestNetwork) -> None:
    await three.cycle()
    await three.cycle()
    first, later = three.asked[:6], three.asked[6:]
    assert all(query.couples == () for _, _, query in first)
    for _, asked, query in later:
        assert [c.component_directory for c in query.couples] == [asked]


@pytest.mark.req("503-7.1-g", "503-7.7.2-f")
async def test_a_component_gets_the_entire_system_from_its_directory(three: TestNetwork) -> None:
    e1 = await three["CD-1"].register("E1")
    await three["CD-2"].register("E2")
    await three.cycle()
    everything = await three["CD-1"].query(e1.chain)
    assert {c.code for c in everything.answer.components} == {"CD-1", "CD-2", "CD-3", "E1", "E2"}
    ids = {g.component_directory: g.content_id for g in everything.answer.grants}
    partly = Query(
        (Couple(ComponentCode("CD-1"), ids["CD-1"]), Couple(ComponentCode("CD-3"), ids["CD-3"]))
    )
    answer = (await three["CD-1"].query(e1.chain, partly)).answer
    assert len(answer.grants) == 3
    assert {c.code for c in answer.components} == {"CD-2", "E2"}


@pytest.mark.req("503-T25-j")
async def test_components_of_other_subsystems_may_ask_too(three: TestNetwork) -> None:
    e2 = await three["CD-2"].register("E2")
    refused = await three["CD-1"].query_raw(e2.chain)
    assert refused.status_code == 401
    await three.cycle()
    assert (await three["CD-1"].query_raw(e2.chain)).status_code == 200
    pushed = await three["CD-1"].request("PUT", "/api/v1/endpoints/E2", b"<x/>", chain=e2.chain)
    assert pushed.status_code == 404


@pytest.mark.req("503-7.7.1-a", "503-7.7.1-b", "503-7.7.3-f")
async def test_one_ttl_is_granted_and_does_not_limit_the_owner(three: TestNetwork) -> None:
    one = three["CD-1"]
    e1 = await one.register("E1")
    (grant,) = (await one.query(e1.chain)).answer.grants
    assert grant.ttl == HOUR
    three.clock.forward(10 * HOUR)
    assert "E1" in await codes_at(one)
    one.publication.reconfigure(replace(one.settings, ttl=2 * HOUR))
    (grant,) = (await one.query(e1.chain)).answer.grants
    assert grant.ttl == 2 * HOUR


@pytest.mark.req("503-7.7.1-c")
@pytest.mark.req("503-7.7.1-d", component=CD)
async def test_a_replica_is_passed_on_with_what_is_left_of_its_validity(
    three: TestNetwork,
) -> None:
    one = three["CD-1"]
    e1 = await one.register("E1")
    await three["CD-2"].register("E2")
    await three.cycle()
    three.clock.forward(timedelta(minutes=20))
    grants = {g.component_directory: g.ttl for g in (await one.query(e1.chain)).answer.grants}
    assert grants["CD-1"] == HOUR
    assert grants["CD-2"] == timedelta(minutes=40)
    three.clock.forward(timedelta(minutes=41))
    answer = (await one.query(e1.chain)).answer
    assert [g.component_directory for g in answer.grants] == ["CD-1"]
    assert "E2" not in await codes_at(one)


@pytest.mark.req("503-7.7.1-f", component=CD)
@pytest.mark.req("503-7.7.2-b")
async def test_an_unchanged_content_is_prolonged_without_being_sent(three: TestNetwork) -> None:
    one = three["CD-1"]
    await three.cycle()
    for _ in range(5):
        three.clock.forward(timedelta(minutes=45))
        await three.cycle()
        assert "CD-2" in await codes_at(one)
    held = await replica(one, "CD-2")
    assert held.valid_until == three.clock.now() + HOUR
    couple = Couple(ComponentCode("CD-2"), held.content_id)
    answer = (await three["CD-2"].query(one.own.chain, Query((couple,), only_home=True))).answer
    assert answer.components == ()
    assert [g.component_directory for g in answer.grants] == ["CD-2"]


@pytest.mark.req("503-7.7.2-a", "503-7.7.2-c")
async def test_any_change_gives_another_content_id_and_the_whole_subsystem_again(
    three: TestNetwork,
) -> None:
    two = three["CD-2"]
    seen = [await two.content_id()]
    components = [await two.register(f"E{n}") for n in range(4)]
    seen.append(await two.content_id())
    await three.cycle()
    entry = await two.entry("E0")
    changed = replace(entry, contact=replace(entry.contact, phone="+00 9"))
    await two.push(components[0], changed)
    seen.append(await two.content_id())
    await two.office.revoke("E3", "test", by="alice")
    seen.append(await two.content_id())
    assert len(set(seen)) == len(seen)
    held = await replica(three["CD-1"], "CD-2")
    query = Query((Couple(ComponentCode("CD-2"), held.content_id),), only_home=True)
    answer = (await two.query(three["CD-1"].own.chain, query)).answer
    assert {c.code for c in answer.components} == {"CD-2", "E0", "E1", "E2"}


@pytest.mark.req("503-7.7.2-g", "503-7.7.2-h", component=CD)
async def test_a_replica_is_replaced_as_a_whole_and_a_subsystem_can_disappear(
    three: TestNetwork,
) -> None:
    one, two = three["CD-1"], three["CD-2"]
    await two.register("E2")
    await three.cycle()
    await two.office.revoke("E2", "compromised", by="alice")
    await three.cycle()
    assert "E2" not in await codes_at(one)
    one.publication.reconfigure(replace(one.settings, peers=one.settings.peers[1:]))
    await three.cycle("CD-1")
    assert await codes_at(one) == {"CD-1", "CD-3"}


@pytest.mark.req("503-7.3.2-d", "503-7.3.2-e", "503-7.3.2-f")
@pytest.mark.req("503-4.4.3-a", component=CD)
async def test_duplicates_of_a_later_subsystem_are_rejected_and_the_rest_is_kept(
    three: TestNetwork,
) -> None:
    one = three["CD-1"]
    await one.register("X")
    await three["CD-3"].register("Y")
    await three["CD-2"].register("X", key_name="X of two")
    await three["CD-2"].register("Y", key_name="Y of two")
    await three["CD-2"].register("Z")
    three.down = {"CD-2"}
    await three.cycle("CD-1")  # the subsystem of CD-3 is there first
    three.down = set()
    await three.cycle("CD-1")
    homes = {
        c.code: c.component_directory
        for c in (await one.publication.directory()).components(three.clock.now())
    }
    assert (homes["X"], homes["Y"], homes["Z"]) == ("CD-1", "CD-3", "CD-2")
    reported = [row.reason for row in await one.actions() if row.target == "CD-2"]
    assert any("X of subsystem CD-2 is rejected" in reason for reason in reported)
    # When the code is free again, the duplicate comes in although CD-2 has not changed.
    await one.office.revoke("X", "closed down", by="alice")
    await three.cycle("CD-1")
    found = await one.publication.find("X")
    assert found is not None
    assert found.component_directory == "CD-2"


@pytest.mark.req("503-4.4.3-c", component=CD)
async def test_a_peer_that_is_down_for_hours_stops_nobody(three: TestNetwork) -> None:
    one = three["CD-1"]
    e1 = await one.register("E1")
    await three.cycle()
    three.down = {"CD-2"}
    three.clock.forward(timedelta(minutes=50))
    await three.cycle()
    assert "CD-2" in await codes_at(one)
    assert (await one.query_raw(e1.chain)).status_code == 200
    states = {s.code: s for s in one.synchroniser.states}
    assert "down" in states[ComponentCode("CD-2")].reason
    assert states[ComponentCode("CD-3")].failed_at is None
    three.clock.forward(timedelta(minutes=11))
    assert "CD-2" not in await codes_at(one)


@pytest.mark.req("503-7.4-b", "503-8.4.1-a", component=CD)
async def test_a_server_that_is_not_the_peer_gets_no_request(three: TestNetwork) -> None:
    one = three["CD-1"]
    impostors: Sequence[TestDirectory] = (
        three["CD-3"],  # another component-directory of the same system
        TestDirectory("CD-2", root="OTHER"),  # the right name under another root
    )
    for impostor in impostors:
        original = three.directories["CD-2"]
        three.directories["CD-2"] = impostor
        three.asked.clear()
        await three.cycle("CD-1")
        three.directories["CD-2"] = original
        assert "CD-2" not in await codes_at(one)
        state = next(s for s in one.synchroniser.states if s.code == "CD-2")
        assert state.failed_at is not None


@pytest.mark.req("503-8.4.1-d", component=CD)
async def test_a_named_peer_is_known_before_it_was_ever_synchronised(three: TestNetwork) -> None:
    assert await codes_at(three["CD-1"]) == {"CD-1"}
    assert (await three["CD-1"].query_raw(three["CD-2"].own.chain)).status_code == 200
    # Another subsystem's CA cannot introduce itself under the peer's name.
    forged = TestPki("CD-9").component("CD-2")
    assert (await three["CD-1"].query_raw(forged.chain)).status_code == 401


@pytest.mark.req("503-7.7.3-a", component=CD)
def test_the_cycle_is_as_configured_and_a_change_of_it_counts_at_once() -> None:
    times: list[float] = []

    async def nobody_there(*_: object) -> HttpAnswer:
        times.append(asyncio.get_running_loop().time())
        raise Refusal(Rule.UNREACHABLE, "down")

    async def hours() -> None:
        peer = Peer(ComponentCode("CD-2"), ("https://cd-2.example",))
        one = TestDirectory(ask=nobody_there, peers=(peer,), cycle=timedelta(seconds=60))
        task = asyncio.create_task(one.synchroniser.run())
        await asyncio.sleep(185)
        one.publication.reconfigure(replace(one.settings, cycle=timedelta(minutes=10)))
        one.synchroniser.reconfigured()
        await asyncio.sleep(1500)
        task.cancel()

    run_in_virtual_time(hours())
    assert [round(t - times[0]) for t in times] == [0, 60, 120, 180, 185, 785, 1385]


@pytest.mark.req("503-7.8.3-e", component=CD)
async def test_a_ttl_of_60000_is_a_minute_and_then_the_replica_has_lapsed() -> None:
    network = TestNetwork("CD-1", "CD-2", ttl=timedelta(seconds=60))
    for directory in network.directories.values():
        await directory.started()
    one, two = network["CD-1"], network["CD-2"]
    await two.register("E2")
    raw = await two.query_raw(one.own.chain)
    assert re.findall(rb"<ttl>(\d+)</ttl>", raw.content) == [b"60000"]
    await network.cycle("CD-1")
    network.clock.forward(timedelta(seconds=59))
    assert await one.publication.find("E2") is not None
    network.clock.forward(timedelta(seconds=2))
    assert await one.publication.find("E2") is None


@pytest.mark.req("503-7.7.3-b", component=CD)
@pytest.mark.req("503-7.7.3-g")
def test_by_default_the_cycle_is_minutes_and_the_ttl_hours() -> None:
    settings = TestDirectory().settings
    assert timedelta(minutes=1) <= settings.cycle <= timedelta(minutes=10)
    assert settings.ttl >= timedelta(hours=4)
