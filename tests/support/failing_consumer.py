"""A consumer that fails at one message again and again, and takes all others."""

from __future__ import annotations

import asyncio

from gridpost.core.identifiers import new_message_id
from gridpost.core.links import ReceivedDelivery
from support.broker_process import CREDIT, BrokerNetwork, message
from support.waiting import eventually

ATTEMPTS = 5
# What a broker waits between attempts, in seconds, when nothing is configured.
PAUSES = (0.0, 0.2, 0.4, 0.8)


class FailingConsumer:
    def __init__(self, name: str) -> None:
        self._name = name.encode()
        self.attempts: list[float] = []
        self.others: list[bytes] = []

    def __call__(self, delivery: ReceivedDelivery) -> None:
        octets = bytes(delivery.message)
        if self._name not in octets:
            self.others.append(octets[-4:])
            delivery.accept()
            return
        self.attempts.append(asyncio.get_running_loop().time())
        if len(self.attempts) > ATTEMPTS:
            delivery.accept()
        else:
            delivery.modify(failed=True)


async def fails_again_and_again(taking: BrokerNetwork, giving: BrokerNetwork) -> str:
    """Others pass it in their order, and each new attempt waits longer; the id of the message."""
    name = new_message_id()
    others = [b"%04d" % at for at in range(20)]
    messages = [message(message_id=name), *(message(body=body) for body in others)]
    assert all(outcome.taken for outcome in await taking.send("E1", "E2", *messages))
    consumer = FailingConsumer(name)
    connection = await giving.connect("E2")
    await connection.attach_consumer("E2", consumer, credit=CREDIT)
    await eventually(lambda: len(consumer.attempts) > ATTEMPTS)
    await eventually(lambda: len(consumer.others) == len(others))
    assert consumer.others == others
    gaps = [b - a for a, b in zip(consumer.attempts, consumer.attempts[1:], strict=False)]
    # Never sooner; how much later is the machine's business.
    assert all(gap >= 0.9 * pause for gap, pause in zip(gaps, PAUSES, strict=False))
    connection.close()
    await connection.lost
    return name
