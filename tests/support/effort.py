"""How much work something is, compared with hashing: holds on slow machines and on loaded ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from time import process_time

_SAMPLE = bytes(4_000_000)


@contextmanager
def no_more_work_than_hashing(octets: int) -> Iterator[None]:
    """What happens inside takes less time of the processor than SHA-512 of so many octets."""
    start = process_time()
    yield
    spent = process_time() - start
    start = process_time()
    for _ in range(5):
        hashlib.sha512(_SAMPLE).digest()
    rate = 5 * len(_SAMPLE) / (process_time() - start)
    assert spent * rate < octets, f"worth {spent * rate:,.0f} octets"
