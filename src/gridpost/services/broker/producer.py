"""Taking messages from a producer: Table 4 for each of them, and accepted only when safe (503 cl. 5.8.1)."""

from __future__ import annotations

from functools import partial

from gridpost.core.delivery import Side
from gridpost.core.journal import TransferRow
from gridpost.core.links import IncomingLink, ReceivedDelivery
from gridpost.core.queues import Put, Queued, Record
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.version import INSTALLED, check_message
from gridpost.services.broker.context import BrokerContext
from gridpost.services.broker.queues import AnyQueue
from gridpost.services.broker.transactions import Transactions
from gridpost.wire.mades.passing import Passing, read_passing


class Producer:
    """core.links.ProducerHandler: one link that leads to one queue."""

    def __init__(
        self,
        context: BrokerContext,
        client: str,
        queue: AnyQueue,
        link: IncomingLink,
        transactions: Transactions,
    ) -> None:
        self._context = context
        self._client = client
        self._queue = queue
        self._link = link
        self._transactions = transactions
        self.gone = False
        queue.producers += 1

    @property
    def queue(self) -> str:
        return self._queue.code

    def close(self, refusal: Refusal) -> None:
        self._link.close(refusal)

    def on_delivery(self, delivery: ReceivedDelivery) -> None:
        context = self._context
        passing: Passing | None = None
        now = context.clock.now()
        if delivery.presettled:
            self._at_most_once(delivery)
            return
        try:
            passing = read_passing(delivery.message)
            check_message(INSTALLED, passing.mversion)
            context.access.produce(
                context.directory(),
                self._client,
                self._queue.code,
                sender_code=passing.sender_code,
                receiver_code=passing.receiver_code,
                subject=passing.subject,
                at=now,
            )
            expires_at = passing.expires_at(now)
            message = Queued(
                0,
                passing.message_id,
                passing.sender_code,
                passing.subject,
                now,
                expires_at,
                len(passing.bare),
                passing.priority,
                0,
                passing.bare,
                correlation_id=passing.correlation_id,
            )
            row = self._row(message, "accepted")
            if delivery.transaction is not None:
                self._in_transaction(delivery, delivery.transaction, message, row)
            elif expires_at <= now:
                # 503 cl. 5.7: accepted, then ignored.
                row = self._row(message, "expired")
                context.store.submit((Record(row),), partial(self._ignored, delivery))
            else:
                put = Put(self._queue.code, message, row, followed=delivery.followed)
                context.store.submit((put,), partial(self._stored, delivery, put))
        except Refusal as refusal:
            context.refused(refusal, self._client, passing.message_id if passing else "")
            raise

    def _at_most_once(self, delivery: ReceivedDelivery) -> None:
        """503 cl. 5.8.3. Nobody waits for the outcome of such a transfer: only the link's end is heard."""
        message = "transfers that are settled by the sender are not offered"
        refusal = Refusal(Rule.NOT_OFFERED, message)
        self._context.refused(refusal, self._client)
        delivery.reject(refusal)
        self._link.close(refusal)

    def on_settled(self, delivery: ReceivedDelivery) -> None:
        """The id stays known until the message expires, whatever was settled."""

    def on_detached(self) -> None:
        self.gone = True
        self._queue.producer_left()

    def _stored(self, delivery: ReceivedDelivery, put: Put, refusal: Refusal | None) -> None:
        if refusal is not None:
            self._context.refused(refusal, self._client, put.message.message_id)
            delivery.reject(refusal)
            return
        delivery.accept()
        self._arrived(put)

    def _arrived(self, put: Put) -> None:
        self._context.passed(put.written(), put.message)
        metrics = self._context.metrics
        if put.duplicate:
            metrics.duplicates += 1
            return
        metrics.stored += 1
        metrics.octets_in += put.message.size
        self._queue.arrived(put.message)

    def _ignored(self, delivery: ReceivedDelivery, refusal: Refusal | None) -> None:
        if refusal is not None:
            delivery.reject(refusal)
            return
        self._context.metrics.expired_on_arrival += 1
        delivery.accept()

    def _in_transaction(
        self, delivery: ReceivedDelivery, name: bytes, message: Queued, row: TransferRow
    ) -> None:
        transaction = self._transactions.find(name)
        if message.expires_at <= message.stored_at:
            transaction.add(Record(self._row(message, "expired")), 0)
        else:
            put = Put(self._queue.code, message, row)
            transaction.add(
                put,
                message.size,
                done=partial(self._promise_kept, put),
                undone=self._queue.promise_over,
            )
            self._queue.promised += 1
        delivery.accept()

    def _promise_kept(self, put: Put) -> None:
        self._arrived(put)
        self._queue.promise_over()

    def _row(self, message: Queued, outcome: str) -> TransferRow:
        return TransferRow(
            message.stored_at,
            Side.RECEIVED,
            message.message_id,
            message.sender,
            self._queue.code,
            message.message_type,
            self._client,
            message.size,
            outcome,
        )
