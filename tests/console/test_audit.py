"""An action of the console and its row in the journal are one commit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gridpost.core.delivery import Side
from gridpost.core.journal import AdministrationRow, MessageRow
from gridpost.core.message_box import Search
from gridpost.core.ports import UnitOfWork
from gridpost.services.endpoint.submission import Document
from support.post import World

DOCUMENT = Document("E2", "BP1-A", b"document")


def noted(world: World) -> Callable[[UnitOfWork, str], None]:
    def note(work: UnitOfWork, message_id: str) -> None:
        work.journal.append(
            AdministrationRow(world.clock.now(), "ada (console)", "document sent", message_id)
        )

    return note


async def test_a_sent_document_and_who_sent_it_are_written_together() -> None:
    world = World()
    one = world["E1"]
    sent = await one.submission.send("ada", DOCUMENT, also=noted(world))
    test = await one.submission.test_connectivity("ada", "E2", "BP1-A", also=noted(world))
    journal = await one.journal()
    assert [r.target for r in journal if isinstance(r, AdministrationRow)] == [sent, test]
    assert [r.message_id for r in journal if isinstance(r, MessageRow)] == [sent, test]


async def test_what_cannot_be_written_down_is_not_sent() -> None:
    world = World()
    one = world["E1"]

    def failing(work: UnitOfWork, message_id: str) -> None:
        raise RuntimeError("the journal does not take it")

    with pytest.raises(RuntimeError):
        await one.submission.send("ada", DOCUMENT, also=failing)
    assert await one.journal() == []
    found = await one.store.read(lambda work: work.box.search(Search(side=Side.SENT), 10).entries)
    assert list(found) == []
