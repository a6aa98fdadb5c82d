"""The console of a MADES 1.1 node, joined to the parts that run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gridpost.assembly.console import reloaded_console, whose
from gridpost.assembly.console_configuration import ConsoleSection
from gridpost.assembly.node_configuration import read_node_configuration
from gridpost.console.frame import Frame
from gridpost.console.node import PLACES, NodeConsole
from gridpost.core.https import TlsCredentials
from gridpost.core.node import BoxEntry, LocalState, NodeComponent, RemoteNode
from gridpost.core.ports import Clock
from gridpost.services.node.directory import NodeDirectory
from gridpost.services.node.synchroniser import NodeSynchroniser
from gridpost.stores.sqlite.node_store import SqliteNodeStore


class ServedNode:
    """console.node.Served."""

    def __init__(
        self, store: SqliteNodeStore, directory: NodeDirectory, synchroniser: NodeSynchroniser
    ) -> None:
        self._store = store
        self._directory = directory
        self._synchroniser = synchroniser

    def components(self) -> Mapping[str, NodeComponent]:
        return self._directory.components

    @property
    def dversion(self) -> int:
        return self._directory.dversion

    async def counts(self) -> Mapping[LocalState, int]:
        return await self._store.read(lambda unit: unit.counts())

    async def entries(self, after: int, limit: int) -> Sequence[BoxEntry]:
        return await self._store.read(lambda unit: unit.entries(after, limit))

    async def nodes(self) -> Sequence[RemoteNode]:
        return await self._synchroniser.nodes()

    async def synchronise(self) -> Sequence[RemoteNode]:
        return await self._synchroniser.synchronise()

    async def revoke(self, by: str, code: str, certificate_id: str, reason: str) -> None:
        await self._directory.revoke(by, code, certificate_id, reason)


@asynccontextmanager
async def node_console(
    section: ConsoleSection | None,
    served: ServedNode,
    store: SqliteNodeStore,
    clock: Clock,
    code: str,
    credentials: Callable[[], TlsCredentials],
    file: Path | None,
    alerts: Callable[[], Sequence[Mapping[str, Any]]],
) -> AsyncIterator[int | None]:
    """Serves until the block ends; None where the configuration has no [console]."""
    if section is None:
        yield None
        return
    frame = Frame(whose(code, "node"), section.settings(), clock, store, PLACES)
    frame.alerts = alerts
    async with reloaded_console(
        section,
        frame,
        NodeConsole(frame, served).app(),
        credentials,
        file,
        lambda changed: read_node_configuration(changed).console,
    ) as port:
        yield port
