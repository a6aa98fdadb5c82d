"""The directory of a node in memory: read at every request, changed only together with the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

import structlog

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.component import Contact
from gridpost.core.identifiers import component_code
from gridpost.core.journal import (
    AdministrationRow,
    CertificateRow,
    EntryRow,
    JournalRow,
    Standing,
)
from gridpost.core.node import (
    KnownCertificate,
    NodeComponent,
    NodeComponentType,
    RemoteNode,
    Routing,
)
from gridpost.core.node_ports import NodeStore, NodeUnit
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.node.settings import NodeSettings

log = structlog.get_logger(__name__)


class NodeDirectory:
    """Every change is one work: entries, Dversion and journal rows (cl. 3.15.2)."""

    def __init__(self, store: NodeStore, clock: Clock, settings: NodeSettings) -> None:
        self._store = store
        self._clock = clock
        self.settings = settings
        self._components: dict[str, NodeComponent] = {}
        self.dversion = 0

    @property
    def components(self) -> Mapping[str, NodeComponent]:
        return self._components

    def find(self, code: str) -> NodeComponent | None:
        return self._components.get(code)

    def own(self) -> list[NodeComponent]:
        """Cl. 3.15.2: the reference data of this node, itself included."""
        return [c for c in self._components.values() if c.routing.node == self.settings.code]

    async def load(self) -> None:
        """At the start: what the store has. `say_own` belongs to it."""
        components, self.dversion = await self._store.read(
            lambda unit: (unit.components(), unit.dversion())
        )
        self._components = {c.code: c for c in components}

    async def say_own(self, certificates: Iterable[Certificate]) -> None:
        """Our own entry, and where our endpoints are reached, as the settings have it now."""
        settings = self.settings
        before = self.find(settings.code)
        revoked = (
            set()
            if before is None
            else {k.certificate.certificate_id for k in before.certificates if k.revoked}
        )
        own = NodeComponent(
            settings.code,
            NodeComponentType.NODE,
            settings.contact,
            self.routing(),
            settings.mversion,
            tuple(KnownCertificate(c, c.certificate_id in revoked) for c in certificates),
        )
        changed = [own]
        # Their routing says where we are; a moved node moves them all.
        changed += [
            replace(c, routing=self.routing()) for c in self.own() if c.code != settings.code
        ]
        changed = [c for c in changed if self.find(c.code) != c]
        if changed:
            await self.change(lambda unit: None, put=changed)

    def routing(self) -> Routing:
        settings = self.settings
        return Routing(
            settings.code,
            settings.urls[0],
            settings.urls[1] if len(settings.urls) > 1 else "",
            settings.mversion,
        )

    async def change(
        self,
        more: Callable[[NodeUnit], None],
        *,
        put: Iterable[NodeComponent] = (),
        removed: Iterable[str] = (),
        reference: bool = True,
    ) -> None:
        """`reference`: our own part of the directory, whose changes raise the Dversion."""
        changed, gone, at = list(put), list(removed), self._clock.now()
        known = dict(self._components)

        def work(unit: NodeUnit) -> int:
            for code in gone:
                unit.remove_component(code)
                for row in _rows(known.get(code), None, at):
                    unit.journal.append(row)
            for component in changed:
                unit.put_component(component)
                for row in _rows(known.get(component.code), component, at):
                    unit.journal.append(row)
            more(unit)
            return unit.raise_dversion() if reference else unit.dversion()

        self.dversion = await self._store.run(work)
        for code in gone:
            self._components.pop(code, None)
        self._components.update({c.code: c for c in changed})

    # ------------------------------------------------------------ what an administrator does

    async def register(
        self,
        actor: str,
        code: str,
        contact: Contact,
        certificates: Iterable[Certificate],
        mversion: int | None,
    ) -> NodeComponent:
        component_code(code)
        if code in self._components:
            raise Refusal(Rule.REGISTRATION_CODE_TAKEN, f"{code} is in the directory already")
        component = NodeComponent(
            code, NodeComponentType.ENDPOINT, contact, self.routing(), mversion
        ).with_certificates(certificates, self._clock.now())
        missing = [
            kind.value
            for kind in (
                CertificateKind.AUTHENTICATION,
                CertificateKind.SIGNING,
                CertificateKind.ENCRYPTION,
            )
            if all(k.certificate.kind is not kind for k in component.certificates)
        ]
        if missing:
            raise Refusal(
                Rule.REGISTRATION_KEYS, f"{code} needs a certificate for {', '.join(missing)}"
            )
        await self._administer(actor, "register", code, put=[component])
        return component

    async def update(self, actor: str, code: str, contact: Contact) -> NodeComponent:
        component = replace(self._registered(code), contact=contact)
        await self._administer(actor, "update", code, put=[component])
        return component

    async def add_certificates(
        self, actor: str, code: str, certificates: Iterable[Certificate]
    ) -> NodeComponent:
        """Cl. 3.16.7.2: a renewed certificate beside the old one."""
        component = self._registered(code).with_certificates(certificates, self._clock.now())
        await self._administer(actor, "renew", code, put=[component])
        return component

    async def revoke(
        self, actor: str, code: str, certificate_id: str, reason: str
    ) -> NodeComponent:
        component = self._registered(code).revoking(certificate_id)
        await self._administer(
            actor, "revoke", code, put=[component], after=certificate_id, reason=reason
        )
        return component

    async def remove(self, actor: str, code: str, reason: str) -> None:
        self._registered(code)
        await self._administer(actor, "remove", code, removed=[code], reason=reason)

    async def set_mversion(self, code: str, mversion: int) -> None:
        """Cl. 4.2.2: the Dversion rises when the stored value changes."""
        component = self._registered(code)
        if component.mversion == mversion:
            return
        log.info("Mversion changed", endpoint=code, before=component.mversion, after=mversion)
        await self._administer(
            code, "mversion", code, put=[replace(component, mversion=mversion)],
            before=str(component.mversion or ""), after=str(mversion),
        )  # fmt: skip

    async def take_over(self, node: RemoteNode, received: tuple[NodeComponent, ...]) -> None:
        """Cl. 3.15.2: the part of another node, checked as a whole and replaced as a whole."""
        for component in received:
            if component.routing.node != node.code:
                raise Refusal(
                    Rule.INCONSISTENT_CONFIGURATION,
                    f"{node.code} describes {component.code} of {component.routing.node}",
                )
            known = self.find(component.code)
            if known is not None and known.routing.node != node.code:
                raise Refusal(
                    Rule.DUPLICATE_CODE,
                    f"{component.code} of {node.code} exists at {known.routing.node} already",
                )
        codes = [component.code for component in received]
        if len(set(codes)) != len(codes):
            raise Refusal(Rule.DUPLICATE_CODE, f"{node.code} describes a component twice")
        if node.code not in codes:
            raise Refusal(Rule.INCONSISTENT_CONFIGURATION, f"{node.code} does not describe itself")
        gone = [
            c.code
            for c in self._components.values()
            if c.routing.node == node.code and c.code not in codes
        ]
        changed = [c for c in received if self.find(c.code) != c]
        await self.change(
            lambda unit: unit.put_node(node), put=changed, removed=gone, reference=False
        )

    async def _administer(
        self,
        actor: str,
        action: str,
        code: str,
        *,
        put: Iterable[NodeComponent] = (),
        removed: Iterable[str] = (),
        before: str = "",
        after: str = "",
        reason: str = "",
    ) -> None:
        row = AdministrationRow(self._clock.now(), actor, action, code, before, after, reason)
        await self.change(lambda unit: _append(unit, row), put=put, removed=removed)

    def _registered(self, code: str) -> NodeComponent:
        found = self.find(code)
        if found is None or found.routing.node != self.settings.code:
            raise Refusal(Rule.COMPONENT_UNKNOWN, f"{code} is not registered with this node")
        return found


def _append(unit: NodeUnit, row: JournalRow) -> None:
    unit.journal.append(row)


def _rows(
    before: NodeComponent | None, after: NodeComponent | None, at: datetime
) -> list[JournalRow]:
    """What the journal says of a changed entry; no person is named."""
    rows: list[JournalRow] = []
    shown = after or before
    if shown is None:
        return rows
    standing = Standing.GONE if after is None else Standing.PUBLISHED
    rows.append(
        EntryRow(
            at, shown.code, shown.type.value, shown.routing.node, standing,
            shown.contact.organization, " ".join(shown.routing.urls),
        )
    )  # fmt: skip
    known = set() if before is None else set(before.certificates)
    kept = set() if after is None else set(after.certificates)
    gone = {k.certificate.certificate_id for k in kept}
    for entry in kept - known:
        standing = Standing.REVOKED if entry.revoked else Standing.PUBLISHED
        rows.append(_certificate_row(shown, entry.certificate, standing, at))
    for entry in known - kept:
        if entry.certificate.certificate_id not in gone:
            rows.append(_certificate_row(shown, entry.certificate, Standing.GONE, at))
    return rows


def _certificate_row(
    owner: NodeComponent, certificate: Certificate, standing: Standing, at: datetime
) -> CertificateRow:
    return CertificateRow(
        at, owner.code, certificate.kind.value, certificate.certificate_id, standing,
        certificate.der, certificate.not_before, certificate.not_after, certificate.subject_code,
        owner.routing.node,
    )  # fmt: skip
