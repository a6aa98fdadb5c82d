"""The sampler of the delivery bench: CPU time goes to what used it, and waiting costs nothing."""

from __future__ import annotations

import hashlib
import threading
import time
from pathlib import Path

from gridpost.bench._sampling import ACTIVITIES, UNSEEN, Sampler, read
from gridpost.wire.seal.manifest import fingerprint
from support.samples import standard_message


def test_time_is_counted_for_the_thread_and_the_code_that_used_it(tmp_path: Path) -> None:
    sampler = Sampler(tmp_path / "1.json")
    done = threading.Event()

    def key_work() -> None:
        while not done.is_set():
            hashlib.sha512(bytes(200_000)).digest()

    waits = threading.Thread(target=done.wait, name="gridpost-reader_0")
    works = threading.Thread(target=key_work, name="gridpost-key_0")
    for thread in (waits, works):
        thread.start()
    metadata = standard_message()
    content = bytes(200_000)
    sampler._sample()
    until = time.thread_time() + 0.3
    while time.thread_time() < until:
        fingerprint(metadata, content)
        sampler._sample()
    done.set()
    for thread in (waits, works):
        thread.join()
    sampler._write()
    found = read(tmp_path, 1)
    assert found["RSA"] > 0.05
    # The sampling is done here by the thread that is sampled: all that it used is told.
    assert sum(found.get(a, 0.0) for a in (*ACTIVITIES, UNSEEN)) > 0.3
    assert found.get("store", 0.0) < 0.05
    assert read(tmp_path, 2) == {}
