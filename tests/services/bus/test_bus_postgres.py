"""A bus on PostgreSQL: shared by its processes, with the same promises as on SQLite."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from gridpost.core.bus import ObjectName, Outgoing, StoredObject
from gridpost.core.envelope import Identifier, IdKind
from gridpost.core.journal import EnvelopeRow
from gridpost.core.refusal import Refusal, Rule
from gridpost.envelope import Result
from gridpost.stores.postgres.bus import PostgresBusLedger
from gridpost.stores.postgres.bus.ledger import translated
from gridpost.stores.postgres.journal import PostgresJournal, streams
from gridpost.stores.sqlite.bus import SqliteBusLedger
from support import bus_handlers
from support.bus_web import NOTE, web_bus
from support.postgres import PostgresDatabase

pytestmark = pytest.mark.asyncio
AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest_asyncio.fixture(params=["sqlite", "postgres"])
async def ledger(request, tmp_path: Path):
    if request.param == "sqlite":
        found = SqliteBusLedger.open(tmp_path / "store", "MDM")
    else:
        database: PostgresDatabase = request.getfixturevalue("postgres")
        found = PostgresBusLedger.open(database.settings(), "MDM")
    yield found
    await found.close()


async def test_both_stores_keep_the_same_promises(ledger) -> None:
    stored = StoredObject("Notes", "n1", "<a/>", names=(ObjectName("one", "t", "a"),))

    def fill(unit) -> None:
        unit.put(stored, AT)
        mark = unit.mark()
        unit.put(StoredObject("Notes", "n2", "<b/>"), AT)
        unit.back(mark)

    await ledger.run(fill)
    found = await ledger.run(lambda unit: list(unit.all("Notes")))
    assert found == [stored]
    by_name = Identifier("one", IdKind.NAME, "t", "a")
    assert await ledger.run(lambda unit: unit.find("Notes", by_name)) == stored
    assert len(await ledger.run(lambda unit: unit.history("Notes", "n1"))) == 1
    posts = [Outgoing("queue:a", b"one", "m", "c"), Outgoing("", b"said", "n", "")]
    await ledger.run(lambda unit: unit.remember("EMS", ["m:1"], b"digest", posts, AT))
    known = await ledger.run(lambda unit: unit.handled("EMS", ["m:1"]))
    assert [p.outgoing for p in known.posted] == posts
    # What was said in the exchange itself is not sent once more.
    (waiting,) = await ledger.unsent(10)
    assert waiting.outgoing == posts[0]
    await ledger.sent([waiting.sequence])
    assert await ledger.unsent(10) == []
    if isinstance(ledger, PostgresBusLedger):
        with pytest.raises(Refusal) as twice:
            await ledger.run(lambda unit: unit.remember("EMS", ["m:1"], b"other", [], AT))
        assert twice.value.rule is Rule.BUSY
    await ledger.run(lambda unit: unit.expect("c", "queue:a", "t", AT))
    assert await ledger.run(lambda unit: unit.expected("c")) == ("queue:a", "t")
    await ledger.run(lambda unit: unit.settled("c"))
    assert await ledger.run(lambda unit: unit.expected("c")) is None
    await ledger.alive("A@x:1", AT, 3)
    assert [(i.name, i.load) for i in await ledger.instances(AT)] == [("A@x:1", 3)]
    assert await ledger.instances(AT + timedelta(seconds=1)) == []
    assert await ledger.forget(AT + timedelta(days=1)) == 1
    assert await ledger.run(lambda unit: unit.handled("EMS", ["m:1"])) is None


async def test_a_work_that_hangs_is_given_up_and_undone(ledger) -> None:
    import threading

    hang = threading.Event()

    def work(unit) -> None:
        unit.put(StoredObject("Notes", "late", "<a/>"), AT)
        hang.wait(120)

    with pytest.raises(Refusal) as late:
        await ledger.run(work, 2.0)
    assert late.value.rule is Rule.HANDLER_TIMEOUT
    assert await ledger.run(lambda unit: unit.find("Notes", Identifier("late"))) is None
    hang.set()
    await asyncio.sleep(0.2)
    assert await ledger.run(lambda unit: unit.find("Notes", Identifier("late"))) is None
    assert ledger.abandoned == 1


async def test_parameters_are_translated_outside_of_quotes() -> None:
    assert translated("SELECT '?', a % 2 FROM t WHERE b = ?") == (
        "SELECT '?', a %% 2 FROM t WHERE b = %s"
    )


async def test_two_processes_of_a_bus_share_its_memory(
    rabbitmq, postgres: PostgresDatabase, tmp_path: Path
) -> None:
    virtual_host = rabbitmq.virtual_host()
    section = postgres.section(tmp_path)
    fields = {"store": "postgres", "postgres": section, "virtual_host": virtual_host}
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    async with (
        web_bus(rabbitmq, tmp_path / "one", **fields) as one,
        web_bus(rabbitmq, tmp_path / "two", **fields) as two,
    ):
        request = one.sender.request("create", "Notes", NOTE.format("shared"))
        answers = await asyncio.gather(*(bus.ask(request) for bus in (one, two, one, two)))
        assert {a.reply.result for a in answers} == {Result.OK}
        assert len({a.header.message_id for a in answers}) == 1
        assert bus_handlers.CALLS.count(("create", request.header.message_id)) == 1
    with postgres.connect() as connection:
        connection.execute("SET search_path TO gridpost")
        rows = [
            recorded.row
            for stream in streams(connection)
            for recorded in PostgresJournal(connection, stream).read(0, 1000)
        ]
    came = [
        r.codes
        for r in rows
        if isinstance(r, EnvelopeRow) and r.message_id == request.header.message_id
    ]
    assert sorted(came) == ["0.0", "REPEATED", "REPEATED", "REPEATED"]
