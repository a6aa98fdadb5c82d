"""What crash tests let a store do, and how they judge what a crash has left.

Every work writes a journal row that says what it did, so that afterwards the journal and everything
else can be compared: they commit together, hence they agree, wherever the crash came. What a work
says after it has returned was confirmed, and must be there.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

from gridpost.core.delivery import Event, Side, State
from gridpost.core.journal import AdministrationRow
from gridpost.core.message_box import BoxEntry, Retention, Search
from gridpost.core.ports import Store, UnitOfWork
from gridpost.stores.sqlite import Settings, SqliteStore
from gridpost.stores.sqlite.database import named_files
from support.boxed import DAY, ROUTE, acknowledgement, box_entry, happen, internal, put
from support.builders import NOW

# Small enough that many contents are files and that groups and files meet.
SETTINGS = Settings(file_threshold=2_000, max_group=16)
LATE = NOW + 300 * DAY
CONTENT_GOES_AT_ONCE = Retention(
    sent_metadata=9 * DAY,
    sent_content=0 * DAY,
    received_metadata=9 * DAY,
    received_content=0 * DAY,
    received_ids=9 * DAY,
)
Tell = Callable[[str], None]


def content_of(message_id: str) -> bytes:
    """The content follows from the id, so that nobody needs to remember it."""
    digest = hashlib.sha256(message_id.encode()).digest()
    return digest * (1 + digest[0] * (1 if digest[1] % 3 else 20) // 10)


class Writer:
    """One client of the store. Each method is one work; `tell` hears of it when it is durable."""

    def __init__(self, store: Store, tell: Tell) -> None:
        self._store = store
        self._tell = tell
        self.waiting: list[BoxEntry] = []
        self.sending: list[tuple[BoxEntry, int]] = []

    async def receive(self) -> None:
        """A message arrives; a large content is staged first."""
        entry = box_entry(Side.RECEIVED, expires=LATE)
        async with self._store.staged(content_of(entry.message_id)) as content:

            def work(unit: UnitOfWork) -> None:
                put(unit, entry, content)
                _note(unit, "received", entry.message_id)

            await self._store.run(work)
        self._tell(f"received {entry.message_id}")
        self.waiting.append(entry)

    async def send(self) -> None:
        """A message and its transfer; a large content is written inside the work."""
        entry = box_entry(Side.SENT, expires=LATE)
        content = content_of(entry.message_id)

        def work(unit: UnitOfWork) -> int:
            put(unit, entry, content)
            number = unit.box.enqueue(internal(entry, content), ROUTE, LATE)
            _note(unit, "sent", entry.message_id, number)
            return number

        number = await self._store.run(work)
        self._tell(f"sent {entry.message_id} {number}")
        self.sending.append((entry, number))

    async def confirm(self) -> None:
        """An application takes a message: its state, an acknowledgement with its own content."""
        entry = self.waiting.pop(0)
        answer = acknowledgement(entry.metadata, content_of(entry.message_id))

        def work(unit: UnitOfWork) -> int:
            happen(unit, entry, Event.CONFIRM)
            number = unit.box.enqueue(answer, ROUTE, LATE)
            _note(unit, "confirmed", entry.message_id, number)
            return number

        number = await self._store.run(work)
        self._tell(f"confirmed {entry.message_id} {number}")

    async def settle(self) -> None:
        entry, number = self.sending.pop(0)

        def work(unit: UnitOfWork) -> None:
            unit.box.settle(number)
            happen(unit, entry, Event.TRANSFERRED)
            happen(unit, entry, Event.ABANDON)
            _note(unit, "settled", entry.message_id, number)

        await self._store.run(work)
        self._tell(f"settled {entry.message_id} {number}")

    async def purge(self) -> None:
        """Contents of final messages go, and with them their files."""

        def work(unit: UnitOfWork) -> None:
            unit.box.purge(CONTENT_GOES_AT_ONCE, NOW + DAY, 5)
            _note(unit, "purged", "")

        await self._store.run(work)

    async def fail(self) -> None:
        """A work that raises must never be seen."""
        entry = box_entry(Side.SENT, expires=LATE)

        def work(unit: UnitOfWork) -> None:
            put(unit, entry, content_of(entry.message_id))
            _note(unit, "failed", entry.message_id)
            raise KeyError("changed my mind")

        try:
            await self._store.run(work)
        except KeyError:
            return

    async def anything(self, random: Random) -> None:
        choices = [self.receive, self.send, self.fail, self.purge]
        if self.waiting:
            choices += [self.confirm] * 2
        if self.sending:
            choices += [self.settle] * 2
        await random.choice(choices)()


def _note(unit: UnitOfWork, did: str, message_id: str, number: int = 0) -> None:
    unit.journal.append(AdministrationRow(NOW, did, message_id, str(number)))


async def check(folder: Path, told: Iterable[str]) -> int:
    """Everything that was told is there, and whatever is there is whole. How much there is."""
    store = SqliteStore.open(folder, "E1", SETTINGS)
    try:
        return await store.read(lambda unit: _check(unit, folder, told))
    finally:
        await store.close()


def _check(unit: UnitOfWork, folder: Path, told: Iterable[str]) -> int:
    connection: sqlite3.Connection = unit.box._connection  # type: ignore[attr-defined]
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    files = {path.name for path in (folder / "contents").iterdir()}
    assert files == named_files(connection), "files and rows differ"

    rows = unit.journal.read(0, 1_000_000)
    assert [row.sequence for row in rows] == list(range(1, len(rows) + 1)), "the journal has a gap"
    done: dict[str, dict[str, tuple[int, int]]] = {}
    for row in rows:
        assert isinstance(row.row, AdministrationRow)
        did = done.setdefault(row.row.actor, {})
        did[row.row.action] = (int(row.row.target), row.sequence)
    assert "failed" not in done, "a work that raised was committed"
    for line in told:
        did, message_id, *_ = line.split()
        assert message_id in done.get(did, {}), f"confirmed, but missing: {line}"

    entries = {entry.message_id: entry for entry in unit.box.search(Search(), 1_000_000).entries}
    received, sent = done.get("received", {}), done.get("sent", {})
    confirmed, settled = done.get("confirmed", {}), done.get("settled", {})
    assert set(entries) == set(received) | set(sent), "messages and journal differ"
    last_purge = done.get("purged", {}).get("", (0, 0))[1]
    for message_id, entry in entries.items():
        ended = confirmed.get(message_id) or settled.get(message_id)
        if message_id in received:
            expected = [Event.VERIFIED, *([Event.CONFIRM] if ended else [])]
            state = State.CONFIRMED if ended else State.WAITING
        else:
            ending = [Event.TRANSFERRED, Event.ABANDON] if ended else []
            expected = [Event.ACCEPT, *ending]
            state = State.FAILED if ended else State.ACCEPTED
        trace = unit.box.trace(entry.delivery.side, message_id)
        assert [line.event for line in trace] == expected, f"the trace of {message_id}"
        assert entry.delivery.state is state is trace[-1].state, f"the state of {message_id}"
        content = unit.box.content(entry.delivery.side, message_id)
        if content is None:
            assert ended, f"the content of {message_id} is missing before its end"
            assert last_purge > ended[1], f"the content of {message_id} is missing"
        else:
            assert content == content_of(message_id), f"the content of {message_id}"

    transfers = {t.number: t for t in unit.box.outgoing(NOW, 1_000_000, max_bytes=1 << 40)}
    open_ones = {number for number, _ in confirmed.values()} | {
        number for message_id, (number, _) in sent.items() if message_id not in settled
    }
    assert set(transfers) == open_ones, "transfers and journal differ"
    for transfer in transfers.values():
        metadata = transfer.message.metadata
        of = metadata.related_message_id or metadata.message_id
        assert transfer.message.content == content_of(of), f"the content of transfer {of}"
    return len(rows)
