"""What a synchronisation costs a component-directory with a thousand components, and its client.

Measured twice: between processes, from the question of a client to its copy on the disk, with the
memory of both; and behind TLS in this process, the request as the API gets it, the answer as it
leaves. The yardstick is lxml parsing the same answer.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from lxml import etree
from prometheus_client import CollectorRegistry

from gridpost.assembly.clock import SystemClock
from gridpost.bench import Measurement
from gridpost.bench._directory_site import (
    CONTACT,
    HOME,
    DirectorySite,
    entry,
    run_client,
)
from gridpost.bench._rabbitmq import cpu_seconds
from gridpost.bench._served import peak_memory, serving
from gridpost.core.directory_ports import RegistryUnit
from gridpost.services.component_directory.api import DirectoryApi
from gridpost.services.component_directory.authority import Authority
from gridpost.services.component_directory.entries import Entries
from gridpost.services.component_directory.gatekeeper import Gatekeeper
from gridpost.services.component_directory.metrics import DirectoryMetrics
from gridpost.services.component_directory.office import RegistryOffice
from gridpost.services.component_directory.papers import NewKey
from gridpost.services.component_directory.publication import Publication
from gridpost.services.component_directory.settings import DirectorySettings
from gridpost.stores.keys.memory import MemoryKeyring
from gridpost.stores.sqlite import SqliteStore
from gridpost.wire.directory import Query, decode_components, encode_query
from gridpost.wire.x509 import (
    CaRequest,
    Issuer,
    Validity,
    build_root_ca,
    integrated_ca_name,
    issue_integrated_ca,
)

COMPONENTS = 1000


def measure(components: int = COMPONENTS, rounds: int = 20) -> Measurement:
    with tempfile.TemporaryDirectory() as folder:
        between = _between_processes(Path(folder) / "site", components, rounds)
        return asyncio.run(_measure(Path(folder), components, rounds, between))


def _between_processes(folder: Path, components: int, rounds: int) -> dict[str, float]:
    folder.mkdir()
    site = DirectorySite(folder, components)
    with serving("directory", site.file) as server:
        site.enrol(server.port, site.certificate())
        before = cpu_seconds(server.process)
        # The first answer also builds the content; it is part of a full synchronisation.
        first = run_client(folder, 0)
        full_spent = cpu_seconds(server.process) - before
        before = cpu_seconds(server.process)
        again = run_client(folder, rounds)
        spent = cpu_seconds(server.process) - before
        figures = {
            "full_sync_s": first["full_s"],
            "full_sync_client_cpu_s": first["full_cpu_s"],
            "full_sync_server_cpu_s": full_spent,
            "full_sync_client_mb": first["peak_mb"],
            "full_sync_server_mb": peak_memory(server.process),
            "unchanged_sync_s": again["unchanged_s"],
            "unchanged_sync_server_cpu_ms": spent / (rounds + 1) * 1e3,
        }
    # The directory's own entry is one more.
    if first["components"] != components + 1:
        raise RuntimeError("the copy of the client is not complete")
    return figures


async def _measure(
    folder: Path, components: int, rounds: int, between: dict[str, float]
) -> Measurement:
    at = datetime.now(UTC)
    issuer, root, spki = _authority(at)
    entries = [entry(f"E{n}", issuer, spki, at) for n in range(components)]
    store = SqliteStore.open(folder / "store", HOME)
    try:

        def fill(unit: RegistryUnit) -> None:
            for entry in entries:
                unit.entries.put(entry)

        await store.run(fill)
        api, publication = _api(store, issuer, root)
        chain = (entries[0].certificates[0].der, issuer.certificate)
        first_s, _, body = await _ask(api, chain, Query())
        full_s, full_cpu_s, body = await _ask(api, chain, Query())
        couples = (await publication.directory()).couples()
        unchanged = [await _ask(api, chain, Query(couples)) for _ in range(rounds)]
        start = time.perf_counter()
        received = decode_components(body)
        read_s = time.perf_counter() - start
        start = time.perf_counter()
        etree.fromstring(body)
        parse_s = time.perf_counter() - start
        if len(received.answer.components) != components:
            raise RuntimeError("the answer is not complete")
    finally:
        await store.close()
    return Measurement(
        figures={
            "components": components,
            "answer_bytes": len(body),
            "first_answer_s": first_s,
            "full_answer_s": full_s,
            "full_answer_cpu_ms": full_cpu_s * 1e3,
            "client_reads_it_s": read_s,
            "unchanged_answer_cpu_ms": min(cpu for _, cpu, _ in unchanged) * 1e3,
            **between,
        },
        ratios={
            "full_answer_of_lxml_parse": full_s / parse_s,
            "full_sync_of_lxml_parse": between["full_sync_s"] / parse_s,
            "unchanged_of_full": min(cpu for _, cpu, _ in unchanged) / full_cpu_s,
        },
    )


def _authority(at: datetime) -> tuple[Issuer, bytes, bytes]:
    keys = MemoryKeyring()
    root_key, ca_key, key = (keys.create_key() for _ in range(3))
    validity = Validity.starting(at, timedelta(days=300))
    root = build_root_ca("ROOT CA", root_key, keys.sign_function(root_key), validity)
    certificate = issue_integrated_ca(
        CaRequest(integrated_ca_name(HOME), "", ca_key),
        Issuer(root, keys.sign_function(root_key)),
        validity,
    )
    return Issuer(certificate, keys.sign_function(ca_key)), root, key


def _api(store: SqliteStore, issuer: Issuer, root: bytes) -> tuple[DirectoryApi, Publication]:
    clock = SystemClock()
    settings = DirectorySettings(HOME, CONTACT, ("https://bench.example",))
    publication = Publication(store, clock, settings)
    authority = Authority([issuer], settings.certificate_validity)
    gatekeeper = Gatekeeper(store, clock, publication, authority, lambda: [root])
    office = RegistryOffice(store, clock, publication, authority, _NoConnections(), _no_key)
    api = DirectoryApi(
        store,
        clock,
        gatekeeper,
        office,
        Entries(store, clock, publication),
        publication,
        DirectoryMetrics(CollectorRegistry()),
        lambda scope: scope["chain"],
    )
    return api, publication


async def _ask(
    api: DirectoryApi, chain: Sequence[bytes], query: Query
) -> tuple[float, float, bytes]:
    """Wall clock and processor time of one request, and the body of its answer."""
    body = encode_query(query)
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/api/v1/components",
        "query_string": b"",
        "headers": [(b"content-type", b"application/xml"), (b"host", b"bench")],
        "server": ("bench", 443),
        "scheme": "https",
        "chain": chain,
    }
    wall, cpu = time.perf_counter(), time.process_time()
    await api(scope, receive, send)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    if sent[0]["status"] != 200:
        raise RuntimeError(f"the directory answered {sent[0]['status']}")
    return wall, cpu, b"".join(message.get("body", b"") for message in sent[1:])


class _NoConnections:
    def close_of(self, fingerprints: object) -> int:
        return 0


def _no_key() -> NewKey:
    raise RuntimeError("nobody is invited here")
