"""Which of its certificates a component shows on connections, and by which chain (503 cl. 8.4.1, 8.5).

A new certificate is shown only once the directory publishes it: until then peers may not know it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from gridpost.core.certificate import Certificate, CertificateKind, of_kind
from gridpost.core.https import TlsCredentials
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.directory_client.context import ClientContext
from gridpost.services.directory_client.local_copy import LocalCopy
from gridpost.wire.x509 import Purpose, public_key, public_key_bytes, trusted_path


class OwnCredentials:
    """The credentials of this moment; a function for whoever opens or accepts connections."""

    def __init__(self, context: ClientContext, copy: LocalCopy) -> None:
        self._context = context
        self._copy = copy
        self._built: tuple[tuple[object, ...], TlsCredentials] | None = None

    def __call__(self) -> TlsCredentials:
        return self.of(self.chosen(self._context.clock.now()), Purpose.CLIENT)

    def chosen(self, at: datetime) -> Certificate:
        """Of the valid AUTHENTICATION certificates, a published one before others; the newest."""
        valid = [
            c
            for c in of_kind(self._context.keys.certificates(), CertificateKind.AUTHENTICATION)
            if c.valid_at(at)
        ]
        if not valid:
            raise Refusal(
                Rule.NOT_ENROLLED,
                f"{self._context.code} has no valid authentication certificate",
                "register it, or renew its certificates",
            )
        entry = self._copy.own_entry(self._context.code, at)
        published = {c.der for c in entry.certificates} if entry is not None else set()
        return max(valid, key=lambda c: (c.der in published, c.not_before, c.der))

    def of(self, certificate: Certificate, purpose: Purpose) -> TlsCredentials:
        """A certificate with the INTEGRATED CA above it; also the installation certificate."""
        roots = tuple(self._context.roots())
        authorities = tuple(dict.fromkeys(c.der for c in self._authorities()))
        key = (certificate.der, roots, authorities)
        if self._built is None or self._built[0] != key:
            path = trusted_path(
                certificate.der, authorities, roots, self._context.clock.now(), purpose
            )
            private = self._context.keys.export_key(public_key_bytes(public_key(certificate.der)))
            self._built = (key, TlsCredentials(path[:-1], private, roots))
        return self._built[1]

    def _authorities(self) -> Iterable[Certificate]:
        """INTEGRATED CAs of the home directory, as published and as learned when enrolling."""
        home = self._copy.home
        if home is None:
            return
        entry = self._copy.directory_entry(home.code)
        for source in (home.certificates, entry.certificates if entry is not None else ()):
            yield from of_kind(source, CertificateKind.INTEGRATED_CA)
