"""The ledger of capacity in SQLite: a database of its own, append-only."""

from gridpost.stores.sqlite.capacity.ledger import SqliteCapacityLedger

__all__ = ["SqliteCapacityLedger"]
