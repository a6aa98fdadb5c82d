"""Sessions of the capacity service over a real RabbitMQ: what ends one, and bindings that follow grants."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from gridpost.wire.cmm import AtcDataNtf, AtcDataResp, LoginResp
from support.capacity_market import DK1, EON, GROUP
from support.capacity_site import (
    BETA,
    USERS,
    capacity_service,
    participant,
    periods,
    read,
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


@pytest.mark.req("cmm-3.2.1-a")
async def test_whoever_let_its_queues_expire_logs_in_again(rabbit, tmp_path):
    async with capacity_service(rabbit, tmp_path, queues={"expires": "2s"}) as site:
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


@pytest.mark.req("cmm-3.1.2.1-a", component="service")
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


@pytest.mark.req("cmm-3.1.2.1-a", component="service")
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
