"""Who is asking: from the certificate chain that opened the connection, and from nowhere else.

503 cl. 8.4.1 and Table 25. A component of this subsystem is known by exactly a certificate that its
entry publishes: so a revoked component is nobody, and the old certificate of a code that was
registered again is nobody's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from gridpost.core.certificate import CertificateKind, of_kind
from gridpost.core.component import Component, ComponentType, Contact, Implementation
from gridpost.core.directory_ports import RegistryStore
from gridpost.core.identifiers import clip, component_code
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.registry_office import Applicant, check_invitation
from gridpost.core.version import INSTALLED
from gridpost.services.component_directory.authority import Authority, fingerprint
from gridpost.services.component_directory.publication import Publication
from gridpost.services.component_directory.settings import Peer
from gridpost.wire.x509 import (
    Purpose,
    VerifiedChain,
    integrated_ca_name,
    read_certificate,
    verify_chain,
)


class Gatekeeper:
    """Turns a chain into an applicant, or refuses."""

    def __init__(
        self,
        store: RegistryStore,
        clock: Clock,
        publication: Publication,
        authority: Authority,
        roots: Callable[[], Sequence[bytes]],
    ) -> None:
        self._store = store
        self._clock = clock
        self._publication = publication
        self._authority = authority
        self._roots = roots

    async def identify(self, chain: Sequence[bytes]) -> Applicant:
        """The component, or the holder of an installation certificate, that shows this chain."""
        at = self._clock.now()
        if not chain:
            raise Refusal(Rule.PEER_UNKNOWN, "the connection was opened without a certificate")
        try:
            verified = verify_chain(chain, self._roots(), at, Purpose.CLIENT)
        except Refusal as refusal:
            installing = self._installation(chain, at)
            if installing is None:
                raise refusal
            return await self._invited(installing, at)
        return await self._component(verified, at)

    def claimed(self, chain: Sequence[bytes]) -> str:
        """The name in a certificate that was not believed, for the log."""
        try:
            leaf = read_certificate(chain[0], CertificateKind.AUTHENTICATION)
        except (IndexError, Refusal):
            return ""
        return clip(leaf.subject_code)

    def _installation(self, chain: Sequence[bytes], at: datetime) -> VerifiedChain | None:
        try:
            return verify_chain(chain, self._roots(), at, Purpose.INSTALLATION)
        except Refusal:
            return None

    async def _invited(self, verified: VerifiedChain, at: datetime) -> Applicant:
        # An installation certificate of another subsystem says nothing here.
        if verified.issuer not in {c.der for c in self._authority.certificates}:
            raise Refusal(
                Rule.CERTIFICATE_NOT_OF_COMPONENT,
                "this installation certificate is of another subsystem",
            )
        mark = fingerprint(verified.leaf.der)
        found = await self._store.read(lambda unit: unit.invitations.find(mark))
        invitation = check_invitation(found, at)
        return Applicant(invitation.code, mark)

    async def _component(self, verified: VerifiedChain, at: datetime) -> Applicant:
        mark = fingerprint(verified.leaf.der)
        line = await self._store.read(lambda unit: unit.ledger.find(mark))
        if line is not None and line.revoked_at is not None:
            raise Refusal(Rule.CERTIFICATE_REVOKED, "the certificate was revoked")
        identities = await self._publication.identities()
        try:
            component = identities.identify(verified.leaf, verified.issuer, at)
        except Refusal as refusal:
            component = self._introduced(verified, refusal)
        if component.component_directory == self._publication.settings.code:
            _must_publish(component, verified)
        return Applicant(component.code, mark, component)

    def _introduced(self, verified: VerifiedChain, refusal: Refusal) -> Component:
        """A component-directory that the administrator named, and that was not synchronised yet.

        Its replica may also have lapsed, or be older than its certificates: then it introduces
        itself again.
        """
        for peer in self._publication.settings.peers:
            if peer.code == verified.leaf.subject_code and proves(peer, verified):
                return Component(
                    peer.code,
                    ComponentType.COMPONENT_DIRECTORY,
                    Contact("", "", "", ""),
                    peer.code,
                    Implementation(str(INSTALLED)),
                )
        raise refusal


def proves(peer: Peer, verified: VerifiedChain) -> bool:
    """First contact: the ROOT CA signed the name under which this directory issues certificates."""
    if peer.integrated_ca is not None:
        return verified.issuer == peer.integrated_ca
    issuer = read_certificate(verified.issuer, CertificateKind.INTEGRATED_CA)
    return issuer.subject_code == integrated_ca_name(component_code(peer.code))


def _must_publish(component: Component, verified: VerifiedChain) -> None:
    published = of_kind(component.certificates, CertificateKind.AUTHENTICATION)
    if all(c.der != verified.leaf.der for c in published):
        raise Refusal(
            Rule.CERTIFICATE_NOT_OF_COMPONENT,
            f"the certificate is not one that is published for {component.code}",
        )
