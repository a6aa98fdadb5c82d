"""503 cl. 8.3.2, 8.4.1 and 8.5 on the AMQPS connections of endpoints: whose certificate opens them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gridpost.core.links import LinkRefused
from support.amqp_world import AmqpWorld, authentication
from support.post import START, Authority, authority
from support.shown_certificates import DAY, attached, publish, shown, two_endpoints


@pytest.fixture
async def world() -> AsyncIterator[AmqpWorld]:
    async with two_endpoints() as made:
        yield made


@pytest.mark.req("503-8.4.1-a", "503-8.4.1-b", "503-8.3.2-e", component="endpoint")
async def test_an_endpoint_lets_in_only_what_verifies_up_to_the_root(world: AmqpWorld) -> None:
    elsewhere = Authority()
    wrong = {
        "another root": shown("E2", by=elsewhere),
        "expired": shown("E2", (START - 9 * DAY, START - DAY)),
        "not valid yet": shown("E2", (START + DAY, START + 9 * DAY)),
    }
    for certificate, _ in wrong.values():
        publish(world, certificate)
    for what, (_, own) in wrong.items():
        with pytest.raises(LinkRefused):
            await attached(world["E1"], own)
            pytest.fail(what)
    await attached(world["E1"], authentication("E2")[1])


async def test_each_side_shows_its_certificate_and_the_authority_above_it(
    world: AmqpWorld,
) -> None:
    certificate, own = shown("E2")
    publish(world, certificate)
    server = await attached(world["E1"], own)
    # The certificate with which E1 connects as a client, too.
    assert server.chain[:2] == (authentication("E1")[0].der, authority().ca)
    alone, leaf_only = shown("E2", whole=False)
    publish(world, alone)
    with pytest.raises(LinkRefused):
        await attached(world["E1"], leaf_only)
