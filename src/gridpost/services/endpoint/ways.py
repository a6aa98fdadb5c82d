"""Which network a message takes: that of 503 where cl. 5.5 accepts it, otherwise an older one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from gridpost.core.acceptance import accept
from gridpost.core.component import Component
from gridpost.core.delivery import Event
from gridpost.core.identifiers import ComponentCode
from gridpost.core.message import InternalMessage, InternalType
from gridpost.core.message_path import Route
from gridpost.core.ports import Signer
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.version import MADES_2, parse_mades_version, version_for
from gridpost.services.endpoint.context import EndpointContext


@dataclass(frozen=True, slots=True)
class Way:
    """What the choice of a network decides for a new message."""

    route: Route
    version: int
    signer: Callable[[datetime], Signer]
    detail: str = ""
    """The choice, for the trace; empty where there is only one network."""
    composed: Callable[[InternalMessage], InternalMessage] = lambda message: message
    """What has to be done to it before it is signed."""
    verifying: str = ""
    """What its acceptance still waits for (MADES 1.1 cl. 3.7)."""
    awaits_device: bool = False
    """May it wait for the device that signs (MADES 1.1 cl. 3.10.3)?"""

    def first_event(self, kind: InternalType) -> Event:
        if self.verifying:
            return Event.VERIFY
        return Event.ACCEPT if kind is InternalType.STANDARD_MESSAGE else Event.ACCEPT_TRACING


class SecondNetwork(Protocol):
    """A MADES 1.1 network beside that of 503."""

    async def way(self, recipient: ComponentCode, business_type: str) -> Way:
        """Refuses a message that this network cannot take either."""
        ...

    def name(self, code: str) -> str:
        """The organization of a component, as far as it is known."""
        ...


class Ways:
    def __init__(self, context: EndpointContext) -> None:
        self._context = context
        self.second: SecondNetwork | None = None

    async def choose(self, recipient: ComponentCode, message_type: str, at: datetime) -> Way:
        try:
            first = self._first(recipient, message_type, at)
        except Refusal as refusal:
            if self.second is None:
                raise
            return await self._other(self.second, recipient, message_type, at, refusal)
        return first

    def _first(self, recipient: ComponentCode, message_type: str, at: datetime) -> Way:
        accepted = accept(
            self._context.directory(),
            sender=self._context.code,
            recipient=recipient,
            message_type=message_type,
            at=at,
        )
        detail = "" if self.second is None else f"network IEC 62325-503, {accepted.route}"
        return Way(accepted.route, _version(accepted.recipient), self._context.signer, detail)

    async def _other(
        self,
        second: SecondNetwork,
        recipient: ComponentCode,
        message_type: str,
        at: datetime,
        refused: Refusal,
    ) -> Way:
        known = self._context.directory().find(recipient, at) is not None
        try:
            way = await second.way(recipient, message_type)
        except Refusal as refusal:
            if known and refusal.rule is Rule.RECIPIENT_UNKNOWN:
                raise refused from None
            raise
        why = f", because {refused.message}" if known else ""
        return replace(way, detail=way.detail + why)


def _version(recipient: Component) -> int:
    """503 cl. 9.2. This is the route of version 2; old networks have their own."""
    version = version_for(parse_mades_version(recipient.implementation.mades_version))
    if version != MADES_2:
        raise Refusal(
            Rule.VERSIONS_TOO_FAR_APART,
            f"{recipient.code} complies with MADES version {version} only, which has no brokers",
        )
    return version
