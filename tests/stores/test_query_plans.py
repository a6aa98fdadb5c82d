"""Questions that are asked all the time never read a whole table, however full the box is."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gridpost.core.delivery import Event, Occurrence, Side, Status, decide
from gridpost.core.identifiers import ComponentCode
from gridpost.core.message_box import Retention, Search
from gridpost.core.ports import UnitOfWork
from gridpost.stores.sqlite import outgoing
from gridpost.stores.sqlite.bodies import Bodies, WorkFiles
from gridpost.stores.sqlite.group import Group
from gridpost.stores.sqlite.schema import migrate
from gridpost.stores.sqlite.unit import SqliteUnit
from support.boxed import (
    DAY,
    EXPIRY,
    ROUTE,
    acknowledgement,
    box_entry,
    happen,
    internal,
    note,
    put,
)
from support.builders import NOW

LINE = decide(box_entry().delivery, Occurrence(Event.ACCEPT), NOW).entry

QUESTIONS: dict[str, Callable[[UnitOfWork], object]] = {
    "put": lambda unit: put(unit, box_entry()),
    "find": lambda unit: unit.box.find(Side.SENT, "x"),
    "find_conversation": lambda unit: unit.box.find_conversation("a", "c"),
    "content": lambda unit: unit.box.content(Side.SENT, "x"),
    "trace": lambda unit: unit.box.trace(Side.SENT, "x"),
    "waiting": lambda unit: unit.box.waiting("A", NOW, 10),
    "waiting after": lambda unit: unit.box.waiting("A", NOW, 10, 5),
    "tell": lambda unit: unit.notices.tell("x", LINE, status=True),
    "read notices": lambda unit: unit.notices.read("c", 0, 10),
    "remove notices": lambda unit: unit.notices.remove([1]),
    "prune notices": lambda unit: unit.notices.prune("c", NOW, 10),
    "count_waiting": lambda unit: unit.box.count_waiting("A", NOW),
    "expired": lambda unit: unit.box.expired(NOW, 10),
    "enqueue": lambda unit: unit.box.enqueue(acknowledgement(box_entry().metadata), ROUTE, EXPIRY),
    "outgoing": lambda unit: unit.box.outgoing(NOW, 10),
    "outgoing after a long silence": lambda unit: unit.box.outgoing(NOW + DAY, 10),
    "next_due": lambda unit: unit.box.next_due(NOW),
    "postpone": lambda unit: unit.box.postpone(1, NOW),
    "settle": lambda unit: unit.box.settle(1),
    "stop_transfer": lambda unit: unit.box.stop_transfer("x"),
    "drop_expired_transfers": lambda unit: unit.box.drop_expired_transfers(NOW),
    "purge": lambda unit: unit.box.purge(Retention(), NOW + 90 * DAY, 10),
    "search by id": lambda unit: unit.box.search(Search(message_id="x"), 10),
    "search by conversation": lambda unit: unit.box.search(Search(conversation_id="c"), 10),
    "search by baMessageID": lambda unit: unit.box.search(Search(ba_message_id="b"), 10),
    "search by peer": lambda unit: unit.box.search(Search(peer=ComponentCode("E2")), 10),
    "search by type": lambda unit: unit.box.search(Search(message_type="A"), 10),
    "search by status": lambda unit: unit.box.search(Search(status=Status.FAILED), 10),
    "search by status and type": lambda unit: unit.box.search(
        Search(status=Status.FAILED, message_type="A", side=Side.SENT), 10
    ),
    "search by period": lambda unit: unit.box.search(Search(since=NOW, until=NOW), 10),
    "search page": lambda unit: unit.box.search(Search(), 10, before=7),
    "search by text": lambda unit: unit.box.search(Search(text="full"), 10),
    "search by text and type": lambda unit: unit.box.search(
        Search(text="full", message_type="A", since=NOW), 10
    ),
    "recent": lambda unit: unit.box.recent(NOW, 10),
    "latest actions": lambda unit: unit.journal.latest("administration", 10),
    "latest refusals": lambda unit: unit.journal.latest("refusal", 10, before=7),
    "journal append": lambda unit: unit.journal.append(note("x")),
    "journal read": lambda unit: unit.journal.read(5, 10),
}

# An id has two messages at most, a conversation one for each application; transfers whose next
# attempt is due are put in order when they are read.
# A text is looked for in two lists, each no longer than a page.
SORTED = {
    "outgoing",
    "outgoing after a long silence",
    "search by id",
    "search by conversation",
    "search by text",
    "search by text and type",
}
# The list of transfers under way, rows that an inner query has limited, and transfers that are ready,
# in their order and no more than asked for.
SMALL = re.compile(
    r"SCAN (json_each VIRTUAL TABLE|\(subquery-\d+\)|CONSTANT ROW|journal_state"
    r"|outgoing USING INDEX outgoing_(ready|postponed_in_order)"
    # What an inner query has limited to a page, or to the edge of a period.
    r"|newest|next_to_edge)"
)


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("PRAGMA foreign_keys = ON")
    migrate(connection)
    yield connection
    connection.close()


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_question_reads_a_whole_table(
    connection: sqlite3.Connection, tmp_path: Path, question: str
) -> None:
    unit = SqliteUnit(Group(connection), WorkFiles(Bodies(tmp_path, 1_000)))
    entry = box_entry()
    put(unit, entry)
    unit.box.enqueue(internal(entry), ROUTE, EXPIRY)
    other = box_entry(Side.RECEIVED)
    put(unit, other)
    happen(unit, other, Event.CONFIRM)
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    with pytest.MonkeyPatch.context() as patch:
        if question == "outgoing after a long silence":
            patch.setattr(outgoing, "_MANY", 0)
        unit.journal.flush()
        statements.clear()
        QUESTIONS[question](unit)
        unit.journal.flush()
    connection.set_trace_callback(None)
    assert statements
    for statement in statements:
        if statement.startswith("--"):
            continue
        for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {statement}"):
            scans = step.startswith("SCAN") and not SMALL.match(step)
            assert not scans, (step, statement)
            assert "USE TEMP B-TREE" not in step or question in SORTED, (step, statement)
