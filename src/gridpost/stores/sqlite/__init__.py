"""The embedded store: one SQLite database, and files beside it for large contents."""

from gridpost.stores.sqlite.store import Settings, SqliteStore

__all__ = ["Settings", "SqliteStore"]
