"""A MADES 1.1 network as one endpoint lives in it: its sessions, whom it can reach, and in which version."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog

from gridpost.core.certificate import Certificate
from gridpost.core.delivery import Side
from gridpost.core.https import Authorise
from gridpost.core.identifiers import ComponentCode
from gridpost.core.message import InternalMessage
from gridpost.core.message_box import Outgoing
from gridpost.core.message_path import OLD_NETWORK
from gridpost.core.node import NodeComponent
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.version import MADES_1, Versions, old_version_for
from gridpost.services.directory_client.node_session import NodeSession, TokenSigner
from gridpost.services.directory_client.node_soap import NodeSoapClient, belongs_to
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.old_network.directory import OldDirectory
from gridpost.services.endpoint.old_network.settings import OldSettings
from gridpost.services.endpoint.old_network.uploading import Uploading
from gridpost.services.endpoint.transfer import Attempt
from gridpost.services.endpoint.ways import Way
from gridpost.wire.mades11.compression import compress

log = structlog.get_logger(__name__)

_MEET_PAUSE = timedelta(minutes=1)

NOT_ASKED = "not asked yet"
"""The problem of a process that does not download: it is not its turn, or not yet."""


async def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One node, for operators."""

    node: str
    home: bool
    waiting: int
    problem: str


class OldNetwork:
    """services.endpoint.ways.SecondNetwork and services.endpoint.transfer.SecondCourier."""

    def __init__(
        self,
        context: EndpointContext,
        settings: OldSettings,
        client: NodeSoapClient,
        token_signer: Callable[[], TokenSigner],
        roots: Callable[[], Sequence[bytes]] = tuple,
        refresh_keys: Callable[[], bool] = lambda: False,
        close: Callable[[], Awaitable[None]] = _nothing,
        certificates: Callable[[], Sequence[Certificate]] = tuple,
    ) -> None:
        """`context` has the keys of this network; its directory is set to what the node says.

        `refresh_keys` blocks, and says whether there are new ones; `close` ends connections.
        """
        self.context = context
        self.settings = settings
        self._client = client
        self._token_signer = token_signer
        self.roots = roots
        self._refresh_keys = refresh_keys
        self.close = close
        self.certificates = certificates
        self._sessions: dict[tuple[str, tuple[str, ...]], NodeSession] = {}
        self._meet_again: dict[str, datetime] = {}
        self.home = self._new_session(settings.node, settings.urls, home=True)
        self.directory = OldDirectory(context.code, settings.node, context.clock, lambda: self.home)
        context.directory = self.directory.copy
        self.uploading = Uploading(context, lambda: self.settings, self._session, self)
        self.problem = NOT_ASKED
        """Why the home node cannot be used; empty while it answers."""
        self.answered_at: datetime | None = None
        """When the home node last answered a download."""
        self.on_open: Callable[[], None] = lambda: None
        """The home node answers again: what was postponed may be tried at once."""
        self.rejected: Refusal | None = None
        """Cl. 4.2.2: the network does not accept this endpoint."""

    async def refresh_keys(self) -> None:
        """Cl. 3.16.7.2: a renewed certificate counts without a restart; a spoiled one changes nothing."""
        try:
            if await asyncio.to_thread(self._refresh_keys):
                log.info("keys of the MADES 1.1 network read again")
        except Refusal as refusal:
            log.error("keys not read again", reason=refusal.message, id=refusal.id)

    # ------------------------------------------------------------ sessions

    def _session(self, recipient: NodeComponent) -> NodeSession:
        routing = recipient.routing
        if routing.node == self.settings.node:
            return self.home
        key = (routing.node, routing.urls)
        session = self._sessions.get(key)
        if session is None:
            # Other URLs of the same node replace what was known of it.
            self._sessions = {k: s for k, s in self._sessions.items() if k[0] != routing.node}
            # Cl. 4.2.1: another node is asked in the version that both know.
            theirs = MADES_1 if routing.node_mversion is None else routing.node_mversion
            service = min(self.settings.mversion, theirs)
            session = self._new_session(*key, home=False, service=service)
            self._sessions[key] = session
        return session

    def _new_session(
        self, node: str, urls: Sequence[str], *, home: bool, service: int | None = None
    ) -> NodeSession:
        return NodeSession(
            self._client,
            urls,
            self._authorise(node),
            self.context.code,
            self._token_signer,
            self.context.clock.now,
            home=home,
            mversion=self.settings.mversion,
            service_mversion=self.settings.mversion if service is None else service,
        )

    async def meet(self, component: NodeComponent) -> None:
        """Learn the INTEGRATED CA of its node, which only a handshake shows; without haste."""
        node, now = component.routing.node, self.context.clock.now()
        if self.directory.knows_issuers(node) or now < self._meet_again.get(node, now):
            return
        try:
            await self._session(component).connect()
        except Refusal as refusal:
            self._meet_again[node] = now + _MEET_PAUSE
            log.info("node not met", node=node, reason=refusal.message)

    def _authorise(self, node: str) -> Authorise:
        is_node = belongs_to(node)

        def authorise(chain: Sequence[bytes]) -> None:
            is_node(chain)
            self.directory.learn_issuers(node, chain[1:])

        return authorise

    # ------------------------------------------------------------ acceptance (Table 3, Table 13)

    async def recipient(self, code: str) -> NodeComponent:
        if self.rejected is not None:
            raise self.rejected
        found = await self.directory.endpoint(code)
        if found is None:
            raise Refusal(
                Rule.RECIPIENT_UNKNOWN, f"node {self.settings.node} knows no endpoint {code}"
            )
        return found

    async def check(self, code: str, business_type: str) -> tuple[NodeComponent, Certificate]:
        found = await self.recipient(code)
        if self.home.node_mversion is None:
            await self.home.connect()
        node_mversion = found.routing.node_mversion
        old_version_for(
            Versions(
                self.settings.mversion,
                self.home.node_mversion or MADES_1,
                found.mversion,
                MADES_1 if node_mversion is None else node_mversion,
                self.settings.minimum(business_type),
            )
        )
        certificate = await self.directory.encryption(code)
        if certificate is None:
            raise Refusal(
                Rule.NO_ENCRYPTION_CERTIFICATE,
                f"{code} has no valid encryption certificate at node {self.settings.node}",
                f"ask the administrator of {code} to renew it",
            )
        return found, certificate

    async def way(self, recipient: ComponentCode, business_type: str) -> Way:
        """How a message goes by this network; it waits in VERIFYING while the node is silent."""
        verifying = ""
        node = ""
        try:
            found, _ = await self.check(recipient, business_type)
            node = found.routing.node
        except Refusal as refusal:
            if not refusal.retryable:
                raise
            verifying = f"waits for node {self.settings.node}: {refusal.message}"
        return Way(
            OLD_NETWORK,
            self.settings.mversion,
            self.context.signer,
            f"network MADES 1.1, node {node}" if node else "network MADES 1.1",
            self._composed,
            verifying,
            awaits_device=True,
        )

    def _composed(self, message: InternalMessage) -> InternalMessage:
        """Cl. 3.14.2, 3.14.3: described and compressed before it is signed."""
        metadata = replace(message.metadata, sender_description=self.settings.organization)
        described = replace(message, metadata=metadata)
        return compress(described) if self.settings.compresses(metadata.message_type) else described

    async def attempt(self, outgoing: Outgoing) -> Attempt:
        return await self.uploading.attempt(outgoing)

    def name(self, code: str) -> str:
        if code == self.context.code:
            return self.settings.organization
        found = self.directory.known(code)
        return "" if found is None else found.contact.organization

    def device_away(self, side: Side, message_id: str) -> str:
        """Why this message, or the acknowledgement of a received one, is not signed yet."""
        return self.uploading.unsigned.get((side, message_id), "")

    def lines(self) -> list[NodeLine]:
        views = {view.node: view for view in self.uploading.views()}
        home = views.pop(self.settings.node, None)
        return [
            NodeLine(self.settings.node, True, home.waiting if home else 0, self.problem),
            *(NodeLine(v.node, False, v.waiting, v.problem) for v in views.values()),
        ]
