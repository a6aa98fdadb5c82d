"""Requests and responses of the capacity service, over a real RabbitMQ (CMM 3.2, 5.2, 5.3)."""

from __future__ import annotations

import gzip
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio

from gridpost.core.refusal import Refusal
from gridpost.services.capacity import desk
from gridpost.services.capacity.counter import Question
from gridpost.services.capacity.rate import RequestRate
from gridpost.wire.cmm import (
    AllocationDataNtf,
    AllocationDataResp,
    AllocationResp,
    AtcDataResp,
    ErrorResp,
    LoginResp,
    decode,
)  # fmt: skip
from support.capacity_market import APG, CEPS, DK1, EON, GROUP, RTE, RWE, ZONE
from support.capacity_site import (
    BETA,
    DAY,
    DE_DK_1000,
    capacity_csv,
    capacity_service,
    participant,
    periods,
    read,
)  # fmt: skip
from support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(rabbit, tmp_path_factory):
    limits = {"items": 3, "requests": 1000, "message_bytes": 20_000}
    async with capacity_service(
        rabbit, tmp_path_factory.mktemp("requests"), limits=limits,
        balancing_groups=[{"eic": GROUP, "allocation_days": 2}, {"eic": BETA}],
        broadcasts={"heartbeat": "1s", "zipped_responses": ["AtcDataResp"]},
    ) as running:  # fmt: skip
        await running.publish(*DE_DK_1000)
        await running.publish((RWE, RTE, 900), (RTE, RWE, 900))
        await running.publish((APG, CEPS, 900), (CEPS, APG, 900), minutes=15)
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def people(site):
    async with AsyncExitStack() as stack:
        found = {}
        for name in ("u1", "u10", "u.1", "r1"):
            found[name] = await stack.enter_async_context(participant(site, name))
            assert await found[name].login() == LoginResp(True)
        yield found


def alc(quantity, number=12, client_id="c", group=""):
    period = periods()[number]
    return (
        f'<Alc clientId="{client_id}" bmCode="{group}" periodStart="{stamp(period.start)}" '
        f'periodEnd="{stamp(period.end)}" quantity="{quantity}"/>'
    )


def stamp(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def allocation(*items, kind="AON", areas=(EON, DK1)):
    out_area, in_area = areas
    body = "".join(items)
    return (
        f'<AllocationReq type="{kind}"><Allocations inArea="{in_area}" outArea="{out_area}">'
        f"{body}</Allocations></AllocationReq>"
    )


def atc(areas=(EON, DK1), at=None, element="InterConnector"):
    when = stamp(at or periods()[5].start)
    return (
        f'<AtcDataReq date="{when}"><{element} area1="{areas[0]}" area2="{areas[1]}"/></AtcDataReq>'
    )


def data(group=GROUP, areas=(EON, DK1), start=None, end=None, element="interConnector"):
    begin, finish = start or stamp(periods()[0].start), end or stamp(periods()[-1].end)
    return (
        f'<AllocationDataReq balancingGroup="{group}" from="{begin}" to="{finish}">'
        f'<{element} area1="{areas[0]}" area2="{areas[1]}"/></AllocationDataReq>'
    )


async def available(person, number=12, areas=(EON, DK1)):
    response = await person.ask(atc(areas))
    return [part.items[number].quantity for part in response.lists]


async def test_a_request_that_breaks_harms_none_of_those_that_came_with_it(site, monkeypatch):
    decide = desk.decide

    def breaking(book, kind, orders, party, now):
        if orders[0].client_id == "breaks":
            raise RuntimeError("our own bug")
        return decide(book, kind, orders, party, now)

    monkeypatch.setattr(desk, "decide", breaking)
    counter = site.running.service._window._counter
    questions = [
        Question("u1", decode(allocation(alc(1, 20, client_id=name)).encode()), f"with-{name}")
        for name in ("one", "breaks", "other")
    ]
    first, broken, last = (await counter.answer(questions))[0]
    assert isinstance(broken, ErrorResp)
    for response, name in ((first, "one"), (last, "other")):
        assert [(item.client_id, item.success) for item in response.items] == [(name, True)]
    # Each of them once, although they were tried twice.
    entries = await site.running.ledger.read(lambda reader: reader.latest(10))
    assert [e.client_id for e in entries if e.correlation_id.startswith("with-")] == [
        "other",
        "one",
    ]


@pytest.mark.req("cmm-2.3-d")
@pytest.mark.req("cmm-5.3.2-b")
@pytest.mark.req("cmm-5.3.2-c")
@pytest.mark.req("cmm-5.3.2-d")
@pytest.mark.req("cmm-3.2.1.1-a")
@pytest.mark.req("cmm-3.2.1.1.2-a")
@pytest.mark.req("cmm-5.3-b")
async def test_an_allocation_is_confirmed_and_lowers_what_is_available(site, people):
    u1 = people["u1"]
    before = await available(u1, 3)
    response = await u1.ask(allocation(alc(100, 3, "a1"), alc(50, 4, "a2")))
    assert isinstance(response, AllocationResp)
    assert [(i.client_id, i.success, i.message, i.confirmed) for i in response.items] == [
        ("a1", True, "Allocated", 100),
        ("a2", True, "Allocated", 50),
    ]
    assert len({item.allocation_id for item in response.items}) == 2
    entries = await site.running.ledger.read(lambda reader: reader.entries(0, 100_000))
    assert await available(u1, 3) == [before[0] - 100, before[1] + 100]
    # Inquiries are read-only.
    assert await site.running.ledger.read(lambda reader: reader.entries(0, 100_000)) == entries
    stored = [entry for entry in entries if entry.client_id == "a1"]
    assert [entry.quantity for entry in stored] == [100]


@pytest.mark.req("cmm-2.3-a")
@pytest.mark.req("cmm-2.3-e")
@pytest.mark.req("cmm-4.4.2-a")
@pytest.mark.req("cmm-5.3-c")
async def test_roles_decide_who_may_ask_what(people):
    refused = await people["r1"].ask(allocation(alc(1)))
    assert "explicit-participant" in refused.items[0].message
    assert not (await people["r1"].ask(atc())).success
    assert (await people["r1"].ask(data())).success
    assert (await people["u1"].ask(data())).success
    ungranted = await people["u10"].ask(allocation(alc(1), areas=(RWE, RTE)))
    assert not ungranted.items[0].success
    assert "no access" in ungranted.items[0].message
    assert "no access" in (await people["u10"].ask(atc((RWE, RTE)))).message


@pytest.mark.req("cmm-5.2-c")
@pytest.mark.req("cmm-2.3-b")
async def test_a_user_reaches_only_its_own_balancing_groups(people):
    forged = await people["u1"].ask(allocation(alc(1, group=BETA)))
    assert not forged.items[0].success
    assert BETA in forged.items[0].message
    foreign = await people["u1"].ask(data(group=BETA))
    assert isinstance(foreign, AllocationDataResp)
    assert not foreign.success
    assert foreign.lists == ()
    second = await people["u.1"].ask(allocation(alc(1, 20, group=BETA)))
    assert second.items[0].success


@pytest.mark.req("cmm-4.3-d")
@pytest.mark.req("cmm-3.2-b")
async def test_who_asks_is_known_by_the_exchange_alone(people):
    u1, u10 = people["u1"], people["u10"]
    name = await u1.send(allocation(alc(1, 21)), reply_to="cmm.responseQueue.u10", app_id="u10")
    response = read(await u1.response(name))
    assert response.items[0].success
    assert all(r.properties.correlation_id != name for r in u10.responses)
    # RabbitMQ itself refuses a user-id that is not the connection's, and closes the channel.
    with pytest.raises(Refusal):
        channel = await u1.connection.channel()
        lone = type(u1)(u1.connection, channel, "u1")
        await lone.send("<Login/>", user_id="u10")


@pytest.mark.req("cmm-3.2.2.2-a")
@pytest.mark.req("cmm-5.2.2-g")
async def test_a_repeated_correlation_id_gets_the_first_outcome(site, people):
    u1 = people["u1"]
    request = allocation(alc(10, 6, "first"), alc(10, 7, "second"))
    first = await u1.ask(request, "same-id")
    u1.responses.clear()
    repeated = await u1.ask(request, "same-id")
    assert [item.success for item in repeated.items] == [False, False]
    for item, before in zip(repeated.items, first.items, strict=True):
        assert item.client_id == before.client_id
        assert f"alclid={before.allocation_id} confQty={before.confirmed}" in item.message
    rows = await site.running.ledger.read(lambda reader: reader.entries(0, 100_000))
    assert len([row for row in rows if row.correlation_id == "same-id"]) == 2
    # Another user may use the same id.
    other = await people["u10"].ask(allocation(alc(1, 6)), "same-id")
    assert other.items[0].success
    nothing = await u1.ask(allocation(alc(10**9, 6)), "refused-id")
    u1.responses.clear()
    again = await u1.ask(allocation(alc(10**9, 6)), "refused-id")
    assert not nothing.items[0].success
    assert "first outcome: refused" in again.items[0].message
    unknown = await u1.ask(allocation(alc(1), areas=("10YUNKNOWN", DK1)))
    assert "10YUNKNOWN" in unknown.items[0].message


@pytest.mark.req("cmm-3.2.1.1.1-a")
@pytest.mark.req("cmm-3.2.1.1.1-b")
@pytest.mark.req("cmm-3.2.1.1.1-d")
@pytest.mark.req("cmm-3.2.1.1.1-f")
@pytest.mark.req("cmm-5.2.2-d", component="service")
async def test_items_of_a_request_are_limited_and_client_ids_may_repeat(site, people):
    u1 = people["u1"]
    three = await u1.ask(allocation(*(alc(1, n, "same") for n in (8, 9, 10))))
    assert [item.success for item in three.items] == [True] * 3
    assert len({item.allocation_id for item in three.items}) == 3
    before = await available(u1, 8)
    four = await u1.ask(allocation(*(alc(1, n) for n in (8, 9, 10, 11))))
    assert isinstance(four, ErrorResp)
    assert "3" in four.message
    assert await available(u1, 8) == before
    rows = await site.running.ledger.read(lambda reader: reader.entries(0, 100_000))
    assert len([row for row in rows if row.client_id == "same"]) == 3


@pytest.mark.req("cmm-5.3.5-a", component="service")
@pytest.mark.req("cmm-3.2.1.1.1-c", component="service")
@pytest.mark.req("cmm-5.2-a", component="service")
@pytest.mark.req("cmm-5.2.2-e", component="service")
@pytest.mark.req("cmm-5.3.5-b")
@pytest.mark.req("cmm-5.1.1-a")
@pytest.mark.req("cmm-3.2.2-j")
@pytest.mark.req("cmm-3.2.2-i")
@pytest.mark.req("cmm-5.2-b", component="service")
@pytest.mark.req("cmm-3.2.1.1.2-b", component="service")
@pytest.mark.req("cmm-3.2.2.2-b")
@pytest.mark.req("cmm-5.2.2-f", component="service")
@pytest.mark.parametrize(
    "wrong",
    [
        allocation(alc(1)).replace(' type="AON"', ""),
        allocation(alc(1)).replace(stamp(periods()[12].start), "2014-07-09 15:00"),
        allocation(alc(1)).replace(stamp(periods()[12].end), "tomorrow"),
        "not XML",
        "<AllocationReq/>",
        "<AtcDataRequest/>",
        "<Login/><Login/>",
        allocation(alc(1)).replace("clientId", "clientID"),
        allocation(alc(1)).replace("AON", "FOK"),
        atc().replace(' area2="', ' other="'),
        "<LoginResp success='true'/>",
        "<Login arguments='" + "x" * 30_000 + "'/>",
        "<!DOCTYPE a [<!ENTITY b 'c'>]><Login arguments='&b;'/>",
    ],
)
async def test_what_cannot_be_read_is_answered_with_an_error_and_harms_nobody(people, wrong):
    u1 = people["u1"]
    good = await u1.send(atc())
    bad = await u1.send(wrong, content_type="text/xml;v=9.9")
    response = await u1.response(bad)
    assert isinstance(read(response), ErrorResp)
    assert read(response).message
    assert response.properties.content_type == "text/xml;v=1.0"
    assert read(await u1.response(good)).success


@pytest.mark.req("cmm-5.2.2-a", component="service")
async def test_both_names_of_the_allocation_type_are_handled_alike(people):
    u1 = people["u1"]
    [before, _] = await available(u1, 20)
    for text in (
        allocation(alc(3, 20)),
        allocation(alc(3, 20)).replace(' type="', ' allocationType="'),
    ):
        response = await u1.ask(text)
        assert [(item.success, item.confirmed) for item in response.items] == [(True, 3)]
    assert (await available(u1, 20))[0] == before - 6
    neither = await u1.ask(allocation(alc(3, 20)).replace(' type="AON"', ""))
    assert isinstance(neither, ErrorResp)


@pytest.mark.req("cmm-5.1.3-b")
@pytest.mark.req("cmm-3.2.2-k")
@pytest.mark.req("cmm-5.1.3-a", component="service")
@pytest.mark.parametrize("content_type", ["text/xml;v=1.0", "text/foo", None])
async def test_an_unknown_content_type_is_read_as_version_1(people, content_type):
    name = await people["u1"].send(atc(), content_type=content_type)
    response = await people["u1"].response(name)
    assert read(response).success
    assert response.properties.content_type == "text/xml;v=1.0"


@pytest.mark.req("cmm-5.1.4-a", component="service")
@pytest.mark.req("cmm-5.1.4-b")
@pytest.mark.req("cmm-5.1.4-c", component="service")
async def test_requests_and_responses_may_be_compressed(people):
    u1 = people["u1"]
    zipped = gzip.compress(allocation(alc(1, 2)).encode())
    name = await u1.send(zipped, content_encoding="gzip")
    response = await u1.response(name)
    assert read(response).items[0].success
    assert response.properties.content_encoding is None
    answer = await u1.response(await u1.send(atc()))
    assert answer.properties.content_encoding == "gzip"
    assert answer.body[:2] == b"\x1f\x8b"
    wrong = await u1.ask(allocation(alc(1)), content_encoding="gzip")
    assert isinstance(wrong, ErrorResp)
    bomb = await u1.ask(gzip.compress(b" " * 10_000_000), content_encoding="gzip")
    assert "20000" in bomb.message


@pytest.mark.req("cmm-3.2.2-f", component="service")
@pytest.mark.req("cmm-3.2.2-f", component="rabbitmq-topology")
@pytest.mark.parametrize(
    "key", ["capacity.request", "cmm.request.management", "cmm.request.inquiry", ""]
)
async def test_any_routing_key_reaches_the_service(people, key):
    assert (await people["u1"].ask(atc(), key=key)).success


@pytest.mark.req("cmm-5.3.3-a")
@pytest.mark.req("cmm-5.3.3-b")
@pytest.mark.req("cmm-5.3.3-e")
@pytest.mark.req("cmm-5.3.3-d", component="service")
@pytest.mark.req("cmm-5.2.3-a", component="service")
@pytest.mark.req("cmm-5.2.3-b", component="service")
async def test_atc_of_a_day_runs_without_a_gap_through_the_whole_day(site, people):
    u1 = people["u1"]
    clock_change = next(
        day for day in (DAY + timedelta(days=n) for n in range(400)) if len(periods(day)) != 24
    )
    for day in (DAY, clock_change):
        last = capacity_csv((EON, DK1, 2_000_000), day=day, only=slice(-1, None))
        await site.act("publish", file=last)
        await site.act("publish", file=capacity_csv((DK1, EON, 5), day=day))
        response = await u1.ask(atc(at=periods(day)[7].start, element="interConnector"))
        assert response.success
        one, other = response.lists
        assert (one.out_area, one.in_area, one.border) == (EON, DK1, "DE-DK")
        assert (other.out_area, other.in_area) == (DK1, EON)
        assert one.date == ZONE.start_of(day)
        assert [i.period_start for i in one.items] == [p.start for p in periods(day)]
        assert one.items[-1].period_end == ZONE.end_of(day)
        assert one.items[-1].quantity == 2_000_000
    empty = await u1.ask(atc(at=ZONE.start_of(DAY + timedelta(days=600))))
    assert not empty.success
    assert "published" in empty.message
    await site.publish(*DE_DK_1000)


@pytest.mark.req("cmm-3.2.1.2-a")
@pytest.mark.req("cmm-3.2.1.2-b")
@pytest.mark.req("cmm-5.3.4-a")
@pytest.mark.req("cmm-5.3.4-b")
@pytest.mark.req("cmm-5.3.4-c")
@pytest.mark.req("cmm-5.3.4-d")
@pytest.mark.req("cmm-5.2.4-a", component="service")
@pytest.mark.req("cmm-5.2.4-b", component="service")
@pytest.mark.req("cmm-2.4-a", component="service")
async def test_allocation_data_lists_what_starts_in_the_interval_by_direction(people):
    u1 = people["u1"]
    there = await u1.ask(allocation(alc(7, 15, "there")))
    back = await u1.ask(allocation(alc(9, 16, "back"), areas=(DK1, EON)))
    inside = {"start": stamp(periods()[15].start), "end": stamp(periods()[17].start)}
    for element in ("interConnector", "InterConnector"):
        response = await people["r1"].ask(data(element=element, **inside))
        assert (response.success, response.message) == (True, "OK")
        lists = {(p.out_area, p.in_area): p for p in response.lists}
        assert set(lists) == {(EON, DK1), (DK1, EON)}
        [first] = lists[EON, DK1].items
        [second] = lists[DK1, EON].items
        assert (first.allocation_id, first.quantity) == (there.items[0].allocation_id, 7)
        assert (second.allocation_id, second.quantity) == (back.items[0].allocation_id, 9)
        assert first.activity_type == "ALLOCATION"
        assert abs(first.time - datetime.now(UTC)) < timedelta(minutes=5)
        assert lists[EON, DK1].balancing_group == GROUP
    offset = periods()[15].start.astimezone(ZONE.zone).isoformat(timespec="milliseconds")
    same = await people["r1"].ask(data(**{**inside, "start": offset}))
    assert same.lists == response.lists
    days = stamp(ZONE.start_of(DAY)), stamp(ZONE.start_of(DAY + timedelta(days=2)))
    assert (await u1.ask(data(start=days[0], end=days[1]))).success
    longer = await u1.ask(data(start=days[0], end=days[1].replace(":00.000Z", ":00.001Z")))
    assert not longer.success
    assert "2 days" in longer.message
    assert not (await u1.ask(data(start=days[1], end=days[0]))).success
    assert not (await u1.ask(data(areas=(EON, "10YNOWHERE")))).success


@pytest.mark.req("cmm-5.3-d")
@pytest.mark.req("cmm-5.4.3-b")
async def test_nothing_is_allocated_while_a_border_is_halted(site, people):
    r1 = people["r1"]
    await r1.subscribe()
    quarter = ZONE.periods(DAY, timedelta(minutes=15))[40]
    item = (
        f'<Alc clientId="12345" bmCode="" periodStart="{stamp(quarter.start)}" '
        f'periodEnd="{stamp(quarter.end)}" quantity="10"/>'
    )

    async def allocated():
        """The sequence id of the broadcast that tells of a new allocation."""
        response = await people["u1"].ask(allocation(item, areas=(APG, CEPS)))
        number = response.items[0].allocation_id

        def told():
            return [
                int(headers["X_Sequence_Id"])
                for headers, message in r1.of_kind(AllocationDataNtf)
                if message.lists[0].items[0].allocation_id == number
            ]

        await eventually(told, 60)
        return told()[0]

    before = await allocated()
    await site.act("halt", border="AT-CZ")
    response = await people["u1"].ask(allocation(item, areas=(APG, CEPS)))
    [refused] = response.items
    assert refused.message == "The service is in HALT."
    assert (refused.success, refused.allocation_id, refused.confirmed) == (False, None, None)
    await site.act("resume", border="AT-CZ")
    # Neither the change of status nor the refusal was broadcast to reporting users.
    assert await allocated() == before + 1


@pytest.mark.req("cmm-5.3.2-a")
@pytest.mark.req("cmm-5.2.2-c", component="service")
async def test_one_response_item_for_each_item_of_all_allocations(people):
    two = allocation(alc(1, 1, "a")).replace(
        "</AllocationReq>",
        f'<Allocations inArea="{EON}" outArea="{RTE}">{alc(1, 1, "b")}{alc(1, 2, "c")}'
        "</Allocations></AllocationReq>",
    )
    response = await people["u1"].ask(two)
    assert [(item.client_id, item.success) for item in response.items] == [
        ("a", True), ("b", True), ("c", True),
    ]  # fmt: skip


async def test_the_administration_publishes_documents_and_allocates_on_behalf(site, people):
    start, end = periods()[0].start, periods()[1].end
    document = f"""<Capacity_MarketDocument xmlns="urn:iec62325.351:tc57wg16:451-3:capacity:7:1">
      <TimeSeries><in_Domain.mRID codingScheme="A01">{DK1}</in_Domain.mRID>
      <out_Domain.mRID codingScheme="A01">{EON}</out_Domain.mRID>
      <measure_Unit.name>MAW</measure_Unit.name><Period><timeInterval>
      <start>{start:%Y-%m-%dT%H:%MZ}</start><end>{end:%Y-%m-%dT%H:%MZ}</end></timeInterval>
      <resolution>PT60M</resolution><Point><position>1</position><quantity>3.5</quantity></Point>
      </Period></TimeSeries></Capacity_MarketDocument>"""
    assert (await site.act("adjust", file=document))["offers"] == 2
    item = {
        "out_area": EON, "in_area": DK1, "period_start": start.isoformat(),
        "period_end": periods()[0].end.isoformat(), "quantity": 3000,
    }  # fmt: skip
    done = await site.act("allocate", balancing_group=BETA, items=[item])
    assert done["items"][0]["confirmed"] == 3000
    view = [
        row for row in site.running.administration.atc()
        if row["out_area"] == EON and row["period_start"] == start.isoformat()
        and row["in_area"] == DK1
    ]  # fmt: skip
    assert [(row["offered"], row["available"]) for row in view] == [(3500, 500)]
    for form in ({}, {"balancing_group": "nobody", "items": [item]}, {"balancing_group": BETA}):
        with pytest.raises(Refusal):
            await site.act("allocate", **form)
    for file in (
        "",
        "a,b\n1,2",
        f"out_area,in_area,period_start,quantity_kw\n{EON},{DK1},x,1",
        "<a/>",
    ):
        with pytest.raises(Refusal):
            await site.act("publish", file=file)


@pytest.mark.req("cmm-3.2-c")
@pytest.mark.req("cmm-3.2.1-a")
@pytest.mark.req("cmm-3.2.1-b", component="service")
@pytest.mark.req("cmm-3.2.1-c", component="service")
@pytest.mark.req("cmm-3.2.1-b", component="rabbitmq-topology")
@pytest.mark.req("cmm-3.2.1-c", component="rabbitmq-topology")
@pytest.mark.req("cmm-3.2.1-d")
@pytest.mark.req("cmm-5.3.1-a")
@pytest.mark.req("cmm-5.3.1-b")
@pytest.mark.req("cmm-5.2.1-b", component="service")
@pytest.mark.req("cmm-3.2.5.1-a")
@pytest.mark.req("cmm-3.2.5.1-b")
@pytest.mark.req("cmm-3.2.5.1-c")
async def test_login_comes_first_and_requests_are_rationed(rabbit, tmp_path, monkeypatch):
    limits, admits, ahead = {"requests": 6, "period": "10m"}, RequestRate.admits, 0.0
    monkeypatch.setattr(RequestRate, "admits", lambda rate, now: admits(rate, now + ahead))
    async with capacity_service(rabbit, tmp_path, limits=limits) as site:
        await site.publish()
        async with participant(site, "u1") as u1, participant(site, "u10") as u10:
            early = await u1.send(allocation(alc(1)))
            await u1.listen()
            refused = read(await u1.response(early))
            assert not refused.items[0].success
            assert "Login" in refused.items[0].message
            wrong = await u1.ask('<Login arguments="Colour:red"/>')
            assert wrong == LoginResp(False, wrong.message)
            assert "cmm.broadcastQueue.u1" not in await site.queues()
            assert await u1.ask("<Login/>") == LoginResp(True)
            queues = await site.queues()
            assert {"cmm.broadcastQueue.u1", "cmm.responseQueue.u1"} <= set(queues)
            assert await site.bindings("cmm.broadcastQueue.u1")
            assert await u10.login() == LoginResp(True)
            for _ in range(3):
                assert isinstance(await u1.ask(atc()), AtcDataResp)
            flood = [await u1.send(allocation(alc(1, 5))) for _ in range(5)]
            answers = [read(await u1.response(name)) for name in flood]
            backed = [a for a in answers if isinstance(a, ErrorResp)]
            assert len(backed) == 5
            assert "600 seconds" in backed[0].message
            assert "6 requests" in backed[0].message
            assert (await u10.ask(atc())).success
            ahead = 601.0
            response = await u1.ask(atc())
            assert response.success
            assert response.lists[0].items[5].quantity == 1000
