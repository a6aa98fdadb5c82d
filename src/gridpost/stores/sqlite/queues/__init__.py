"""The queues of a broker in SQLite, in a database of their own."""

from gridpost.stores.sqlite.queues.client_store import QueueClientStore
from gridpost.stores.sqlite.queues.store import QueueSettings, SqliteQueueStore

__all__ = ["QueueClientStore", "QueueSettings", "SqliteQueueStore"]
