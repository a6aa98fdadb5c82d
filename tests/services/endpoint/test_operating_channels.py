"""Maintenance, pauses and refused documents as each channel of applications tells them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gridpost.core.checks import CheckedDocument, Finding
from gridpost.core.holds import Hold, HoldKind, Holds
from gridpost.core.message_box import Search
from gridpost.services.endpoint.checking import CheckRule
from services.endpoint.test_amqp_channel import (
    INBOX,
    OUTBOX,
    REPLY,
    Taken,
    finished,
    outbox,
    site,
    users,
)
from support.folder_child import FolderEndpoint
from support.post import TestEndpoint, World
from support.soap import SoapWorld, send_request
from support.waiting import eventually

NAME = "APP_E2_F01_id.xml"


class RefusesEverything:
    async def check(self, document: CheckedDocument) -> Finding:
        return Finding(False, "contraband")


def maintain(one: TestEndpoint, on: bool = True) -> None:
    hold = Hold(HoldKind.MAINTENANCE, "", "olga", one.context.clock.now(), "new disks")
    one.context.holding.change(Holds([hold] if on else []))


def pause(one: TestEndpoint, *holds: tuple[HoldKind, str]) -> None:
    now = one.context.clock.now()
    one.context.holding.change(Holds(Hold(kind, value, "olga", now) for kind, value in holds))


def guard(one: TestEndpoint) -> None:
    one.context.checking.change([CheckRule("doorman", RefusesEverything())])


async def stored(one: TestEndpoint) -> int:
    return len(await one.store.read(lambda work: work.box.search(Search(), 10).entries))


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[FolderEndpoint]:
    found = FolderEndpoint(World()["E1"], tmp_path)
    yield found
    found.pool.shutdown()


# ---------------------------------------------------------------- SOAP


async def test_soap_answers_maintenance_and_a_refused_document_as_typed_faults() -> None:
    world = SoapWorld()
    maintain(world["E1"])
    answer = await world.sender.call(send_request(b"document"))
    assert (answer.name, answer.error_code) == ("Fault", "CONCURRENT_ERROR")
    assert "new disks" in answer.error_fields["errorMessage"]
    maintain(world["E1"], on=False)
    guard(world["E1"])
    answer = await world.sender.call(send_request(b"document"))
    assert (answer.name, answer.error_code) == ("Fault", "VALIDATION_ERROR")
    assert "contraband" in answer.error_fields["errorMessage"]
    assert await world.sender.stored() == 0


async def test_soap_hands_nothing_over_while_that_is_paused() -> None:
    world = SoapWorld()
    await world.sender.sent()
    await world.carry()
    pause(world["E2"], (HoldKind.CHANNEL, "soap"))
    assert (await world.recipient.receive()).text("remainingMessagesCount") == "0"
    pause(world["E2"])
    assert (await world.recipient.receive()).content == b"document"


# ---------------------------------------------------------------- AMQP


async def test_the_reply_queue_tells_maintenance_and_refused_documents() -> None:
    world = World()
    async with site(world, users()) as found:
        connection = await found.connect()
        replies = Taken()
        await connection.attach_consumer(REPLY, replies, credit=10)
        producer = await connection.attach_producer(OUTBOX)
        maintain(world["E1"])
        assert (await producer.send(outbox("first"))).taken
        await eventually(lambda: replies.messages)
        maintain(world["E1"], on=False)
        guard(world["E1"])
        assert (await producer.send(outbox("second"))).taken
        await eventually(lambda: len(replies.messages) == 2)
        told = [message.application_properties for message in replies.messages]
        assert [t["errorCode"] for t in told] == ["CONCURRENT_ERROR", "VALIDATION_ERROR"]
        assert "new disks" in told[0]["errorMessage"]
        assert "contraband" in told[1]["errorMessage"]
        assert await stored(world["E1"]) == 0
        await finished(connection)


@pytest.mark.parametrize(
    "held", [(HoldKind.PARTNER, "E2"), (HoldKind.TYPE, "BP1-*"), (HoldKind.CHANNEL, "amqp")]
)
async def test_the_inbox_goes_on_where_it_was_paused(held: tuple[HoldKind, str]) -> None:
    """Documents of a paused partner are passed by; after the pause they come, and none twice."""
    world = World(codes=("E1", "E2", "E3"))
    async with site(world, users()) as found:
        connection = await found.connect()
        inbox = Taken()
        pause(world["E1"], held)
        await connection.attach_consumer(INBOX, inbox, credit=100)
        for n, sender in enumerate(("E2", "E3", "E2", "E3")):
            await world[sender].send("E1", b"%d" % n)
        await world.carry()
        if held[0] is HoldKind.PARTNER:
            await eventually(lambda: len(inbox.messages) == 2)
            senders = {m.application_properties["senderCode"] for m in inbox.messages}
            assert senders == {"E3"}
        pause(world["E1"])
        await eventually(lambda: len(inbox.messages) == 4)
        ids = [m.application_properties["messageID"] for m in inbox.messages]
        assert len(set(ids)) == 4
        await finished(connection)


# ---------------------------------------------------------------- shared folders


async def test_a_file_waits_in_out_during_maintenance_and_is_taken_afterwards(
    files: FolderEndpoint,
) -> None:
    maintain(files.one)
    files.put(NAME)
    assert await files.sending.round()
    assert (files.out / NAME).exists()
    assert list(files.errors.iterdir()) == []
    assert "new disks" in str(files.health.view())
    assert await stored(files.one) == 0
    maintain(files.one, on=False)
    async with asyncio.timeout(60):
        while (files.out / NAME).exists():
            await asyncio.sleep(0.02)
            await files.sending.round()
    assert await stored(files.one) == 1


async def test_a_refused_file_goes_to_out_error_with_the_reason(files: FolderEndpoint) -> None:
    guard(files.one)
    files.put(NAME)
    await files.sending.round()
    assert not (files.out / NAME).exists()
    texts = [f.read_text() for f in files.errors.iterdir()]
    assert any("contraband" in text for text in texts)
    assert await stored(files.one) == 0


async def test_no_file_appears_in_in_while_its_partner_is_paused(tmp_path: Path) -> None:
    world = World()
    files = FolderEndpoint(world["E1"], tmp_path)
    pause(world["E1"], (HoldKind.PARTNER, "E2"))
    await world["E2"].send("E1", b"document")
    await world.carry()
    await files.receiving.round()
    assert list(files.into.iterdir()) == []
    pause(world["E1"])
    await files.receiving.round()
    assert [f.read_bytes() for f in files.into.iterdir()] == [b"document"]
    files.pool.shutdown()
