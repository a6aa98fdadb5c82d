"""The coordinator's end of AMQP transactions (part 4): declare and discharge.

Which transfers and outcomes belong to a transaction is in their own states, which links read. What
a transaction does is the service's; here is only how a peer asks for it and what it is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from gridpost.core.links import Coordinator, ReceivedDelivery
from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.amqp10.engine import DECLARED
from gridpost.transports.amqp10.receiver import Received
from gridpost.wire.amqp.codec import decode, skip
from gridpost.wire.amqp.types import Described, Value

_AMQP_VALUE: Final = (0x77, "amqp:amqp-value:*")
_DECLARE: Final = (0x31, "amqp:declare:list")
_DISCHARGE: Final = (0x32, "amqp:discharge:list")


class CoordinatorLink:
    """Takes the messages of one coordinator link; a `ProducerHandler`."""

    def __init__(
        self,
        coordinator: Coordinator,
        fail: Callable[[Exception], None],
        tell: Callable[[Refusal], None],
    ) -> None:
        self._coordinator = coordinator
        self._fail = fail
        self._tell = tell
        self._open: set[bytes] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._attached = True

    def on_delivery(self, delivery: ReceivedDelivery) -> None:
        assert isinstance(delivery, Received)
        try:
            work = self._work(delivery)
        except Refusal as refusal:
            self._tell(refusal)
            raise
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _work(self, delivery: Received) -> Coroutine[Any, Any, None]:
        request, fields = _request(bytes(delivery.message))
        if request in _DECLARE:
            if fields and fields[0] is not None:
                raise Refusal(Rule.NOT_OFFERED, "transactions of other resources are not offered")
            return self._declare(delivery)
        if request in _DISCHARGE and fields and isinstance(fields[0], bytes):
            return self._discharge(delivery, fields[0], len(fields) > 1 and fields[1] is True)
        raise Refusal(Rule.MALFORMED_AMQP, "neither declare nor discharge")

    def on_settled(self, delivery: ReceivedDelivery) -> None:
        pass

    def on_detached(self) -> None:
        # AMQP 4.3: what is not discharged when the coordinator's link goes is rolled back.
        self._attached = False
        for transaction in self._open:
            self._coordinator.abandon(transaction)
        self._open.clear()

    async def _declare(self, delivery: Received) -> None:
        try:
            transaction = await self._coordinator.declare()
        except Refusal as refusal:
            self._reject(delivery, refusal)
        except Exception as error:
            self._fail(error)
        else:
            if not self._attached:
                self._coordinator.abandon(transaction)
                return
            self._open.add(transaction)
            delivery.say(DECLARED, [transaction])

    async def _discharge(self, delivery: Received, transaction: bytes, failed: bool) -> None:
        if transaction not in self._open:
            refusal = Refusal(Rule.TRANSACTION_UNKNOWN, "no such transaction is open")
            self._reject(delivery, refusal)
            return
        self._open.discard(transaction)
        try:
            await self._coordinator.discharge(transaction, failed=failed)
        except Refusal as refusal:
            self._reject(delivery, refusal)
        except Exception as error:
            self._fail(error)
        else:
            delivery.accept()

    def _reject(self, delivery: Received, refusal: Refusal) -> None:
        self._tell(refusal)
        delivery.reject(refusal)


def _request(message: bytes) -> tuple[Value, list[Value]]:
    """AMQP 4.5.2: the message's body is one amqp-value, a declare or a discharge."""
    at = 0
    while at < len(message):
        end = skip(message, at, len(message))
        section = decode(message[at:end])
        if isinstance(section, Described) and section.descriptor in _AMQP_VALUE:
            request = section.value
            if isinstance(request, Described) and isinstance(request.value, list):
                return request.descriptor, request.value
        at = end
    raise Refusal(Rule.MALFORMED_AMQP, "a message to a coordinator has no request")
