"""503 cl. 5.1: endpoints are known by their codes, messages by their ids."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from gridpost.core.identifiers import (
    ComponentCode,
    new_message_id,
)
from gridpost.core.message import (
    SealedMessage,
)
from gridpost.wire.mades.amqp_message import decode, encode
from support.accepting import B1, E2, outcome
from support.builders import (
    component_directory,
)
from support.post import Carried, World


@pytest.mark.req("503-5.1-d")
def test_every_message_id_is_a_uuid_of_its_own() -> None:
    ids = {new_message_id() for _ in range(10_000)}
    assert len(ids) == 10_000
    assert {UUID(i).variant for i in ids} == {"specified in RFC 4122"}


@pytest.mark.req("503-5.1-b")
def test_a_message_is_sent_to_an_endpoint_by_its_code_and_to_nothing_else() -> None:
    assert outcome(E2, B1) == "INDIRECT:B1"
    assert outcome(E2, B1, recipient="B1") == "RECIPIENT_NOT_ENDPOINT"
    assert outcome(component_directory(), recipient="CD-1") == "RECIPIENT_NOT_ENDPOINT"


def message_of(carried: Carried) -> SealedMessage:
    return decode(carried.data).message


@pytest.mark.req("503-5.1-c")
async def test_the_application_gets_the_sender_that_the_signature_proves() -> None:
    world = World(codes=("E1", "E2", "E3"))
    await world["E1"].send("E2")
    await world.carry()
    handed = await world["E2"].handover.receive("BP1-A")
    assert handed.entry is not None
    assert handed.entry.metadata.sender_code == "E1"
    await world["E2"].handover.confirm(handed.entry.message_id)

    def forge(carried: Carried) -> Carried:
        message = message_of(carried)
        forged = replace(message.metadata, sender_code=ComponentCode("E3"))
        data = encode(SealedMessage(forged, message.body), None, world.clock.now())
        return replace(carried, data=data)

    world.post.bend = forge
    await world["E1"].send("E2")
    await world["E1"].transfer.round()
    assert (await world["E2"].handover.receive("BP1-A")).entry is None
