"""The store of a bus in PostgreSQL, shared by all its processes."""

from gridpost.stores.postgres.bus.ledger import PostgresBusLedger

__all__ = ["PostgresBusLedger"]
