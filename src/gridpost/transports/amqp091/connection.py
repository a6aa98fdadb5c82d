"""A connection: its channels, whether RabbitMQ blocks it, and the one refusal that says that it is lost."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.amqp091.channel import Amqp091Channel
from gridpost.transports.amqp091.faults import refusing

# A blocked connection is told at once; this only has to be longer than a turn of the loop.
_LOOK: Final = 0.01
_GOODBYE: Final = 2.0


class Amqp091Connection:
    """core.amqp091.RabbitConnection."""

    def __init__(self, connection: Any, address: str) -> None:
        self.address = address
        self.lost: asyncio.Future[Refusal] = asyncio.get_running_loop().create_future()
        self._connection = connection
        self._transport = connection.transport
        connection.close_callbacks.add(self._on_lost)

    @property
    def version(self) -> tuple[int, ...]:
        text = self._transport.connection.server_properties.get("version", "0")
        parts = str(text).split("-")[0].split(".")
        return tuple(int(part) for part in parts if part.isdigit())

    async def channel(self, *, confirms: bool = True) -> Amqp091Channel:
        with refusing("opening a channel"):
            opened = self._connection.channel(
                publisher_confirms=confirms, on_return_raises=confirms
            )
            await opened.initialize()
            return Amqp091Channel(opened, await opened.get_underlay_channel(), confirms)

    async def blocked(self) -> bool:
        try:
            async with asyncio.timeout(_LOOK):
                await self._transport.ready()
        except TimeoutError:
            return True
        return False

    async def close(self) -> None:
        with suppress(Exception):
            await self._connection.close()
        with suppress(TimeoutError):
            # The library tells its listeners in a task of its own.
            async with asyncio.timeout(_GOODBYE):
                await self._transport.close_callback.wait()
        self._on_lost(self._connection, None)

    def _on_lost(self, _: Any, error: BaseException | None) -> None:
        if not self.lost.done():
            why = "closed" if error is None else str(error) or type(error).__name__
            self.lost.set_result(
                Refusal(
                    Rule.AMQP091_UNREACHABLE, f"the connection to RabbitMQ at {self.address}: {why}"
                )
            )
