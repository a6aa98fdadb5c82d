"""The blocking client: the asynchronous one in a thread of its own, shared by all threads."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from concurrent.futures import TimeoutError as Expired
from datetime import datetime, timedelta
from threading import Thread
from typing import Any, TypeVar

from gridpost.capacity.asynchronous import AsyncCapacityClient
from gridpost.capacity.settings import ClientSettings
from gridpost.capacity.values import Event, Result, Wanted
from gridpost.core.allocation import AllocationType
from gridpost.wire.cmm import AllocationDataList, AtcDataList

T = TypeVar("T")


class CapacityClient:
    """`with CapacityClient(settings) as client: ...`"""

    def __init__(self, settings: ClientSettings) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="gridpost-capacity", daemon=True)
        self._settings = settings
        self._client: AsyncCapacityClient | None = None

    def __enter__(self) -> CapacityClient:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        self._thread.start()
        try:
            self._client = self._run(_opened(self._settings))
        except BaseException:
            self._stop()
            raise

    def close(self) -> None:
        if self._client is not None:
            self._run(self._client.close())
            self._client = None
        self._stop()

    @property
    def client(self) -> AsyncCapacityClient:
        if self._client is None:
            raise RuntimeError("the client is not open")
        return self._client

    @property
    def service_alive(self) -> bool:
        return self.client.service_alive

    @property
    def latency(self) -> timedelta | None:
        return self.client.latency

    def allocate(
        self,
        wanted: Iterable[Wanted],
        type: AllocationType = AllocationType.AON,
        correlation_id: str = "",
    ) -> Result:
        return self._run(self.client.allocate(wanted, type, correlation_id))

    def resolve(self, result: Result) -> Result:
        return self._run(self.client.resolve(result))

    def atc(self, date: datetime, area1: str, area2: str) -> tuple[AtcDataList, ...]:
        return self._run(self.client.atc(date, area1, area2))

    def allocations(
        self, balancing_group: str, start: datetime, end: datetime, area1: str, area2: str
    ) -> tuple[AllocationDataList, ...]:
        return self._run(self.client.allocations(balancing_group, start, end, area1, area2))

    def events(self, timeout: timedelta | None = None) -> Iterator[Event]:
        """Until none came for so long; without a timeout until the client is closed."""
        stream = self.client.events()
        seconds = None if timeout is None else timeout.total_seconds()
        while True:
            waiting = asyncio.run_coroutine_threadsafe(_next(stream), self._loop)
            try:
                event = waiting.result(seconds)
            except Expired:
                waiting.cancel()
                return
            if event is None:
                return
            yield event

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _stop(self) -> None:
        # What a failed connection left behind ends before its loop does.
        self._run(_end_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _opened(settings: ClientSettings) -> AsyncCapacityClient:
    client = AsyncCapacityClient(settings)
    await client.open()
    return client


async def _next(stream: Any) -> Event | None:
    event: Event | None = await anext(stream, None)
    return event


async def _end_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
