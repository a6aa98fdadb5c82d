"""How much one peer, and all peers together, may cost us: numbers and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class AmqpLimits:
    """Limits of AMQP connections. New values count for connections that come after them."""

    handshake_seconds: float = 15.0
    """From the first octet of TCP until OPEN: TLS and SASL included."""
    idle_seconds: float = 60.0
    """A silent peer is dropped after this time; half of it is announced (AMQP 2.4.5)."""
    close_seconds: float = 5.0
    """How long a peer may take to answer our CLOSE."""

    max_connections: int = 10_000
    max_connections_per_identity: int = 32
    """503 cl. 6.4 asks an endpoint for one; a cluster has one per node, and old ones linger."""

    max_frame_size: int = 128 * KIB
    max_sessions: int = 16
    max_links: int = 64
    """On one connection, all sessions together."""
    session_window: int = 16 * MIB
    """Octets that may wait unread in one session; its window in frames is this over the frame size."""

    max_message_size: int = 65 * MIB
    """Announced on attach: a document of 64 MiB and what travels with it."""
    credit: int = 500
    """Deliveries that one producer may have open with us."""
    max_incoming_octets: int = 128 * MIB
    """Of one connection: messages that are half here or wait for our decision."""
    max_incoming_octets_total: int = 1024 * MIB
    max_unsettled_sent: int = 2_000
    """Deliveries that one consumer may leave unsettled, however much credit it grants."""
    write_high_water: int = 256 * KIB
    """Above this much unwritten output nothing more is sent on a connection."""

    def __post_init__(self) -> None:
        if self.max_message_size > self.max_incoming_octets:
            raise ValueError("max_message_size is above max_incoming_octets: it could never arrive")
        if self.max_incoming_octets > self.max_incoming_octets_total:
            raise ValueError("max_incoming_octets is above max_incoming_octets_total")
        # AMQP 2.8.19: no peer has to take frames below 512 octets.
        if not 512 <= self.max_frame_size <= self.session_window:
            raise ValueError("max_frame_size is at least 512 and at most session_window")
        if not 1 <= self.max_sessions <= 32_767:
            raise ValueError("max_sessions is at least 1 and at most 32767")
        if min(self.credit, self.max_links, self.max_unsettled_sent) < 1:
            raise ValueError("credit, max_links and max_unsettled_sent are at least 1")


class Ledger:
    """Octets that are held, against a limit; what counts here counts in the ledger above as well."""

    __slots__ = ("_above", "limit", "used")

    def __init__(self, limit: int, above: Ledger | None = None) -> None:
        self.limit = limit
        self._above = above
        self.used = 0

    def fits(self, octets: int) -> bool:
        if self.used + octets > self.limit:
            return False
        return self._above is None or self._above.fits(octets)

    def add(self, octets: int) -> None:
        self.used += octets
        if self._above is not None:
            self._above.used += octets
