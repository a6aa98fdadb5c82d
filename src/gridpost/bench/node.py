"""How fast a MADES 1.1 node moves messages: many in one call against one, attachments against text.

Both forms of a document take the same way: the HTTPS client of an endpoint, TLS with certificates on both
sides, the same node and store, and the readers of every request. Only where the document stands differs:
beside the envelope, or in it as base64. The node is a process of its own, as it always is: the peer works
while it works, and the memory that is measured is that of the node. (Until 2026-11-17 node and endpoints
shared one process, so that neither did; until 2026-11-16 another HTTP client was used.)
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
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
LARGES = 4


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
        text = await _large(one, two, mtom=False)
        mtom = await _large(one, two, mtom=True)
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
        ids = await two.download()
        if len(ids) != size:
            raise RuntimeError("not everything was downloaded")
        await two.confirm(ids)
    return size * times / (perf_counter() - start)


async def _large(one: BenchEndpoint, two: BenchEndpoint, *, mtom: bool) -> float:
    content = os.urandom(LARGE)
    messages = [(one.metadata(two), content) for _ in range(LARGES)]
    start = perf_counter()
    for message in messages:
        await one.upload([message], mtom=mtom)
        ids = await two.download(mtom=mtom)
        if len(ids) != 1:
            raise RuntimeError("not everything was downloaded")
        await two.confirm(ids)
    return LARGES / (perf_counter() - start)
