"""The ledger of capacity: append-only, one truth for book and replay, and whole commits only."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from gridpost.core.allocation import AllocationType
from gridpost.core.capacity import BACKWARD, FORWARD, Book, Offer, Status, Trigger
from gridpost.core.capacity_ledger import Request
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.capacity import desk
from gridpost.stores.sqlite.capacity import SqliteCapacityLedger
from gridpost.stores.sqlite.capacity.ledger import wait_for_turn
from gridpost.wire.cmm import Names
from support.capacity_market import (
    APG,
    AT_CZ,
    CEPS,
    DE_DK,
    DE_FR,
    DK1,
    EON,
    GROUP,
    NOW,
    RTE,
    RWE,
    hour,
    market,
    order,
    party,
)  # fmt: skip

NAMES = Names()
WINDOW = timedelta(hours=1)
LEADING = [(EON, DK1, DE_DK.unit), (RWE, RTE, DE_FR.unit), (APG, CEPS, AT_CZ.unit)]


def open_ledger(folder: Path) -> SqliteCapacityLedger:
    return SqliteCapacityLedger.open(folder, "CMM", market(), lambda: NOW)


def offers(quantity: int = 1000) -> list[Offer]:
    return [
        Offer(*areas, hour(number, unit=unit).start, quantity)
        for one, other, unit in LEADING
        for areas in ((one, other), (other, one))
        for number in range(10, 20)
    ]


async def publish(ledger, wanted=None, event=Trigger.PUBLISH):
    return await ledger.run(
        lambda unit: desk.publish(unit, NAMES, wanted or offers(), event, "operator", NOW)
    )


async def allocate(ledger, orders, kind=AllocationType.AON, correlation_id="", who="u1"):
    request = Request(who, correlation_id, Trigger.ALLOCATION_PMI, kind.value)
    return await ledger.run(
        lambda unit: desk.allocate(unit, NAMES, request, orders, party(who), NOW, WINDOW)
    )


def numbers(book: Book):
    return {
        (name, direction, start): (
            pool.offered[direction].get(start, 0),
            pool.allocated[direction].get(start, 0),
            pool.available(direction, start),
            pool.status,
        )
        for name, pool in book.pools.items()
        for direction in (FORWARD, BACKWARD)
        for start in pool.offered[direction]
    }


def random_request(chance: random.Random):
    one, other, unit = chance.choice([*LEADING, (EON, RTE, DE_FR.unit)])
    areas = (one, other) if chance.random() < 0.6 else (other, one)
    chosen = chance.sample(range(10, 20), chance.randint(1, 3))
    orders = [order(chance.randint(1, 400), hour(n, unit=unit), areas) for n in chosen]
    return orders, chance.choice(list(AllocationType))


def check(entries):
    """Walk the ledger line by line: no commit takes more than was available at that commit."""
    book = Book(market())
    commits: dict[int, list] = {}
    for entry in entries:
        commits.setdefault(entry.commit, []).append(entry)
    for lines in commits.values():
        before = {key: row[2] for key, row in numbers(book).items()}
        taken: dict = {}
        for line in lines:
            if line.kind not in ("offer", "allocation"):
                continue
            pool, direction = book.place(line.out_area, line.in_area)
            if line.kind == "offer":
                pool.offer(direction, line.period_start, line.quantity)
            else:
                key = (pool.name, direction, line.period_start)
                taken[key] = taken.get(key, 0) + line.quantity
                pool.allocate(direction, line.period_start, line.quantity)
        assert all(quantity <= before[key] for key, quantity in taken.items())
    return book


async def all_entries(ledger):
    return await ledger.read(lambda reader: reader.entries(0, 10**9))


async def test_a_replay_gives_the_same_numbers_after_concurrent_requests(tmp_path, soak):
    chance = random.Random(soak.seed)
    ledger = open_ledger(tmp_path)
    await publish(ledger)
    for _ in range(soak.scale(100)):
        requests = [random_request(chance) for _ in range(20)]
        await asyncio.gather(*(allocate(ledger, o, k) for o, k in requests))
        if chance.random() < 0.3:
            lowered = [Offer(EON, DK1, hour(12).start, chance.randint(0, 1500))]
            await publish(ledger, lowered, Trigger.ADJUST_CAPACITY)
    await ledger.run(lambda u: desk.set_status(u, NAMES, "DE-DK", "", Status.HALT, "op", NOW))
    in_memory = ledger.look(numbers)
    entries = await all_entries(ledger)
    assert len([entry for entry in entries if entry.kind == "allocation"]) > 20
    replayed = check(entries)
    assert {k: v[:3] for k, v in numbers(replayed).items()} == {
        k: v[:3] for k, v in in_memory.items()
    }
    await ledger.close()
    again = open_ledger(tmp_path)
    try:
        assert again.look(numbers) == in_memory
    finally:
        await again.close()


async def test_the_ledger_cannot_be_changed_afterwards(tmp_path):
    ledger = open_ledger(tmp_path)
    await publish(ledger)
    await allocate(ledger, [order(5)])
    await ledger.close()
    connection = sqlite3.connect(tmp_path / "gridpost.sqlite3")
    for statement in ("UPDATE entry SET quantity = 0", "DELETE FROM entry"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(statement)
    connection.close()


async def test_the_first_outcome_is_kept_with_the_allocation_also_over_a_restart(tmp_path):
    ledger = open_ledger(tmp_path)
    await publish(ledger)
    first = await allocate(ledger, [order(5, client_id="a")], correlation_id="c1")
    await ledger.close()
    ledger = open_ledger(tmp_path)
    try:
        again = await allocate(ledger, [order(5, client_id="a")], correlation_id="c1")
        assert again.repeated
        assert again.notices == ()
        number = first.outcomes[0].allocation_id
        assert again.outcomes[0].message.endswith(f"alclid={number} confQty=5")
        assert not (await allocate(ledger, [order(5)], correlation_id="c1", who="u2")).repeated
        await ledger.run(lambda unit: unit.forget_outcomes(NOW + timedelta(seconds=1)))
        assert not (await allocate(ledger, [order(5)], correlation_id="c1")).repeated
    finally:
        await ledger.close()


@pytest.mark.req("cmm-5.2.2-g")
async def test_a_work_that_fails_in_the_middle_leaves_nothing_behind(tmp_path):
    ledger = open_ledger(tmp_path)
    try:
        await publish(ledger)
        before, entries = ledger.look(numbers), await all_entries(ledger)

        def breaks(unit):
            request = Request("u1", "c9", Trigger.ALLOCATION_PMI, "AON")
            orders = [order(5), order(7, hour(13))]
            desk.allocate(unit, NAMES, request, orders, party(), NOW, WINDOW)
            raise OSError(28, "no space left")

        with pytest.raises(Refusal) as refused:
            await ledger.run(breaks)
        assert refused.value.rule is Rule.STORE_FULL
        assert ledger.look(numbers) == before
        assert await all_entries(ledger) == entries
        # Sequence ids without a gap: the one that was taken is given again.
        answer = await allocate(ledger, [order(5)], correlation_id="c9")
        assert not answer.repeated
        assert answer.notices[-1].sequence_id == 0
    finally:
        await ledger.close()


async def test_a_commit_that_fails_takes_the_book_back(tmp_path, monkeypatch):
    ledger = open_ledger(tmp_path)
    try:
        await publish(ledger)
        before = ledger.look(numbers)
        committer = ledger._committer
        commit = committer._commit

        def fail():
            committer._commit = commit
            raise sqlite3.OperationalError("disk I/O error")

        committer._commit = fail
        results = await asyncio.gather(
            allocate(ledger, [order(5)]), allocate(ledger, [order(6)]), return_exceptions=True
        )
        assert any(isinstance(result, Refusal) for result in results)
        told = sum(5 + i for i, r in enumerate(results) if not isinstance(r, BaseException))
        entries = await all_entries(ledger)
        stored = sum(entry.quantity for entry in entries if entry.kind == "allocation")
        assert stored == told
        await allocate(ledger, [order(1)])
        after = ledger.look(numbers)
        key = next(key for key in before if key[0].startswith("DE-DK") and key[2] == hour(12).start)
        assert after[key][1] == before[key][1] + told + 1
    finally:
        await ledger.close()


async def test_journal_rows_are_committed_with_the_facts(tmp_path):
    ledger = open_ledger(tmp_path)
    try:
        await publish(ledger)
        await allocate(ledger, [order(5)], correlation_id="c1")
        rows = [r.row for r in await ledger.run(lambda unit: unit.journal.read(0, 10_000))]
        kinds = [row.KIND for row in rows]
        assert kinds.count("capacity-allocation") == 1
        told = [row for row in rows if row.KIND == "capacity-broadcast"]
        values = [row for row in rows if row.KIND == "capacity-atc"]
        assert sum(row.entries for row in told if row.border) == len(values)
        assert [row.sequence_id for row in told if row.balancing_group] == [0]
        [allocation] = [row for row in rows if row.KIND == "capacity-allocation"]
        assert (allocation.balancing_group, allocation.quantity) == (GROUP, 5)
        assert values[-2].quantity == 995
    finally:
        await ledger.close()


async def test_a_second_service_waits_for_its_turn(tmp_path):
    release = await wait_for_turn(tmp_path)
    second = asyncio.create_task(wait_for_turn(tmp_path))
    await asyncio.sleep(0.2)
    assert not second.done()
    release()
    (await asyncio.wait_for(second, 10))()
    ledger = open_ledger(tmp_path)
    with pytest.raises(Refusal) as refused:
        open_ledger(tmp_path)
    assert refused.value.rule is Rule.STORE_IN_USE
    await ledger.close()


WRITER = """
import asyncio, random, sys
from pathlib import Path
from stores.test_capacity_ledger import allocate, open_ledger, publish, random_request

async def main():
    ledger = open_ledger(Path(sys.argv[1]))
    chance = random.Random(int(sys.argv[2]))
    if sys.argv[3] == "first":
        await publish(ledger)
    print("ready", flush=True)
    while True:
        requests = [random_request(chance) for _ in range(10)]
        answers = await asyncio.gather(*(allocate(ledger, o, k) for o, k in requests))
        for answer in answers:
            for outcome in answer.outcomes:
                if outcome.success:
                    print(outcome.allocation_id, outcome.confirmed, flush=True)

asyncio.run(main())
"""


def test_nothing_that_was_told_is_lost_or_sold_twice_when_the_service_is_killed(tmp_path, soak):
    chance = random.Random(soak.seed)
    told: dict[int, int] = {}
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}:{root / 'tests'}"}
    for attempt in range(soak.scale(30)):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(attempt), "first" if not attempt else ""],
            stdout=subprocess.PIPE, env=environment, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for _ in range(chance.randint(5, 60)):
            line = process.stdout.readline()
            if line:
                number, quantity = line.split()
                told[int(number)] = int(quantity)
        process.send_signal(signal.SIGKILL)
        for line in process.stdout.read().splitlines():
            parts = line.split()
            if len(parts) == 2:
                told[int(parts[0])] = int(parts[1])
        process.wait()
        process.stdout.close()

    async def look():
        ledger = open_ledger(tmp_path)
        try:
            entries = await all_entries(ledger)
            replayed = check(entries)
            assert {k: v[:3] for k, v in numbers(replayed).items()} == {
                k: v[:3] for k, v in ledger.look(numbers).items()
            }
            return {e.sequence: e.quantity for e in entries if e.kind == "allocation"}
        finally:
            await ledger.close()

    stored = asyncio.run(look())
    assert told
    # The last line may have been cut off in the middle of its number.
    wrong = {
        number: quantity for number, quantity in told.items() if stored.get(number) != quantity
    }
    assert len(wrong) <= 3
    assert all(
        str(quantity) in str(stored.get(number, quantity)) for number, quantity in wrong.items()
    )
