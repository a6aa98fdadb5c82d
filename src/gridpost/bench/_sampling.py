"""On what a component process spends its CPU time: `python -m gridpost.bench._sampling COMMAND ...`.

Every few milliseconds a thread reads the CPU clock of each other thread. What that thread has used
since then counts for what the thread is for, if it has one purpose, and otherwise for the activity of
the innermost frame on its stack that tells one. A thread that is found waiting has used its time for
something that was not seen; that part is left out. A sample sees a thread only where it lets go of the
interpreter lock. So shares are estimates; sampling costs CPU time of its own, which is why benches take
only shares from here, and on a machine that is busy with other things they mean little.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

FOLDER = "GRIDPOST_BENCH_SAMPLES"
"""Environment: where each process writes what it has found so far, as PID.json."""
OTHER = "other"
_INTERVAL, _WRITE_EVERY = 0.004, 0.25
_PACKAGE = str(Path(__file__).parents[1])

# The first that fits counts; paths are those inside the package.
_PLACES = (
    ("/stores/keys/", "RSA"),
    ("/wire/seal/xml_signature", "XML"),
    ("/wire/seal/", "seal"),
    ("/wire/x509", "seal"),
    ("/transports/amqp10/stream", "TLS"),
    ("/transports/amqp10/tls", "TLS"),
    ("/transports/amqp10/", "AMQP"),
    ("/wire/amqp/", "AMQP"),
    ("/wire/application_amqp", "AMQP"),
    ("/wire/mades/amqp_message", "AMQP"),
    ("/wire/mades/passing", "AMQP"),
    ("/wire/mades/", "XML"),
    ("/wire/xml", "XML"),
    ("/stores/", "store"),
    ("/services/", "services"),
    ("/core/", "services"),
)
_THREADS = (
    ("gridpost-key", "RSA"),
    ("gridpost-token", "RSA"),
    ("gridpost-committer", "store"),
    ("gridpost-files", "store"),
    ("gridpost-reader", "store"),
    ("gridpost-queue", "store"),
    ("gridpost-bodies", "store"),
    ("gridpost-pg-", "store"),
)
_WAITING = ("selectors.py", "threading.py", "queue.py")
UNSEEN = "unseen"
ACTIVITIES = ("RSA", "seal", "TLS", "AMQP", "XML", "store", "services", OTHER)
"""RSA: private operations. Seal: AES, digests, public RSA. Other: event loop, logs, this sampling."""


class Sampler(threading.Thread):
    def __init__(self, file: Path) -> None:
        super().__init__(name="gridpost-samples", daemon=True)
        self._file = file
        self._seen: dict[int, float] = {}
        self._spent: defaultdict[str, float] = defaultdict(float)

    def run(self) -> None:
        written = 0.0
        while True:
            time.sleep(_INTERVAL)
            self._sample()
            if time.monotonic() - written > _WRITE_EVERY:
                written = time.monotonic()
                self._write()

    def _sample(self) -> None:
        frames = sys._current_frames()
        for thread in threading.enumerate():
            ident = thread.ident
            if ident is None or ident not in frames or not thread.is_alive():
                continue
            now = time.clock_gettime(time.pthread_getcpuclockid(ident))
            spent = now - self._seen.get(ident, now)
            self._seen[ident] = now
            if spent > 0 and thread is not self:
                self._spent[_purpose(thread.name) or _activity(frames[ident])] += spent

    def _write(self) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(self._spent), encoding="utf-8")
        new.replace(self._file)


def _purpose(name: str) -> str:
    return next((activity for prefix, activity in _THREADS if name.startswith(prefix)), "")


def _activity(frame: FrameType | None) -> str:
    if frame is not None and frame.f_code.co_filename.endswith(_WAITING):
        return UNSEEN
    while frame is not None:
        found = _of(frame.f_code)
        if found:
            return found
        frame = frame.f_back
    return OTHER


@cache
def _of(code: CodeType) -> str:
    path = code.co_filename
    if not path.startswith(_PACKAGE):
        return "XML" if "/lxml/" in path else ""
    inside = path.removeprefix(_PACKAGE)
    return next((activity for place, activity in _PLACES if inside.startswith(place)), "")


def read(folder: Path, pid: int) -> dict[str, float]:
    """CPU seconds by activity since the process began; nothing before the first samples."""
    try:
        found: Mapping[str, float] = json.loads((folder / f"{pid}.json").read_text("utf-8"))
    except FileNotFoundError:
        return {}
    return dict(found)


def main() -> None:
    """The command line of Gridpost, watched."""
    from gridpost.cli import main as command

    # Looking at frames from outside makes cycles that hold memoryviews; clearing those crashes the
    # collector of Python 3.11 (CPython gh-77894, fixed in later 3.12 and 3.13). Such a run is short.
    gc.disable()
    Sampler(Path(os.environ[FOLDER]) / f"{os.getpid()}.json").start()
    command()


if __name__ == "__main__":
    main()
