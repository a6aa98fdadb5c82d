"""Sessions of the capacity service over a real RabbitMQ: what ends one, and bindings that follow grants."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from gridpost.capacity import AsyncCapacityClient, LoggedIn
from gridpost.core.journal import SessionEvent, SessionRow
from gridpost.services.capacity import topology
from gridpost.services.capacity.post import Post
from gridpost.wire.cmm import AtcDataNtf, AtcDataResp, ErrorResp, LoginResp
from support.capacity_market import APG, CEPS, DK1, EON, GROUP
from support.capacity_site import (
    BETA,
    DAY,
    USERS,
    capacity_service,
    participant,
    periods,
    read,
    wanted,
)  # fmt: skip
from support.waiting import eventually

pytestmark = pytest.mark.asyncio

QUESTION = (
    f'<AtcDataReq date="{periods()[0].start:%Y-%m-%dT%H:%M:%S}.000Z">'
    f'<InterConnector area1="{EON}" area2="{DK1}"/></AtcDataReq>'
)


def granting(**changes):
    """The users of the site with other grants; None: the user has left."""
    return [
        {**user, **changes.get(user["name"], {})}
        for user in USERS
        if changes.get(user["name"], {}) is not None
    ]


async def sources(site, user):
    return {row["source"] for row in await site.bindings(f"cmm.broadcastQueue.{user}")}


async def gone(site, *queues):
    async with asyncio.timeout(60):
        while {*queues} & set(await site.queues()):
            await asyncio.sleep(0.1)


@pytest.mark.req("cmm-3.2-c")
async def test_whoever_let_its_queues_expire_logs_in_again(rabbit, tmp_path):
    async with capacity_service(rabbit, tmp_path, queues={"expires": "6s"}) as site:
        await site.publish()
        async with participant(site, "u1") as u1:
            assert await u1.login() == LoginResp(True)
            assert (await u1.ask(QUESTION)).success
        await gone(site, "cmm.responseQueue.u1", "cmm.broadcastQueue.u1")
        async with participant(site, "u1") as u1:
            first = await u1.send(QUESTION)
            await u1.listen()
            # The answer has a queue again, and that alone is no session.
            for response in (read(await u1.response(first)), await u1.ask(QUESTION)):
                assert isinstance(response, AtcDataResp)
                assert not response.success
                assert "Login" in response.message
            assert site.running.service.logged_in() == frozenset()
            assert await u1.ask("<Login/>") == LoginResp(True)
            assert (await u1.ask(QUESTION)).success


async def test_a_refused_login_after_the_end_of_a_session_makes_none_also_after_a_restart(
    rabbit, tmp_path
):
    host, queues = rabbit.virtual_host(), {"expires": "6s"}
    async with AsyncExitStack() as stack:
        async with capacity_service(rabbit, tmp_path, host, queues=queues) as site:
            await site.publish()
            async with participant(site, "u1") as u1:
                assert await u1.login() == LoginResp(True)
            await gone(site, "cmm.responseQueue.u1", "cmm.broadcastQueue.u1")
            u1 = await stack.enter_async_context(participant(site, "u1"))
            refused = await u1.login("X_Border")
            assert isinstance(refused, LoginResp)
            assert not refused.success
            assert not (await u1.ask(QUESTION)).success
            assert site.running.service.logged_in() == frozenset()
        # The consumer of the client keeps the queue of its refusal alive.
        async with capacity_service(rabbit, tmp_path, host, queues=queues) as site:
            assert site.running.service.logged_in() == frozenset()
            answer = await u1.ask(QUESTION)
            assert not answer.success
            assert "Login" in answer.message
            assert await u1.ask("<Login/>") == LoginResp(True)
            assert (await u1.ask(QUESTION)).success
        async with capacity_service(rabbit, tmp_path, host, queues=queues) as site:
            assert site.running.service.logged_in() == {"u1"}
            assert (await u1.ask(QUESTION)).success


async def test_bindings_follow_a_changed_grant_though_another_user_is_away(rabbit, tmp_path):
    async with capacity_service(rabbit, tmp_path) as site, participant(site, "u1") as u1:
        async with participant(site, "u10") as u10:
            await u10.login()
        await u1.login()
        for queue in ("cmm.responseQueue.u10", "cmm.broadcastQueue.u10"):
            path = f"queues/{site.virtual_host}/{queue}"
            assert (await asyncio.to_thread(rabbit.api, "DELETE", path)).is_success
        users = granting(u1={"borders": ["AT-CZ"]}, u10={"borders": ["DE-DK", "AT-CZ"]})
        await site.running.reconfigure(
            rabbit.configuration(tmp_path, site.virtual_host, users=users)
        )
        assert await sources(site, "u1") == {"cmm.heartbeat", "cmm.atc.AT-CZ"}
        assert site.running.service.logged_in() == {"u1"}


async def test_the_journal_says_who_was_logged_in_with_which_filter_and_for_whose_broadcasts(
    rabbit, tmp_path
):
    async with capacity_service(rabbit, tmp_path) as site, participant(site, "u.1") as person:
        await person.login()
        fewer = {"u.1": {"balancing_groups": [GROUP]}}
        for users in (granting(**fewer), granting(**{"u.1": None})):
            await site.running.reconfigure(
                rabbit.configuration(tmp_path, site.virtual_host, users=users)
            )
        async with participant(site, "u1") as u1:
            await u1.login("X_Event:PUBLISH")
        recorded = await site.running.ledger.read(lambda reader: reader.journal.read(0, 10_000))
        rows = [each.row for each in recorded if isinstance(each.row, SessionRow)]
        assert [
            (row.user, row.event, row.balancing_groups, row.arguments, row.filtered, row.run)
            for row in rows
        ] == [
            ("u.1", SessionEvent.LOGIN, f"{GROUP} {BETA}", "", False, 1),
            ("u.1", SessionEvent.BINDINGS, GROUP, "", False, 1),
            ("u.1", SessionEvent.ENDED, "", "", False, 1),
            # An explicit participant is told of no allocations.
            ("u1", SessionEvent.LOGIN, "", "X_Event:PUBLISH", True, 1),
        ]


async def test_grants_that_changed_while_the_service_was_away_count_from_its_start(
    rabbit, tmp_path
):
    host = rabbit.virtual_host()
    async with AsyncExitStack() as stack:
        people = {}
        async with capacity_service(rabbit, tmp_path, host) as site:
            await site.publish()
            for user, arguments in (("u10", None), ("u.1", "X_Event:PUBLISH"), ("r1", None)):
                person = await stack.enter_async_context(participant(site, user))
                assert await person.login(arguments) == LoginResp(True)
                await person.subscribe()
                people[user] = person
            assert await sources(site, "u.1") == {
                "cmm.heartbeat", "cmm.atc.DE-DK", "cmm.atc.AT-CZ",
                f"cmm.allocation.{GROUP}", f"cmm.allocation.{BETA}",
            }  # fmt: skip
            people["u.1"].broadcasts.clear()
        users = granting(
            u10={"borders": ["DE-FR"]}, r1=None, **{"u.1": {"balancing_groups": [GROUP]}}
        )
        async with capacity_service(rabbit, tmp_path, host, users=users) as site:
            assert await sources(site, "u10") == {"cmm.heartbeat", "cmm.atc.DE-FR"}
            assert await sources(site, "u.1") == {
                "cmm.heartbeat", "cmm.atc.DE-DK", "cmm.atc.AT-CZ", f"cmm.allocation.{GROUP}",
            }  # fmt: skip
            await gone(site, "cmm.responseQueue.r1", "cmm.broadcastQueue.r1")
            assert site.running.service.logged_in() == {"u10", "u.1"}
            # The start says everything, to those who may hear it now: a heartbeat comes behind it.
            await eventually(lambda: people["u.1"].of_kind(AtcDataNtf), 60)
            beats = len(people["u10"].broadcasts)
            await eventually(lambda: len(people["u10"].broadcasts) > beats + 1, 60)
            assert people["u10"].of_kind(AtcDataNtf) == []


async def test_a_start_broadcasts_every_open_day_before_it_takes_requests(
    rabbit, tmp_path, monkeypatch
):
    host = rabbit.virtual_host()
    async with capacity_service(rabbit, tmp_path, host) as site:
        await site.publish()
        await site.publish((APG, CEPS, 900), (CEPS, APG, 900), minutes=15)
    order = []
    publish, listen = Post._publish, topology.declare_requests

    async def published(post, notices):
        await publish(post, notices)
        order.extend((notice.border, notice.day, len(notice.values)) for notice in notices)

    async def listening(*arguments):
        order.append("requests")
        await listen(*arguments)

    monkeypatch.setattr(Post, "_publish", published)
    monkeypatch.setattr(topology, "declare_requests", listening)
    async with capacity_service(rabbit, tmp_path, host):
        pass
    quarters = len(periods(minutes=15))
    assert order == [
        *[("DE-DK", DAY, len(periods()))] * 2, *[("AT-CZ", DAY, quarters)] * 2, "requests",
    ]  # fmt: skip


async def test_broadcasts_that_are_due_while_the_broker_is_away_are_counted_as_lost(
    rabbit, tmp_path
):
    async with capacity_service(rabbit, tmp_path) as site:
        service = site.running.service
        figure = service.metrics.registry.get_sample_value
        broadcasts, service.post._broadcasts = service.post._broadcasts, None
        await site.publish()
        await service.post.settled()
        kind = {"kind": "AtcNotice"}
        assert figure("gridpost_capacity_broadcasts_lost_total", kind) == 2
        assert not figure("gridpost_capacity_broadcasts_total", kind)
        service.post._broadcasts = broadcasts
        await site.publish()
        await service.post.settled()
        assert figure("gridpost_capacity_broadcasts_total", kind) == 2
        assert figure("gridpost_capacity_broadcasts_lost_total", kind) == 2


async def test_limits_and_users_count_at_once_also_when_settings_of_queues_change(rabbit, tmp_path):
    limits = {"message_bytes": 1000}
    async with capacity_service(rabbit, tmp_path, limits=limits) as site:
        await site.publish()
        async with participant(site, "u1") as u1, participant(site, "u10") as u10:
            await u1.login()
            await u10.login()
            padded = QUESTION + " " * 2000
            assert isinstance(await u1.ask(padded), ErrorResp)
            changed = rabbit.configuration(
                tmp_path, site.virtual_host, limits={"message_bytes": 5000},
                queues={"request_ttl": "11s", "message_ttl": "61s"},
                users=granting(u10={"borders": ["AT-CZ"]}),
            )  # fmt: skip
            await site.running.reconfigure(changed)
            assert (await u1.ask(padded)).success
            assert await sources(site, "u10") == {"cmm.heartbeat", "cmm.atc.AT-CZ"}


async def test_a_client_logs_in_again_after_the_settings_of_its_queue_have_changed(
    rabbit, tmp_path
):
    host = rabbit.virtual_host()
    async with capacity_service(rabbit, tmp_path, host) as site:
        await site.publish()
        client = AsyncCapacityClient(site.settings("u1"))
        await client.open()
    try:
        async with capacity_service(rabbit, tmp_path, host, queues={"expires": "40s"}) as site:
            client._events.clear()
            # Its queue is not out of use for long enough to expire.
            await client._keeper.connection.close()
            await eventually(
                lambda: any(isinstance(event, LoggedIn) for event in client._events), 60
            )
            await eventually(lambda: client.connected, 60)
            assert (await client.allocate([wanted(1)])).confirmed == 1
    finally:
        await client.close()
