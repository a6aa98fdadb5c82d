"""What all parts of one broker share, and how a refusal becomes known: journal, log and figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from gridpost.core.amqp_access import BrokerAccess
from gridpost.core.delivery import Side
from gridpost.core.journal import JournalRow, TransferRow, refusal_row
from gridpost.core.peer_identity import PeerIdentities
from gridpost.core.ports import Clock
from gridpost.core.queues import Queued, QueueStore, Record
from gridpost.core.refusal import Code, Refusal, Rule
from gridpost.core.synchronisation import Directory
from gridpost.services.broker.metrics import BrokerMetrics
from gridpost.services.broker.settings import BrokerSettings
from gridpost.services.operations.message_log import tell_transfer
from gridpost.wire.mades.passing import correlation_of

log = structlog.get_logger(__name__)

# Writing these down would use up the room whose end they report.
_NOT_WRITTEN = frozenset({Rule.STORE_FULL})


@dataclass
class BrokerContext:
    settings: BrokerSettings
    clock: Clock
    store: QueueStore
    metrics: BrokerMetrics
    directory: Callable[[], Directory]
    """The local copy as it is now (503 cl. 7.1)."""
    roots: Callable[[], Sequence[bytes]]

    def __post_init__(self) -> None:
        self.access = BrokerAccess(self.settings.restriction)
        self._known: tuple[Directory, PeerIdentities] | None = None

    def configure(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self.access = BrokerAccess(settings.restriction)

    def identities(self) -> PeerIdentities:
        directory = self.directory()
        if self._known is None or self._known[0] is not directory:
            self._known = directory, PeerIdentities(directory)
        return self._known[1]

    def write_down(self, row: JournalRow) -> None:
        """Something that nobody waits for."""
        self.store.submit((Record(row),), _unless_refused)

    def passed(self, row: JournalRow, message: Queued) -> None:
        """A message came in or went out, and that is safe."""
        if self.settings.log_messages and isinstance(row, TransferRow):
            tell_transfer(row, message.correlation_id)

    def sent(self, message: Queued) -> None:
        """Its content is here now, and may not be when it is taken."""
        if self.settings.log_messages and not message.correlation_id and message.content:
            message.correlation_id = correlation_of(message.content) or message.message_id

    def refused(self, refusal: Refusal, peer: str, message_id: str = "") -> None:
        """503 cl. 5.6.2 and 10: every refusal can be found again by its id."""
        self.metrics.refused(refusal.rule)
        log.info(
            "refused",
            rule=refusal.rule.name,
            refusal=refusal.id,
            peer=peer,
            message_id=message_id,
            reason=refusal.message,
        )
        if refusal.rule in _NOT_WRITTEN:
            return
        self.write_down(
            refusal_row(
                refusal,
                self.clock.now(),
                peer=peer,
                message_id=message_id,
                security=refusal.code is Code.AUTHENTICATION_ERROR,
            )
        )


def sent_row(
    at: datetime, queue: str, message: Queued, outcome: str, detail: str = ""
) -> JournalRow:
    """503 cl. 10: what happened to a message on its way out of a queue."""
    return TransferRow(
        at,
        Side.SENT,
        message.message_id,
        message.sender,
        queue,
        message.message_type,
        queue,
        message.size,
        outcome,
        detail,
    )


def _unless_refused(refusal: Refusal | None) -> None:
    if refusal is not None:
        log.error("not written down", refusal=refusal.id, reason=refusal.message)
