"""Feeding a consumer: what each outcome of a delivery means for its message."""

from __future__ import annotations

from functools import partial

from gridpost.core.links import Outcome, OutcomeKind, OutgoingLink, SentDelivery
from gridpost.core.queues import Queued
from gridpost.core.refusal import Refusal
from gridpost.services.broker.context import BrokerContext
from gridpost.services.broker.queues import AnyQueue
from gridpost.services.broker.transactions import Transaction, Transactions


class Consumer:
    """core.links.ConsumerHandler: one link that leads out of one queue."""

    def __init__(
        self,
        context: BrokerContext,
        client: str,
        queue: AnyQueue,
        link: OutgoingLink,
        transactions: Transactions,
    ) -> None:
        self.link = link
        self.refused: set[int] = set()
        self._context = context
        self._client = client
        self._queue = queue
        self._transactions = transactions
        self._gone = False
        queue.add(self)

    def on_credit(self, link: OutgoingLink) -> None:
        context = self._context
        try:
            # Table 4, any operation: being fed is one.
            context.access.consume(
                context.directory(), self._client, self._queue.code, context.clock.now()
            )
        except Refusal as refusal:
            context.refused(refusal, self._client)
            link.close(refusal)
            return
        self._queue.pump()

    def on_outcome(self, delivery: SentDelivery, outcome: Outcome) -> None:
        message: Queued = delivery.context
        queue, kind = self._queue, outcome.kind
        if outcome.transaction is not None:
            self._in_transaction(delivery, message, outcome, outcome.transaction)
        elif kind is OutcomeKind.ACCEPTED:
            queue.taken(delivery, message, settled=outcome.settled)
        elif kind is OutcomeKind.REJECTED:
            reason = f"{outcome.condition} {outcome.description}".strip()
            queue.rejected(delivery, message, reason, settled=outcome.settled)
        else:
            failed = kind is OutcomeKind.LOST or outcome.delivery_failed
            self._give_back(delivery, message, outcome, failed=failed)

    def on_detached(self) -> None:
        if not self._gone:
            self._gone = True
            self._queue.discard(self)

    def _give_back(
        self, delivery: SentDelivery, message: Queued, outcome: Outcome, *, failed: bool
    ) -> None:
        if outcome.undeliverable_here:
            self.refused.add(message.number)
        if not outcome.settled:
            delivery.settle()
        self._queue.gave_back(message, failed=failed, said=outcome.delivery_failed)
        # A link that is ending gives back one after the other; `on_detached` pumps once.
        if outcome.kind not in (OutcomeKind.LOST, OutcomeKind.UNSENT):
            self._queue.pump()

    def _in_transaction(
        self, delivery: SentDelivery, message: Queued, outcome: Outcome, name: bytes
    ) -> None:
        """AMQP 4.4.3: the outcome counts when the transaction succeeds, otherwise it was not said."""
        try:
            self._join(self._transactions.find(name), delivery, message, outcome)
        except Refusal:
            # A settled delivery is forgotten below us: nobody else would give its message back.
            self._undone(message, outcome)
            raise

    def _join(
        self, transaction: Transaction, delivery: SentDelivery, message: Queued, outcome: Outcome
    ) -> None:
        undone = partial(self._undone, message, outcome)
        if outcome.taken:
            transaction.add(
                self._queue.removal(message),
                0,
                done=partial(self._taken, delivery, message, outcome),
                undone=undone,
            )
            return
        said = Outcome(
            outcome.kind,
            outcome.condition,
            outcome.description,
            outcome.delivery_failed,
            outcome.undeliverable_here,
            settled=outcome.settled,
        )
        transaction.after(done=partial(self.on_outcome, delivery, said), undone=undone)

    def _taken(self, delivery: SentDelivery, message: Queued, outcome: Outcome) -> None:
        self._queue.removed(message)
        if not outcome.settled:
            delivery.settle()

    def _undone(self, message: Queued, outcome: Outcome) -> None:
        """What the peer has settled is delivered anew; what it has not it may still decide on."""
        if outcome.settled or self._gone:
            self._queue.gave_back(message, failed=True)
            self._queue.pump()
