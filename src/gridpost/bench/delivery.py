"""How fast documents are delivered between two applications, against what RSA alone would allow.

A directory, a broker and two endpoints run as processes on this machine; documents go in and come out
by the AMQP channel, and count when the sender's application is told RECEIVED. Each needs three RSA
private operations: the message is signed, its session key opened, its acknowledgement signed. Whoever
starts the processes copies their logs, in blocks: it is on the same processors, and costs little.

Large documents and the disk that they are compared with take turns, and the median of each counts: a
disk that others use, or that is fast until its credit is spent, is not the same for two seconds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gridpost.assembly.logs import log_to_stderr
from gridpost.bench import Measurement
from gridpost.bench._delivery_site import RECEIVER, SENDER, DeliverySite, delivery_site
from gridpost.bench._sampling import ACTIVITIES, UNSEEN
from gridpost.core.links import Peer, ReceivedDelivery
from gridpost.stores.keys.rsa_operations import generate, sign
from gridpost.transports.amqp10 import AmqpClient, AmqpLimits, ClientConnection, Credentials
from gridpost.wire.amqp.codec import binary
from gridpost.wire.amqp.sections import split
from gridpost.wire.application_amqp import OutboxMessage, outbox_parts, read_any, write_outbox
from gridpost.wire.seal import STANDARD

MESSAGES = 5_000
SIZE = 3_000
LARGE, LARGE_COUNT, LARGE_TURNS = 20 * 2**20, 5, 5
WINDOW = 400
SAMPLED = 2_000
TABLE = "CPU us per document, by process and activity (shares from a sampled run)"
OPERATIONS_PER_MESSAGE = 3
_WAYS_SECONDS, _QUIET_SECONDS = 60.0, 60.0
QUEUE = "ecp.endpoint."


def measure() -> Measurement:
    """GRIDPOST_BENCH_MESSAGES sets another number of documents, GRIDPOST_BENCH_FOLDER the disk."""
    log_to_stderr("bench", logging.WARNING)
    count = int(os.environ.get("GRIDPOST_BENCH_MESSAGES", MESSAGES))
    place = os.environ.get("GRIDPOST_BENCH_FOLDER") or None
    with tempfile.TemporaryDirectory(prefix="gridpost-bench-", dir=place) as name:
        return asyncio.run(_measure(Path(name), count))


async def _measure(folder: Path, count: int) -> Measurement:
    shares = await _shares(folder / "sampled", min(count, SAMPLED))
    async with delivery_site(folder) as site:
        load = _Load(site)
        await load.open()
        await load.find_the_way()
        await load.run(min(500, count), SIZE)  # warm: caches, connections, code paths
        limit, rsa = await asyncio.to_thread(_crypto_limit)
        before, memory = site.cpu_seconds(), site.resident_mib()
        seconds = await load.run(count // 2, SIZE)
        half = site.resident_mib()
        seconds += await load.run(count - count // 2, SIZE)
        used = {code: spent - before[code] for code, spent in site.cpu_seconds().items()}
        end = site.resident_mib()
        rate = count / seconds
        times = await load.paced(min(count, 1_000), rate / 2)
        large = min(LARGE_COUNT, max(1, count // 200))
        large_turns, disk_turns = await _large(load, folder, large)
        large_seconds = statistics.median(large_turns)
        disk_seconds = statistics.median(disk_turns)
        lost, duplicated = load.lost, load.duplicated
        await load.close()
    figures = {
        "msgs_per_s": rate,
        "crypto_limit_msgs_per_s": limit,
        "p50_ms": statistics.median(times) * 1e3,
        "p99_ms": statistics.quantiles(times, n=100)[98] * 1e3,
        "rsa_cpu_us": rsa * 1e6,
        "lost": lost,
        "duplicated": duplicated,
        "large_mib_per_s": large * LARGE / 2**20 / large_seconds,
        "disk_mib_per_s": large * LARGE / 2**20 / disk_seconds,
        "disk_mib_per_s_slowest": large * LARGE / 2**20 / max(disk_turns),
        "disk_mib_per_s_fastest": large * LARGE / 2**20 / min(disk_turns),
    }
    figures |= {f"cpu_us_per_msg_{_key(c)}": s / count * 1e6 for c, s in used.items()}
    parts = [code for code in end if code != "load"]
    figures |= {f"resident_mib_{_key(c)}": end[c] for c in parts}
    figures |= {f"resident_mib_grown_{_key(c)}": end[c] - memory[c] for c in parts}
    figures |= {f"resident_mib_grown_second_half_{_key(c)}": end[c] - half[c] for c in parts}
    return Measurement(
        figures,
        {
            "of_crypto_limit": rate / limit,
            "large_of_disk": disk_seconds / large_seconds,
            # What the limit would allow if all processors were busy with nothing else: says
            # something also on a machine that others use.
            "rsa_of_cpu": OPERATIONS_PER_MESSAGE * rsa / (sum(used.values()) / count),
            # Of the component that grew most, while the second half of the documents passed.
            "memory_end_of_half": max(end[c] / half[c] for c in parts),
        },
        {TABLE: _table(used, shares, count)},
    )


async def _large(load: _Load, folder: Path, count: int) -> tuple[list[float], list[float]]:
    """Seconds of each turn: of the documents, and of the disk before, between and after them."""
    documents, disk = [], [await asyncio.to_thread(_disk_seconds, folder, count)]
    for _ in range(LARGE_TURNS):
        documents.append(await load.run(count, LARGE))
        disk.append(await asyncio.to_thread(_disk_seconds, folder, count))
    return documents, disk


async def _shares(folder: Path, count: int) -> dict[str, dict[str, float]]:
    """Of the CPU time of each component, in a run of their own: sampling slows them down."""
    async with delivery_site(folder, sampled=True) as site:
        load = _Load(site)
        await load.open()
        await load.find_the_way()
        await load.run(min(500, count), SIZE)
        await asyncio.sleep(1)  # what was sampled is written from time to time
        before = site.activities()
        await load.run(count, SIZE)
        await asyncio.sleep(1)
        after = site.activities()
        await load.close()
    found = {}
    for code, activities in after.items():
        spent = {a: s - before[code].get(a, 0.0) for a, s in activities.items() if a != UNSEEN}
        total = sum(spent.values())
        found[code] = {a: s / total for a, s in spent.items()} if total else {}
    return found


def _table(
    used: Mapping[str, float], shares: Mapping[str, Mapping[str, float]], count: int
) -> dict[str, dict[str, float]]:
    """What each component used per document, divided as the sampled run was."""
    rows = {}
    for code, seconds in used.items():
        each = seconds / count * 1e6
        of = shares.get(code, {})
        rows[code] = {"CPU us": each} | {a: each * of.get(a, 0.0) for a in ACTIVITIES if of}
    total: Counter[str] = Counter()
    for code, row in rows.items():
        if code != "load":
            total.update(row)
    return rows | {"all components": dict(total)}


class _Load:
    """The two applications."""

    def __init__(self, site: DeliverySite) -> None:
        self._site = site
        self._sent: dict[str, float] = {}
        self._received: dict[str, float] = {}
        self._documents: Counter[str] = Counter()
        self._errors: list[str] = []
        self._answered = asyncio.Event()
        self._told = asyncio.Event()
        self._room = asyncio.Semaphore(WINDOW)
        self._connections: list[ClientConnection] = []
        self._number = 0

    @property
    def lost(self) -> int:
        return len(self._sent.keys() - self._received.keys())

    @property
    def duplicated(self) -> int:
        return sum(count - 1 for count in self._documents.values())

    async def open(self) -> None:
        sender, receiver = await self._connect(SENDER), await self._connect(RECEIVER)
        self._outbox = await sender.attach_producer(f"{QUEUE}outbox")
        await sender.attach_consumer(f"{QUEUE}outbox.reply", self._reply, credit=500)
        await sender.attach_consumer(f"{QUEUE}send.event", self._event, credit=500)
        await receiver.attach_consumer(f"{QUEUE}inbox", self._document, credit=500)

    async def close(self) -> None:
        for connection in self._connections:
            connection.close()
        await asyncio.gather(*(connection.lost for connection in self._connections))

    async def find_the_way(self) -> None:
        """Until the sender has heard of the receiver's message-path."""
        async with asyncio.timeout(_WAYS_SECONDS):
            while True:
                self._answered.clear()
                self._errors.clear()
                trace = OutboxMessage(RECEIVER, "BENCH", b"", is_tracing=True)
                await self._outbox.send(write_outbox(trace, "way"))
                await self._answered.wait()
                if not self._errors:
                    return
                await asyncio.sleep(0.2)

    async def run(self, count: int, size: int) -> float:
        """As fast as they are taken; seconds until the last is known to be RECEIVED."""
        began = time.perf_counter()
        for _ in range(count):
            await self._room.acquire()
            self._send(size)
        await self._quiet()
        return time.perf_counter() - began

    async def paced(self, count: int, per_second: float) -> list[float]:
        """At an even pace; seconds from sending to RECEIVED, of each."""
        began = time.perf_counter()
        first = self._number
        for n in range(count):
            delay = began + n / per_second - time.perf_counter()
            if delay > 0:
                await asyncio.sleep(delay)
            await self._room.acquire()
            self._send(SIZE)
        await self._quiet()
        keys = [str(number) for number in range(first, self._number)]
        return [self._received[key] - self._sent[key] for key in keys if key in self._received]

    def _send(self, size: int) -> None:
        key = str(self._number)
        self._number += 1
        content = key.encode().ljust(size, b".")
        message = OutboxMessage(RECEIVER, "BENCH", content, conversation_id=f"bench-{key}")
        self._sent[key] = time.perf_counter()
        self._outbox.send(*outbox_parts(message, key))

    async def _quiet(self) -> None:
        """Until everything is RECEIVED, or nothing has happened for a long while."""
        while self.lost:
            self._told.clear()
            try:
                async with asyncio.timeout(_QUIET_SECONDS):
                    await self._told.wait()
            except TimeoutError:
                return

    def _reply(self, delivery: ReceivedDelivery) -> None:
        found = read_any(delivery.message)
        delivery.accept()
        if "errorMessage" in found.application_properties:
            self._errors.append(str(found.application_properties["errorMessage"]))
            if str(found.properties.correlation_id) != "way":
                self._room.release()
                self._told.set()
        self._answered.set()

    def _event(self, delivery: ReceivedDelivery) -> None:
        found = read_any(delivery.message)
        delivery.accept()
        key = str(found.properties.correlation_id)
        if found.body in ("RECEIVED", "FAILED") and key in self._sent:
            if found.body == "RECEIVED":
                self._received[key] = time.perf_counter()
            self._room.release()
            self._told.set()

    def _document(self, delivery: ReceivedDelivery) -> None:
        (data,) = split(delivery.message).body
        begins = bytes(binary(data.value)[:20])
        delivery.accept()
        self._documents[begins.rstrip(b".").decode()] += 1

    async def _connect(self, code: str) -> ClientConnection:
        largest = LARGE + 2**20
        client = AmqpClient(
            [f"amqp://127.0.0.1:{self._site.ports[code]}"],
            container="bench",
            tls=None,
            check=_anyone,
            credentials=Credentials("app", self._site.password(code)),
            limits=AmqpLimits(max_message_size=largest, max_incoming_octets=8 * largest),
        )
        connection = await client.connect()
        self._connections.append(connection)
        return connection


def _crypto_limit(seconds: float = 3.0) -> tuple[float, float]:
    """Messages per second if the cores did nothing but their RSA; CPU seconds of one operation."""
    key = generate()
    data = bytes(200)
    cores = len(os.sched_getaffinity(0))

    def work(until: float) -> int:
        done = 0
        while time.perf_counter() < until:
            sign(key, data, "SHA-512", STANDARD)
            done += 1
        return done

    with ThreadPoolExecutor(cores) as pool:
        until, cpu = time.perf_counter() + seconds, time.process_time()
        done = sum(pool.map(work, [until] * cores))
        cpu = time.process_time() - cpu
    return done / seconds / OPERATIONS_PER_MESSAGE, cpu / done


def _disk_seconds(folder: Path, count: int) -> float:
    """Writing and flushing the bytes of the large documents once, to files that stay, as theirs do."""
    content = os.urandom(LARGE)
    place = Path(tempfile.mkdtemp(prefix="yardstick-", dir=folder))
    began = time.perf_counter()
    for number in range(count):
        with (place / str(number)).open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    return time.perf_counter() - began


def _key(code: str) -> str:
    return code.lower().replace("-", "_")


async def _anyone(peer: Peer) -> None:
    """A bench trusts its own network."""
