"""How fast the embedded store takes messages, beside a plain log that syncs as often.

A put stores a message with 3,000 bytes of content and a signature of usual size. Batched, 100 of them
are one work; concurrent, 100 callers put one each and share a commit without knowing of each other.
The yardstick appends the same contents to a file and calls fdatasync after each batch: nothing that
keeps messages durably can be faster. Store and log take turns, so that both see the same disk.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter, process_time

from gridpost.bench import Measurement
from gridpost.core.delivery import Event, Occurrence, Side, begin, decide
from gridpost.core.identifiers import ComponentCode, MessageType, new_message_id
from gridpost.core.instant import Instant
from gridpost.core.journal import MessageRow, TrackingRow
from gridpost.core.message import (
    SIGNATURE,
    Entry,
    InternalMessage,
    InternalType,
    Metadata,
    Processor,
    ValueType,
)
from gridpost.core.message_box import BoxEntry
from gridpost.core.message_path import Route
from gridpost.core.ports import UnitOfWork
from gridpost.stores.sqlite import SqliteStore

CONTENT_SIZE = 3_000
# An XML signature with an RSA-2048 value, and the name of its certificate.
SIGNATURE_SIZE = 1_500
BATCH = 100
ROUNDS = 60
SINGLES = 300
ROUTE = Route(ComponentCode("BROKER-1"))

Work = Callable[[UnitOfWork], object]


def measure() -> Measurement:
    folder = Path(tempfile.mkdtemp(prefix="gridpost-bench-", dir=_disk()))
    try:
        return asyncio.run(_measure(folder))
    finally:
        shutil.rmtree(folder)


def _disk() -> str | None:
    """/tmp may be memory, where a sync costs nothing; the working folder is the next best guess."""
    return os.environ.get("GRIDPOST_BENCH_DIR") or os.getcwd()


async def _measure(folder: Path) -> Measurement:
    content = os.urandom(CONTENT_SIZE)
    batched, concurrent, accepted, logged, alone, logged_alone = [], [], [], [], [], []
    cpu = 0.0
    store = SqliteStore.open(folder / "store", "BENCH")
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        await _together(store, [_put(_entry(), content) for _ in range(BATCH)])
        for _ in range(ROUNDS):
            logged.append(_append(log, content, BATCH))
            batch = [(_entry(), content) for _ in range(BATCH)]
            cpu -= process_time()
            batched.append(await _together(store, [_put_many(batch)]))
            cpu += process_time()
            puts = [_put(_entry(), content) for _ in range(BATCH)]
            concurrent.append(await _together(store, puts))
            accepts = [_accept(_entry(), content) for _ in range(BATCH)]
            accepted.append(await _together(store, accepts))
        for _ in range(SINGLES):
            logged_alone.append(_append(log, content, 1))
            alone.append(await _together(store, [_put(_entry(), content)]))
    finally:
        os.close(log)
        await store.close()
    figures = {
        "batched_puts_per_s": _rate(batched),
        "batched_puts_best_per_s": BATCH / min(batched),
        "batched_put_cpu_us": cpu / (BATCH * ROUNDS) * 1e6,
        "concurrent_puts_per_s": _rate(concurrent),
        "concurrent_puts_best_per_s": BATCH / min(concurrent),
        "concurrent_accepts_per_s": _rate(accepted),
        "fsync_log_appends_per_s": _rate(logged),
        "single_put_p50_ms": median(alone) * 1000,
        "single_put_p99_ms": quantiles(alone, n=100)[98] * 1000,
        "fsync_log_single_p50_ms": median(logged_alone) * 1000,
    }
    return Measurement(
        {name: round(value, 3) for name, value in figures.items()},
        {
            "batched_puts_of_fsync_log": round(_rate(batched) / _rate(logged), 3),
            "concurrent_puts_of_fsync_log": round(_rate(concurrent) / _rate(logged), 3),
            "single_put_p50_of_fsync_log": round(median(alone) / median(logged_alone), 3),
        },
    )


def _rate(seconds: list[float]) -> float:
    """Messages per second over all rounds, slow ones included."""
    return BATCH * len(seconds) / sum(seconds)


async def _together(store: SqliteStore, works: list[Work]) -> float:
    start = perf_counter()
    await asyncio.gather(*(store.run(work) for work in works))
    return perf_counter() - start


def _append(log: int, content: bytes, times: int) -> float:
    start = perf_counter()
    for _ in range(times):
        os.write(log, content)
    os.fdatasync(log)
    return perf_counter() - start


def _put(entry: BoxEntry, content: bytes) -> Work:
    return lambda unit: unit.box.put(entry, content)


def _put_many(messages: Sequence[tuple[BoxEntry, bytes]]) -> Work:
    return lambda unit: unit.box.put_many(messages)


def _accept(entry: BoxEntry, content: bytes) -> Work:
    """What an endpoint does for an application: message, trace, transfer and journal at once."""
    metadata = entry.metadata
    now = entry.delivery.changed_at

    def work(unit: UnitOfWork) -> None:
        decision = decide(entry.delivery, Occurrence(Event.ACCEPT), now)
        unit.box.put(replace(entry, delivery=decision.delivery), content)
        unit.box.move(Side.SENT, decision)
        unit.box.enqueue(InternalMessage(metadata, content), ROUTE, entry.delivery.expires_at)
        unit.journal.append(
            MessageRow(
                at=now,
                side=Side.SENT,
                message_id=metadata.message_id,
                internal_type=metadata.internal_type,
                sender_code=metadata.sender_code,
                receiver_code=metadata.receiver_code,
                message_type=metadata.message_type,
                generated=metadata.generated.at,
                expiration_time=entry.delivery.expires_at,
                route=str(ROUTE),
                size=entry.size,
                fingerprint=entry.fingerprint,
            )
        )
        unit.journal.append(
            TrackingRow(
                now, Side.SENT, metadata.message_id, Event.ACCEPT, decision.delivery.state, True
            )
        )

    return work


def _entry() -> BoxEntry:
    now = datetime.now(UTC)
    expires_at = now + timedelta(days=1)
    signature = Processor(
        SIGNATURE,
        (
            Entry("signature", ValueType.STRING, "s" * SIGNATURE_SIZE),
            Entry("certificateID", ValueType.STRING, "CN=ENDPOINT-1,O=Example,C=EU 12345"),
        ),
    )
    metadata = Metadata(
        new_message_id(),
        ComponentCode("ENDPOINT-2"),
        MessageType("SCHEDULE"),
        Instant.of(now),
        Instant.of(expires_at),
        ComponentCode("ENDPOINT-1"),
        InternalType.STANDARD_MESSAGE,
        processors=(signature,),
    )
    delivery = begin(Side.SENT, metadata.message_id, expires_at, now)
    return BoxEntry(delivery, metadata, ROUTE, b"f" * 64, CONTENT_SIZE, "application")
