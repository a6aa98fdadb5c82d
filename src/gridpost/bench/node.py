"""How fast a MADES 1.1 node moves messages: many in one call against one, attachments against text.

Both forms of a document take the same way: the HTTPS client of an endpoint, TLS with certificates on both
sides, the same node and store, and the readers of every request. Only where the document stands differs:
beside the envelope, or in it as base64. The node is a process of its own, as it always is: the peer works
while it works, and the memory that is measured is that of the node. (Until 2026-11-17 node and endpoints
shared one process, so that neither did; until 2026-11-16 another HTTP client was used.)

Large documents are measured in rounds of one of each form, by turns which comes first, after one of each
that does not count; each figure is that of the median document. What was downloaded is read from the
answer, as an endpoint does, and compared. (Until 2026-11-18 there were four of each, all of one form and
then all of the other, the first ones included, and what was downloaded was not read.)
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from gridpost.assembly.logs import log_to_stderr
from gridpost.bench import Measurement
from gridpost.bench._node_site import BenchEndpoint, node_site

SMALL = 3 * 1024
SINGLES = 100
BULK = 250
BULKS = 4
LARGE = 10 * 1024 * 1024
ROUNDS = 10


def measure() -> Measurement:
    log_to_stderr("bench", logging.WARNING)
    with TemporaryDirectory(prefix="gridpost-bench-") as folder:
        return asyncio.run(_measure(Path(folder)))


async def _measure(folder: Path) -> Measurement:
    async with node_site(folder) as site:
        one, two = site.one, site.two
        await _small(one, two, 1, 5)  # warm
        single = await _small(one, two, 1, SINGLES)
        bulk = await _small(one, two, BULK, BULKS)
        before = site.node_memory()
        text, mtom = await _large(one, two)
        after = site.node_memory()
    return Measurement(
        {
            "single_messages_per_second": single,
            "bulk_messages_per_second": bulk,
            "base64_documents_per_second": text,
            "mtom_documents_per_second": mtom,
            "large_documents_memory_growth_mib": after - before,
        },
        {"bulk_vs_single": bulk / single, "mtom_vs_base64": mtom / text},
    )


async def _small(one: BenchEndpoint, two: BenchEndpoint, size: int, times: int) -> float:
    """Uploaded, downloaded and confirmed, all of them."""
    content = os.urandom(SMALL)
    batches = [[(one.metadata(two), content) for _ in range(size)] for _ in range(times)]
    start = perf_counter()
    for batch in batches:
        await one.upload(batch)
        found = await two.download()
        if len(found) != size:
            raise RuntimeError("not everything was downloaded")
        await two.confirm(list(found))
    return size * times / (perf_counter() - start)


async def _large(one: BenchEndpoint, two: BenchEndpoint) -> tuple[float, float]:
    """Documents a second as base64, and with MTOM."""
    content = os.urandom(LARGE)
    took: dict[bool, list[float]] = {False: [], True: []}
    for number in range(1 + ROUNDS):
        for mtom in (number % 2 == 1, number % 2 == 0):
            seconds = await _one_large(one, two, content, mtom=mtom)
            if number:  # the first of each warms
                took[mtom].append(seconds)
    return 1 / median(took[False]), 1 / median(took[True])


async def _one_large(
    one: BenchEndpoint, two: BenchEndpoint, content: bytes, *, mtom: bool
) -> float:
    message = (one.metadata(two), content)
    start = perf_counter()
    await one.upload([message], mtom=mtom)
    found = await two.download(mtom=mtom)
    await two.confirm(list(found))
    seconds = perf_counter() - start
    if list(found.values()) != [content]:
        raise RuntimeError("what was downloaded is not what was uploaded")
    return seconds
