"""What stands on the wire, against a peer that is no library."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gridpost.core.links import ReceivedDelivery
from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.amqp10 import AmqpLimits
from gridpost.wire.amqp.types import Map, UInt
from support import amqp_frames as amqp
from support.amqp_frames import RECEIVER, SENDER, RawPeer, condition
from support.waiting import eventually


@pytest.fixture
def limits() -> AmqpLimits:
    return AmqpLimits(close_seconds=0.5, credit=100)


@pytest.fixture
async def peer(setup: Any) -> AsyncIterator[RawPeer]:
    raw = RawPeer(*await setup.raw())
    await raw.greet()
    await raw.say(amqp.open_(), amqp.begin())
    await raw.expect(amqp.OPEN, amqp.BEGIN)
    yield raw
    await raw.close()


async def test_open_announces_frame_size_channels_and_idle_timeout(setup: Any) -> None:
    raw = RawPeer(*await setup.raw())
    await raw.greet()
    await raw.say(amqp.open_())
    fields = await raw.expect(amqp.OPEN)
    limits = setup.server.limits
    assert fields[0] == "B1"
    assert fields[2:5] == [
        limits.max_frame_size,
        limits.max_sessions - 1,
        limits.idle_seconds * 1000 / 2,
    ]
    await raw.close()


@pytest.mark.parametrize(("role", "terminus"), [(SENDER, 6), (RECEIVER, 5)])
async def test_a_refused_attach_is_answered_without_terminus_and_then_detached(
    setup: Any, peer: RawPeer, role: bool, terminus: int
) -> None:
    refusal = Refusal(Rule.QUEUE_UNKNOWN, "no such queue")
    setup.broker.refused = {("producer", "E9"): refusal, ("consumer", "E9"): refusal}
    await peer.say(amqp.attach("one", 0, role, "E9"))
    answer = await peer.expect(amqp.ATTACH)
    assert answer[0] == "one"
    assert answer[terminus] is None
    assert answer[11 - terminus] is not None
    gone = await peer.expect(amqp.DETACH)
    assert gone[1] is True
    assert condition(gone[2]) == "amqp:not-found"
    await peer.say(amqp.detach(0), amqp.attach("two", 0, role, "E2"))
    assert (await peer.expect(amqp.ATTACH))[terminus] is not None


@pytest.mark.parametrize("role", [SENDER, RECEIVER])
@pytest.mark.parametrize("dynamic", [True, False])
async def test_links_without_a_name_are_refused(peer: RawPeer, role: bool, dynamic: bool) -> None:
    await peer.say(amqp.attach("one", 0, role, None, dynamic=dynamic))
    assert condition((await peer.expect(amqp.ATTACH, amqp.DETACH))[2]) == "amqp:not-allowed"


@pytest.mark.parametrize("dynamic", [True, False])
async def test_links_without_a_name_reach_a_handler_that_wants_them(
    setup: Any, dynamic: bool
) -> None:
    setup.broker.unnamed_links = True
    raw = RawPeer(*await setup.raw())
    await raw.greet()
    await raw.say(amqp.open_(), amqp.begin(), amqp.attach("one", 0, SENDER, None, dynamic=dynamic))
    await raw.expect(amqp.ATTACH, amqp.FLOW)
    assert setup.broker.producers[0].link.attachment.dynamic is dynamic
    await raw.close()


async def test_a_coordinator_is_refused_where_there_are_no_transactions(
    setup: Any, peer: RawPeer
) -> None:
    setup.broker.offers_transactions = False
    await peer.say(amqp.attach("one", 0, SENDER, None, coordinator=True))
    assert condition((await peer.expect(amqp.ATTACH, amqp.DETACH))[2]) == "amqp:not-implemented"


async def test_credit_is_granted_after_the_attach_and_renewed(setup: Any, peer: RawPeer) -> None:
    await peer.say(amqp.attach("one", 0, SENDER, "E2"))
    attach = await peer.expect(amqp.ATTACH)
    assert attach[10] == setup.server.limits.max_message_size
    flow = await peer.expect(amqp.FLOW)
    assert flow[6] == setup.server.limits.credit
    for number in range(60):
        await peer.say(amqp.transfer(0, number, b"x"))
    count, credit = (await peer.expect(amqp.FLOW))[5:7]
    assert count + credit >= 150


async def test_more_than_the_credit_ends_the_link(setup: Any, peer: RawPeer) -> None:
    held: list[ReceivedDelivery] = []
    setup.broker.on_delivery = held.append
    await peer.say(amqp.attach("one", 0, SENDER, "E2"))
    await peer.expect(amqp.ATTACH, amqp.FLOW)
    for number in range(101):
        await peer.say(amqp.transfer(0, number, b"x"))
    gone = await peer.expect(amqp.DETACH)
    assert condition(gone[2]) == "amqp:link:transfer-limit-exceeded"
    assert len(held) == 100


async def test_transfers_before_the_answer_to_attach_are_given_back(
    setup: Any, peer: RawPeer
) -> None:
    await peer.say(amqp.attach("one", 0, SENDER, "E2"), amqp.transfer(0, 0, b"too early"))
    fields = await peer.expect(amqp.DISPOSITION)
    assert fields[3] is True
    assert fields[4].descriptor == 0x26  # released
    assert setup.broker.deliveries == 0


async def test_a_transfer_where_the_peer_receives_ends_the_connection(peer: RawPeer) -> None:
    await peer.say(amqp.attach("one", 0, RECEIVER, "E1"))
    await peer.expect(amqp.ATTACH)
    await peer.say(amqp.transfer(0, 0, b"x"))
    assert condition((await peer.expect(amqp.CLOSE))[0]) == "amqp:connection:framing-error"
    await peer.ended()


async def test_a_message_in_many_frames_is_put_together(setup: Any, peer: RawPeer) -> None:
    await peer.say(amqp.attach("one", 0, SENDER, "E2"))
    await peer.expect(amqp.ATTACH, amqp.FLOW)
    parts = [bytes((65 + n,)) * 1000 for n in range(26)]
    for n, part in enumerate(parts):
        await peer.say(amqp.transfer(0, 0, part, more=n < 25))
    await peer.expect(amqp.DISPOSITION)
    assert [body for _, body in setup.broker.queues["E2"].messages] == [b"".join(parts)]


async def test_an_aborted_message_has_never_been(setup: Any, peer: RawPeer) -> None:
    await peer.say(amqp.attach("one", 0, SENDER, "E2"))
    await peer.expect(amqp.ATTACH, amqp.FLOW)
    await peer.say(amqp.transfer(0, 0, b"half", more=True))
    server_side = next(iter(setup.server._connections))
    await eventually(lambda: server_side.ledger.used == 4)
    await peer.say(amqp.transfer(0, 0, b"", aborted=True), amqp.transfer(0, 1, b"whole"))
    await peer.expect(amqp.DISPOSITION)
    assert [body for _, body in setup.broker.queues["E2"].messages] == [b"whole"]
    assert server_side.ledger.used == 0


async def test_a_presettled_message_is_taken_without_a_word(setup: Any, peer: RawPeer) -> None:
    await peer.say(amqp.attach("one", 0, SENDER, "E2"))
    await peer.expect(amqp.ATTACH, amqp.FLOW)
    await peer.say(amqp.transfer(0, 0, b"first", settled=True), amqp.transfer(0, 1, b"second"))
    fields = await peer.expect(amqp.DISPOSITION)
    assert fields[1] == 1
    assert [body for _, body in setup.broker.queues["E2"].messages] == [b"first", b"second"]


async def test_drain_gives_back_the_credit_that_nothing_is_there_for(
    setup: Any, peer: RawPeer
) -> None:
    setup.broker.queues["E1"].put(b"only one")
    await peer.say(amqp.attach("one", 0, RECEIVER, "E1"))
    await peer.expect(amqp.ATTACH)
    await peer.say(amqp.flow(0, 10, drain=True))
    await peer.expect(amqp.TRANSFER)
    flow = await peer.expect(amqp.FLOW)
    assert flow[5:7] == [10, 0]
    setup.broker.queues["E1"].put(b"another")
    await peer.say(amqp.flow(0, 1, count=10))
    await peer.expect(amqp.TRANSFER)


async def test_a_large_message_that_is_cut_short_is_aborted(setup: Any, peer: RawPeer) -> None:
    """Otherwise what was sent of it so far would pass for the whole."""
    setup.broker.queues["E1"].put(b"x" * 1_000_000)
    narrow = [UInt(0), UInt(2), UInt(0), UInt(1000), UInt(0), UInt(0), UInt(1)]
    await peer.say(amqp.attach("one", 0, RECEIVER, "E1"))
    await peer.expect(amqp.ATTACH)
    await peer.say(amqp.frame(amqp.encode_composite(amqp.FLOW, narrow)))
    for _ in range(2):
        assert (await peer.expect(amqp.TRANSFER))[5] is True
    setup.broker.queues["E1"].consumers[0].link.close()
    await peer.say(amqp.flow(0, 1))
    last = await peer.expect(amqp.TRANSFER)
    assert last[9] is True
    assert [body for _, body in setup.broker.queues["E1"].messages] == [b"x" * 1_000_000]


async def test_one_disposition_settles_many(setup: Any, peer: RawPeer) -> None:
    for n in range(20):
        setup.broker.queues["E1"].put(b"%d" % n)
    await peer.say(amqp.attach("one", 0, RECEIVER, "E1"), amqp.flow(0, 100))
    for _ in range(20):
        await peer.expect(amqp.TRANSFER)
    await peer.say(amqp.disposition(RECEIVER, 0, 19, settled=True, state=0x24))
    await eventually(lambda: len(setup.broker.outcomes) == 20)
    assert all(outcome.taken for outcome in setup.broker.outcomes)


async def test_settled_without_an_outcome_is_not_success(setup: Any, peer: RawPeer) -> None:
    setup.broker.queues["E1"].put(b"x")
    await peer.say(amqp.attach("one", 0, RECEIVER, "E1"), amqp.flow(0, 1))
    await peer.expect(amqp.TRANSFER)
    await peer.say(amqp.disposition(RECEIVER, 0, 0, settled=True, state=None))
    await eventually(lambda: setup.broker.outcomes)
    assert not setup.broker.outcomes[0].taken


async def test_a_detach_that_does_not_close_is_mirrored(setup: Any, peer: RawPeer) -> None:
    await peer.say(amqp.attach("one", 0, SENDER, "E2"))
    await peer.expect(amqp.ATTACH, amqp.FLOW)
    await peer.say(amqp.detach(0, closed=False))
    fields = await peer.expect(amqp.DETACH)
    assert len(fields) < 2 or not fields[1]
    await peer.say(amqp.attach("one", 0, SENDER, "E2"))
    await peer.expect(amqp.ATTACH, amqp.FLOW)
    assert len(setup.broker.producers) == 1


@pytest.mark.parametrize(("role", "terminus"), [(SENDER, "E2"), (RECEIVER, "E1")])
async def test_a_link_that_comes_back_with_open_deliveries_begins_anew(
    setup: Any, peer: RawPeer, role: bool, terminus: str
) -> None:
    """503 cl. 6.1.6: resumption is not offered. AMQP 2.6.13: a null map says that nothing is known."""
    setup.broker.queues["E1"].put(b"whole")
    tag = (0).to_bytes(4, "big")
    known = Map(((tag, None),))
    await peer.say(amqp.attach("one", 0, role, terminus, unsettled=known))
    answer = await peer.expect(amqp.ATTACH)
    assert answer[7:8] in ([], [None])
    if role is RECEIVER:
        await peer.say(amqp.flow(0, 1))
        code, fields, payload = await peer.read()
        assert (code, fields[8:9] in ([], [None], [False])) == (amqp.TRANSFER, True)
        assert payload.endswith(b"whole")
    else:
        await peer.expect(amqp.FLOW)
        await peer.say(amqp.transfer(0, 0, b"sent again from its beginning"))
        assert (await peer.expect(amqp.DISPOSITION))[4].descriptor == 0x24  # accepted
        ((_, kept),) = setup.broker.queues["E2"].messages
        assert kept == b"sent again from its beginning"


async def test_the_end_of_a_session_ends_its_links_and_only_them(setup: Any, peer: RawPeer) -> None:
    await peer.say(amqp.begin(1), amqp.attach("one", 0, SENDER, "E2"))
    await peer.say(amqp.attach("two", 0, SENDER, "E3", channel=1))
    await eventually(lambda: len(setup.broker.producers) == 2)
    await peer.say(amqp.end(1))
    await peer.expect(amqp.END)
    await eventually(lambda: len(setup.broker.producers) == 1)
    await peer.say(amqp.transfer(0, 0, b"x"))
    await peer.expect(amqp.DISPOSITION)


async def test_open_twice_ends_the_connection(peer: RawPeer) -> None:
    await peer.say(amqp.open_())
    assert condition((await peer.expect(amqp.CLOSE))[0]) == "amqp:connection:framing-error"
    await peer.ended()


async def test_a_frame_that_is_no_amqp_ends_the_connection(peer: RawPeer) -> None:
    await peer.say(amqp.frame(b"\x00\x53\x7f\x45"))
    assert condition((await peer.expect(amqp.CLOSE))[0]) == "amqp:connection:framing-error"
    await peer.ended()


async def test_a_frame_above_the_announced_size_ends_the_connection(
    setup: Any, peer: RawPeer
) -> None:
    await peer.say((setup.server.limits.max_frame_size + 1).to_bytes(4, "big") + b"\x02\0\0\0")
    assert condition((await peer.expect(amqp.CLOSE))[0]) == "amqp:connection:framing-error"
    await peer.ended()


class TestTightLimits:
    @pytest.fixture
    def limits(self) -> AmqpLimits:
        return AmqpLimits(
            close_seconds=0.3,
            idle_seconds=3,
            max_sessions=3,
            max_links=4,
            max_message_size=20_000,
            max_incoming_octets=30_000,
        )

    async def test_a_silent_peer_is_dropped(self, peer: RawPeer) -> None:
        error = (await peer.expect(amqp.CLOSE))[0]
        assert condition(error) == "amqp:resource-limit-exceeded"
        await peer.ended()

    async def test_heartbeats_keep_a_connection_up(self, setup: Any, peer: RawPeer) -> None:
        for _ in range(20):
            await asyncio.sleep(0.2)
            await peer.say(amqp.frame(b""))
        assert len(setup.server.connections()) == 1

    async def test_sessions_have_a_limit(self, peer: RawPeer) -> None:
        await peer.say(amqp.begin(1), amqp.begin(2), amqp.begin(3))
        assert condition((await peer.expect(amqp.CLOSE))[0]) == "amqp:connection:framing-error"
        await peer.ended()

    async def test_a_channel_that_is_begun_again_and_again_ends_the_connection(
        self, setup: Any, peer: RawPeer
    ) -> None:
        await peer.say(*[amqp.begin(1)] * 200)
        assert condition((await peer.expect(amqp.CLOSE))[0]) == "amqp:resource-limit-exceeded"
        await peer.ended()
        await eventually(lambda: not setup.server.connections())

    async def test_half_received_messages_are_bounded_together(
        self, setup: Any, peer: RawPeer
    ) -> None:
        for n in range(3):
            await peer.say(amqp.attach(f"link{n}", n, SENDER, "E2"))
            await peer.expect(amqp.ATTACH, amqp.FLOW)
        for n in range(3):
            await peer.say(amqp.transfer(n, n, b"x" * 12_000, more=True))
        gone = await peer.expect(amqp.DETACH)
        assert condition(gone[2]) == "amqp:resource-limit-exceeded"
        server_side = next(iter(setup.server._connections))
        assert server_side.ledger.used == 24_000
        await peer.say(amqp.transfer(0, 0, b"y" * 100))
        await peer.expect(amqp.DISPOSITION)

    async def test_attaching_and_detaching_without_reading_ends_the_connection(
        self, setup: Any, peer: RawPeer
    ) -> None:
        """Every answer waits in our memory until it is written."""
        server_side = next(iter(setup.server._connections))
        server_side.stream.pause_writing()
        pair = amqp.attach("x" * 200, 0, SENDER, "E2") + amqp.detach(0)
        for _ in range(1000):
            if peer.writer.is_closing():
                break
            with contextlib.suppress(ConnectionError):
                await peer.say(pair)
            await asyncio.sleep(0)
        else:
            pytest.fail("a thousand answers wait in memory")
        await eventually(lambda: not setup.server.connections())
