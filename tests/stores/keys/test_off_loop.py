"""Key operations in threads: what was asked for together is done in pieces, each with its own outcome."""

from __future__ import annotations

import asyncio
import threading

import pytest

from gridpost.stores.keys.off_loop import KeyPool, key_pool, run


async def test_each_caller_gets_its_own_outcome() -> None:
    def double(number: int) -> int:
        if number == 7:
            raise ValueError("seven")
        return 2 * number

    with key_pool(2) as pool:
        asked = [asyncio.create_task(run(pool, double, number)) for number in range(50)]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(outcomes[7], ValueError)
    assert [o for o in outcomes if isinstance(o, int)] == [2 * n for n in range(50) if n != 7]


async def test_what_is_asked_for_in_one_turn_is_handed_over_in_few_pieces() -> None:
    pieces: list[int] = []

    class Counting(KeyPool):
        def submit(self, fn, jobs):  # type: ignore[no-untyped-def]
            pieces.append(len(jobs))
            return super().submit(fn, jobs)

    with Counting(2, "gridpost-key") as pool:
        await asyncio.gather(*(run(pool, threading.get_ident) for _ in range(10)))
        await asyncio.gather(*(run(pool, threading.get_ident) for _ in range(2)))
    assert pieces == [4, 4, 2, 1, 1]


async def test_no_operation_runs_in_the_loop_nor_for_a_caller_that_has_gone() -> None:
    begun, go_on = threading.Event(), threading.Event()
    done: list[str] = []

    def first() -> int:
        begun.set()
        assert go_on.wait(30)
        return threading.get_ident()

    with key_pool(1) as pool:
        waiting = asyncio.create_task(run(pool, first))
        await asyncio.to_thread(begun.wait, 30)
        gone = asyncio.create_task(run(pool, lambda: done.append("gone")))
        stays = asyncio.create_task(run(pool, lambda: done.append("stays")))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone])
        go_on.set()
        assert await waiting != threading.get_ident()
        await stays
    assert done == ["stays"]


def test_what_a_loop_left_behind_does_not_stop_the_next_one() -> None:
    with key_pool(1) as pool:

        async def ask_and_leave() -> None:
            pool.ask(lambda: 1)

        loop = asyncio.new_event_loop()
        loop.run_until_complete(ask_and_leave())
        loop.close()
        assert asyncio.run(run(pool, lambda: 2)) == 2


async def test_a_pool_that_was_shut_down_says_so() -> None:
    pool = key_pool(1)
    pool.shutdown()
    with pytest.raises(RuntimeError, match="shutdown"):
        await run(pool, lambda: 1)
