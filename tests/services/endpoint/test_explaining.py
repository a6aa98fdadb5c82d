"""The facts that an explanation is made of, as an endpoint finds them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.delivery import Side, State
from gridpost.core.explanation import Actor
from gridpost.services.endpoint.explaining import Explaining
from gridpost.services.endpoint.lines import LineView
from gridpost.services.endpoint.submission import Document
from gridpost.stores.keys.memory import MemoryKeyring
from support.amqp_world import AmqpWorld
from support.builders import path
from support.post import START, World, authority
from support.waiting import eventually


async def test_a_process_that_leaves_the_listening_to_another_blames_no_broker() -> None:
    """503 cl. 5.11: where an order is kept, one process of an endpoint listens for all of them."""
    async with AmqpWorld() as world:
        broker = await world.broker("B1")
        by_b1 = path("*", "INDIRECT:B1", start=START - timedelta(days=1))
        e1 = await world.endpoint("E1", by_b1)
        await world.endpoint("E2", by_b1)
        await eventually(lambda: broker.listeners == ["E1", "E2"])
        await world["E2"].stop()
        e1.lines.may_listen = lambda: False
        e1.lines.wake()
        await eventually(lambda: broker.listeners == [])
        message_id = await e1.submission.send("app", Document("E2", "A01", b"x"))
        async with asyncio.timeout(60):
            while (await e1.enquiry.entry(Side.SENT, message_id)).delivery.state is State.ACCEPTED:
                await asyncio.sleep(0.01)
        explaining = Explaining(e1.context, e1.enquiry, e1.lines.views)
        told = await explaining.explain(Side.SENT, message_id)
        assert told.actor is Actor.RECIPIENT
        assert "its endpoint may be down" in told.summary
        # Where it is this process that should listen, that it does not is what is wrong.
        e1.lines.may_listen = lambda: True
        told = await explaining.explain(Side.SENT, message_id)
        assert told.actor is Actor.BROKER
        assert told.summary == "this endpoint does not listen at B1: it has no link to its queue"


@pytest.mark.parametrize("held", ["none", "expired"])
async def test_without_a_certificate_of_its_own_that_opens_connections_it_is_for_us_to_act(
    held: str,
) -> None:
    world = World()
    one = world["E1"]
    certificates: list[Certificate] = list(one.certificates)
    if held == "expired":
        span = (START - timedelta(days=20), START - timedelta(days=10))
        certificates.append(
            authority().certify(MemoryKeyring(), CertificateKind.AUTHENTICATION, "E1", *span)
        )
    message_id = await one.send("E2")

    def down() -> Sequence[LineView]:
        return [LineView("B1", False, False, 0, "certificate has expired")]

    explaining = Explaining(one.context, one.enquiry, down, certificates=lambda: certificates)
    told = await explaining.explain(Side.SENT, message_id)
    assert told.actor is Actor.US
    assert told.summary == "E1 has no valid authentication certificate: renew it"
    step = next(step for step in told.steps if step.name == "certificates")
    assert step.good is False
    span = (START - timedelta(days=1), START + timedelta(days=10))
    certificates.append(
        authority().certify(MemoryKeyring(), CertificateKind.AUTHENTICATION, "E1", *span)
    )
    assert (await explaining.explain(Side.SENT, message_id)).actor is Actor.BROKER
