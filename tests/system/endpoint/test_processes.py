"""Two processes of one endpoint over one database: either is killed, the database is restarted.

E1 runs twice, with its message box and its keys in PostgreSQL; its peer E2 runs once.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from gridpost.client import AsyncEndpoint, Message
from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.free_port import free_port
from support.folders import CHANNEL, Folders
from support.network import Network, add_process, network, until_status
from support.postgres import PostgresServer
from support.soak import Soak
from support.waiting import eventually

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(1800)]

FIRST, SECOND = "E1", "E1b"
TYPE = "SHARED"
DUTIES = ["directory", "expiry", "folders", "listening", "retention", "take-over"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def net(
    tmp_path_factory: pytest.TempPathFactory, own_postgres_server: PostgresServer
) -> AsyncIterator[Network]:
    folder = tmp_path_factory.mktemp("network")
    database = own_postgres_server.create_database().section(folder)
    async with network(folder) as found:
        await found.broker("B1")
        await found.start("B1")
        await found.endpoint(
            "E1",
            "INDIRECT:B1",
            more='store = "postgres"\n' + CHANNEL.format(code="E1", more=""),
            last='[postgres]\nschema = "e1"\n'
            + "".join(f'{name} = "{value}"\n' for name, value in database.items())
            + '[keys]\nplace = "store"\npassphrase = "known to both processes"\n',
        )
        file = found.components[FIRST].file
        file.write_text(file.read_text().replace("[users.app]\n", "[users.app]\noperator = true\n"))
        add_process(found, FIRST, SECOND)
        Folders(found, "E1")
        await found.endpoint("E2", "INDIRECT:B1")
        await found.start("E1", "E1b", "E2")
        for code in (FIRST, SECOND):
            await found.known(code, "E2")
        await found.known("E2", "E1")
        yield found


class Application:
    """Of the party behind E1: it uses whichever process answers, and repeats until one does."""

    def __init__(self, apis: tuple[AsyncEndpoint, AsyncEndpoint], chance: random.Random) -> None:
        self.chance = chance
        self.apis = apis
        self.accepted: dict[str, str] = {}
        self.confirmed: Counter[str] = Counter()
        self.handed_over_again: list[str] = []
        self.done = asyncio.Event()

    async def send(self, count: int) -> None:
        for number in range(count):
            key = f"out-{number}"
            self.accepted[key] = await self.repeat(
                lambda api, key=key: api.send("E2", TYPE, key.encode(), key=key)
            )

    async def receive(self) -> None:
        while not self.done.is_set():
            answered = set(self.confirmed)
            found = await self.repeat(lambda api: api.receive(TYPE))
            if found is None:
                await asyncio.sleep(0.05)
                continue
            name = (found.content or b"").decode()
            if name in answered:
                self.handed_over_again.append(name)
            message_id = found.message.message_id
            await self.repeat(lambda api, message_id=message_id: api.confirm(message_id))
            self.confirmed[name] += 1

    async def repeat(self, call):  # type: ignore[no-untyped-def]
        while True:
            try:
                return await call(self.chance.choice(self.apis))
            except Refusal as refusal:
                if not refusal.retryable:
                    raise
                await asyncio.sleep(0.05)


async def _ended(api: AsyncEndpoint, message_ids: list[str], seconds: float) -> Counter[str]:
    ended: Counter[str] = Counter()
    async with asyncio.timeout(seconds):
        for message_id in message_ids:
            while (found := await _status(api, message_id)).status not in ("RECEIVED", "FAILED"):
                await asyncio.sleep(0.1)
            if found.status == "FAILED":
                assert (await api.explain(message_id)).summary
            ended[found.status] += 1
    return ended


async def _status(api: AsyncEndpoint, message_id: str) -> Message:
    """A connection to a process that was killed breaks at its next use; another one is opened then."""
    while True:
        try:
            return await api.status(message_id)
        except Refusal as refusal:
            if refusal.rule is not Rule.UNREACHABLE:
                raise
            await asyncio.sleep(0.1)


async def _drain(api: AsyncEndpoint, done: asyncio.Event, message_type: str = TYPE) -> Counter[str]:
    """The application of E2."""
    got: Counter[str] = Counter()
    while not done.is_set():
        found = await api.receive(message_type)
        if found is None:
            await asyncio.sleep(0.05)
            continue
        await api.confirm(found.message.message_id)
        got[(found.content or b"").decode()] += 1
    return got


async def _duties(net: Network) -> dict[str, list[str]]:
    held = {}
    async with httpx.AsyncClient(timeout=60) as client:
        for code in (FIRST, SECOND):
            port = net.ports[f"{code} operations"]
            health = (await client.get(f"http://127.0.0.1:{port}/health")).json()
            held[code] = health["processes"]["duties"]
    return held


async def test_each_duty_has_one_process(net: Network) -> None:
    await _settled(net)


async def _settled(net: Network) -> dict[str, list[str]]:
    """Until each duty is done by one process; who does what."""
    async with asyncio.timeout(180):
        while True:
            held = await _duties(net)
            if sorted(held[FIRST] + held[SECOND]) == DUTIES:
                return held
            await asyncio.sleep(0.2)


async def test_what_one_process_accepted_the_other_knows(net: Network) -> None:
    async with net.api(FIRST) as first, net.api(SECOND) as second, net.api("E2") as peer:
        message_id = await first.send("E2", "KNOWN", b"once", key="the same")
        assert await second.send("E2", "KNOWN", b"once", key="the same") == message_id
        await until_status(second, message_id, "DELIVERED")
        found = await peer.receive("KNOWN")
        assert found is not None
        await peer.confirm(found.message.message_id)
        for api in (first, second):
            await until_status(api, message_id, "RECEIVED")


async def test_what_no_process_has_begun_to_transfer_is_cancelled_through_any(net: Network) -> None:
    async with net.api(FIRST) as first, net.api(SECOND) as second, net.api("E2") as peer:
        await net.components["B1"].stop()
        waits = await first.send("E2", "CANCEL", b"never")
        await second.cancel(waits, "wrong day")
        for api in (first, second):
            assert (await api.status(waits)).status == "FAILED"
            assert "wrong day" in (await api.explain(waits)).summary
        await net.components["B1"].start()
        # The owner begins while the other process is asked to cancel: exactly one of them wins.
        cancelled, left = [waits], []

        async def both() -> None:
            message_id = await first.send("E2", "CANCEL", b"perhaps")
            try:
                await second.cancel(message_id)
            except Refusal as refusal:
                assert refusal.rule in (Rule.UNDER_WAY, Rule.NOT_CANCELLABLE)
                left.append(message_id)
            else:
                cancelled.append(message_id)

        await asyncio.gather(*(both() for _ in range(30)))
        left.append(await first.send("E2", "CANCEL", b"last"))
        for message_id in left:
            await until_status(second, message_id, "DELIVERED", seconds=90)
        for message_id in cancelled:
            assert (await second.status(message_id)).status == "FAILED"
        came = []
        while (found := await peer.receive("CANCEL")) is not None:
            came.append(found.message.message_id)
            await peer.confirm(came[-1])
        assert sorted(came) == sorted(left)


@pytest.mark.timeout(1800)
async def test_either_process_is_killed(net: Network, soak: Soak) -> None:
    count, kills = soak.scale(1000), soak.scale(40)
    chance = random.Random(soak.seed + 1)
    async with net.api(FIRST) as first, net.api(SECOND) as second, net.api("E2") as peer:
        application = Application((first, second), random.Random(soak.seed))
        receiving = asyncio.create_task(application.receive())
        draining = asyncio.create_task(_drain(peer, application.done))
        sending = asyncio.create_task(application.send(count))

        async def answer() -> list[str]:
            return [
                await peer.send("E1", TYPE, f"in-{n}".encode(), key=f"in-{n}") for n in range(count)
            ]

        answering = asyncio.create_task(answer())
        for _ in range(kills):
            await asyncio.sleep(chance.uniform(0.2, 1.5))
            code = chance.choice((FIRST, SECOND))
            await net.components[code].kill()
            await net.components[code].start()
        await asyncio.wait_for(sending, 600)
        incoming = await asyncio.wait_for(answering, 600)
        out = await _ended(first, list(application.accepted.values()), 300)
        into = await _ended(peer, incoming, 300)
        application.done.set()
        await receiving
        got = await draining
    assert out.total() == into.total() == count
    assert application.handed_over_again == []
    assert set(application.confirmed.values()) | set(got.values()) <= {1}
    assert got.total() == out["RECEIVED"]
    assert application.confirmed.total() == into["RECEIVED"]
    soak.report(messages=2 * count, kills=kills, received=out["RECEIVED"] + into["RECEIVED"])


async def test_files_are_sent_once_though_the_process_that_looks_for_them_is_killed(
    net: Network,
) -> None:
    count, files = 30, Folders(net, "E1")
    held = await _settled(net)
    (holder,) = (code for code, duties in held.items() if "folders" in duties)
    done = asyncio.Event()
    async with net.api("E2") as peer:
        draining = asyncio.create_task(_drain(peer, done, "F01"))
        writing = asyncio.create_task(files.many("APP", count))
        # It has begun: something of it is sent.
        await eventually(lambda: any(files.logs.iterdir()), 180)
        await net.components[holder].kill()
        await writing
        # The other process goes on by itself.
        await eventually(lambda: not any(files.out.iterdir()), 300)
        for number in range(count):
            await files.log_of(f"APP_E2_F01_{number}.xml.log", until="RECEIVED", seconds=300)
        done.set()
        got = await draining
        await net.components[holder].start()
    assert got == Counter(f"APP {number}" for number in range(count))
    assert not any(files.errors.iterdir())
    await _settled(net)


async def _reconfigured(net: Network, old: str, new: str) -> None:
    """As an administrator does it, in the file of every process."""
    for code in (FIRST, SECOND, "E2"):
        running = net.components[code]
        before = len(running.logged("configuration reloaded"))
        text = running.file.read_text()
        assert old in text
        part = running.file.with_suffix(".part")
        part.write_text(text.replace(old, new, 1))
        part.rename(running.file)
        await eventually(
            lambda running=running, before=before: (
                len(running.logged("configuration reloaded")) > before
            ),
            180,
        )


async def test_a_kept_order_holds_across_processes_and_their_deaths(net: Network) -> None:
    """503 cl. 5.11: accepted now here, now there, and handed over in the order of acceptance."""
    drain = 'drain = "5s"\n'
    await _reconfigured(net, drain, f'{drain}ordered = ["ORDER"]\n')
    numbers = [str(number) for number in range(40)]
    got: list[str] = []

    async def receive(api: AsyncEndpoint) -> None:
        while len(got) < len(numbers):
            found = await api.receive("ORDER")
            if found is None:
                await asyncio.sleep(0.05)
                continue
            await api.confirm(found.message.message_id)
            got.append((found.content or b"").decode())

    async with net.api(FIRST) as first, net.api(SECOND) as second, net.api("E2") as peer:
        receiving = asyncio.create_task(receive(peer))
        application = Application((first, second), random.Random(1))
        for number in numbers:
            if number in ("10", "25"):
                code = FIRST if number == "10" else SECOND
                await net.components[code].kill()
            await application.repeat(
                lambda api, number=number: api.send("E2", "ORDER", number.encode(), key=number)
            )
            if number in ("17", "32"):
                await net.components[FIRST if number == "17" else SECOND].start()
        await asyncio.wait_for(receiving, 600)
        # One process listens for both; the other does not say that anything is wrong with that.
        await net.components["E2"].stop()
        waits = await application.repeat(lambda api: api.send("E2", "ORDER", b"waits", key="waits"))
        for api in (first, second):
            async with asyncio.timeout(120):
                while "not fetched" not in (told := await api.explain(waits)).summary:
                    assert "does not listen" not in told.summary
                    await asyncio.sleep(0.1)
            assert told.must_act == "the operator of the recipient endpoint"
        await net.components["E2"].start()
    assert got == numbers
    await _reconfigured(net, 'ordered = ["ORDER"]\n', "")


@pytest.mark.timeout(600)
async def test_without_the_database_nothing_is_settled(
    net: Network, own_postgres_server: PostgresServer
) -> None:
    async with net.api(FIRST) as first, net.api(SECOND) as second, net.api("E2") as peer:
        await asyncio.to_thread(own_postgres_server.stop, signal.SIGQUIT)
        for api in (first, second):
            with pytest.raises(Refusal) as refused:
                await api.send("E2", "AWAY", b"x", key="away")
            assert refused.value.retryable
        sent = await peer.send("E1", "AWAY", b"while it was away")
        await eventually(
            lambda: any(net.components[c].logged("message not taken") for c in (FIRST, SECOND)), 60
        )
        assert (await peer.status(sent)).status == "ACCEPTED"
        await asyncio.to_thread(own_postgres_server.start)
        await until_status(peer, sent, "DELIVERED", seconds=90)
        found = await second.receive("AWAY")
        assert found is not None
        assert found.content == b"while it was away"
        await first.confirm(found.message.message_id)
        await until_status(peer, sent, "RECEIVED")
        message_id = await second.send("E2", "AWAY", b"x", key="away")
        await until_status(first, message_id, "DELIVERED", seconds=60)


@pytest.mark.req("503-10-e", component="endpoint")
async def test_direct_transfers_go_on_under_the_second_url_when_one_process_is_gone(
    tmp_path_factory: pytest.TempPathFactory, own_postgres_server: PostgresServer
) -> None:
    folder = tmp_path_factory.mktemp("direct")
    database = own_postgres_server.create_database().section(folder)
    first, second = free_port(), free_port()
    async with network(folder) as net:
        await net.endpoint(
            "E1",
            "DIRECT",
            more='store = "postgres"\n',
            last=f'[direct]\nhost = "127.0.0.1"\nport = {first}\n'
            f'urls = ["amqps://127.0.0.1:{first}", "amqps://127.0.0.1:{second}"]\n'
            '[postgres]\nschema = "e1"\n'
            + "".join(f'{name} = "{value}"\n' for name, value in database.items())
            + '[keys]\nplace = "store"\npassphrase = "known to both processes"\n',
        )
        add_process(net, FIRST, SECOND)
        file = net.components[SECOND].file
        file.write_text(file.read_text().replace(f"port = {first}\n", f"port = {second}\n"))
        await net.endpoint("E2", "DIRECT", direct=True)
        await net.start(FIRST, SECOND, "E2")
        await net.known("E2", "E1")
        await net.known(SECOND, "E2")
        async with net.api("E2") as api:
            one = await api.send("E1", TYPE, b"to the primary")
            assert await until_status(api, one, "DELIVERED") == "DELIVERED"
            await net.components[FIRST].kill()
            two = await api.send("E1", TYPE, b"to the secondary")
            assert await until_status(api, two, "DELIVERED") == "DELIVERED"
        async with net.api(SECOND) as api:
            for content in (b"to the primary", b"to the secondary"):
                found = await api.receive(TYPE)
                assert found is not None
                assert found.content == content
                await api.confirm(found.message.message_id)
