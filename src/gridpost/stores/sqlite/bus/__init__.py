"""The store of a bus in SQLite, shared by all its processes on one machine."""

from gridpost.stores.sqlite.bus.ledger import SqliteBusLedger

__all__ = ["SqliteBusLedger"]
