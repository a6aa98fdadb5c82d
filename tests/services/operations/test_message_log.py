"""Steps of a message are told to the log once they are committed, or not at all."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from gridpost.core.refusal import Refusal, Rule
from gridpost.services.operations.message_log import LoggingStore
from support.post import World


async def test_a_message_is_told_under_its_id_or_not_at_all():
    world = World()
    one = world["E1"]
    wanted = True
    one.context.store = LoggingStore(one.store, lambda: wanted)
    with capture_logs() as told:
        message_id = await one.send("E2", message_type="A01")
    assert [line["event"] for line in told] == ["message accepted", "message moved"]
    assert {line["correlation_id"] for line in told} == {message_id}
    wanted = False
    with capture_logs() as told:
        await one.send("E2", message_type="A01")
    assert told == []


async def test_what_was_undone_is_not_told():
    world = World()
    one = world["E1"]
    store = LoggingStore(one.store, lambda: True)
    one.context.store = store
    await one.send("E2", message_type="A01")
    row = (await store.read(lambda work: work.journal.read(0, 1)))[0].row

    def fails(work):
        work.journal.append(row)
        raise Refusal(Rule.INTERNAL, "the work failed")

    with capture_logs() as told:
        with pytest.raises(Refusal):
            await store.run(fails)
        assert told == []
        await store.run(lambda work: work.journal.append(row))
    assert len(told) == 1
