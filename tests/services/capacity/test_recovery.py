"""What a client missed: one gap is one recovery, whole, and never a storm of requests (CMM 3.1.1.3.1)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio

from gridpost.assembly import capacity_users
from gridpost.capacity import (
    AllocationsChanged,
    AllocationsRecovered,
    AsyncCapacityClient,
    ClientSettings,
    LoggedIn,
    Wanted,
    read_client_settings,
)  # fmt: skip
from gridpost.capacity.recovery import Recovery
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.cmm import AllocationDataNtf, AllocationDataReq, AllocationDataResp, ErrorResp
from support.capacity_market import APG, CEPS, DK1, EON, GROUP, ZONE
from support.capacity_site import BETA, DAY, PASSPHRASE, capacity_service, periods, wanted
from support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(rabbit, tmp_path_factory):
    groups = [{"eic": GROUP, "allocation_days": 1}, {"eic": BETA}]
    async with capacity_service(
        rabbit, tmp_path_factory.mktemp("recovery"), balancing_groups=groups
    ) as running:
        await running.publish((EON, DK1, 100_000), (DK1, EON, 100_000))
        await running.publish((APG, CEPS, 900), (CEPS, APG, 900), minutes=15)
        yield running


def account(site, folder, **changes) -> ClientSettings:
    """The reporting user with the package that an operator makes for it."""
    capacity_users.make_package(site.configuration, "r1", folder, PASSPHRASE, datetime.now(UTC))
    days = (DAY - ZONE.day_of(datetime.now(UTC))).days
    settings = read_client_settings(folder / "client.toml", PASSPHRASE)
    return replace(settings, recovery_days=(days - 1, days + 2), **changes)


async def next_of(client, kind):
    async with asyncio.timeout(60):
        async for event in client.events():
            if isinstance(event, kind):
                return event
    raise AssertionError(kind)


@pytest.mark.req("cmm-3.1.1.3.1-i")
async def test_a_gap_is_filled_also_where_no_broadcast_was_heard_and_days_are_limited(
    site, tmp_path
):
    """The service answers for one delivery day at once; the client asks for three."""
    async with AsyncCapacityClient(account(site, tmp_path)) as reporter, site.client() as trader:
        await trader.allocate([wanted(1, 8)])
        await next_of(reporter, AllocationsChanged)
        # A broadcast that the broker does not deliver, on another border.
        channel = await site.running.service.connection.channel()
        binding = ("cmm.broadcastQueue.r1", f"cmm.allocation.{GROUP}", "", {"x-match": "all"})
        await channel.unbind(*binding)
        quarter = periods(minutes=15)[40]
        missed = await trader.allocate([Wanted(APG, CEPS, quarter.start, quarter.end, 7)])
        await site.running.service.post.settled()
        await channel.bind(*binding)
        await channel.close()
        await trader.allocate([wanted(2, 9)])
        recovered = await next_of(reporter, AllocationsRecovered)
        assert recovered.group == GROUP
        assert [(item.allocation_id, item.quantity) for item in recovered.allocations] == [
            (missed.items[0].allocation_id, 7)
        ]
        await eventually(lambda: reporter._recovery.idle)
        assert reporter.recoveries == 1


async def test_a_lost_connection_is_one_gap_also_when_nothing_was_heard_before(site, tmp_path):
    async with AsyncCapacityClient(account(site, tmp_path)) as reporter, site.client() as trader:
        before = await trader.allocate([wanted(3, 10)])
        await next_of(reporter, AllocationsChanged)
        await reporter._keeper.connection.close()
        # The service numbers a broadcast that never reaches anybody.
        await site.running.ledger.run(lambda unit: unit.next_sequence_id(GROUP))
        assert (await next_of(reporter, LoggedIn)).again
        first = await next_of(reporter, AllocationsRecovered)
        told = {item.allocation_id for part in first.lists for item in part.items}
        assert before.items[0].allocation_id in told
        # The number that comes next is not the one after the last: that gap is filled already.
        await trader.allocate([wanted(4, 11)])
        await next_of(reporter, AllocationsChanged)
        await eventually(lambda: reporter._recovery.idle)
        assert reporter.recoveries == 1
    async with AsyncCapacityClient(account(site, tmp_path)) as deaf:
        await deaf._keeper.connection.close()
        assert (await next_of(deaf, AllocationsRecovered)).group == GROUP


class Service:
    """Answers what it is told to, and keeps what it was asked."""

    def __init__(self, answer) -> None:
        self.answer = answer
        self.asked: list[AllocationDataReq] = []
        self.slept: list[float] = []
        self.told: list[AllocationsRecovered] = []

    async def ask(self, request):
        self.asked.append(request)
        return self.answer(len(self.asked), request)

    async def sleep(self, seconds):
        self.slept.append(seconds)
        await asyncio.sleep(0)

    def recovery(self, **changes) -> Recovery:
        values = {"interconnectors": ((EON, DK1),), "zone": "Europe/Berlin", **changes}
        settings = ClientSettings("r1", (), lambda: None, **values)
        return Recovery(settings, self.ask, self.told.append, asyncio.create_task, self.sleep)


def heard(recovery, *numbers, group=GROUP):
    for number in numbers:
        recovery.follow({"X_BG": group, "X_Sequence_Id": str(number)}, AllocationDataNtf(()))


def back_off(_):
    return ErrorResp("Back off: more than 6 requests in 60 seconds.")


async def test_what_is_refused_is_asked_again_later_and_later():
    def answer(number, request):
        if number == 3:
            raise Refusal(Rule.UNREACHABLE, "there is no connection to the broker now")
        return back_off(request) if number < 9 else AllocationDataResp(True, "OK")

    service = Service(answer)
    recovery = service.recovery()
    heard(recovery, 4, 6, 8)
    await eventually(lambda: recovery.idle)
    # Two gaps before the first question are one recovery; each attempt is one request.
    assert len(service.asked) == 9
    assert recovery.done == len(service.told) == 1
    waits = [seconds for seconds in service.slept if seconds > 1]
    assert waits == [2, 4, 8, 16, 32, 60, 60, 60]


async def test_a_service_that_starts_anew_at_0_is_a_gap_and_the_next_number_is_none():
    service = Service(lambda *_: AllocationDataResp(True, "OK"))
    recovery = service.recovery()
    heard(recovery, 0, 1, 2)
    assert recovery.idle
    heard(recovery, 0, 1)
    await eventually(lambda: recovery.idle)
    assert recovery.done == 1
    heard(recovery, 0, 1, group=BETA)
    assert recovery.idle


async def test_a_recovery_asks_for_whole_delivery_days_in_parts_that_are_answered():
    def answer(number, request):
        days = (request.end - request.start) / timedelta(days=1)
        return AllocationDataResp(days < 2, "at most one delivery day")

    service = Service(answer)
    recovery = service.recovery(recovery_days=(0, 4))
    heard(recovery, 0, 2)
    await eventually(lambda: recovery.idle)
    assert recovery.done == 1
    answered = [asked for asked in service.asked if asked.end - asked.start < timedelta(days=2)]
    assert [ZONE.day_of(asked.start) for asked in answered] == sorted(
        ZONE.day_of(service.asked[0].start) + timedelta(days=number) for number in range(4)
    )
    for asked in service.asked:
        assert asked.start == ZONE.start_of(ZONE.day_of(asked.start))
        assert asked.end == ZONE.start_of(ZONE.day_of(asked.end))


async def test_with_a_filter_a_missing_number_proves_no_loss():
    service = Service(lambda *_: AllocationDataResp(True, "OK"))
    recovery = service.recovery(arguments="X_Event:ON_BEHALF", balancing_groups=(GROUP,))
    heard(recovery, 0, 5)
    recovery.logged_in_again()
    assert recovery.idle
    assert service.asked == []
