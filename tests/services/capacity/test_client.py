"""The client of the capacity service, over a real RabbitMQ: what it sends, notices and recovers."""

from __future__ import annotations

import asyncio
import ssl
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio

from gridpost.capacity import (
    AllocationsChanged,
    AllocationsRecovered,
    AllocationType,
    AsyncCapacityClient,
    AtcChanged,
    CapacityClient,
    Heartbeat,
    LoggedIn,
    ServiceDown,
    read_client_settings,
)  # fmt: skip
from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.package_tls import package_context
from support.capacity_market import DK1, EON, GROUP
from support.capacity_site import (
    DAY,
    PASSPHRASE,
    capacity_csv,
    capacity_service,
    participant,
    periods,
    wanted,
)  # fmt: skip
from support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(rabbit, tmp_path_factory):
    async with capacity_service(rabbit, tmp_path_factory.mktemp("client")) as running:
        await running.publish((EON, DK1, 100_000), (DK1, EON, 100_000))
        yield running


async def next_of(client, kind, seconds=60):
    async with asyncio.timeout(seconds):
        async for event in client.events():
            if isinstance(event, kind):
                return event
    raise AssertionError(kind)


@pytest.mark.req("cmm-3.2.2-b")
@pytest.mark.req("cmm-3.2.3-a")
@pytest.mark.req("cmm-3.2.3-e")
@pytest.mark.req("cmm-3.2.1.1.1-c", component="client")
@pytest.mark.req("cmm-3.2.1.1.1-e")
@pytest.mark.req("cmm-5.2.2-d", component="client")
@pytest.mark.req("cmm-3.1.1.1-d")
@pytest.mark.req("cmm-5.3.3-d", component="client")
async def test_many_requests_at_once_each_get_their_own_answer(site):
    async with site.client(zipped=True) as client:
        results = await asyncio.gather(*(client.allocate([wanted(n + 1)]) for n in range(30)))
        assert [result.confirmed for result in results] == list(range(1, 31))
        assert len({result.correlation_id for result in results}) == 30
        ids = [item.client_id for result in results for item in result.items]
        assert len(set(ids)) == 30
        lists = await client.atc(periods()[0].start, EON, DK1)
        assert lists[0].items[12].quantity < 100_000
        beat = await next_of(client, Heartbeat)
        assert client.latency is not None
        assert client.service_alive
        assert beat.period == timedelta(seconds=1)
        with pytest.raises(Refusal) as refused:
            await client.atc(periods()[0].start, EON, "10YNOWHERE")
        assert refused.value.rule is Rule.REQUEST_REFUSED
        several = await client.allocate(
            [wanted(5, 1), wanted(9, 2), wanted(7, 1, (DK1, EON))], AllocationType.ACE
        )
        assert [item.confirmed for item in several.items] == [5, 5, 5]
        with pytest.raises(Refusal):
            await client.allocate([wanted(0)])


@pytest.mark.req("cmm-2.2-g")
async def test_threads_share_one_blocking_client(site):
    def work():
        with CapacityClient(site.settings("u1")) as client:
            with ThreadPoolExecutor(4) as pool:
                results = list(pool.map(lambda n: client.allocate([wanted(n + 1, 5)]), range(8)))
            lists = client.allocations(GROUP, periods()[0].start, periods()[-1].end, EON, DK1)
            first = next(iter(client.events(timedelta(seconds=30))))
            return [r.confirmed for r in results], len(lists[0].items), first

    confirmed, known, first = await asyncio.to_thread(work)
    assert confirmed == list(range(1, 9))
    assert known >= 8
    assert first == LoggedIn(again=False)


@pytest.mark.req("cmm-3.1.1.3.1-i")
async def test_a_gap_in_the_sequence_is_recovered_once(site):
    days = (DAY - datetime.now(UTC).date()).days
    async with site.client(
        "r1", recovery_days=(days - 1, days + 2), interconnectors=((EON, DK1),)
    ) as reporter, site.client() as trader:  # fmt: skip
        await trader.allocate([wanted(1, 8)])
        await next_of(reporter, AllocationsChanged)
        await trader.allocate([wanted(1, 8)])
        await next_of(reporter, AllocationsChanged)
        assert reporter.recoveries == 0
        # The service numbers one broadcast that never reaches anybody.
        ledger = site.running.ledger
        await ledger.run(lambda unit: unit.next_sequence_id(GROUP))
        missed = await trader.allocate([wanted(2, 9)])
        recovered = await next_of(reporter, AllocationsRecovered)
        assert reporter.recoveries == 1
        assert recovered.group == GROUP
        told = {item.allocation_id for part in recovered.lists for item in part.items}
        assert missed.items[0].allocation_id in told
        # What a broadcast had told is not told again.
        assert missed.items[0].allocation_id not in {i.allocation_id for i in recovered.allocations}
        await trader.allocate([wanted(1, 8)])
        await next_of(reporter, AllocationsChanged)
        await asyncio.sleep(1.5)
        assert reporter.recoveries == 1


@pytest.mark.req("cmm-3.2.3-c")
@pytest.mark.req("cmm-3.2.4-c")
async def test_after_a_timeout_the_outcome_is_unknown_and_can_be_asked_for(site):
    async with site.client() as client:
        service = site.running.service
        respond = service.post.respond

        async def swallow(*_):
            return True

        client._session._settings = replace(client.settings, response_timeout=timedelta(seconds=1))
        service.post.respond = swallow
        try:
            result = await client.allocate([wanted(11, 17)])
        finally:
            service.post.respond = respond
        assert not result.known
        assert result.items == ()
        client._session._settings = client.settings
        first = await client.resolve(result)
        assert first.known
        assert first.repeated
        assert first.confirmed == 11
        found = await client.allocations(GROUP, periods()[17].start, periods()[17].end, EON, DK1)
        assert [item.quantity for part in found for item in part.items] == [11]


@pytest.mark.req("cmm-3.1.2-b", component="client")
@pytest.mark.req("cmm-3.1.4-b")
@pytest.mark.req("cmm-3.1.4-a")
@pytest.mark.req("cmm-3.1.2-c")
@pytest.mark.req("cmm-3.2.5.4-a")
async def test_a_slow_application_does_not_hold_the_queue_up(site):
    async with site.client(separate_connections=True) as client:
        for number in range(40):
            text = capacity_csv((EON, DK1, 100_001 + number), only=slice(0, 1))
            await site.act("adjust", file=text)
        await site.running.service.post.settled()
        # Nothing was taken from the client yet, and yet the queue is empty.
        await eventually(lambda: sum(isinstance(e, AtcChanged) for e in client._events) >= 40, 60)
        counts = (await site.queues())["cmm.broadcastQueue.u1"]
        assert counts.get("messages_unacknowledged", 0) == 0
        values = []
        async for event in client.events():
            if isinstance(event, AtcChanged):
                values.append(event.lists[0].items[0].quantity)
                await asyncio.sleep(0)
            if len(values) == 40:
                break
        assert values == sorted(values)
        await client.unsubscribe()
        await asyncio.sleep(1.5)
        client._events.clear()
        await asyncio.sleep(1.5)
        assert not [e for e in client._events if isinstance(e, Heartbeat | ServiceDown)]


@pytest.mark.req("cmm-4.2-d")
@pytest.mark.req("cmm-4.2-a")
@pytest.mark.req("cmm-4.2-e")
@pytest.mark.req("cmm-2.2-b")
@pytest.mark.req("cmm-2-b")
@pytest.mark.req("cmm-4.1-b")
async def test_an_account_package_is_all_a_client_needs(site, caplog):
    folder = site.node.package("u1")
    account = folder / "client.toml"
    text = account.read_text().replace(
        'virtual_host = "any"', f'virtual_host = "{site.virtual_host}"'
    )
    account.write_text(text)
    assert {file.name for file in folder.iterdir()} == {
        "client.toml", "u1.p12", "cacert.pem", "cmm-explicit.xsd",
    }  # fmt: skip
    settings = read_client_settings(account, PASSPHRASE)
    async with AsyncCapacityClient(settings) as client:
        assert (await client.allocate([wanted(1, 3)])).known
    for wrong in ("wrong", ""):
        with pytest.raises(Refusal) as refused:
            async with AsyncCapacityClient(read_client_settings(account, wrong)):
                pass
        assert PASSPHRASE not in str(refused.value)
    assert PASSPHRASE not in repr(settings)
    assert PASSPHRASE not in caplog.text
    account.write_text(text.replace("cacert.pem", "missing.pem"))
    with pytest.raises(Refusal):
        async with AsyncCapacityClient(read_client_settings(account, PASSPHRASE)):
            pass
    account.write_text(text.replace("u1.p12", "missing.p12"))
    with pytest.raises(Refusal):
        async with AsyncCapacityClient(read_client_settings(account, PASSPHRASE)):
            pass
    account.write_text(text)


@pytest.mark.req("cmm-2.2-a")
async def test_a_wrong_virtual_host_is_reported(site):
    with pytest.raises(Refusal):
        async with AsyncCapacityClient(replace(site.settings("u1"), virtual_host="elsewhere")):
            pass


@pytest.mark.req("cmm-4.3-a", component="client")
@pytest.mark.req("cmm-4.3-a", component="rabbitmq-topology")
@pytest.mark.req("cmm-4.1-a", component="client")
@pytest.mark.req("cmm-4.1-a", component="rabbitmq-topology")
@pytest.mark.req("cmm-4-a", component="rabbitmq-topology")
@pytest.mark.req("cmm-4-a", component="client")
@pytest.mark.req("cmm-4.2-b", component="rabbitmq-topology")
async def test_certificates_that_nobody_vouches_for_open_no_connection(site, tmp_path):
    from support.rabbitmq import write_certificate

    own = site.settings("u1")
    foreign = write_certificate(tmp_path, "u1")

    def of_another_ca():
        context = ssl.create_default_context(cafile=str(site.node.roots))
        context.load_cert_chain(foreign / "chain.pem", foreign / "key.pem")
        return context

    def none():
        return ssl.create_default_context(cafile=str(site.node.roots))

    def untrusting():
        package = site.node.package("u1") / "u1.p12"
        return package_context(foreign / "root.pem", package, PASSPHRASE)

    def old():
        context = site.node.context("u1")
        context.set_ciphers("DEFAULT@SECLEVEL=0")
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
        return context

    import warnings

    for tls in (of_another_ca, none, untrusting, old):
        with warnings.catch_warnings(), pytest.raises(Refusal):
            warnings.simplefilter("ignore", DeprecationWarning)
            async with AsyncCapacityClient(replace(own, tls=tls)):
                pass
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):

        def only(version=version):
            context = site.node.context("u1")
            context.minimum_version = context.maximum_version = version
            return context

        async with AsyncCapacityClient(replace(own, tls=only)) as client:
            assert client.connected


@pytest.mark.req("cmm-3.2.2.2-c")
@pytest.mark.req("cmm-3.2.2.2-d", component="client")
@pytest.mark.req("cmm-3.2.2.2-d", component="rabbitmq-topology")
@pytest.mark.req("cmm-3.2.2-a")
@pytest.mark.req("cmm-3.1.1.1-c")
@pytest.mark.req("cmm-3.1.3-c", component="service")
@pytest.mark.req("cmm-3.1.3-c", component="rabbitmq-topology")
@pytest.mark.req("cmm-3.1.1.3.1-h")
@pytest.mark.req("cmm-5.2.2-i")
@pytest.mark.req("cmm-3.2.5.3-c")
async def test_a_service_that_comes_back_goes_on_where_it_was(rabbit, tmp_path):
    host = rabbit.virtual_host()
    async with capacity_service(rabbit, tmp_path, host) as site:
        await site.publish()
        trader = AsyncCapacityClient(site.settings("u1", missed_heartbeats=2))
        reporter = AsyncCapacityClient(site.settings("r1"))
        # Its service dies before a single heartbeat has reached it.
        deaf = AsyncCapacityClient(
            site.settings("u.1", heartbeat_period=timedelta(seconds=5), missed_heartbeats=2)
        )
        deaf._beat = lambda *_: None
        await deaf.open()
        assert deaf.service_alive
        await trader.open()
        await reporter.open()
        before = await trader.allocate([wanted(100)])
        first = await next_of(reporter, AllocationsChanged)
        await trader.allocate([wanted(1)])
        await next_of(reporter, AllocationsChanged)
        assert first.headers["X_Sequence_Id"] == "0"
        # How long silence may last is known from the first heartbeat on.
        await eventually(lambda: trader.latency is not None)
    try:
        with pytest.raises(Refusal) as refused:
            await trader.allocate([wanted(1)])
        assert refused.value.rule is Rule.REQUEST_RETURNED
        assert "cmm.requestQueue" not in await site.queues()
        async with participant(site, "u10") as lone:
            await lone.send("<Login/>", mandatory=False)
            with pytest.raises(Refusal) as unrouted:
                await lone.send("<Login/>", mandatory=True)
            assert unrouted.value.rule is Rule.AMQP091_UNROUTED
        await next_of(trader, ServiceDown)
        assert trader.connected
        assert not trader.service_alive
        assert await next_of(deaf, ServiceDown) == ServiceDown(None)
        assert deaf.connected
        assert not deaf.service_alive
        async with capacity_service(rabbit, tmp_path, host) as site:
            # The start says everything again, in the same queues.
            news = await next_of(trader, AtcChanged)
            assert news.lists[0].items[12].quantity == 899
            after = await trader.allocate([wanted(200)])
            assert after.confirmed == 200
            assert after.items[0].allocation_id != before.items[0].allocation_id
            told = await next_of(reporter, AllocationsChanged)
            assert told.headers["X_Sequence_Id"] == "0"
            assert site.running.service.logged_in() >= {"u1", "r1"}
    finally:
        await trader.close()
        await reporter.close()
        await deaf.close()
