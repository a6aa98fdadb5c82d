"""The embedded store does what its twin in memory does, whatever happens to both."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from gridpost.core.delivery import Event, Occurrence, Side, State, Status, decide
from gridpost.core.identifiers import ComponentCode, MessageType
from gridpost.core.message_box import BoxEntry, Retention, Search
from gridpost.core.ports import Store, UnitOfWork
from gridpost.core.refusal import Refusal
from gridpost.stores.memory import MemoryDisk, MemoryStore
from gridpost.stores.sqlite import Settings, SqliteStore, outgoing
from support.boxed import ROUTE, acknowledgement, box_entry, internal, note, put
from support.builders import NOW

MINUTE = timedelta(minutes=1)
SETTINGS = Settings(file_threshold=20, max_group=4, max_group_bytes=60)

contents = st.sampled_from([b"", b"short", b"x" * 20, b"y" * 21, b"z" * 200])
durations = st.integers(0, 120).map(lambda minutes: minutes * MINUTE)
types = st.sampled_from(["A", "B"])
peers = st.sampled_from(["P", "Q"])
conversations = st.sampled_from(["", "", "c-1", "c-2"])

Work = Callable[[UnitOfWork], Any]


class Twins(RuleBasedStateMachine):
    messages = Bundle("messages")

    @initialize()
    def begin(self) -> None:
        self.now = NOW
        self.transfers = 0
        self.folder = Path(tempfile.mkdtemp(prefix="gridpost-twins-"))
        self.disk = MemoryDisk()
        self.loop = asyncio.Runner()
        # A handful of due transfers counts as many, so that both ways of reading them are taken.
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(outgoing, "_MANY", 3)
        self._open()

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self._close()
            self.loop.close()
            self.patch.undo()
            shutil.rmtree(self.folder)

    def _open(self) -> None:
        self.stores: list[Store] = [
            MemoryStore("E1", self.disk),
            SqliteStore.open(self.folder, "E1", SETTINGS),
        ]

    def _close(self) -> None:
        for store in self.stores:
            self.loop.run(store.close())

    def both(self, work: Work, *, read: bool = False) -> Any:
        """The same work in both stores has the same outcome."""
        return self.all_at_once([work], read=read)[0]

    def all_at_once(self, works: list[Work], *, read: bool = False) -> list[Any]:
        async def run(store: Store) -> list[Any]:
            call = store.read if read else store.run
            outcomes = await asyncio.gather(*(call(work) for work in works), return_exceptions=True)
            return [_told(outcome) for outcome in outcomes]

        memory, sqlite = [self.loop.run(run(store)) for store in self.stores]
        assert memory == sqlite
        return memory

    # -- what happens to messages

    @rule(
        target=messages,
        side=st.sampled_from(Side),
        kind=types,
        peer=peers,
        conversation=conversations,
        lifetime=st.integers(1, 180),
        content=contents,
        goes_out=st.booleans(),
    )
    def put(
        self,
        side: Side,
        kind: str,
        peer: str,
        conversation: str,
        lifetime: int,
        content: bytes,
        goes_out: bool,
    ) -> BoxEntry:
        code = "receiver_code" if side is Side.SENT else "sender_code"
        entry = box_entry(
            side,
            now=self.now,
            expires=self.now + lifetime * MINUTE,
            application="trader" if conversation else "",
            conversation_id=conversation if side is Side.SENT else "",
            message_type=MessageType(kind),
            ba_message_id=kind if lifetime % 2 else "",
            **{code: ComponentCode(peer)},
        )

        def work(unit: UnitOfWork) -> bool:
            done = put(unit, entry, content)
            if done and goes_out and side is Side.SENT:
                message = internal(entry, content)
                unit.box.enqueue(message, ROUTE, entry.delivery.expires_at, lifetime % 3)
            unit.journal.append(note(entry.message_id, self.now))
            return done

        self.both(work)
        return entry

    @rule(entry=messages, content=contents)
    def put_again(self, entry: BoxEntry, content: bytes) -> None:
        self.both(lambda unit: unit.box.put(replace(entry, size=77), content))

    @rule(entry=messages, event=st.sampled_from(Event))
    def happen(self, entry: BoxEntry, event: Event) -> None:
        side, message_id = entry.delivery.side, entry.message_id

        def work(unit: UnitOfWork) -> State | None:
            found = unit.box.find(side, message_id)
            if found is None:
                return None
            decision = decide(found.delivery, Occurrence(event, "why", "a"), self.now)
            unit.box.move(side, decision)
            return decision.delivery.state

        self.both(work)

    @rule(works=st.lists(st.tuples(messages, contents, st.booleans()), max_size=9))
    def many_at_once(self, works: list[tuple[BoxEntry, bytes, bool]]) -> None:
        def work(number: int, entry: BoxEntry, content: bytes, fails: bool) -> Work:
            answer = acknowledgement(entry.metadata, content)

            def once(unit: UnitOfWork) -> int:
                unit.journal.append(note(str(number), self.now))
                unit.box.put(entry, content)
                unit.box.enqueue(answer, ROUTE, self.now + MINUTE)
                if fails:
                    raise KeyError(number)
                return unit.journal.append(note(f"{number} done", self.now))

            return once

        self.all_at_once([work(number, *each) for number, each in enumerate(works)])

    @rule(entry=messages, content=contents)
    def staged(self, entry: BoxEntry, content: bytes) -> None:
        async def put_staged(store: Store) -> Any:
            async with store.staged(content) as document:
                try:
                    return await store.run(lambda unit: unit.box.put(entry, document))
                except Refusal as refusal:
                    return _told(refusal)

        memory, sqlite = [self.loop.run(put_staged(store)) for store in self.stores]
        assert memory == sqlite

    # -- transfers

    @rule(entry=messages, content=contents, minutes=st.integers(0, 60), priority=st.integers(-1, 1))
    def enqueue(self, entry: BoxEntry, content: bytes, minutes: int, priority: int) -> None:
        def work(unit: UnitOfWork) -> int:
            stored = unit.box.content(Side.SENT, entry.message_id)
            message = internal(entry, content if stored is None else stored)
            return unit.box.enqueue(message, ROUTE, self.now + minutes * MINUTE, priority)

        self.transfers = max(self.transfers, self.both(work))

    @precondition(lambda self: self.transfers)
    @rule(data=st.data(), minutes=st.integers(0, 30))
    def postpone(self, data: st.DataObject, minutes: int) -> None:
        number = data.draw(st.integers(1, self.transfers))
        self.both(lambda unit: unit.box.postpone(number, self.now + minutes * MINUTE))

    @precondition(lambda self: self.transfers)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(1, self.transfers))
        self.both(lambda unit: unit.box.settle(number))

    @rule(entry=messages)
    def stop_transfer(self, entry: BoxEntry) -> None:
        self.both(lambda unit: unit.box.stop_transfer(entry.message_id))

    @rule()
    def drop_expired_transfers(self) -> None:
        self.both(lambda unit: unit.box.drop_expired_transfers(self.now))

    # -- time passes

    @rule(minutes=st.integers(1, 90))
    def wait(self, minutes: int) -> None:
        self.now += minutes * MINUTE

    @rule(limit=st.integers(1, 5))
    def expire(self, limit: int) -> None:
        def work(unit: UnitOfWork) -> int:
            expired = unit.box.expired(self.now, limit)
            for entry in expired:
                decision = decide(entry.delivery, Occurrence(Event.EXPIRE), self.now)
                unit.box.move(entry.delivery.side, decision)
            return len(expired)

        self.both(work)

    @rule(kept=st.tuples(*[durations] * 5), limit=st.integers(1, 6))
    def purge(self, kept: tuple[timedelta, ...], limit: int) -> None:
        *others, received_metadata, received_ids = kept
        retention = Retention(
            sent_metadata=others[0],
            sent_content=others[1],
            received_metadata=min(received_metadata, received_ids),
            received_content=others[2],
            received_ids=max(received_metadata, received_ids),
        )
        self.both(lambda unit: unit.box.purge(retention, self.now, limit))

    @rule(kept=durations, exported=durations | st.none(), limit=st.integers(1, 5))
    def prune(self, kept: timedelta, exported: timedelta | None, limit: int) -> None:
        self.both(
            lambda unit: unit.journal.prune(self.now, kept, keep_exported=exported, limit=limit)
        )

    @rule(sequence=st.integers(0, 20))
    def export(self, sequence: int) -> None:
        self.both(lambda unit: unit.journal.mark_exported(sequence))

    @rule()
    def restart(self) -> None:
        self._close()
        self._open()

    # -- what can be asked

    @rule(
        side=st.none() | st.sampled_from(Side),
        peer=st.none() | peers,
        kind=st.just("") | types,
        conversation=conversations,
        ba=st.sampled_from(["", "A"]),
        status=st.none() | st.sampled_from(Status),
        since=st.none() | durations,
        until=st.none() | durations,
        before=st.none() | st.integers(1, 10),
        limit=st.integers(1, 5),
    )
    def search(
        self,
        side: Side | None,
        peer: str | None,
        kind: str,
        conversation: str,
        ba: str,
        status: Status | None,
        since: timedelta | None,
        until: timedelta | None,
        before: int | None,
        limit: int,
    ) -> None:
        wanted = Search(
            side=side,
            peer=None if peer is None else ComponentCode(peer),
            message_type=kind,
            conversation_id=conversation,
            ba_message_id=ba,
            status=status,
            since=None if since is None else NOW + since,
            until=None if until is None else NOW + until,
        )
        self.both(lambda unit: unit.box.search(wanted, limit, before), read=True)

    @rule(
        limit=st.integers(1, 5),
        max_bytes=st.integers(1, 300),
        under_way=st.sets(st.integers(1, 8), max_size=4),
    )
    def outgoing(self, limit: int, max_bytes: int, under_way: set[int]) -> None:
        self.both(
            lambda unit: unit.box.outgoing(
                self.now, limit, under_way=under_way, max_bytes=max_bytes
            ),
            read=True,
        )

    @rule(kind=types, conversation=conversations, limit=st.integers(1, 3))
    def questions(self, kind: str, conversation: str, limit: int) -> None:
        self.both(
            lambda unit: (
                unit.box.waiting(kind, self.now, limit),
                unit.box.count_waiting(kind, self.now),
                unit.box.next_due(self.now),
                unit.box.find_conversation("trader", conversation),
                unit.journal.exported(),
            ),
            read=True,
        )

    @invariant()
    def both_hold_the_same(self) -> None:
        if not hasattr(self, "stores"):
            return

        def everything(unit: UnitOfWork) -> object:
            entries = unit.box.search(Search(), 1_000).entries
            return (
                [(entry.number, entry) for entry in entries],
                [
                    (
                        unit.box.content(entry.delivery.side, entry.message_id),
                        unit.box.trace(entry.delivery.side, entry.message_id),
                    )
                    for entry in entries
                ],
                unit.box.outgoing(NOW, 1_000),
                unit.journal.read(0, 1_000),
            )

        *_, journal = self.both(everything, read=True)
        sequences = [recorded.sequence for recorded in journal]
        if sequences:
            assert sequences == list(range(sequences[0], sequences[-1] + 1))


def _told(outcome: Any) -> Any:
    """What a caller hears; two exceptions that say the same are equal."""
    if isinstance(outcome, Refusal):
        return outcome.rule
    if isinstance(outcome, BaseException):
        return type(outcome), str(outcome)
    return outcome


Twins.TestCase.settings = settings(
    max_examples=max(10, round(400 * float(os.environ.get("GRIDPOST_SCALE") or 0.1))),
    stateful_step_count=40,
    deadline=None,
)
TestTwins = pytest.mark.soak(Twins.TestCase)
