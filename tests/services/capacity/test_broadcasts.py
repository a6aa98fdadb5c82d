"""Broadcasts, filters and topology of the capacity service, over a real RabbitMQ (CMM 3.1, 4.4, 5.4)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, time, timedelta
from itertools import pairwise

import pytest
import pytest_asyncio

from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.cmm import AllocationDataNtf, AtcDataNtf, LoginResp, read_heartbeat
from support.capacity_market import APG, CEPS, DK1, EON, GROUP, RTE, RWE, ZONE
from support.capacity_site import (
    BETA,
    DAY,
    DE_DK_1000,
    SERVICE,
    Participant,
    capacity_csv,
    capacity_service,
    participant,
    periods,
)  # fmt: skip
from support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(rabbit, tmp_path_factory):
    async with capacity_service(
        rabbit, tmp_path_factory.mktemp("broadcasts"), limits={"requests": 100_000}
    ) as running:
        await running.publish(*DE_DK_1000)
        await running.publish((RWE, RTE, 900), (RTE, RWE, 900))
        await running.publish((APG, CEPS, 900), (CEPS, APG, 900), minutes=15)
        yield running


def on_behalf(group=GROUP, areas=(EON, DK1), number=12, quantity=1, minutes=60, **more):
    period = periods(minutes=minutes)[number]
    item = {
        "out_area": areas[0], "in_area": areas[1], "period_start": period.start.isoformat(),
        "period_end": period.end.isoformat(), "quantity": quantity,
    }  # fmt: skip
    return {"balancing_group": group, "items": [item], **more}


async def settled(site, *people):
    """A message of the service's own, behind everything so far: each heartbeat comes in order."""
    await site.running.service.post.settled()
    before = {person: beats(person) for person in people}
    await eventually(lambda: all(beats(p) > before[p] for p in people), 60)


def beats(person):
    return sum(i.properties.content_type == "text/plain" for i in person.broadcasts)


@pytest.mark.req("cmm-3.1.1-a")
@pytest.mark.req("cmm-3.1.2-b", component="rabbitmq-topology")
@pytest.mark.req("cmm-3.1.2-a")
@pytest.mark.req("cmm-4.4.1-c", component="service")
@pytest.mark.req("cmm-4.4.1-c", component="rabbitmq-topology")
@pytest.mark.req("cmm-2.3-c")
@pytest.mark.req("cmm-3.1.1.2.1-b")
@pytest.mark.req("cmm-3.1.1.2.1-c")
@pytest.mark.req("cmm-3.1.1.2.1-d")
@pytest.mark.req("cmm-3.1.1.2.1-e")
@pytest.mark.req("cmm-3.1.1.2.1-f")
@pytest.mark.req("cmm-3.1.1.2.1-g")
@pytest.mark.req("cmm-3.1.1.3.1-b")
@pytest.mark.req("cmm-3.1.1.3.1-c")
@pytest.mark.req("cmm-3.1.1.3.1-d")
@pytest.mark.req("cmm-3.1.1.3.1-e")
@pytest.mark.req("cmm-3.1.1.3.1-f")
@pytest.mark.req("cmm-3.1.1.3.1-g")
@pytest.mark.req("cmm-5.4.2-a")
@pytest.mark.req("cmm-5.4.2-c")
@pytest.mark.req("cmm-5.4.2-d")
@pytest.mark.req("cmm-5.4.2-e")
@pytest.mark.req("cmm-5.4.2-g")
@pytest.mark.req("cmm-5.4.2-i")
@pytest.mark.req("cmm-5.4.3-a")
@pytest.mark.req("cmm-5.3-a")
async def test_who_gets_which_broadcasts_and_what_they_say(site):
    async with participant(site, "u1") as u1, participant(site, "u10") as u10, \
            participant(site, "r1") as r1, participant(site, "u.1") as both:  # fmt: skip
        people = (u1, u10, r1, both)
        for person in people:
            assert await person.login() == LoginResp(True)
            await person.subscribe()
        sources = {row["source"] for row in await site.bindings("cmm.broadcastQueue.u10")}
        assert sources == {"cmm.heartbeat", "cmm.atc.DE-DK"}
        sources = {row["source"] for row in await site.bindings("cmm.broadcastQueue.r1")}
        assert sources == {"cmm.heartbeat", f"cmm.allocation.{GROUP}"}
        # Each trigger, one after the other.
        await site.act("publish", file=capacity_csv(*DE_DK_1000))
        await site.act("adjust", file=capacity_csv((EON, DK1, 1100), only=slice(5, 6)))
        await site.act("allocate", **on_behalf())
        await site.act("allocate", **on_behalf(event="ALLOCATION", areas=(DK1, EON), number=13))
        from gridpost.core.allocation import AllocationType
        from gridpost.wire.cmm import Alc, AllocationReq, Allocations, encode

        period = periods()[14]
        own = Alc("mine", period.start, period.end, 3)
        request = AllocationReq(AllocationType.IOC, (Allocations(DK1, EON, (own,)),))
        answer = await u1.ask(encode(request))
        await site.act("halt", border="DE-DK")
        await site.act("resume", border="DE-DK")
        await site.act("allocate", **on_behalf(areas=(EON, RTE), number=3))
        await site.act(
            "allocate", **on_behalf(areas=(APG, CEPS), number=40, minutes=15, quantity=200)
        )
        await settled(site, *people)

        news = [(h, m) for h, m in u1.of_kind(AtcDataNtf) if h["X_Border"] == "DE-DK"]
        events = [headers["X_Event"] for headers, _ in news]
        assert events == [
            "PUBLISH", "PUBLISH", "ADJUST_CAPACITY", "ON_BEHALF", "ON_BEHALF", "ALLOCATION",
            "ALLOCATION", "ALLOCATION_PMI", "ALLOCATION_PMI", "PUBLISH", "PUBLISH",
        ]  # fmt: skip
        sizes = [len(message.lists[0].items) for _, message in news]
        assert sizes == [24, 24, 1, 1, 1, 1, 1, 1, 1, 24, 24]
        for headers, message in u1.of_kind(AtcDataNtf):
            [values] = message.lists
            assert headers["X_Border"] == values.border
            assert (headers["X_OutArea"], headers["X_InArea"]) == (values.out_area, values.in_area)
            assert headers["X_Day"] == DAY.isoformat()
            assert values.date == ZONE.start_of(DAY)
            assert all(isinstance(value, str) for value in headers.values())
        for incoming in u1.broadcasts:
            if incoming.properties.content_type == "text/xml;v=1.0":
                assert incoming.properties.content_encoding == "gzip"
                assert incoming.body[:2] == b"\x1f\x8b"
        one, other = (message.lists[0].items[0].quantity for _, message in news[3:5])
        assert (one, other) == (999, 1001)
        # A common border speaks through its leading interconnector, whichever was used.
        common = [m.lists[0] for h, m in u1.of_kind(AtcDataNtf) if h["X_Border"] == "DE-FR"]
        assert {(v.out_area, v.in_area) for v in common} == {(RWE, RTE), (RTE, RWE)}
        # Ramping: the neighbours change too, here the opposite way.
        ramped = [m.lists[0] for h, m in u1.of_kind(AtcDataNtf) if h["X_Border"] == "AT-CZ"]
        assert [len(values.items) for values in ramped] == [1, 3]
        # Roles and grants.
        assert u1.of_kind(AllocationDataNtf) == []
        assert {h["X_Border"] for h, _ in u10.of_kind(AtcDataNtf)} == {"DE-DK"}
        assert r1.of_kind(AtcDataNtf) == []
        assert both.of_kind(AtcDataNtf)
        assert both.of_kind(AllocationDataNtf)

        told = r1.of_kind(AllocationDataNtf)
        assert [h["X_Event"] for h, _ in told] == [
            "ON_BEHALF", "ALLOCATION", "ALLOCATION_PMI", "ON_BEHALF", "ON_BEHALF",
        ]  # fmt: skip
        numbers = [int(headers["X_Sequence_Id"]) for headers, _ in told]
        assert numbers == list(range(numbers[0], numbers[0] + 5))
        for headers, message in told:
            [part] = message.lists
            assert headers["X_BG"] == part.balancing_group == GROUP
            assert (headers["X_OutArea"], headers["X_InArea"]) == (part.out_area, part.in_area)
        [entry] = told[2][1].lists[0].items
        assert entry.allocation_id == answer.items[0].allocation_id

        # Another group's allocations are its own.
        await site.act("allocate", **on_behalf(BETA, number=15))
        await settled(site, r1)
        assert len(r1.of_kind(AllocationDataNtf)) == 5


FILTERS = {
    "X_Border:DE-DK|AT-CZ": {"DE-DK", "AT-CZ"},
    "X_Border:DE-FR,X_Event:ON_BEHALF": set(),
    "X_Border:DE-DK, X_Event:ADJUST_CAPACITY,x-match:all": {"DE-DK"},
    "X_Border:DE-FR,X_Event:ADJUST_CAPACITY,x-match:any": {"DE-DK", "DE-FR", "AT-CZ"},
    f"X_OutArea:{EON}": {"DE-DK"},
    f"X_InArea:{CEPS}": {"AT-CZ"},
    f"X_Day:{DAY.isoformat()}": {"DE-DK", "DE-FR", "AT-CZ"},
    "X_Day:2001-01-01": set(),
    "": {"DE-DK", "DE-FR", "AT-CZ"},
}


@pytest.mark.req("cmm-3.1.2.1-d")
@pytest.mark.req("cmm-3.1.2.1-h")
@pytest.mark.req("cmm-3.1.2.1-i")
@pytest.mark.req("cmm-3.1.2.1-j")
@pytest.mark.req("cmm-3.1.2.1-e")
async def test_a_filter_lets_through_what_it_names_once(site):
    """ADJUST_CAPACITY on all borders, seen through each filter; every Login replaces the last."""
    for number, (arguments, borders) in enumerate(FILTERS.items()):
        async with participant(site, "u1") as u1:
            assert await u1.login(arguments) == LoginResp(True)
            await u1.subscribe()
            for rows, minutes in (
                (((EON, DK1, 2000 + number), (DK1, EON, 2000 + number)), 60),
                (((RWE, RTE, 2000 + number),), 60),
                (((APG, CEPS, 300 + number), (CEPS, APG, 300 + number)), 15),
            ):
                text = capacity_csv(
                    *rows, minutes=minutes, only=slice(30, 31) if minutes == 15 else slice(7, 8)
                )
                await site.act("adjust", file=text)
            await settled(site, u1)
            news = u1.of_kind(AtcDataNtf)
            assert {h["X_Border"] for h, _ in news} == borders, arguments
            keys = [(h["X_Border"], h["X_OutArea"]) for h, _ in news]
            assert len(keys) == len(set(keys)), f"{arguments}: a broadcast came twice"


@pytest.mark.req("cmm-3.1.2.1-f")
@pytest.mark.req("cmm-3.1.2.1-c")
async def test_filters_of_a_user_with_both_roles(site):
    for arguments, kinds in (
        ("X_Border:DE-DK", {AtcDataNtf}),
        (f"X_BG:{BETA}", {AllocationDataNtf}),
        ("X_Event:ON_BEHALF", {AtcDataNtf, AllocationDataNtf}),
    ):
        async with participant(site, "u.1") as both:
            assert (await both.login(arguments)).success
            await both.subscribe()
            await site.act("allocate", **on_behalf(BETA, number=16))
            await settled(site, both)
            assert {type(m) for _, m in both.of_kind(object)} == kinds
    async with participant(site, "u.1") as both:
        wrong = await both.login("X_Border")
        assert not wrong.success
        assert "X_Border" in wrong.message
        many = "|".join(str(n) for n in range(300))
        assert "200" in (await both.ask(f'<Login arguments="X_Day:{many}"/>')).message


@pytest.mark.req("cmm-3.1.1-b")
@pytest.mark.req("cmm-3.1.1.1-b")
@pytest.mark.req("cmm-5.4.1-a")
@pytest.mark.req("cmm-5-a", component="service")
async def test_heartbeats_say_when_they_were_sent_and_how_often(site):
    async with participant(site, "r1") as r1:
        await r1.login()
        await r1.subscribe()
        before = datetime.now(UTC)
        found: list = []

        def regular() -> bool:
            """Three times in a row: a busy machine is late at times, and makes up for it."""
            found[:] = [i for i in r1.broadcasts if i.properties.content_type == "text/plain"]
            times = [read_heartbeat(i.body) for i in found]
            near = [
                timedelta(seconds=0.5) < b - a < timedelta(seconds=2) for a, b in pairwise(times)
            ]
            return any(all(near[at : at + 3]) for at in range(len(near) - 2))

        await eventually(regular)
        assert {i.properties.headers["X_Period"] for i in found} == {"1"}
        times = [read_heartbeat(i.body) for i in found]
        assert times == sorted(times)
        assert before < times[-1] <= datetime.now(UTC)


@pytest.mark.req("cmm-3.1.1.1-a")
@pytest.mark.req("cmm-3.1.1.2.1-a")
@pytest.mark.req("cmm-3.1.1.3.1-a")
@pytest.mark.req("cmm-3.2-a")
@pytest.mark.req("cmm-3.1.3-b")
@pytest.mark.req("cmm-3.2.5.2-a", component="rabbitmq-topology")
async def test_exchanges_and_queues_are_what_the_document_says(site):
    answer = await asyncio.to_thread(site.node.api, "GET", f"exchanges/{site.virtual_host}")
    found = {row["name"]: (row["type"], row["durable"]) for row in answer.json()}
    assert found["cmm.heartbeat"] == ("fanout", True)
    for border in ("DE-DK", "DE-FR", "AT-CZ"):
        assert found[f"cmm.atc.{border}"] == ("headers", True)
    for group in (GROUP, BETA):
        assert found[f"cmm.allocation.{group}"] == ("headers", True)
    for user in ("u1", "u10", "u.1", "r1"):
        assert found[f"cmm.request.{user}"] == ("fanout", True)
    async with participant(site, "u1") as u1:
        await u1.login()
        queues = await site.queues()
    requests = queues["cmm.requestQueue"]
    assert requests["auto_delete"]
    assert not requests["exclusive"]
    assert requests["arguments"]["x-message-ttl"] == 10_000
    for name in ("cmm.responseQueue.u1", "cmm.broadcastQueue.u1"):
        assert not queues[name]["durable"]
        assert queues[name]["arguments"]["x-expires"] == 30_000
        assert queues[name]["arguments"]["x-message-ttl"] == 60_000
        assert queues[name]["arguments"]["x-max-length-bytes"] == 64 * 1024 * 1024
        assert queues[name]["arguments"]["x-overflow"] == "drop-head"


@pytest.mark.req("cmm-4.4.1-a")
@pytest.mark.req("cmm-4.4.1-b")
@pytest.mark.req("cmm-4.4.1-d")
@pytest.mark.req("cmm-3.1.2.1-a", component="rabbitmq-topology")
@pytest.mark.req("cmm-3.2.3-b")
@pytest.mark.parametrize("user", ["u1", "u10", "u.1"])
async def test_a_client_touches_its_own_things_and_nothing_else(site, user):
    others = {"u1", "u10", "u.1"} - {user}
    async with participant(site, user) as own:
        assert (await own.login()).success
        await own.subscribe()

        async def refused(attempt):
            channel = await own.connection.channel()
            with pytest.raises(Refusal) as caught:
                await attempt(channel)
            assert caught.value.rule is Rule.AMQP091_DENIED, caught.value
            await channel.close()

        for other in others:
            for queue in (f"cmm.responseQueue.{other}", f"cmm.broadcastQueue.{other}"):
                await refused(lambda c, q=queue: c.consume(q, lambda _: None, no_ack=True))
                await refused(lambda c, q=queue: c.get(q))
        foreign = [f"cmm.request.{other}" for other in others]
        for exchange in (*foreign, "cmm.atc.DE-DK", "cmm.heartbeat", "cmm.response", ""):
            await refused(
                lambda c, e=exchange: Participant(own.connection, c, user).send("<a/>", exchange=e)
            )
        queue = f"cmm.broadcastQueue.{user}"
        await refused(lambda c: c.consume("cmm.requestQueue", lambda _: None))
        await refused(lambda c: c.bind(queue, "cmm.atc.DE-FR"))
        await refused(lambda c: c.declare_queue("mine"))
        await refused(lambda c: c.declare_exchange("cmm.mine", "fanout"))
        await refused(lambda c: c.delete_queue(queue))
        channel = await own.connection.channel()
        assert await channel.get(f"cmm.responseQueue.{user}") is None


@pytest.mark.req("cmm-4.3-c")
@pytest.mark.req("cmm-3.1.4-c", component="rabbitmq-topology")
async def test_the_service_has_rights_on_its_own_names_only_and_unknown_users_none(site):
    connection = await site.node.client(SERVICE, site.virtual_host).connect()
    try:
        for attempt in (
            lambda c: c.declare_queue("other"),
            lambda c: c.declare_exchange("other", "fanout"),
        ):
            channel = await connection.channel()
            with pytest.raises(Refusal) as caught:
                await attempt(channel)
            assert caught.value.rule is Rule.AMQP091_DENIED
    finally:
        await connection.close()
    with pytest.raises(Refusal):
        await site.node.client("stranger", site.virtual_host).connect()


@pytest.mark.req("cmm-3.1.2.1-a", component="service")
async def test_bindings_follow_a_changed_grant(site):
    async with participant(site, "u10") as u10:
        await u10.login()
        await u10.subscribe()
        users = [
            user.model_copy(update={"borders": frozenset({"AT-CZ"})})
            if user.name == "u10"
            else user
            for user in site.configuration.users
        ]
        await site.running.reconfigure(
            site.configuration.model_copy(update={"users": tuple(users)})
        )
        sources = {row["source"] for row in await site.bindings("cmm.broadcastQueue.u10")}
        assert sources == {"cmm.heartbeat", "cmm.atc.AT-CZ"}
        await site.running.reconfigure(site.configuration)
        sources = {row["source"] for row in await site.bindings("cmm.broadcastQueue.u10")}
        assert sources == {"cmm.heartbeat", "cmm.atc.DE-DK"}


class Shifted:
    """A clock that can be set ahead."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self):
        return datetime.now(UTC) + self.ahead


@pytest.mark.req("cmm-5.4.2-b")
@pytest.mark.req("cmm-3.1.2-d")
@pytest.mark.req("cmm-3.2.5.3-c")
async def test_a_day_is_broadcast_when_it_opens_and_queues_expire(rabbit, tmp_path):
    clock = Shifted()
    borders = [{"name": "DE-DK", "interconnectors": [[EON, DK1]], "opening_days": 2}]
    users = [
        {
            "name": "u1",
            "roles": ["explicit-participant"],
            "balancing_groups": [GROUP],
            "borders": ["DE-DK"],
        }
    ]
    async with capacity_service(
        rabbit, tmp_path, clock=clock, borders=borders, users=users, queues={"expires": "10s"}
    ) as site:
        async with participant(site, "u1") as u1:
            await u1.login()
            await u1.subscribe()
            day = ZONE.day_of(datetime.now(UTC)) + timedelta(days=9)
            done = await site.publish(day=day)
            assert done["broadcasts"] == 0
            assert u1.of_kind(AtcDataNtf) == []
            # A moment before the opening, the service waits for it by itself.
            opening = ZONE.at(day - timedelta(days=2), time(15, 0))
            clock.ahead = opening - timedelta(seconds=1) - datetime.now(UTC)
            site.running.service.changed()
            await eventually(lambda: len(u1.of_kind(AtcDataNtf)) == 2, 60)
            assert [len(m.lists[0].items) for _, m in u1.of_kind(AtcDataNtf)] == [
                len(periods(day))
            ] * 2
            await asyncio.sleep(11)
            assert "cmm.broadcastQueue.u1" in await site.queues()
        async with asyncio.timeout(60):
            while any(name.endswith(".u1") for name in await site.queues()):
                await asyncio.sleep(0.2)
