"""Local transactions (AMQP part 4): what belongs to one is committed in one store transaction.

A transaction lives in memory until its discharge, so its size is limited; a connection that goes
away takes its open transactions with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

from gridpost.core.queues import Operation
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.broker.context import BrokerContext

Callback = Callable[[], None]


class Transaction:
    """Operations, and what to do when they are safe or will never be."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self.operations: list[Operation] = []
        self.done: list[Callback] = []
        self.undone: list[Callback] = []
        self._octets = 0

    def add(
        self,
        operation: Operation,
        octets: int,
        *,
        done: Callback | None = None,
        undone: Callback | None = None,
    ) -> None:
        settings = self._context.settings
        if (
            len(self.operations) >= settings.transaction_messages
            or self._octets + octets > settings.transaction_octets
        ):
            raise Refusal(
                Rule.LIMIT_EXCEEDED,
                f"a transaction has at most {settings.transaction_messages} messages "
                f"and {settings.transaction_octets} octets",
            )
        self._octets += octets
        self.operations.append(operation)
        self.after(done=done, undone=undone)

    def after(self, *, done: Callback | None = None, undone: Callback | None = None) -> None:
        if done is not None:
            self.done.append(done)
        if undone is not None:
            self.undone.append(undone)

    def roll_back(self) -> None:
        for undo in self.undone:
            undo()

    async def commit(self) -> None:
        if self.operations:
            finished: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
            self._context.store.submit(self.operations, finished.set_result)
            refusal = await finished
            if refusal is not None:
                self.roll_back()
                raise Refusal(
                    Rule.TRANSACTION_ROLLED_BACK, f"rolled back: {refusal.message}", refusal.id
                )
        for callback in self.done:
            callback()


class Transactions:
    """core.links.Coordinator: the transactions of one connection."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._numbers = count(1)
        self._open: dict[bytes, Transaction] = {}

    def find(self, name: bytes) -> Transaction:
        found = self._open.get(name)
        if found is None:
            raise Refusal(Rule.TRANSACTION_UNKNOWN, "no such transaction is open")
        return found

    async def declare(self) -> bytes:
        most = self._context.settings.open_transactions
        if len(self._open) >= most:
            raise Refusal(Rule.LIMIT_EXCEEDED, f"a connection has at most {most} open transactions")
        name = next(self._numbers).to_bytes(4, "big")
        self._open[name] = Transaction(self._context)
        return name

    async def discharge(self, transaction: bytes, *, failed: bool) -> None:
        found = self.find(transaction)
        del self._open[transaction]
        if failed:
            found.roll_back()
        else:
            await found.commit()

    def abandon(self, transaction: bytes) -> None:
        found = self._open.pop(transaction, None)
        if found is not None:
            found.roll_back()
