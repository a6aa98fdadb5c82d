"""What one work gets: a connection inside a transaction, the journal, and the check of a fence."""

from __future__ import annotations

from dataclasses import dataclass

from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.postgres.journal import PostgresJournal, Stream
from gridpost.stores.postgres.session import Connection

_CHECK_FENCE = "SELECT 1 FROM lease WHERE name = %s AND token = %s FOR SHARE"


@dataclass(frozen=True, slots=True)
class Fence:
    """Proof that its holder is the newest holder of a lease: the number of a take-over."""

    name: str
    token: int


@dataclass(frozen=True, slots=True)
class Transaction:
    connection: Connection
    stream: Stream
    writing: bool
    """False: rows cannot be locked, and what writes is refused."""

    @property
    def journal(self) -> PostgresJournal:
        return PostgresJournal(self.connection, self.stream)

    def require(self, fence: Fence) -> None:
        """Go on only as the newest holder; nobody becomes a newer one before this transaction ends."""
        held = self.connection.execute(_CHECK_FENCE, (fence.name, fence.token)).fetchone()
        if held is None:
            raise Refusal(
                Rule.LEASE_LOST,
                f"another process has taken over '{fence.name}'; nothing was stored",
            )
