"""The AMQP channel in one process: who gets in, whose answers are whose, and a store that fails."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from gridpost.assembly.channels import amqp_channel
from gridpost.assembly.endpoint_channels_configuration import AmqpSection
from gridpost.core.channels import Binding, Bindings, Channel, Receiving
from gridpost.core.delivery import Side, State
from gridpost.core.identifiers import MessageTypePattern
from gridpost.core.links import LinkRefused, OutcomeKind, Peer, ReceivedDelivery
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.amqp_channel import AmqpChannel
from gridpost.services.endpoint.amqp_channel_sources import event_channel, reply_channel
from gridpost.services.endpoint.users import User, Users
from gridpost.services.operations.passwords import hash_password
from gridpost.transports.amqp10 import AmqpClient, ClientConnection, Credentials, TlsCredentials
from gridpost.wire.application_amqp import OutboxMessage, ReadMessage, read_any, write_outbox
from services.endpoint.test_api_tls import issued
from support.post import World
from support.waiting import eventually

ANY = (MessageTypePattern("*"),)
HASH = hash_password("secret")
OUTBOX, REPLY = "ecp.endpoint.outbox", "ecp.endpoint.outbox.reply"
INBOX, EVENT = "ecp.endpoint.inbox", "ecp.endpoint.send.event"


def users(*more: User) -> Users:
    found = [User(name, HASH, send=ANY, receive=ANY) for name in ("one", "two")]
    found.append(User("json", HASH, send=ANY, receive=ANY, channels=frozenset({Channel.JSON})))
    bindings = [Binding(MessageTypePattern("BP1*"), Receiving.AMQP)]
    return Users([*found, *more], Bindings(bindings))


class Site:
    def __init__(self, world: World, known: Users) -> None:
        self.world = world
        self.users = known
        one = world["E1"]
        self.channel = AmqpChannel(one.context, known, one.submission, one.handover)
        self.port = 0

    async def connect(
        self, user: str = "one", tls: TlsCredentials | None = None
    ) -> ClientConnection:
        return await AmqpClient(
            [f"{'amqps' if tls else 'amqp'}://127.0.0.1:{self.port}"],
            container="test",
            tls=None if tls is None else (lambda: tls),
            check=anyone,
            credentials=Credentials(user, "secret") if user else None,
        ).connect()


@asynccontextmanager
async def site(world: World, known: Users, **section: Any) -> AsyncIterator[Site]:
    found = Site(world, known)
    configuration: Any = SimpleNamespace(
        amqp=AmqpSection(port=0, **section),
        max_content=2**20,
        code="E1",
        drain=timedelta(seconds=2),
    )
    async with amqp_channel(configuration, found.channel, world.clock) as port:
        assert port is not None
        found.port = port
        yield found


async def anyone(peer: Peer) -> None:
    """Tests trust their own server."""


class Taken:
    """A consumer that keeps what it gets."""

    def __init__(self, decide: Callable[[ReceivedDelivery], None] | None = None) -> None:
        self.messages: list[ReadMessage] = []
        self._decide = decide or (lambda delivery: delivery.accept())

    def __call__(self, delivery: ReceivedDelivery) -> None:
        self.messages.append(read_any(delivery.message))
        self._decide(delivery)


def outbox(content: str = "x", **more: Any) -> bytes:
    return write_outbox(OutboxMessage("E2", "BP1-A", content.encode(), **more), content)


async def finished(connection: ClientConnection) -> None:
    connection.close()
    await connection.lost


async def test_each_user_sees_its_own_replies_and_events() -> None:
    world = World()
    async with site(world, users()) as found:
        one, two = await found.connect("one"), await found.connect("two")
        boxes = {name: Taken() for name in ("one", "two")}
        for name, connection in (("one", one), ("two", two)):
            await connection.attach_consumer(REPLY, boxes[name], credit=10)
            await connection.attach_consumer(EVENT, boxes[name], credit=10)
            producer = await connection.attach_producer(OUTBOX)
            # The same id of another user is another conversation.
            outcome = await producer.send(outbox(name, conversation_id="same"))
            assert outcome.taken
        await eventually(lambda: all(len(box.messages) == 2 for box in boxes.values()))
        for name, box in boxes.items():
            assert {message.properties.correlation_id for message in box.messages} == {name}
        await finished(one)
        await finished(two)


@pytest.mark.parametrize("user", ["json", "nobody"])
async def test_who_has_no_right_to_the_channel_stays_out(user: str) -> None:
    async with site(World(), users()) as found:
        with pytest.raises((LinkRefused, OSError)):
            await found.connect(user)


async def test_a_user_who_loses_the_right_is_put_out() -> None:
    async with site(World(), users()) as found:
        connection = await found.connect("one")
        found.users.change([User("two", HASH, send=ANY)], Bindings())
        found.channel.check()
        await connection.lost
        with pytest.raises((LinkRefused, OSError)):
            await found.connect("one")


async def test_a_user_who_may_not_send_a_type_is_told_so() -> None:
    poor = User("poor", HASH, send=(MessageTypePattern("OTHER"),), receive=ANY)
    async with site(World(), users(poor)) as found:
        connection = await found.connect("poor")
        replies = Taken()
        await connection.attach_consumer(REPLY, replies, credit=10)
        producer = await connection.attach_producer(OUTBOX)
        assert (await producer.send(outbox())).taken
        await eventually(lambda: replies.messages)
        properties = replies.messages[0].application_properties
        assert properties["errorCode"] == "AUTHENTICATION_ERROR"
        await finished(connection)


async def test_without_replies_a_refused_message_is_rejected() -> None:
    world = World()
    async with site(world, users()) as found:
        found.channel.outbox._replies = False
        connection = await found.connect()
        producer = await connection.attach_producer(OUTBOX)
        outcome = await producer.send(write_outbox(OutboxMessage("NOBODY", "BP1-A", b"x")))
        assert outcome.kind is OutcomeKind.REJECTED
        assert "RECIPIENT_UNKNOWN" in outcome.description
        assert (await producer.send(outbox())).taken
        kept = await world["E1"].store.read(
            lambda work: work.notices.read(reply_channel("one"), 0, 10)
        )
        assert list(kept) == []
        await finished(connection)


async def test_octets_that_are_no_message_are_rejected_and_harm_nobody() -> None:
    async with site(World(), users()) as found:
        connection = await found.connect()
        producer = await connection.attach_producer(OUTBOX)
        outcome = await producer.send(b"\x00\x53\x73\xff\xff")
        assert (outcome.kind, outcome.condition) == (OutcomeKind.REJECTED, "amqp:decode-error")
        assert (await producer.send(outbox())).taken
        await finished(connection)


async def test_what_the_store_cannot_keep_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    monkeypatch.setattr("gridpost.services.endpoint.amqp_channel_outbox._GIVE_BACK_SECONDS", 0.01)
    async with site(world, users()) as found:
        connection = await found.connect()
        producer = await connection.attach_producer(OUTBOX)

        async def full(work: object) -> Any:
            raise Refusal(Rule.STORE_FULL, "the disk is full")

        with monkeypatch.context() as patched:
            patched.setattr(world["E1"].store, "run", full)
            assert (await producer.send(outbox())).kind is OutcomeKind.RELEASED
        assert (await producer.send(outbox())).taken
        await finished(connection)


async def test_a_confirmation_that_is_not_stored_is_not_settled_but_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    monkeypatch.setattr("gridpost.services.endpoint.amqp_channel_queue._STORE_PAUSE", 0.01)
    async with site(world, users()) as found:
        message_id = await world["E2"].send("E1")
        await world.carry()
        real: Callable[..., Awaitable[Any]] = found.world["E1"].handover.confirm_all
        failures = 3

        async def confirm_all(ids: Any) -> Any:
            nonlocal failures
            if failures:
                failures -= 1
                raise Refusal(Rule.STORE_FULL, "the disk is full")
            return await real(ids)

        monkeypatch.setattr(found.world["E1"].handover, "confirm_all", confirm_all)
        connection = await found.connect()
        taken = Taken()
        await connection.attach_consumer(INBOX, taken, credit=10, exactly_once=True)
        await eventually(lambda: failures == 0)
        async with asyncio.timeout(60):
            while await world["E1"].state(Side.RECEIVED, message_id) is not State.CONFIRMED:
                await asyncio.sleep(0.01)
        assert len(taken.messages) == 1
        await finished(connection)


async def test_what_was_accepted_is_not_handed_over_again_though_its_link_ended_unanswered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    async with site(world, users()) as found:
        message_id = await world["E2"].send("E1")
        await world.carry()
        real: Callable[..., Awaitable[Any]] = found.world["E1"].handover.confirm_all
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def confirm_all(ids: Any) -> Any:
            asked.set()
            await go_on.wait()
            return await real(ids)

        monkeypatch.setattr(found.world["E1"].handover, "confirm_all", confirm_all)
        first, second = await found.connect(), await found.connect()
        answered: list[ReceivedDelivery] = []
        taken, other = Taken(), Taken()
        await first.attach_consumer(
            INBOX, taken, credit=10, exactly_once=True, on_settled=answered.append
        )
        async with asyncio.timeout(60):
            await asked.wait()
        await second.attach_consumer(INBOX, other, credit=10)
        first.abort()
        await eventually(lambda: found.channel.inbox.consumers == 1)
        go_on.set()
        async with asyncio.timeout(60):
            while await world["E1"].state(Side.RECEIVED, message_id) is not State.CONFIRMED:
                await asyncio.sleep(0.01)
        await world["E2"].send("E1", b"another")
        await world.carry()
        await eventually(lambda: other.messages)
        assert [m.body for m in other.messages] == [b"another"]
        assert len(taken.messages) == 1
        assert not answered
        await finished(second)


async def test_a_document_that_nobody_settles_is_held_for_one_consumer() -> None:
    world = World()
    async with site(world, users()) as found:
        await world["E2"].send("E1")
        await world.carry()
        holds, waits = Taken(lambda delivery: None), Taken()
        first, second = await found.connect(), await found.connect()
        await first.attach_consumer(INBOX, holds, credit=10)
        await eventually(lambda: holds.messages)
        await second.attach_consumer(INBOX, waits, credit=10)
        await world["E2"].send("E1", b"another")
        await world.carry()
        await eventually(lambda: len(waits.messages) + len(holds.messages) == 2)
        await finished(first)
        await eventually(lambda: len({m.body for m in waits.messages}) == 2)
        await finished(second)


async def test_notices_that_nobody_fetches_go_by_age() -> None:
    world = World()
    async with site(world, users()) as found:
        connection = await found.connect()
        producer = await connection.attach_producer(OUTBOX)
        assert (await producer.send(outbox())).taken
        await finished(connection)
        store = world["E1"].store
        for channel in (reply_channel("one"), event_channel("one")):
            (_,) = await store.read(lambda work, c=channel: work.notices.read(c, 0, 10))
        world.clock.advance(timedelta(days=8))
        tidying = asyncio.create_task(found.channel.tidy())
        for channel in (reply_channel("one"), event_channel("one")):
            async with asyncio.timeout(60):
                while await store.read(lambda work, c=channel: work.notices.read(c, 0, 10)):
                    await asyncio.sleep(0.01)
        tidying.cancel()


async def test_applications_are_known_by_their_certificate_over_tls(tmp_path: Path) -> None:
    ca, _, _ = issued(tmp_path, "Office CA", "Office CA", ca=True)
    shown, key, _ = issued(tmp_path, "amqp", "Office CA")
    robot, robot_key, certificate = issued(tmp_path, "robot", "Office CA")
    stranger, stranger_key, _ = issued(tmp_path, "stranger", "Office CA")
    fingerprint = hashlib.sha256(certificate.public_bytes(Encoding.DER)).hexdigest()
    known = users(User("robot", certificate=fingerprint, send=ANY, receive=ANY))

    def credentials(pem: Path, own: Path) -> TlsCredentials:
        return TlsCredentials(pem.read_bytes(), own.read_bytes(), ca.read_bytes())

    section = {"mechanism": "EXTERNAL", "certificate": shown, "key": key, "client_roots": (ca,)}
    async with site(World(), known, **section) as found:
        connection = await found.connect("", credentials(robot, robot_key))
        producer = await connection.attach_producer(OUTBOX)
        assert (await producer.send(outbox())).taken
        await finished(connection)
        with pytest.raises((LinkRefused, OSError)):
            await found.connect("", credentials(stranger, stranger_key))
    plain = {"certificate": shown, "key": key}
    async with site(World(), known, **plain) as found:
        connection = await found.connect("one", credentials(robot, robot_key))
        producer = await connection.attach_producer(OUTBOX)
        assert (await producer.send(outbox())).taken
        await finished(connection)


async def test_a_renewed_certificate_is_shown_without_a_restart(tmp_path: Path) -> None:
    ca, _, _ = issued(tmp_path, "Office CA", "Office CA", ca=True)
    shown, key, first = issued(tmp_path, "amqp", "Office CA")
    later = tmp_path / "later"
    later.mkdir()
    renewed, renewed_key, second = issued(later, "renewed", "Office CA")
    tls = TlsCredentials(shown.read_bytes(), key.read_bytes(), ca.read_bytes())
    async with site(World(), users(), certificate=shown, key=key) as found:

        async def server() -> bytes:
            seen: list[Peer] = []

            async def look(peer: Peer) -> None:
                seen.append(peer)

            connection = await AmqpClient(
                [f"amqps://127.0.0.1:{found.port}"],
                container="test",
                tls=lambda: tls,
                check=look,
                credentials=Credentials("one", "secret"),
            ).connect()
            await finished(connection)
            return seen[0].chain[0]

        assert await server() == first.public_bytes(Encoding.DER)
        renewed.replace(shown)
        # Its key is not there yet: what was read before goes on.
        assert await server() == first.public_bytes(Encoding.DER)
        renewed_key.replace(key)
        assert await server() == second.public_bytes(Encoding.DER)
        shown.unlink()
        assert await server() == second.public_bytes(Encoding.DER)


@pytest.mark.parametrize(
    "section",
    [
        {"host": "0.0.0.0"},
        {"certificate": "a.pem"},
        {"mechanism": "EXTERNAL"},
        {"client_roots": ("a.pem",)},
        {"queues": {"outbox": "same", "reply": "same"}},
        {"queues": {"outbox": ""}},
    ],
)
async def test_a_section_that_would_be_open_or_confused_is_refused(section: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"AmqpSection"):
        AmqpSection.model_validate(section)
