"""What the broker is told when messages are done: nothing that is still under way is let go."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridpost.core.refusal import Refusal, Rule
from gridpost.services.settling import Settling


class Broker:
    """A channel that settles as RabbitMQ does: what is not outstanding is an error."""

    def __init__(self, tags: Iterable[int]) -> None:
        self.closed = False
        self.outstanding = list(tags)
        self.acked: list[int] = []
        self.given_back: list[int] = []
        self.frames = 0

    async def ack(self, tag: int, *, multiple: bool = False) -> None:
        if self.closed:
            raise Refusal(Rule.AMQP091_UNREACHABLE, "closed")
        self._take(tag, multiple, self.acked)

    async def nack(self, tag: int, *, requeue: bool = True) -> None:
        await asyncio.sleep(0)  # others come in between
        self._take(tag, False, self.given_back)

    def _take(self, tag: int, multiple: bool, into: list[int]) -> None:
        assert tag in self.outstanding
        found = [t for t in self.outstanding if t == tag or (multiple and t < tag)]
        self.outstanding = [t for t in self.outstanding if t not in found]
        into.extend(found)
        self.frames += 1


def taken(tags: Iterable[int]) -> tuple[Broker, Settling]:
    broker = Broker(tags)
    settling = Settling(broker)  # type: ignore[arg-type]
    for tag in broker.outstanding:
        settling.took(tag)
    return broker, settling


async def test_what_is_done_at_the_same_time_is_one_frame() -> None:
    broker, settling = taken(range(1, 6))
    await asyncio.gather(*(settling.ack(tag) for tag in (2, 1, 3, 4, 5)))
    assert (broker.acked, broker.frames) == ([1, 2, 3, 4, 5], 1)


async def test_one_that_is_under_way_is_not_let_go_with_those_after_it() -> None:
    broker, settling = taken(range(1, 6))
    await asyncio.gather(*(settling.ack(tag) for tag in (1, 2, 4, 5)))
    assert broker.outstanding == [3]
    await settling.ack(3)
    assert sorted(broker.acked) == [1, 2, 3, 4, 5]


async def test_one_that_is_given_back_is_not_overtaken() -> None:
    broker, settling = taken(range(1, 4))
    await asyncio.gather(settling.nack(1, requeue=True), settling.ack(2), settling.ack(3))
    assert broker.given_back == [1]
    assert sorted(broker.acked) == [2, 3]


async def test_a_channel_that_is_gone_is_told_and_holds_nothing_up() -> None:
    broker, settling = taken(range(1, 3))
    broker.closed = True
    with pytest.raises(Refusal):
        await settling.ack(1)
    broker.closed = False
    await settling.ack(2)
    assert broker.acked == [2]


@given(st.data())
def test_each_message_is_settled_once_and_as_it_ended(data: st.DataObject) -> None:
    tags = range(1, data.draw(st.integers(2, 12)))
    order = data.draw(st.permutations(list(tags)))
    back = data.draw(st.sets(st.sampled_from(list(tags))))
    groups = data.draw(st.lists(st.integers(1, 4), min_size=len(order), max_size=len(order)))

    async def run() -> Broker:
        broker, settling = taken(tags)
        rest = list(order)
        for size in groups:
            now, rest = rest[:size], rest[size:]
            works = [
                settling.nack(tag, requeue=False) if tag in back else settling.ack(tag)
                for tag in now
            ]
            await asyncio.gather(*works)
        return broker

    broker = asyncio.run(run())
    assert broker.outstanding == []
    assert set(broker.given_back) == back
    assert len(broker.acked) == len(set(broker.acked)) == len(tags) - len(back)
