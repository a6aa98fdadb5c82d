"""Notices to applications in memory, rule by rule as the port says it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from gridpost.core.delivery import Side, TraceEntry
from gridpost.core.notices import Notice, Subscription
from gridpost.stores.memory.state import State


class MemoryNotices:
    """core.notices.Notices."""

    def __init__(self, tables: State) -> None:
        self._tables = tables

    def subscribe(self, subscription: Subscription) -> None:
        number = self._number(subscription.message_id)
        if number is None:
            raise ValueError(f"no sent message {subscription.message_id} is in the box")
        self._tables.subscriptions[number] = subscription

    def tell(self, message_id: str, line: TraceEntry, *, status: bool) -> None:
        subscription = self._tables.subscriptions.get(self._number(message_id) or 0)
        if subscription is not None and (subscription.every or status):
            self.append(
                Notice(subscription.channel, message_id, subscription.reference, line.at, line)
            )

    def append(self, notice: Notice) -> int:
        self._tables.last_notice += 1
        number = self._tables.last_notice
        self._tables.notices[number] = replace(notice, number=number)
        return number

    def read(self, channel: str, after: int, limit: int) -> Sequence[Notice]:
        found = (n for n in self._tables.notices.values() if n.channel == channel)
        return [notice for notice in found if notice.number > after][:limit]

    def hold(self, channel: str, after: int, limit: int) -> Sequence[Notice]:
        """There is one process."""
        return self.read(channel, after, limit)

    def let_go(self, channel: str) -> None:
        """There is nobody else."""

    def remove(self, numbers: Collection[int]) -> None:
        for number in numbers:
            self._tables.notices.pop(number, None)

    def prune(self, channel: str, before: datetime, limit: int) -> int:
        found = [n for n in self._tables.notices.values() if n.channel == channel]
        old = [notice.number for notice in found if notice.at < before][:limit]
        self.remove(old)
        return len(old)

    def _number(self, message_id: str) -> int | None:
        number = self._tables.numbers.get((Side.SENT, message_id))
        return number if number in self._tables.messages else None
