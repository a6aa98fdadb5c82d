"""Where followers of a journal were, kept beside the journal."""

from __future__ import annotations

import asyncio

from gridpost.stores.postgres.bus import PostgresBusLedger
from gridpost.stores.postgres.cursors import PostgresCursor
from support.postgres import PostgresDatabase


async def test_each_follower_of_each_stream_goes_on_where_anybody_left_it(
    postgres: PostgresDatabase,
) -> None:
    settings = postgres.settings()
    ledger = await asyncio.to_thread(PostgresBusLedger.open, settings, "MDM")
    await ledger.close()

    def work() -> None:
        assert PostgresCursor(settings, "syslog", "one").load() is None
        PostgresCursor(settings, "syslog", "one").save(7)
        PostgresCursor(settings, "syslog", "one").save(9)
        assert PostgresCursor(settings, "syslog", "one").load() == 9
        assert PostgresCursor(settings, "syslog", "two").load() is None
        assert PostgresCursor(settings, "alerts", "one").load() is None

    await asyncio.to_thread(work)
