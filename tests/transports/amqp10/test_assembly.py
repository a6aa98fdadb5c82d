"""Messages that arrive in parts."""

from __future__ import annotations

import random

from gridpost.transports.amqp10.assembly import OWN_MEMORY, Assembly


def test_parts_of_any_size_come_out_as_they_went_in() -> None:
    dice = random.Random(503)
    for total in (0, 1, OWN_MEMORY - 1, OWN_MEMORY, OWN_MEMORY + 1, 9 * OWN_MEMORY + 7):
        expected = dice.randbytes(total)
        assembly, at = Assembly(), 0
        while at < total:
            size = min(dice.randint(1, 300_000), total - at)
            assembly.append(memoryview(expected)[at : at + size])
            at += size
        assert assembly.size == total
        assert bytes(assembly.take()) == expected
