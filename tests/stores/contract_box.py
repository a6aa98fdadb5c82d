"""Contract: what is put is found, moved, traced, waited for, expired and searched."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest

from gridpost.core.delivery import Event, Side, State, Status
from gridpost.core.identifiers import ComponentCode
from gridpost.core.instant import Instant
from gridpost.core.message import Entry, InternalType, Processor, ValueType
from gridpost.core.message_box import BoxEntry, Found, Search
from gridpost.core.message_path import DIRECT
from gridpost.core.ports import Store, UnitOfWork
from gridpost.core.refusal import Refusal, Rule
from stores.place import Contract, Place, restarted
from support.boxed import DAY, EXPIRY, HOUR, ROUTE, box_entry, happen, internal, put
from support.builders import NOW

RICH = box_entry(
    application="trader",
    conversation_id="c-1",
    size=3,
    generated=Instant.parse("2026-03-01T13:00:00.123456789+01:00"),
    expiration_time=Instant.parse("2026-03-01T24:00:00Z"),
    extension="zip",
    related_message_id="r",
    sender_application="app",
    ba_message_id="ba",
    internal_type=InternalType.TRACING_MESSAGE,
    message_mversion=1,
    processors=(
        Processor("signature", (Entry("b", ValueType.STRING, "ä\n\u20ac\U0001f600\x00"),)),
        Processor("zip"),
        Processor(
            "signature",
            (Entry("n", ValueType.LONG, "007"), Entry("n", ValueType.BOOLEAN, "1")),
        ),
    ),
)


class BoxContract(Contract):
    @pytest.mark.parametrize("side", Side)
    async def test_what_is_put_is_found_to_the_last_character(
        self, place: Place, store: Store, side: Side
    ) -> None:
        entry = replace(RICH, delivery=replace(RICH.delivery, side=side), route=DIRECT)
        assert await store.run(lambda unit: unit.box.put(entry, b"\x00\xff\n"))
        store = await restarted(place, store)
        found = await store.read(lambda unit: unit.box.find(side, entry.message_id))
        assert found == entry
        assert found.number > 0
        # Instants compare by time; what was signed is their text.
        assert found.metadata.generated.text == "2026-03-01T13:00:00.123456789+01:00"
        assert found.metadata.expiration_time is not None
        assert found.metadata.expiration_time.text == "2026-03-01T24:00:00Z"
        content = await store.read(lambda unit: unit.box.content(side, entry.message_id))
        assert content == b"\x00\xff\n"
        await store.close()

    async def test_a_message_may_have_no_expiration_time(self, store: Store) -> None:
        entry = box_entry(expiration_time=None)
        await store.run(lambda unit: unit.box.put(entry, b""))
        assert await store.read(lambda unit: unit.box.find(Side.SENT, entry.message_id)) == entry
        assert await store.read(lambda unit: unit.box.content(Side.SENT, entry.message_id)) == b""

    async def test_what_is_not_there_is_not_found(self, store: Store) -> None:
        def work(unit: UnitOfWork) -> list[object]:
            box = unit.box
            return [
                box.find(Side.SENT, "x"),
                box.content(Side.SENT, "x"),
                list(box.trace(Side.SENT, "x")),
            ]

        assert await store.read(work) == [None, None, []]

    async def test_a_message_is_put_once(self, place: Place, store: Store) -> None:
        entry = box_entry(Side.RECEIVED)
        again = replace(entry, size=99)
        assert await store.run(lambda unit: put(unit, entry, b"first"))
        assert not await store.run(lambda unit: put(unit, again, b"second"))
        store = await restarted(place, store)
        assert not await store.run(lambda unit: put(unit, again, b"third"))
        found = await store.read(lambda unit: unit.box.find(Side.RECEIVED, entry.message_id))
        content = await store.read(lambda unit: unit.box.content(Side.RECEIVED, entry.message_id))
        trace = await store.read(lambda unit: unit.box.trace(Side.RECEIVED, entry.message_id))
        assert found is not None
        assert (found.size, content, len(trace)) == (0, b"first", 1)
        await store.close()

    async def test_both_sides_of_one_id_are_two_messages(self, store: Store) -> None:
        sent = box_entry(Side.SENT)
        received = box_entry(Side.RECEIVED, message_id=sent.message_id)
        assert await store.run(lambda unit: put(unit, sent, b"clear"))
        assert await store.run(lambda unit: put(unit, received, b"again"))
        contents = await store.read(
            lambda unit: [unit.box.content(side, sent.message_id) for side in Side]
        )
        assert contents == [b"clear", b"again"]
        states = await store.read(
            lambda unit: [_found(unit, side, sent.message_id).delivery.state for side in Side]
        )
        assert states == [State.ACCEPTED, State.WAITING]

    @pytest.mark.parametrize("size", [0, 1, 3_000, 256 * 1024, 256 * 1024 + 1, 1_000_000])
    @pytest.mark.parametrize("staged", [False, True])
    async def test_contents_of_any_size_come_back(
        self, place: Place, store: Store, size: int, staged: bool
    ) -> None:
        entry, content = box_entry(size=size), bytes(i & 0xFF for i in range(size))
        if staged:
            async with store.staged(content) as document:
                assert await store.run(lambda unit: unit.box.put(entry, document))
        else:
            assert await store.run(lambda unit: unit.box.put(entry, content))
        store = await restarted(place, store)
        stored = await store.read(lambda unit: unit.box.content(Side.SENT, entry.message_id))
        assert stored == content
        await store.close()

    async def test_many_messages_are_put_at_once_and_each_of_them_once(self, store: Store) -> None:
        known, new = box_entry(), [box_entry(conversation_id=f"c-{i}") for i in range(150)]
        other_side = box_entry(Side.RECEIVED, message_id=known.message_id)
        await store.run(lambda unit: put(unit, known, b"known"))
        messages = [(entry, entry.message_id.encode()) for entry in (*new, known, other_side)]
        messages.append((new[7], b"in the same call"))
        told = await store.run(lambda unit: unit.box.put_many(messages))
        assert list(told) == [True] * 150 + [False, True, False]
        assert list(await store.run(lambda unit: unit.box.put_many([]))) == []
        for entry in (*new, other_side):
            side = entry.delivery.side
            found = await store.read(lambda unit, e=entry, s=side: unit.box.find(s, e.message_id))
            content = await store.read(
                lambda unit, e=entry, s=side: unit.box.content(s, e.message_id)
            )
            assert (found, content) == (entry, entry.message_id.encode())
        entries = await store.read(
            lambda unit: unit.box.search(Search(side=Side.SENT), 200).entries
        )
        assert [entry.message_id for entry in entries] == [
            entry.message_id for entry in (*reversed(new), known)
        ]
        await store.run(lambda unit: unit.box.enqueue(internal(new[3]), ROUTE, EXPIRY))

    async def test_many_messages_with_a_used_conversation_are_refused_together(
        self, store: Store
    ) -> None:
        first, second = box_entry(), box_entry(conversation_id="c-1")
        again = box_entry(conversation_id="c-1")

        def work(unit: UnitOfWork) -> None:
            with pytest.raises(Refusal) as refused:
                unit.box.put_many([(first, b""), (second, b""), (again, b"")])
            assert refused.value.rule is Rule.CONVERSATION_REUSED

        await store.run(work)
        assert await store.read(lambda unit: unit.box.search(Search(), 10).entries) == ()

    async def test_metadata_of_another_message_is_a_bug(self, store: Store) -> None:
        entry = replace(box_entry(), delivery=box_entry().delivery)
        with pytest.raises(ValueError, match="other metadata"):
            await store.run(lambda unit: unit.box.put(entry, b""))

    # -- moving and tracing

    async def test_every_event_is_traced_in_order(self, place: Place, store: Store) -> None:
        entry = box_entry()
        await store.run(lambda unit: put(unit, entry))
        events = [
            (Event.TRANSFER_FAILED, "no route to host"),
            (Event.TRANSFERRED, ""),
            (Event.RECEIVE_ACKNOWLEDGED, "unsigned"),
            (Event.DELIVERY_ACKNOWLEDGED, ""),
        ]
        for minute, (event, detail) in enumerate(events):
            at = NOW + timedelta(minutes=minute, microseconds=1)
            await store.run(lambda unit, e=event, a=at, d=detail: happen(unit, entry, e, a, d))
        store = await restarted(place, store)
        trace = await store.read(lambda unit: unit.box.trace(Side.SENT, entry.message_id))
        assert [(line.event, line.state, line.moved) for line in trace] == [
            (Event.ACCEPT, State.ACCEPTED, True),
            (Event.TRANSFER_FAILED, State.ACCEPTED, False),
            (Event.TRANSFERRED, State.DELIVERING, True),
            (Event.RECEIVE_ACKNOWLEDGED, State.RECEIVE_HELD, True),
            (Event.DELIVERY_ACKNOWLEDGED, State.RECEIVED, True),
        ]
        assert trace[1].detail == "no route to host"
        found = await store.read(lambda unit: _found(unit, Side.SENT, entry.message_id))
        assert found.delivery.state is State.RECEIVED
        assert found.delivery.changed_at == trace[-1].at
        await store.close()

    async def test_what_is_not_in_the_box_cannot_move(self, store: Store) -> None:
        entry = box_entry()

        def work(unit: UnitOfWork) -> None:
            put(unit, entry)
            decision = happen(unit, entry, Event.TRANSFERRED)
            unit.box.move(Side.RECEIVED, decision)

        with pytest.raises(ValueError, match="no received message"):
            await store.run(work)
        assert await store.read(lambda unit: unit.box.find(Side.SENT, entry.message_id)) is None

    # -- waiting for an application

    async def test_received_messages_wait_by_type_in_order(self, store: Store) -> None:
        entries = [
            box_entry(Side.RECEIVED, message_type=kind) for kind in ("A", "B", "A", "AB", "A")
        ]
        for entry in entries:
            await store.run(lambda unit, e=entry: put(unit, e))
        await store.run(lambda unit: put(unit, box_entry(Side.SENT, message_type="A")))
        waiting = await store.read(lambda unit: unit.box.waiting("A", NOW, 10))
        assert _ids(waiting) == _ids([entries[0], entries[2], entries[4]])
        assert _ids(await store.read(lambda unit: unit.box.waiting("A", NOW, 2))) == _ids(
            [entries[0], entries[2]]
        )
        assert await store.read(lambda unit: unit.box.count_waiting("A", NOW)) == 3
        assert await store.read(lambda unit: unit.box.waiting("A*", NOW, 10)) == []

    async def test_a_confirmed_message_waits_no_more(self, store: Store) -> None:
        entry = box_entry(Side.RECEIVED, message_type="A")
        await store.run(lambda unit: put(unit, entry))
        for _ in range(2):
            assert await store.read(lambda unit: unit.box.count_waiting("A", NOW)) == 1
        await store.run(lambda unit: happen(unit, entry, Event.CONFIRM))
        assert await store.read(lambda unit: unit.box.waiting("A", NOW, 10)) == []
        assert await store.read(lambda unit: unit.box.count_waiting("A", NOW)) == 0

    async def test_an_expired_message_waits_no_more_before_anybody_notes_it(
        self, store: Store
    ) -> None:
        await store.run(lambda unit: put(unit, box_entry(Side.RECEIVED, message_type="A")))
        just_before = EXPIRY - timedelta(microseconds=1)
        assert await store.read(lambda unit: unit.box.count_waiting("A", just_before)) == 1
        assert await store.read(lambda unit: unit.box.count_waiting("A", EXPIRY)) == 0
        assert await store.read(lambda unit: unit.box.waiting("A", EXPIRY, 10)) == []

    # -- conversations

    async def test_a_conversation_is_found_by_its_application(
        self, place: Place, store: Store
    ) -> None:
        entry = box_entry(application="trader", conversation_id="c-1")
        await store.run(lambda unit: put(unit, entry))
        other = box_entry(application="scheduler", conversation_id="c-1")
        assert await store.run(lambda unit: put(unit, other))
        store = await restarted(place, store)
        found = await store.read(
            lambda unit: [
                unit.box.find_conversation(*scope)
                for scope in (("trader", "c-1"), ("scheduler", "c-1"), ("trader", "c-2"))
            ]
        )
        assert [None if f is None else f.message_id for f in found] == [
            entry.message_id,
            other.message_id,
            None,
        ]
        await store.close()

    async def test_messages_without_a_conversation_have_none_in_common(self, store: Store) -> None:
        for _ in range(2):
            assert await store.run(lambda unit: put(unit, box_entry(application="trader")))
        assert await store.read(lambda unit: unit.box.find_conversation("trader", "")) is None

    async def test_a_conversation_has_one_message(self, store: Store) -> None:
        first = box_entry(application="trader", conversation_id="c-1")
        second = box_entry(application="trader", conversation_id="c-1")
        await store.run(lambda unit: put(unit, first))
        with pytest.raises(Refusal) as refused:
            await store.run(lambda unit: put(unit, second))
        assert refused.value.rule is Rule.CONVERSATION_REUSED
        assert await store.read(lambda unit: unit.box.find(Side.SENT, second.message_id)) is None
        # The same message again is a duplicate, not another message of the conversation.
        assert not await store.run(lambda unit: put(unit, first))

    # -- expiry

    async def test_what_has_expired_is_found_earliest_first(self, store: Store) -> None:
        late = box_entry(expires=NOW + 3 * HOUR)
        early = box_entry(expires=NOW + HOUR)
        middle = box_entry(Side.RECEIVED, expires=NOW + 2 * HOUR)
        for entry in (late, early, middle):
            await store.run(lambda unit, e=entry: put(unit, e))
        assert await store.read(lambda unit: unit.box.expired(NOW, 10)) == []
        at = NOW + 2 * HOUR
        expired = await store.read(lambda unit: unit.box.expired(at, 10))
        assert _ids(expired) == _ids([early, middle])
        assert _ids(await store.read(lambda unit: unit.box.expired(at, 1))) == _ids([early])
        await store.run(lambda unit: [happen(unit, e, Event.EXPIRE, at) for e in expired])
        assert await store.read(lambda unit: unit.box.expired(at, 10)) == []

    async def test_what_expiry_would_not_change_is_not_found_as_expired(self, store: Store) -> None:
        delivered, received, traced = (
            box_entry(),
            box_entry(),
            box_entry(internal_type=InternalType.TRACING_MESSAGE),
        )

        def work(unit: UnitOfWork) -> None:
            for entry in (delivered, received, traced):
                put(unit, entry)
            happen(unit, delivered, Event.DELIVERY_ACKNOWLEDGED)
            happen(unit, received, Event.DELIVERY_ACKNOWLEDGED)
            happen(unit, received, Event.RECEIVE_ACKNOWLEDGED)
            happen(unit, traced, Event.TRACING_ACKNOWLEDGED)

        await store.run(work)
        assert await store.read(lambda unit: unit.box.expired(NOW + DAY, 10)) == []

    # -- searching

    async def test_a_search_finds_what_fits_newest_first(self, store: Store) -> None:
        sent = box_entry(
            application="trader",
            conversation_id="c-1",
            message_type="A",
            ba_message_id="ba-1",
            receiver_code=ComponentCode("E9"),
        )
        received = box_entry(
            Side.RECEIVED, message_type="B", sender_code=ComponentCode("E9"), now=NOW + HOUR
        )
        failed = box_entry(message_type="A", now=NOW + 2 * HOUR, expires=NOW + DAY)

        def work(unit: UnitOfWork) -> None:
            for entry in (sent, received, failed):
                put(unit, entry)
            happen(unit, failed, Event.ABANDON, NOW + 3 * HOUR)

        await store.run(work)
        for search, expected in [
            (Search(), [failed, received, sent]),
            (Search(side=Side.SENT), [failed, sent]),
            (Search(side=Side.RECEIVED), [received]),
            (Search(message_id=received.message_id), [received]),
            (Search(conversation_id="c-1"), [sent]),
            (Search(ba_message_id="ba-1"), [sent]),
            (Search(peer=ComponentCode("E9")), [received, sent]),
            (Search(peer=ComponentCode("E9"), side=Side.SENT), [sent]),
            (Search(message_type="A"), [failed, sent]),
            (Search(message_type="A", status=Status.FAILED), [failed]),
            (Search(status=Status.ACCEPTED), [sent]),
            (Search(status=Status.RECEIVED), []),
            (Search(since=NOW + HOUR), [failed, received]),
            (Search(until=NOW + HOUR), [sent]),
            (Search(since=NOW + HOUR, until=NOW + 2 * HOUR), [received]),
            (Search(since=NOW + HOUR, message_type="A"), [failed]),
            (Search(since=NOW + DAY), []),
            (Search(until=NOW - DAY), []),
        ]:
            found = await store.read(lambda unit, s=search: unit.box.search(s, 10).entries)
            assert _ids(found) == _ids(expected), search

    async def test_a_search_finds_the_text_of_an_error_in_messages_in_trouble(
        self, store: Store
    ) -> None:
        failed, repeated, fine = box_entry(), box_entry(message_type="B"), box_entry()
        refused = box_entry(Side.RECEIVED)

        def work(unit: UnitOfWork) -> None:
            for entry in (failed, repeated, fine, refused):
                put(unit, entry)
            happen(unit, failed, Event.ABANDON, detail="100% full: Disk_9 ~ is gone")
            number = unit.box.enqueue(internal(repeated), ROUTE, EXPIRY)
            happen(unit, repeated, Event.TRANSFER_FAILED, detail="disk is far away")
            unit.box.postpone(number, NOW + HOUR)
            happen(unit, fine, Event.TRANSFERRED, detail="by disk")
            happen(unit, refused, Event.EXPIRE, EXPIRY, detail="nobody took it")

        await store.run(work)
        for search, expected in [
            (Search(text="DISK"), [repeated, failed]),
            (Search(text="disk", message_type="B"), [repeated]),
            (Search(text="disk", message_id=failed.message_id), [failed]),
            (Search(text="disk", status=Status.FAILED), [failed]),
            (Search(text="took", side=Side.RECEIVED), [refused]),
            (Search(text="0% f"), [failed]),
            (Search(text="Disk_9 ~ is"), [failed]),
            (Search(text="Disk9"), []),
            (Search(text="%"), [failed]),
        ]:
            found = await store.read(lambda unit, s=search: unit.box.search(s, 10).entries)
            assert _ids(found) == _ids(expected), search
        page = await store.read(lambda unit: unit.box.search(Search(text="disk"), 1).entries)
        older = await store.read(
            lambda unit: unit.box.search(Search(text="disk"), 1, before=page[0].number).entries
        )
        assert _ids([*page, *older]) == _ids([repeated, failed])

    async def test_an_overview_sees_what_is_recent_and_how_much_waits(self, store: Store) -> None:
        first, second = box_entry(), box_entry(now=NOW + HOUR, expires=NOW + DAY)
        received = box_entry(Side.RECEIVED, now=NOW + 2 * HOUR, expires=NOW + DAY)
        assert (await store.read(lambda unit: unit.box.tally())).oldest_waiting is None

        def work(unit: UnitOfWork) -> None:
            for entry in (first, second, received):
                put(unit, entry)
            unit.box.enqueue(internal(second), ROUTE, NOW + DAY)
            happen(unit, first, Event.ABANDON, NOW + 3 * HOUR)

        await store.run(work)
        recent = await store.read(lambda unit: unit.box.recent(NOW + HOUR, 10))
        assert [(b.arrived_at, b.side) for b in recent] == [
            (NOW + 2 * HOUR, Side.RECEIVED),
            (NOW + HOUR, Side.SENT),
        ]
        (one,) = await store.read(lambda unit: unit.box.recent(NOW, 10)[2:])
        assert (one.state, one.changed_at, one.size) == (
            State.FAILED,
            NOW + 3 * HOUR,
            first.size,
        )
        assert len(await store.read(lambda unit: unit.box.recent(NOW, 2))) == 2
        tally = await store.read(lambda unit: unit.box.tally())
        assert dict(tally.statuses) == {
            Status.ACCEPTED: 1,
            Status.DELIVERED: 0,
            Status.RECEIVED: 0,
            Status.FAILED: 1,
        }
        assert (tally.waiting, tally.oldest_waiting) == (1, NOW + 2 * HOUR)
        assert (tally.queued, tally.oldest_queued) == (1, NOW + HOUR)

    async def test_a_search_is_turned_over_page_by_page(self, store: Store) -> None:
        entries = [box_entry() for _ in range(5)]
        await store.run(lambda unit: [put(unit, entry) for entry in entries])
        pages = [page async for page in _pages(store, Search(), 2)]
        seen = [entry for page in pages for entry in page.entries]
        assert _ids(seen) == _ids(entries[::-1])
        assert [len(page.entries) for page in pages] == [2, 2, 1]

    async def test_a_page_looks_at_so_many_messages_and_the_next_goes_on_from_there(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for stores in ("memory.box", "box_search"):
            monkeypatch.setattr(f"gridpost.stores.{stores}.LOOKED_AT", 3)
        entries = [
            box_entry(message_type="A", receiver_code=ComponentCode(f"E{2 + n % 2}"))
            for n in range(14)
        ]

        def work(unit: UnitOfWork) -> None:
            for number, entry in enumerate(entries):
                put(unit, entry)
                detail = "the needle" if number == 1 else "hay"
                happen(unit, entry, Event.ABANDON, detail=detail)

        await store.run(work)
        for search, expected in [
            (Search(text="needle"), entries[1:2]),
            (Search(text="no such text"), []),
            (Search(text="hay", peer=ComponentCode("E3"), message_type="A"), entries[3::2][::-1]),
            (Search(peer=ComponentCode("E2"), side=Side.SENT), entries[::2][::-1]),
            (Search(status=Status.FAILED, message_type="B"), []),
            (Search(side=Side.RECEIVED), []),
            (Search(since=NOW, until=NOW + HOUR, peer=ComponentCode("E2")), entries[::2][::-1]),
        ]:
            pages = [page async for page in _pages(store, search, 2)]
            assert all(len(page.entries) <= 2 for page in pages)
            seen = [entry for page in pages for entry in page.entries]
            assert _ids(seen) == _ids(expected), search
        # Nowhere near the end in one page, although nothing fits.
        (eleventh,) = (
            await store.read(
                lambda unit: unit.box.search(Search(message_id=entries[11].message_id), 1)
            )
        ).entries
        found = await store.read(lambda unit: unit.box.search(Search(text="needle"), 2))
        assert (found.entries, found.more) == ((), eleventh.number)

    async def test_routes_are_awaited_until_the_last_message_is_over(self, store: Store) -> None:
        soon, later = box_entry(), box_entry(expires=EXPIRY + DAY)
        direct = replace(box_entry(), route=DIRECT)
        received = box_entry(Side.RECEIVED)

        def work(unit: UnitOfWork) -> None:
            for entry in (soon, later, direct, received):
                put(unit, entry)

        await store.run(work)
        awaited = await store.read(lambda unit: unit.box.awaited(NOW))
        assert awaited == {soon.route: EXPIRY + DAY, DIRECT: EXPIRY}
        awaited = await store.read(lambda unit: unit.box.awaited(EXPIRY))
        assert awaited == {soon.route: EXPIRY + DAY}

        def acknowledged(unit: UnitOfWork) -> None:
            entry = unit.box.find(Side.SENT, later.message_id)
            assert entry is not None
            happen(unit, entry, Event.DELIVERY_ACKNOWLEDGED)

        await store.run(acknowledged)
        awaited = await store.read(lambda unit: unit.box.awaited(EXPIRY))
        assert awaited == {soon.route: EXPIRY + DAY}

        def received_too(unit: UnitOfWork) -> None:
            entry = unit.box.find(Side.SENT, later.message_id)
            assert entry is not None
            happen(unit, entry, Event.RECEIVE_ACKNOWLEDGED)

        await store.run(received_too)
        assert await store.read(lambda unit: unit.box.awaited(EXPIRY)) == {}


def _found(unit: UnitOfWork, side: Side, message_id: str) -> BoxEntry:
    entry = unit.box.find(side, message_id)
    assert entry is not None
    return entry


async def _pages(store: Store, search: Search, limit: int) -> AsyncIterator[Found]:
    before = None
    while True:
        page = await store.read(lambda unit, b=before: unit.box.search(search, limit, before=b))
        yield page
        if page.more is None:
            return
        before = page.more


def _ids(entries: object) -> list[str]:
    return [entry.message_id for entry in entries]  # type: ignore[attr-defined]
