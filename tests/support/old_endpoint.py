"""A Gridpost endpoint in a MADES 1.1 network: its papers, its configuration, and the endpoint as it runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from gridpost.assembly.endpoint import RunningEndpoint, running_endpoint
from gridpost.assembly.endpoint_configuration import read_endpoint_configuration
from gridpost.core.delivery import Side, TraceEntry
from gridpost.core.message_box import BoxEntry
from gridpost.services.endpoint.submission import Document
from gridpost.transports.free_port import free_port
from gridpost.wire.x509 import to_pem
from support.network import API_PASSWORD, CONTACT
from support.network import _hash as password_hash
from support.old_network import OldEndpoint

APPLICATION = "soap:app"


def write_papers(folder: Path, endpoint: OldEndpoint) -> Path:
    """As `gridpost node register --keys` does."""
    folder.mkdir(parents=True, exist_ok=True)
    issuers = [c.der for c in endpoint.node.keys.authorities]
    for kind, key in endpoint.keys.items():
        name = kind.value.lower()
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (folder / f"{name}.key").write_bytes(pem)
        chain = (endpoint.certificates[kind].der, *issuers)
        (folder / f"{name}.pem").write_bytes(b"".join(map(to_pem, chain)))
    roots = endpoint.node.configuration.trusted_roots()
    (folder / "roots.pem").write_bytes(b"".join(map(to_pem, roots)))
    return folder


def old_section(endpoint: OldEndpoint, papers: Path, /, **more: Any) -> str:
    values: dict[str, Any] = {
        "node": endpoint.node.code,
        "urls": [endpoint.node.url],
        "papers": [str(papers)],
        "poll": "250ms",
    }
    tables = {k: v for k, v in more.items() if isinstance(v, dict)}
    values |= {k: v for k, v in more.items() if k not in tables}
    lines = ["[old_network]", *(f"{k} = {json.dumps(v)}" for k, v in values.items())]
    for name, table in tables.items():
        lines += [f"[old_network.{name}]", *(f'"{k}" = {json.dumps(v)}' for k, v in table.items())]
    return "\n".join(lines) + "\n"


@dataclass
class OldGridpost:
    """One that lives in the old network alone."""

    folder: Path
    endpoint: OldEndpoint
    more: dict[str, Any] = field(default_factory=dict)
    top: str = ""
    running: RunningEndpoint | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.file = self.folder / f"{self.code}.toml"
        self.api_port, self.operations_port = free_port(), free_port()
        write_papers(self.folder / "papers", self.endpoint)
        self.write()

    @property
    def code(self) -> str:
        return self.endpoint.code

    def write(self) -> None:
        self.file.write_text(
            f'component = "endpoint"\ncode = "{self.code}"\nhome = "{self.code}"\ndrain = "5s"\n'
            f"{self.top}{CONTACT}[api]\nport = {self.api_port}\n"
            f"[operations]\nport = {self.operations_port}\n"
            f'[users.app]\npassword = "{password_hash(API_PASSWORD)}"\n'
            + old_section(self.endpoint, Path("papers"), **self.more),
            encoding="utf-8",
        )

    @asynccontextmanager
    async def run(self) -> AsyncIterator[RunningEndpoint]:
        async with running_endpoint(read_endpoint_configuration(self.file)) as running:
            self.running = running
            try:
                yield running
            finally:
                self.running = None

    async def send(self, to: str, content: bytes = b"<Document/>", type_: str = "A01") -> str:
        assert self.running is not None
        return await self.running.core.submission.send(APPLICATION, Document(to, type_, content))

    async def entry(self, message_id: str, side: Side = Side.SENT) -> BoxEntry:
        assert self.running is not None
        return await self.running.core.enquiry.entry(side, message_id)

    async def trace(self, message_id: str, side: Side = Side.SENT) -> list[TraceEntry]:
        assert self.running is not None
        return list(await self.running.core.enquiry.trace(side, message_id))

    async def until(self, message_id: str, *states: str, seconds: float = 60) -> BoxEntry:
        async with asyncio.timeout(seconds):
            while (entry := await self.entry(message_id)).delivery.state.value not in states:
                await asyncio.sleep(0.01)
        return entry

    async def receive(self, type_: str = "A01", seconds: float = 60) -> tuple[str, bytes]:
        """The next document, confirmed."""
        assert self.running is not None
        handover = self.running.core.handover
        async with asyncio.timeout(seconds):
            while (handed := await handover.receive(type_)).entry is None:
                await asyncio.sleep(0.01)
        assert handed.content is not None
        await handover.confirm(handed.entry.message_id)
        return handed.entry.message_id, handed.content
