"""The console of a MADES 1.1 node, joined to the parts that run."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gridpost.assembly.console import reloaded_console, whose
from gridpost.assembly.console_configuration import ConsoleSection
from gridpost.assembly.directory_keys import issued_by
from gridpost.assembly.node_configuration import read_node_configuration
from gridpost.assembly.node_papers import read_paper
from gridpost.console.frame import Frame
from gridpost.console.node import PLACES, NodeConsole
from gridpost.core.certificate import Certificate
from gridpost.core.component import Contact
from gridpost.core.https import TlsCredentials
from gridpost.core.identifiers import clip
from gridpost.core.node import BoxEntry, LocalState, NodeComponent, RemoteNode
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.node.administration import NodeAdministration
from gridpost.services.node.directory import NodeDirectory
from gridpost.services.node.synchroniser import NodeSynchroniser
from gridpost.stores.sqlite.node_store import SqliteNodeStore
from gridpost.wire.x509 import to_pem


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


class NodeDesk:
    """console.node_desk.Desk."""

    def __init__(
        self,
        directory: NodeDirectory,
        synchroniser: NodeSynchroniser,
        administration: NodeAdministration,
        authorities: Callable[[], Sequence[Certificate]],
    ) -> None:
        self._directory = directory
        self._synchroniser = synchroniser
        self._administration = administration
        self._authorities = authorities

    def component(self, code: str) -> NodeComponent:
        found = self._directory.components.get(code)
        if found is None:
            raise Refusal(Rule.COMPONENT_UNKNOWN, f"{clip(code)} is not in the directory")
        return found

    async def register(
        self, by: str, code: str, contact: Contact, mversion: int, papers: Mapping[str, str]
    ) -> None:
        form = _forms(papers) | {
            "code": code,
            "mversion": mversion,
            "organization": contact.organization,
            "person": contact.person,
            "email": contact.email,
            "phone": contact.phone,
        }
        await self._administration.register(by, form)

    async def renew(self, by: str, code: str, papers: Mapping[str, str]) -> None:
        await self._administration.renew(by, _forms(papers) | {"code": code})

    async def import_nodes(self, by: str, text: str) -> int:
        return len(await self._synchroniser.import_list(by, text.encode()))

    def certificates(self, code: str) -> str:
        own = [k.certificate for k in self.component(code).certificates if not k.revoked]
        issuers = [a for a in self._authorities() if any(issued_by(c, a.der) for c in own)]
        return to_pem(*(c.der for c in (*own, *issuers))).decode("ascii")


def _forms(papers: Mapping[str, str]) -> dict[str, Any]:
    """As the operations listener takes them."""
    forms = {}
    for kind, text in papers.items():
        what, der = read_paper(text, f"the text for {kind}")
        forms[kind] = {"is": what, "der": b64encode(der).decode("ascii")}
    return forms


@asynccontextmanager
async def node_console(
    section: ConsoleSection | None,
    served: ServedNode,
    desk: NodeDesk,
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
        NodeConsole(frame, served, desk).app(),
        credentials,
        file,
        lambda changed: read_node_configuration(changed).console,
    ) as port:
        yield port
