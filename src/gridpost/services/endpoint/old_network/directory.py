"""What the home node said of other components, as long as it may be used (MADES 1.1 cl. 3.16.5).

The same facts stand in a `Directory` as well, so that arrivals, proofs and explanations look at an
old network as they look at a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar
from weakref import WeakValueDictionary

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.component import Component, ComponentType, Contact, Implementation
from gridpost.core.identifiers import ComponentCode
from gridpost.core.node import NodeComponent, NodeComponentType
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.synchronisation import Directory, Subsystem
from gridpost.services.directory_client.node_session import NodeSession
from gridpost.wire.x509 import read_certificate

T = TypeVar("T")

_Key = tuple[str, CertificateKind, str]

_IN_HAND = timedelta(minutes=5)
"""How long a piece of work that has asked may take."""


class OldDirectory:
    """A cache in memory: whoever restarts asks again."""

    def __init__(self, code: str, node: str, clock: Clock, home: Callable[[], NodeSession]) -> None:
        self._code = code
        self._node = node
        self._clock = clock
        self._home = home
        self._components: dict[str, tuple[NodeComponent | None, datetime]] = {}
        self._certificates: dict[_Key, tuple[Certificate | None, datetime]] = {}
        self._issuers: dict[str, dict[bytes, Certificate]] = {}
        self._asking: WeakValueDictionary[str | _Key, asyncio.Lock] = WeakValueDictionary()
        self._copy: Directory | None = None
        self.questions = 0
        """How often the home node was asked."""

    async def component(self, code: str) -> NodeComponent | None:
        async with self._alone(code):
            return await self._component(code)

    async def _component(self, code: str) -> NodeComponent | None:
        known = self._components.get(code)
        if known is not None and self._clock.now() < known[1]:
            return known[0]
        self.questions += 1
        answer = await _asked(lambda: self._home().component(code))
        # A component that is not there is asked for again at once: it may be registered by then.
        if answer is None:
            self._components.pop(code, None)
            self._copy = None
            return None
        self._components[code] = answer[0], answer[1].at
        self._copy = None
        return answer[0]

    def known(self, code: str) -> NodeComponent | None:
        """From the cache alone, for people; whether or not it has expired."""
        found = self._components.get(code)
        return None if found is None else found[0]

    async def endpoint(self, code: str) -> NodeComponent | None:
        found = await self.component(code)
        return found if found is not None and found.type is NodeComponentType.ENDPOINT else None

    async def encryption(self, code: str) -> Certificate | None:
        """Table 45: the home node chooses which one."""
        return await self._certificate(code, CertificateKind.ENCRYPTION, "")

    async def signing(self, code: str, certificate_id: str) -> Certificate | None:
        if not certificate_id:
            return None
        return await self._certificate(code, CertificateKind.SIGNING, certificate_id)

    async def _certificate(
        self, code: str, kind: CertificateKind, certificate_id: str
    ) -> Certificate | None:
        key = (code, kind, certificate_id)
        async with self._alone(key):
            return await self._certificate_of(key)

    async def _certificate_of(self, key: _Key) -> Certificate | None:
        known = self._certificates.get(key)
        if known is not None and self._clock.now() < known[1]:
            return known[0]
        self.questions += 1
        answer = await _asked(lambda: self._home().certificate(*key))
        self._certificates.pop(key, None)
        self._copy = None
        if answer is None:
            return None
        self._certificates[key] = answer[0], answer[1].at
        return answer[0]

    def _alone(self, question: str | _Key) -> asyncio.Lock:
        """Who has the same question waits for the first answer: the node is asked once."""
        lock = self._asking.get(question)
        if lock is None:
            lock = self._asking[question] = asyncio.Lock()
        return lock

    def learn_issuers(self, node: str, chain: Sequence[bytes]) -> None:
        """The INTEGRATED CA that a node showed in a handshake that we trust."""
        held = self._issuers.setdefault(node, {})
        for der in chain:
            if der not in held:
                held[der] = read_certificate(der, CertificateKind.INTEGRATED_CA)
                self._copy = None

    def knows_issuers(self, node: str) -> bool:
        return bool(self._issuers.get(node))

    def copy(self) -> Directory:
        """Everything that may be used, in the words of 503.

        Who needs a fact asks for it first, and works with it to the end: an answer that expires
        while a message is opened does not make its sender unknown.
        """
        now = self._clock.now() - _IN_HAND
        if self._copy is not None and self._copy_until > now:
            return self._copy
        moments = [until for _, until in (*self._components.values(),)]
        moments += [until for _, until in self._certificates.values()]
        self._copy_until = min(
            (m for m in moments if m > now), default=datetime.max.replace(tzinfo=now.tzinfo)
        )
        self._copy = Directory.of(self._subsystems(now))
        return self._copy

    _copy_until: datetime

    def _subsystems(self, now: datetime) -> list[Subsystem]:
        by_node: dict[str, list[Component]] = {}
        for code, (found, until) in self._components.items():
            if found is not None and now < until and code not in self._issuers:
                by_node.setdefault(found.routing.node, []).append(self._entry(found, now))
        for node, issuers in self._issuers.items():
            by_node.setdefault(node, []).append(_node(node, tuple(issuers.values())))
        return [
            Subsystem(ComponentCode(node), "", tuple(components))
            for node, components in by_node.items()
        ]

    def _entry(self, found: NodeComponent, now: datetime) -> Component:
        certificates = (
            certificate
            for (code, _, _), (certificate, until) in self._certificates.items()
            if code == found.code and certificate is not None and now < until
        )
        return Component(
            ComponentCode(found.code),
            ComponentType.ENDPOINT,
            found.contact,
            ComponentCode(found.routing.node),
            Implementation("" if found.mversion is None else str(found.mversion)),
            certificates=tuple({c.certificate_id: c for c in certificates}.values()),
        )


async def _asked(ask: Callable[[], Awaitable[T]]) -> T:
    """A node that was restarted has forgotten our token: once more, with a new one."""
    try:
        return await ask()
    except Refusal as refusal:
        if refusal.rule is not Rule.ACCESS_DENIED:
            raise
    return await ask()


def _node(code: str, issuers: tuple[Certificate, ...]) -> Component:
    return Component(
        ComponentCode(code),
        ComponentType.COMPONENT_DIRECTORY,
        Contact("", "", "", ""),
        ComponentCode(code),
        Implementation("1"),
        certificates=issuers,
    )
