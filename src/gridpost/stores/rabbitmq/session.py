"""How an edge stands with RabbitMQ: its two connections, whether it is out of reach, whether it takes
publications.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from gridpost.core.amqp091 import (
    Channel,
    ConnectionKeeper,
    Incoming,
    RabbitClient,
    RabbitConnection,
)
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.rabbitmq.messages import EDGES, PROBE, UNREADABLE, arguments
from gridpost.stores.tasks import Tasks

T = TypeVar("T")

_LOOK_SECONDS = 1.0
"""Between looks whether RabbitMQ takes publications."""


class Session:
    def __init__(
        self,
        client: RabbitClient,
        component: str,
        tasks: Tasks,
        *,
        told: Callable[[Incoming], None],
        lost: Callable[[Refusal], None],
    ) -> None:
        """`told` gets what edges tell all of them; `lost` is called when a connection is gone."""
        self.blocked = False
        """RabbitMQ is short of memory or disk, and takes no publications."""
        self._client = client
        self._component = component
        self._tasks = tasks
        self._told = told
        self._lost = lost
        self._keeper: ConnectionKeeper = client.keep(
            self._work, purpose=f"{component} producing", lost=self._was_lost
        )
        self._publishing: Channel | None = None
        self._asking: Channel | None = None
        self._delivering: RabbitConnection | None = None

    async def open(self) -> None:
        await self._keeper.start(insist=False)
        self._tasks.start(self._watch_alarms())

    async def close(self) -> None:
        await self._keeper.close()
        if self._delivering is not None:
            await self._delivering.close()

    async def _work(self, connection: RabbitConnection) -> None:
        """A new connection: publications on it, everything else on another.

        RabbitMQ stops reading a connection that publishes when it runs short of memory or disk;
        acknowledgements must go on then.
        """
        delivering = await self._client.connect(f"{self._component} consuming")
        try:
            publishing = await connection.channel()
            asking = await delivering.channel()
            quorum = arguments(connection.version)
            await asking.declare_queue(UNREADABLE, arguments=quorum)
            await asking.declare_queue(
                PROBE, arguments=arguments(connection.version, **{"x-max-length": 1})
            )
            await asking.declare_exchange(EDGES, "fanout")
            own, _ = await asking.declare_queue(exclusive=True, durable=False, auto_delete=True)
            await asking.bind(own, EDGES)
            await asking.consume(own, self._told, no_ack=True)
        except BaseException:
            await delivering.close()
            raise
        self._publishing, self._asking, self._delivering = publishing, asking, delivering
        # One without the other is of no use.
        delivering.lost.add_done_callback(lambda _: self._tasks.start(connection.close()))

    def _was_lost(self, refusal: Refusal) -> None:
        delivering = self._delivering
        self._publishing = self._asking = self._delivering = None
        self.blocked = False
        if delivering is not None:
            self._tasks.start(delivering.close())
        self._lost(refusal)

    async def _watch_alarms(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            connection = self._keeper.connection
            self.blocked = connection is not None and await connection.blocked()

    # ------------------------------------------------------------ what there is, or why there is not

    @property
    def trouble(self) -> Refusal | None:
        return None if self._publishing is not None else self._why()

    @property
    def producing(self) -> RabbitConnection:
        return self._reached(self._keeper.connection)

    @property
    def delivering(self) -> RabbitConnection:
        return self._reached(self._delivering)

    @property
    def publisher(self) -> Channel:
        """With confirms, on the connection that produces."""
        return self._reached(self._publishing)

    @property
    def asker(self) -> Channel:
        """For declarations, on the connection that consumes."""
        return self._reached(self._asking)

    def _reached(self, what: T | None) -> T:
        if what is None:
            raise self._why()
        return what

    def _why(self) -> Refusal:
        return self._keeper.why or Refusal(
            Rule.AMQP091_UNREACHABLE, "not connected to RabbitMQ yet"
        )
