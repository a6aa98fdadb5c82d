"""Whose certificate a peer has shown: the one rule that turns a verified chain into a component.

503 cl. 8.3.2 and 8.4.1 do not say how a certificate names its component (see divergences, peer
identity). A component is who publishes exactly this certificate for AUTHENTICATION. While a
renewal is not yet published everywhere, a newer one of the same home directory counts too.
"""

from __future__ import annotations

import hashlib
from datetime import datetime

from gridpost.core.certificate import Certificate, CertificateKind, of_kind
from gridpost.core.component import Component
from gridpost.core.identifiers import ComponentCode, clip
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.synchronisation import Directory, home_directory


class PeerIdentities:
    """A copy of the directory, indexed by certificate. Built once for each copy."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._publishers: dict[bytes, list[ComponentCode]] = {}
        self._other_kinds: set[bytes] = set()
        for subsystem in directory.subsystems.values():
            for component in subsystem.components:
                for certificate in component.certificates:
                    digest = _digest(certificate.der)
                    if certificate.kind is CertificateKind.AUTHENTICATION:
                        self._publishers.setdefault(digest, []).append(component.code)
                    else:
                        self._other_kinds.add(digest)

    def identify(self, leaf: Certificate, issuer_der: bytes, at: datetime) -> Component:
        """The component behind a chain that `wire.x509.verify_chain` accepted; or a refusal."""
        # 503 cl. 8.3.2: whatever the operation, it fails once the certificate has expired.
        if not leaf.valid_at(at):
            raise Refusal(
                Rule.CERTIFICATE_EXPIRED,
                f"the certificate of '{clip(leaf.subject_code)}' is valid from "
                f"{leaf.not_before:%Y-%m-%d %H:%M} to {leaf.not_after:%Y-%m-%d %H:%M} UTC only",
            )
        digest = _digest(leaf.der)
        publishers = self._publishers.get(digest)
        if publishers:
            return self._find(_publisher(publishers, leaf), at)
        if digest in self._other_kinds:
            raise Refusal(
                Rule.CERTIFICATE_NOT_OF_COMPONENT,
                f"the certificate of '{clip(leaf.subject_code)}' is not for authentication",
            )
        return self._renewed(leaf, issuer_der, at)

    def _renewed(self, leaf: Certificate, issuer_der: bytes, at: datetime) -> Component:
        component = self._find(leaf.subject_code, at)
        home = home_directory(self._directory, component, at)
        authorities = of_kind(home.certificates, CertificateKind.INTEGRATED_CA) if home else []
        if all(authority.der != issuer_der for authority in authorities):
            raise Refusal(
                Rule.CERTIFICATE_NOT_OF_COMPONENT,
                f"the certificate of {component.code} is not published, and its issuer is not the "
                f"INTEGRATED CA of {component.component_directory}",
            )
        published = of_kind(component.certificates, CertificateKind.AUTHENTICATION)
        # An older one that is published no longer may have been withdrawn for a reason.
        if any(leaf.not_before <= known.not_before for known in published):
            raise Refusal(
                Rule.CERTIFICATE_NOT_OF_COMPONENT,
                f"the certificate of {component.code} is not published and not newer than "
                "those that are",
            )
        return component

    def _find(self, code: str, at: datetime) -> Component:
        component = self._directory.find(code, at)
        if component is not None:
            return component
        if self._directory.lapsed(code, at):
            raise Refusal(
                Rule.DIRECTORY_DATA_LAPSED,
                f"what the directory said of {clip(code)} is no longer valid",
            )
        raise Refusal(Rule.PEER_UNKNOWN, f"no component '{clip(code)}' is registered")


def identify(leaf: Certificate, issuer_der: bytes, directory: Directory, at: datetime) -> Component:
    """For a single question; who asks often keeps a `PeerIdentities`."""
    return PeerIdentities(directory).identify(leaf, issuer_der, at)


def _publisher(publishers: list[ComponentCode], leaf: Certificate) -> ComponentCode:
    """Anyone could publish a copy of someone else's certificate: then the name in it decides."""
    if len(publishers) == 1:
        return publishers[0]
    if leaf.subject_code in publishers:
        return ComponentCode(leaf.subject_code)
    raise Refusal(
        Rule.CERTIFICATE_NOT_OF_COMPONENT,
        f"the certificate is published by several components: {', '.join(sorted(publishers))}",
    )


def _digest(der: bytes) -> bytes:
    return hashlib.sha256(der).digest()
