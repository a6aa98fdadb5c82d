"""The ledger of capacity: append-only, one truth for book and replay, and whole commits only."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from gridpost.core.allocation import AllocationType, Outcome
from gridpost.core.broadcast import AllocationNotice, AtcNotice, Notice
from gridpost.core.capacity import BACKWARD, FORWARD, Book, Offer, Status, Trigger
from gridpost.core.capacity_ledger import Request
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.capacity import desk
from gridpost.stores.postgres import capacity as postgres_capacity
from gridpost.stores.postgres.capacity import PostgresCapacityLedger
from gridpost.stores.postgres.settings import PostgresSettings
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


def open_ledger(place: str) -> SqliteCapacityLedger | PostgresCapacityLedger:
    """`place` is a folder, or words of libpq."""
    if "dbname=" not in place:
        return SqliteCapacityLedger.open(Path(place), "CMM", market(), lambda: NOW)
    return PostgresCapacityLedger.open(database(place), "CMM", market(), lambda: NOW, "test")


def database(place: str, **changes) -> PostgresSettings:
    quick = {"take_over": timedelta(seconds=5), "lease_look": timedelta(seconds=0.1)}
    return PostgresSettings(place, **quick, **changes)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path) -> str:
    if request.param == "sqlite":
        return str(tmp_path)
    return request.getfixturevalue("postgres").dsn


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


@dataclass
class Told:
    """What one of the requests of a work heard."""

    outcomes: tuple[Outcome, ...]
    notices: tuple[Notice, ...] = ()

    @property
    def repeated(self) -> bool:
        return self.outcomes[0].message.startswith(desk.FIRST_OUTCOME)


def asked(orders, kind=AllocationType.AON, correlation_id="", who="u1") -> desk.Asked:
    request = Request(who, correlation_id, Trigger.ALLOCATION_PMI, kind.value)
    return desk.Asked(request, orders, party(who))


async def allocate(ledger, orders, kind=AllocationType.AON, correlation_id="", who="u1", at=NOW):
    wanted = [asked(orders, kind, correlation_id, who)]
    answer = await ledger.run(lambda unit: desk.allocate(unit, NAMES, wanted, at, WINDOW))
    return Told(answer.outcomes[0], answer.notices)


async def allocate_together(ledger, requests) -> list[Told]:
    wanted = [asked(orders, kind) for orders, kind in requests]
    answer = await ledger.run(lambda unit: desk.allocate(unit, NAMES, wanted, NOW, WINDOW))
    return [Told(outcomes) for outcomes in answer.outcomes]


async def allocate_all(ledger, requests) -> list[Told]:
    """Some together as a service does with what is there at once, others by themselves beside them."""
    half = len(requests) // 2
    together, *others = await asyncio.gather(
        allocate_together(ledger, requests[:half]),
        *(allocate(ledger, orders, kind) for orders, kind in requests[half:]),
    )
    return [*together, *others]


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


def by_the_formula(book: Book):
    """What is available, worked out from offers and allocations by hand, for every unit."""
    found = {}
    for name, pool in book.pools.items():
        units = {*pool.offered[FORWARD], *pool.offered[BACKWARD]}
        for direction in (FORWARD, BACKWARD):
            here, back = pool.allocated[direction], pool.allocated[1 - direction]
            net = {start: here.get(start, 0) - back.get(start, 0) for start in units}
            for start in pool.offered[direction]:
                most = [pool.offered[direction][start] - here.get(start, 0) + back.get(start, 0)]
                if pool.border.ramping is not None:
                    beside = (start - pool.border.unit, start + pool.border.unit)
                    # The net position may exceed each neighbour's by the ramping, no more.
                    most += [
                        net[other] + pool.border.ramping - net[start]
                        for other in beside
                        if other in units
                    ]
                found[name, direction, start] = max(0, min(most))
    return found


@dataclass
class Walk:
    """What a walk through the ledger found, commit by commit."""

    book: Book
    commits: int = 0
    oversold: list = field(default_factory=list)
    """Commits that took more of a unit than was available at that commit."""
    off_the_formula: list = field(default_factory=list)
    """Commits before which the book disagreed with the formula."""

    def counts(self) -> dict[str, int]:
        return {
            "commits": self.commits,
            "oversold": len(self.oversold),
            "off_the_formula": len(self.off_the_formula),
        }

    def is_sound(self) -> bool:
        return not self.oversold and not self.off_the_formula


def walk(entries) -> Walk:
    book = Book(market())
    found = Walk(book)
    commits: dict[int, list] = {}
    for entry in entries:
        commits.setdefault(entry.commit, []).append(entry)
    for number, lines in commits.items():
        found.commits += 1
        before = {key: row[2] for key, row in numbers(book).items()}
        if before != by_the_formula(book):
            found.off_the_formula.append(number)
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
        if any(quantity > before[key] for key, quantity in taken.items()):
            found.oversold.append(number)
    if {key: row[2] for key, row in numbers(book).items()} != by_the_formula(book):
        found.off_the_formula.append("the end")
    return found


def differing(one, other) -> list:
    """Units whose offered, allocated or available quantity is not the same in both."""
    return [key for key in {*one, *other} if one.get(key, ())[:3] != other.get(key, ())[:3]]


async def all_entries(ledger):
    return await ledger.read(lambda reader: reader.entries(0, 10**9))


async def test_a_replay_gives_the_same_numbers_after_concurrent_requests(place, soak):
    chance = random.Random(soak.seed)
    ledger = open_ledger(place)
    await publish(ledger)
    rounds, refused = soak.scale(100), 0
    for _ in range(rounds):
        requests = [random_request(chance) for _ in range(20)]
        answers = await allocate_all(ledger, requests)
        refused += sum(not any(o.success for o in answer.outcomes) for answer in answers)
        if chance.random() < 0.3:
            lowered = [Offer(EON, DK1, hour(12).start, chance.randint(0, 1500))]
            await publish(ledger, lowered, Trigger.ADJUST_CAPACITY)
    await ledger.run(lambda u: desk.set_status(u, NAMES, "DE-DK", "", Status.HALT, "op", NOW))
    in_memory = ledger.look(numbers)
    entries = await all_entries(ledger)
    allocations = sum(entry.kind == "allocation" for entry in entries)
    found = walk(entries)
    wrong = differing(numbers(found.book), in_memory)
    soak.report(
        requests=rounds * 20, refused=refused, allocations=allocations, **found.counts(),
        differing=len(wrong),
    )  # fmt: skip
    assert allocations > 20
    assert found.is_sound(), found
    assert wrong == []
    await ledger.close()
    again = open_ledger(place)
    try:
        assert again.look(numbers) == in_memory
    finally:
        await again.close()


async def test_an_hour_of_a_document_is_offered_in_each_of_its_quarters(place):
    ledger = open_ledger(place)
    try:
        await publish(ledger, [Offer(APG, CEPS, hour(12).start, 700, timedelta(hours=1))])
        offered = {key[2]: row[0] for key, row in ledger.look(numbers).items() if key[1] == FORWARD}
        quarters = [hour(48 + number, unit=AT_CZ.unit).start for number in range(4)]
        assert offered == dict.fromkeys(quarters, 700)
    finally:
        await ledger.close()


async def test_a_session_lasts_from_its_last_login_until_its_end(place):
    ledger = open_ledger(place)
    try:
        for user, arguments in (("u1", ""), ("u2", ""), ("u2", "X_Event:PUBLISH")):
            await ledger.run(lambda unit, u=user, a=arguments: unit.login(u, a, NOW))
        await ledger.run(lambda unit: unit.session_ended("u1", NOW))
        assert await ledger.read(lambda reader: reader.logins()) == {"u2": "X_Event:PUBLISH"}
        await ledger.run(lambda unit: unit.login("u1", "X_Border:DE-DK", NOW))
        assert (await ledger.read(lambda reader: reader.logins()))["u1"] == "X_Border:DE-DK"
    finally:
        await ledger.close()


async def test_the_ledger_cannot_be_changed_afterwards(place):
    ledger = open_ledger(place)
    await publish(ledger)
    await allocate(ledger, [order(5)])
    await ledger.close()
    with contextlib.closing(by_hand(place)) as connection:
        for statement in ("UPDATE entry SET quantity = 0", "DELETE FROM entry"):
            with pytest.raises((sqlite3.IntegrityError, psycopg.Error), match="append-only"):
                connection.execute(statement)


def by_hand(place: str):
    if "dbname=" not in place:
        return sqlite3.connect(Path(place) / "gridpost.sqlite3")
    connection = psycopg.connect(place, autocommit=True)
    connection.execute("SET search_path TO gridpost")
    return connection


async def test_the_first_outcome_is_kept_with_the_allocation_also_over_a_restart(place):
    ledger = open_ledger(place)
    await publish(ledger)
    first = await allocate(ledger, [order(5, client_id="a")], correlation_id="c1")
    await ledger.close()
    ledger = open_ledger(place)
    try:
        again = await allocate(ledger, [order(5, client_id="a")], correlation_id="c1")
        assert again.repeated
        assert again.notices == ()
        number = first.outcomes[0].allocation_id
        assert again.outcomes[0].message.endswith(f"alclid={number} confQty=5")
        assert not (await allocate(ledger, [order(5)], correlation_id="c1", who="u2")).repeated
        await ledger.run(lambda unit: unit.forget_outcomes(NOW + timedelta(seconds=1)))
        assert not (await allocate(ledger, [order(5)], correlation_id="c1")).repeated
        for seconds, repeated in ((0, True), (1, False)):
            later = NOW + WINDOW + timedelta(seconds=seconds)
            answer = await allocate(ledger, [order(5)], correlation_id="c1", at=later)
            assert answer.repeated == repeated
    finally:
        await ledger.close()


async def test_requests_of_one_work_get_what_they_would_get_one_after_the_other(place, tmp_path):
    chance = random.Random(7)
    requests = [random_request(chance) for _ in range(60)]
    together, alone = open_ledger(place), open_ledger(str(tmp_path / "alone"))
    try:
        await publish(together)
        await publish(alone)
        told = await allocate_together(together, requests)
        one_by_one = [await allocate(alone, orders, kind) for orders, kind in requests]

        def said(answers):
            return [
                [(o.client_id, o.success, o.message, o.confirmed) for o in a.outcomes]
                for a in answers
            ]

        assert said(told) == said(one_by_one)
        assert together.look(numbers) == alone.look(numbers)
        entries, others = await all_entries(together), await all_entries(alone)
        # Whatever a replay shall judge by itself has a number of its own.
        assert list(Counter(e.commit for e in entries).values()) == list(
            Counter(e.commit for e in others).values()
        )
        assert walk(entries).is_sound()
    finally:
        await together.close()
        await alone.close()


async def test_a_repetition_beside_its_first_request_is_one_too(place):
    ledger = open_ledger(place)
    try:
        await publish(ledger)
        wanted = [asked([order(5)], correlation_id="c1") for _ in range(2)]
        answer = await ledger.run(lambda unit: desk.allocate(unit, NAMES, wanted, NOW, WINDOW))
        assert [Told(outcomes).repeated for outcomes in answer.outcomes] == [False, True]
        assert [e.quantity for e in await all_entries(ledger) if e.kind == "allocation"] == [5]
    finally:
        await ledger.close()


@pytest.mark.req("cmm-5.4.2-d", "cmm-5.4.2-e")
async def test_what_is_committed_together_is_one_difference_of_the_atc_and_a_notice_for_each(place):
    ledger = open_ledger(place)
    try:
        await publish(ledger)
        wanted = [asked([order(5)]), asked([order(7)])]
        answer = await ledger.run(lambda unit: desk.allocate(unit, NAMES, wanted, NOW, WINDOW))
        atc = [notice for notice in answer.notices if isinstance(notice, AtcNotice)]
        assert [[quantity for _, quantity in notice.values] for notice in atc] == [[988], [1012]]
        rest = [notice for notice in answer.notices if isinstance(notice, AllocationNotice)]
        assert [(n.sequence_id, n.allocations[0].quantity) for n in rest] == [(0, 5), (1, 7)]
    finally:
        await ledger.close()


async def test_one_request_that_breaks_undoes_its_whole_work_and_says_so(place):
    ledger = open_ledger(place)
    try:
        await publish(ledger)
        before = ledger.look(numbers)
        broken = replace(asked([order(5)]), party=None)
        wanted = [asked([order(5)]), broken]
        with pytest.raises(desk.Undone):
            await ledger.run(lambda unit: desk.allocate(unit, NAMES, wanted, NOW, WINDOW))
        assert ledger.look(numbers) == before
        assert not [e for e in await all_entries(ledger) if e.kind == "allocation"]
    finally:
        await ledger.close()


@pytest.mark.req("cmm-5.2.2-g")
async def test_a_work_that_fails_in_the_middle_leaves_nothing_behind(place):
    ledger = open_ledger(place)
    try:
        await publish(ledger)
        before, entries = ledger.look(numbers), await all_entries(ledger)

        def breaks(unit):
            wanted = [asked([order(5), order(7, hour(13))], correlation_id="c9")]
            desk.allocate(unit, NAMES, wanted, NOW, WINDOW)
            raise Refusal(Rule.STORE_FULL, "no space left")

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


@pytest.mark.parametrize("which", [0, 1, 2])
async def test_works_that_share_a_commit_with_one_that_fails_stay_wherever_it_stands(place, which):
    ledger = open_ledger(place)
    gate = threading.Event()

    def work(number):
        def allocates(unit):
            gate.wait(30)
            wanted = [asked([order(5)], correlation_id=f"c{number}")]
            answer = desk.allocate(unit, NAMES, wanted, NOW, WINDOW)
            if number == which:
                raise Refusal(Rule.STORE_FULL, "no space left")
            return answer

        return allocates

    try:
        await publish(ledger)
        entries = await all_entries(ledger)
        # The first is under way and waits; the others gather behind it.
        runs = [asyncio.ensure_future(ledger.run(work(number))) for number in range(3)]
        await asyncio.sleep(0)
        gate.set()
        told = await asyncio.gather(*runs, return_exceptions=True)
        assert [isinstance(answer, Refusal) for answer in told] == [n == which for n in range(3)]
        kept = [answer for answer in told if not isinstance(answer, Refusal)]
        assert [answer.notices[-1].sequence_id for answer in kept] == [0, 1]
        added = (await all_entries(ledger))[len(entries) :]
        assert [str(entry.sequence) for entry in added] == [
            str(answer.outcomes[0][0].allocation_id) for answer in kept
        ]
        before = ledger.look(numbers)
        await ledger.close()
        ledger = open_ledger(place)
        assert ledger.look(numbers) == before
        # What failed can be asked for again; nothing was kept of it.
        assert not (await allocate(ledger, [order(5)], correlation_id=f"c{which}")).repeated
    finally:
        gate.set()
        await ledger.close()


async def test_a_commit_that_fails_takes_the_book_back(place):
    ledger = open_ledger(place)
    try:
        await publish(ledger)
        before = ledger.look(numbers)
        committer = ledger._committer
        step = "_commit" if isinstance(ledger, SqliteCapacityLedger) else "_end"
        last = getattr(committer, step)

        def fail(*_):
            setattr(committer, step, last)
            if step == "_end":
                raise psycopg.OperationalError("the server went away")
            raise sqlite3.OperationalError("disk I/O error")

        setattr(committer, step, fail)
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


async def test_journal_rows_are_committed_with_the_facts(place):
    ledger = open_ledger(place)
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
    (await asyncio.wait_for(second, 60))()
    ledger = open_ledger(str(tmp_path))
    with pytest.raises(Refusal) as refused:
        open_ledger(str(tmp_path))
    assert refused.value.rule is Rule.STORE_IN_USE
    await ledger.close()


async def test_in_a_database_a_second_service_waits_and_a_former_one_stores_nothing(postgres):
    settings = database(postgres.dsn)
    turn = await postgres_capacity.wait_for_turn(settings, "CMM", "first")
    first = await asyncio.to_thread(open_ledger, postgres.dsn)
    await publish(first)
    waiting = asyncio.create_task(postgres_capacity.wait_for_turn(settings, "CMM", "second"))
    await asyncio.sleep(0.5)
    assert not waiting.done()
    with pytest.raises(Refusal) as refused:
        await asyncio.to_thread(
            PostgresCapacityLedger.open,
            PostgresSettings(postgres.dsn, take_over=timedelta(seconds=0.2)),
            "CMM", market(), lambda: NOW,
        )  # fmt: skip
    assert refused.value.rule is Rule.STORE_IN_USE
    # The network takes the first one's connections away; it still believes in its book.
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    await asyncio.wait_for(turn.lost, 60)
    await turn.release()
    second_turn = await asyncio.wait_for(waiting, 60)
    second = await asyncio.to_thread(open_ledger, postgres.dsn)
    assert (await allocate(second, [order(900)])).outcomes[0].success
    with pytest.raises(Refusal) as stopped:
        await allocate(first, [order(900)])
    assert stopped.value.rule in (Rule.STORE_IN_USE, Rule.LEASE_LOST)
    # Also when the second is gone again: its take-over stays.
    await second.close()
    await second_turn.release()
    with pytest.raises(Refusal) as fenced:
        await allocate(first, [order(900)])
    assert fenced.value.rule is Rule.LEASE_LOST
    await first.close()
    third = await asyncio.to_thread(open_ledger, postgres.dsn)
    assert walk(await all_entries(third)).is_sound()
    assert (await allocate(third, [order(200)])).outcomes[0].success is False
    await third.close()


@pytest.mark.parametrize("option", ["fsync", "synchronous_commit"])
def test_a_database_that_forgets_commits_is_no_place_for_a_ledger(own_postgres_server, option):
    own_postgres_server.restart("-c", f"{option}=off")
    try:
        with pytest.raises(Refusal) as refused:
            open_ledger(own_postgres_server.default_database().dsn)
        assert refused.value.rule is Rule.STORE_UNSAFE
        assert option in refused.value.message
    finally:
        own_postgres_server.restart()


WRITER = """
import asyncio, random, sys
from stores.test_capacity_ledger import allocate_all, open_ledger, publish, random_request

async def main():
    ledger = open_ledger(sys.argv[1])
    chance = random.Random(int(sys.argv[2]))
    if sys.argv[3] == "first":
        await publish(ledger)
    print("ready", flush=True)
    while True:
        requests = [random_request(chance) for _ in range(10)]
        answers = await allocate_all(ledger, requests)
        for answer in answers:
            told = [f"{o.allocation_id}:{o.confirmed}" for o in answer.outcomes if o.success]
            print("answered", *told, flush=True)

asyncio.run(main())
"""


def test_nothing_that_was_told_is_lost_or_sold_twice_when_the_service_is_killed(place, soak):
    chance = random.Random(soak.seed)
    told: dict[int, int] = {}
    answered = 0
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}:{root / 'tests'}"}
    kills = soak.scale(30)
    for attempt in range(kills):
        seed = str(chance.randrange(2**31))
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, place, seed, "first" if not attempt else ""],
            stdout=subprocess.PIPE, env=environment, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        lines = [process.stdout.readline() for _ in range(chance.randint(5, 60))]
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
        process.wait()
        process.stdout.close()
        for line in lines:
            # The last one may be cut off anywhere: it told nobody anything.
            if line.endswith("\n"):
                answered += 1
                made = [item.split(":") for item in line.split()[1:]]
                told.update({int(number): int(quantity) for number, quantity in made})

    async def look():
        ledger = open_ledger(place)
        try:
            return await all_entries(ledger), ledger.look(numbers)
        finally:
            await ledger.close()

    entries, in_memory = asyncio.run(look())
    found = walk(entries)
    wrong = differing(numbers(found.book), in_memory)
    stored = {e.sequence: e.quantity for e in entries if e.kind == "allocation"}
    lost = {number for number, quantity in told.items() if stored.get(number) != quantity}
    soak.report(
        kills=kills, requests=answered, confirmed=len(told), stored=len(stored), lost=len(lost),
        **found.counts(), differing=len(wrong),
    )  # fmt: skip
    assert told
    assert not lost
    assert found.is_sound(), found
    assert wrong == []
