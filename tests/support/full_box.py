"""A message box with very many messages, written by the database itself, and what is asked of it.

`failing` says how many of the sent messages failed: a few, as in good times, or all of them.
"""

from __future__ import annotations

from datetime import timedelta

from gridpost.core.delivery import Side, Status
from gridpost.core.identifiers import ComponentCode
from gridpost.core.message_box import Search
from gridpost.core.ports import UnitOfWork
from gridpost.stores.box_rows import NEW_COLUMNS
from gridpost.stores.values import to_microseconds
from support.boxed import DAY, EXPIRY, ROUTE, acknowledgement, box_entry, internal, put
from support.builders import NOW

MINUTE = timedelta(minutes=1)
_REST = "-0000-4000-8000-000000000000"


def message_id(number: int) -> str:
    return f"{number:08d}{_REST}"


SEARCHES: dict[str, Search] = {
    "everything": Search(),
    "side": Search(side=Side.RECEIVED),
    "id": Search(message_id=message_id(1000)),
    "id of nobody": Search(message_id="x"),
    "conversation": Search(conversation_id="C-1000"),
    "baMessageID": Search(ba_message_id="B-1000"),
    "baMessageID of many": Search(ba_message_id="BULK"),
    "party": Search(peer=ComponentCode("P7")),
    "party of long ago": Search(peer=ComponentCode("OLD")),
    "type": Search(message_type="T3"),
    "status": Search(status=Status.FAILED),
    "status of most": Search(status=Status.RECEIVED),
    "status of nobody": Search(status=Status.DELIVERED),
    "last day": Search(since=NOW - DAY),
    "last month": Search(since=NOW - 30 * DAY),
    "first day": Search(until=NOW - 29 * DAY),
    "one day": Search(since=NOW - 15 * DAY, until=NOW - 14 * DAY),
    "text": Search(text="refused"),
    "text of the oldest": Search(text="needle"),
    "text of nobody": Search(text="no such text"),
    # An even party has no messages of an odd type.
    "party and type that never meet": Search(peer=ComponentCode("P8"), message_type="T3"),
    "party and type": Search(peer=ComponentCode("P8"), message_type="T8"),
    "party and status": Search(peer=ComponentCode("P8"), status=Status.FAILED),
    "type and first day": Search(message_type="T3", until=NOW - 29 * DAY),
    "status and last month": Search(status=Status.RECEIVED, since=NOW - 30 * DAY),
    "status and side that never meet": Search(status=Status.RECEIVED, side=Side.RECEIVED),
    "text, party and type": Search(
        text="no such text", peer=ComponentCode("P8"), message_type="T8"
    ),
    "text and period": Search(text="no such text", since=NOW - 20 * DAY, until=NOW - DAY),
    "all at once": Search(
        side=Side.SENT,
        peer=ComponentCode("P8"),
        message_type="T8",
        status=Status.FAILED,
        since=NOW - 30 * DAY,
        until=NOW,
        text="refused",
    ),
}


def plant(unit: UnitOfWork) -> None:
    """One message and its transfer, one transfer of an acknowledgement: all others are like them."""
    entry = box_entry(message_id="00000000-0000-0000-0000-000000000000")
    put(unit, entry)
    unit.box.enqueue(internal(entry), ROUTE, EXPIRY)
    unit.box.enqueue(acknowledgement(entry.metadata), ROUTE, EXPIRY)


def growing(messages: int, transfers: int, failing: str, *, owned: bool = False) -> list[str]:
    """SQL that SQLite and PostgreSQL both understand; `owned`: transfers belong to a process."""
    state = "FAILED" if failing == "all" else "RECEIVED"
    start, end = to_microseconds(NOW - 30 * DAY), to_microseconds(NOW)
    arrival = f"{start} + n * CAST({(end - start) // (messages + 1)} AS bigint)"
    sent = f"CASE WHEN n % 5000 = 0 THEN 'FAILED' ELSE '{state}' END"
    long_ago = f"n < {messages // 100}"
    values = {
        "side": "CASE n % 2 WHEN 0 THEN 'sent' ELSE 'received' END",
        "state": f"CASE WHEN n % 2 = 0 THEN {sent} "
        "WHEN n % 10000 = 1 THEN 'WAITING' ELSE 'CONFIRMED' END",
        "status": f"CASE WHEN n % 2 = 0 THEN {sent} END",
        "message_id": f"substr(CAST(100000000 + n AS text), 2) || '{_REST}'",
        "message_type": "CASE WHEN n % 10000 = 1 THEN 'A' ELSE 'T' || (n % 20) END",
        "peer": f"CASE WHEN {long_ago} THEN 'OLD' ELSE 'P' || (n % 50) END",
        "conversation_id": "CASE n % 2 WHEN 0 THEN 'C-' || n ELSE '' END",
        "ba_message_id": "CASE n % 3 WHEN 0 THEN 'BULK' ELSE 'B-' || n END",
        "changed_at": arrival,
        "arrived_at": arrival,
        "expires_at": str(end),
        "open_until": f"CASE WHEN n % 10000 = 1 THEN {end} END",
        "final_at": f"CASE WHEN n % 10000 = 1 THEN NULL ELSE {arrival} END",
    }
    columns = [(column, values.get(column, column)) for column in NEW_COLUMNS]
    owner = "owner, " if owned else ""
    due = f"{end} + CAST(60000000 AS bigint) * (1 + n % 50)"
    return [
        f"""
        WITH RECURSIVE counted (n) AS (
            SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < {messages}
        )
        INSERT INTO message ({", ".join(NEW_COLUMNS)})
        SELECT {", ".join(value for _, value in columns)} FROM counted CROSS JOIN message
        WHERE message_id = '00000000-0000-0000-0000-000000000000'
        """,
        f"""
        INSERT INTO trace (message, line, at, event, state, moved, detail, acknowledgement_id)
        SELECT number, 2, changed_at, 'ABANDON', state, moved,
            CASE WHEN m.message_id = '{message_id(2)}' THEN 'the needle'
                ELSE 'no transfer of ' || m.message_id || ': connection refused' END, ''
        FROM message m CROSS JOIN (SELECT moved FROM trace LIMIT 1) AS one
        WHERE m.conversation_id <> '' AND m.side = 'sent'
        """,
        f"""
        WITH RECURSIVE counted (n) AS (
            SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < {transfers}
        )
        INSERT INTO outgoing
            ({owner}message_id, metadata, size, body, route, expires_at, priority, due_at)
        SELECT {owner}'A-' || n, metadata, size, body, route, {end} + 86400000000, n % 3, {due}
        FROM counted CROSS JOIN outgoing WHERE message IS NULL
        """,
        f"""
        INSERT INTO outgoing ({owner}message_id, message, size, route, expires_at, priority, due_at)
        SELECT {owner}m.message_id, m.number, o.size, o.route, {end} + 86400000000, 0, {end} + 60000000
        FROM message m CROSS JOIN outgoing o
        WHERE o.message IS NOT NULL AND o.due_at IS NULL AND m.peer = 'P8' AND m.side = 'sent'
        """,
    ]
