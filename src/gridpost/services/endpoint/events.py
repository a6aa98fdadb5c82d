"""Server-sent events: what changed, to whoever listens, as long as they keep up.

A listener that falls behind is cut off rather than kept in memory; it connects again and asks for
what it missed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from gridpost.core.delivery import Side
from gridpost.core.message_box import BoxEntry
from gridpost.services.endpoint.signals import Signals, StatusChange

QUEUE = 1000
KEEP_ALIVE_SECONDS = 15.0

Visible = Callable[[Side, str], bool]
Admitted = Callable[[], bool]


class Events:
    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self._open: dict[asyncio.Queue[str | None], Admitted] = {}

    async def subscribe(
        self, visible: Visible, admitted: Admitted = lambda: True
    ) -> AsyncIterator[str]:
        """Each item is one event in the form of the HTML standard, cl. 9.2.

        What is `visible` is asked for each event, who is still `admitted` after every change of rights.
        """
        queue: asyncio.Queue[str | None] = asyncio.Queue(QUEUE)

        def put(name: str, data: dict[str, Any]) -> None:
            try:
                queue.put_nowait(f"event: {name}\ndata: {json.dumps(data)}\n\n")
            except asyncio.QueueFull:
                self._end(queue)

        def told(change: StatusChange) -> None:
            if queue in self._open and visible(Side.SENT, change.message_type):
                put("status", _status(change))

        def offered(entry: BoxEntry) -> None:
            if queue in self._open and visible(Side.RECEIVED, entry.metadata.message_type):
                put("waiting", _waiting(entry))

        stops = (
            self._signals.on_status(told),
            self._signals.on_offered(offered),
            self._signals.on_offered_elsewhere(offered),
        )
        self._open[queue] = admitted
        try:
            yield ": gridpost\n\n"
            while True:
                try:
                    async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                        item = await queue.get()
                except TimeoutError:
                    item = ": still here\n\n"
                if item is None:
                    return
                yield item
        finally:
            self._open.pop(queue, None)
            for stop in stops:
                stop()

    def close(self) -> None:
        """The endpoint stops: every stream ends."""
        for queue in list(self._open):
            self._end(queue)

    def check(self) -> None:
        """Rights have changed: streams of those that are no longer admitted end."""
        for queue, admitted in list(self._open.items()):
            if not admitted():
                self._end(queue)

    def _end(self, queue: asyncio.Queue[str | None]) -> None:
        """What waits in it is told no more."""
        self._open.pop(queue, None)
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(None)


def _status(change: StatusChange) -> dict[str, Any]:
    return {
        "messageID": change.message_id,
        "status": change.status,
        "state": change.state,
        "at": change.at.isoformat(),
        "messageType": change.message_type,
        "receiverCode": change.receiver_code,
        "baMessageID": change.ba_message_id,
        "application": change.application,
        "detail": change.detail,
    }


def _waiting(entry: BoxEntry) -> dict[str, Any]:
    metadata = entry.metadata
    return {
        "messageID": metadata.message_id,
        "messageType": metadata.message_type,
        "senderCode": metadata.sender_code,
        "baMessageID": metadata.ba_message_id,
    }
