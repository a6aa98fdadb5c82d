"""Synchronisation with the other nodes (MADES 1.1 cl. 3.15.2, 3.15.3, 4.2.1)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

import structlog

from gridpost.core.journal import AdministrationRow
from gridpost.core.node import RemoteNode
from gridpost.core.node_list import parse_node_list
from gridpost.core.node_ports import NodeStore, NodeUnit
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.version import nodes_synchronise
from gridpost.services.directory_client.node_soap import NodeSoapClient, belongs_to
from gridpost.services.node.directory import NodeDirectory
from gridpost.wire.mades11.directory import read_descriptions
from gridpost.wire.mades11.forms import container, number, text
from gridpost.wire.mades11.services import SYNCHRONIZATION
from gridpost.wire.xml_text import element

log = structlog.get_logger(__name__)


class NodeSynchroniser:
    def __init__(
        self, store: NodeStore, clock: Clock, directory: NodeDirectory, client: NodeSoapClient
    ) -> None:
        self._store = store
        self._clock = clock
        self._directory = directory
        self._client = client
        self._lock = asyncio.Lock()
        self._wanted = asyncio.Event()
        # Cl. 4.2.1: asked for after each start and each import, and kept in between.
        self._versions: dict[str, int] = {}

    async def run(self) -> None:
        while True:
            try:
                await self.synchronise()
            except Refusal as refusal:
                log.error("synchronisation failed", refusal=refusal.id, reason=refusal.message)
            cycle = self._directory.settings.synchronisation_cycle.total_seconds()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), cycle)
            self._wanted.clear()

    def wake(self) -> None:
        """On the administrator's demand."""
        self._wanted.set()

    async def import_list(self, actor: str, data: bytes) -> tuple[RemoteNode, ...]:
        """Cl. 3.15.3: as one transaction, while nothing is synchronised."""
        nodes = parse_node_list(data, self._directory.settings.code)
        async with self._lock:
            before = {node.code: node for node in await self.nodes()}
            codes = {node.code for node in nodes}
            gone = [
                c.code
                for c in self._directory.components.values()
                if c.routing.node in before and c.routing.node not in codes
            ]
            taken = [
                c
                for c in self._directory.components.values()
                if c.code in codes and c.routing.node != c.code
            ]
            if taken:
                raise Refusal(
                    Rule.DUPLICATE_CODE,
                    f"{taken[0].code} is a component of {taken[0].routing.node} already",
                    "nothing was changed",
                )
            kept = tuple(
                replace(before.get(node.code, node), urls=node.urls, problem="") for node in nodes
            )
            row = AdministrationRow(
                self._clock.now(), actor, "import node-list", "", " ".join(sorted(before)),
                " ".join(sorted(codes)),
            )  # fmt: skip

            def work(unit: NodeUnit) -> None:
                for code in before.keys() - codes:
                    unit.remove_node(code)
                for node in kept:
                    unit.put_node(node)
                unit.journal.append(row)

            await self._directory.change(work, removed=gone, reference=False)
            self._versions.clear()
        self.wake()
        return kept

    async def nodes(self) -> list[RemoteNode]:
        return await self._store.read(lambda unit: unit.nodes())

    async def synchronise(self) -> list[RemoteNode]:
        """Every node of the list once; what goes wrong with one leaves the others alone."""
        async with self._lock:
            results = []
            for node in await self.nodes():
                try:
                    results.append(await self._one(node))
                except Refusal as refusal:
                    log.warning(
                        "not synchronised", node=node.code, refusal=refusal.id,
                        rule=refusal.rule.name, reason=refusal.message, details=refusal.details,
                    )  # fmt: skip
                    failed = replace(
                        node,
                        problem=refusal.message,
                        mversion=self._versions.get(node.code, node.mversion),
                    )
                    await self._keep(failed)
                    results.append(failed)
            return results

    async def _keep(self, node: RemoteNode) -> None:
        await self._store.run(lambda unit: unit.put_node(node))

    async def _one(self, node: RemoteNode) -> RemoteNode:
        own = self._directory.settings
        authorise = belongs_to(node.code)
        if node.code not in self._versions:
            request = container("GetNodeMversionRequest", element("mversion", str(own.mversion)))
            answer = await self._client.call(node.urls, authorise, "GetNodeMversion", [request])
            SYNCHRONIZATION.schema.validate(answer.body)
            _check_code(node, text(answer.body, "nodeCode"))
            self._versions[node.code] = number(answer.body, "mversion") or 0
        version = self._versions[node.code]
        if not nodes_synchronise(own.mversion, version):
            raise Refusal(
                Rule.VERSIONS_TOO_FAR_APART,
                f"{node.code} has MADES version {version}, this node {own.mversion}: "
                "they do not synchronise",
            )
        node = replace(node, mversion=version)
        known = "" if node.dversion is None else element("dversion", str(node.dversion))
        request = container(
            "GetAllDirectoryDataRequest",
            known + element("serviceMversion", str(min(own.mversion, version))),
        )
        answer = await self._client.call(node.urls, authorise, "GetAllDirectoryData", [request])
        SYNCHRONIZATION.schema.validate(answer.body)
        _check_code(node, text(answer.body, "nodeCode"))
        dversion = number(answer.body, "dversion")
        done = replace(node, dversion=dversion, last_success=self._clock.now(), problem="")
        if answer.body.find("components") is None:
            await self._keep(done)
            return done
        received = await asyncio.to_thread(read_descriptions, answer.body)
        await self._directory.take_over(done, received)
        log.info("synchronised", node=node.code, dversion=dversion, components=len(received))
        return done


def _check_code(node: RemoteNode, told: str) -> None:
    if told.strip() != node.code:
        raise Refusal(
            Rule.CERTIFICATE_NOT_OF_COMPONENT, f"{node.code} says that it is {told.strip()}"
        )
