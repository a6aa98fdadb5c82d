"""How fast an envelope of 2 kB becomes a checked value, against bare lxml parse and validation.

Both sides take turns, a few milliseconds each, so that a busy machine slows both alike.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime

from lxml import etree

from gridpost.bench import Measurement
from gridpost.envelope import Sender, User, decode, encode
from gridpost.wire.xml import schema_tree

SIZE = 2_000
_TURN = 200


def example() -> bytes:
    """A reply with readings, filled up to the size."""
    sender = Sender("MDM", "PRODUCTION", User("reader", "Metering"), now=lambda: datetime.now(UTC))
    namespace = "http://iec.ch/TC57/2011/MeterReadings#"
    readings = ""
    while True:
        body = (
            f'<m:MeterReadings xmlns:m="{namespace}"><m:MeterReading>{readings}'
            "</m:MeterReading></m:MeterReadings>"
        )
        data = encode(sender.request("create", "MeterReadings", body))
        if len(data) >= SIZE:
            return data
        readings += (
            "<m:Readings><m:timeStamp>2026-11-16T05:00:00Z</m:timeStamp>"
            f"<m:value>{len(readings)}.25</m:value></m:Readings>"
        )


def measure(seconds: float = 4.0) -> Measurement:
    data = example()
    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    schema = etree.XMLSchema(schema_tree("envelope/Message.xsd"))

    def bare() -> None:
        if not schema.validate(etree.fromstring(data, parser)):
            raise AssertionError(schema.error_log)

    def ours() -> None:
        decode(data)

    value = decode(data)

    def write() -> None:
        encode(value)

    for warm in (bare, ours, write):
        _turn(warm)
    samples: dict[str, list[float]] = {"bare": [], "ours": [], "write": []}
    collecting = gc.isenabled()
    gc.disable()
    try:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for name, work in (("bare", bare), ("ours", ours), ("write", write)):
                samples[name].append(_turn(work))
    finally:
        if collecting:
            gc.enable()
    middle = {name: statistics.median(values) for name, values in samples.items()}
    ratio = statistics.median(b / o for b, o in zip(samples["bare"], samples["ours"], strict=True))
    return Measurement(
        figures={
            "size_bytes": float(len(data)),
            "parse_validate_per_s": 1 / middle["ours"],
            "lxml_parse_validate_per_s": 1 / middle["bare"],
            "encode_per_s": 1 / middle["write"],
        },
        ratios={"parse_validate_of_lxml": ratio},
    )


def _turn(work: Callable[[], None]) -> float:
    """Seconds of this thread's own time: what a core does, whoever else is at work."""
    start = time.thread_time()
    for _ in range(_TURN):
        work()
    return (time.thread_time() - start) / _TURN
