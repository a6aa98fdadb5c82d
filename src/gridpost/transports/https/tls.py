"""TLS as every HTTPS connection of Gridpost uses it: versions, trust, the chain that is shown.

Host names are not matched (see divergences, peer identity): who the peer is follows from its
certificate, so the chain that was verified is handed to whoever decides that.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from enum import Enum
from typing import Any

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
)

from gridpost.core.https import TlsCredentials
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.x509 import to_pem

Peer = ssl.SSLObject | ssl.SSLSocket


class ClientCertificate(Enum):
    """What a server asks of its clients."""

    REQUIRED = ssl.CERT_REQUIRED
    OPTIONAL = ssl.CERT_OPTIONAL
    NONE = ssl.CERT_NONE


class ServerTls:
    """The context for the next connection: renewed credentials count without a restart."""

    def __init__(
        self,
        credentials: Callable[[], TlsCredentials],
        client: ClientCertificate = ClientCertificate.REQUIRED,
    ) -> None:
        self._credentials = credentials
        self.client = client
        self._built: tuple[TlsCredentials, ssl.SSLContext] | None = None

    def __call__(self) -> ssl.SSLContext:
        credentials = self._credentials()
        if self._built is None or self._built[0] != credentials:
            self._built = (credentials, server_context(credentials, self.client))
        return self._built[1]


class ClientTls:
    """The same for outgoing connections."""

    def __init__(self, credentials: Callable[[], TlsCredentials]) -> None:
        self._credentials = credentials
        self._built: tuple[TlsCredentials, ssl.SSLContext] | None = None

    def __call__(self) -> ssl.SSLContext:
        credentials = self._credentials()
        if self._built is None or self._built[0] != credentials:
            self._built = (credentials, client_context(credentials))
        return self._built[1]


def server_context(credentials: TlsCredentials, client: ClientCertificate) -> ssl.SSLContext:
    context = _context(ssl.PROTOCOL_TLS_SERVER, credentials)
    context.verify_mode = client.value
    # A resumed session brings no chain, and would outlive a revocation.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    return context


def client_context(credentials: TlsCredentials) -> ssl.SSLContext:
    context = _context(ssl.PROTOCOL_TLS_CLIENT, credentials)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def verified_chain(peer: Peer | None) -> tuple[bytes, ...]:
    """What the peer was verified by, in DER, leaf first and without the root; empty for nobody.

    Without the root it has the form of 503 cl. 8.4.1, also when the peer sent its root along.
    """
    if peer is None or peer.session_reused or not peer.getpeercert(binary_form=True):
        return ()
    return tuple(_public_chain(peer)[:-1])


def _public_chain(peer: Any) -> list[bytes]:
    if hasattr(peer, "get_verified_chain"):  # public from Python 3.13
        return list(peer.get_verified_chain())
    return [c.public_bytes(_DER) for c in peer._sslobj.get_verified_chain() or ()]


_DER = 2  # _ssl.ENCODING_DER


def _context(protocol: int, credentials: TlsCredentials) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # HTTP/1.1 is all that is spoken; saying so keeps a confused peer of another protocol away.
    context.set_alpn_protocols(["http/1.1"])
    if credentials.roots:
        context.load_verify_locations(cadata=to_pem(*credentials.roots).decode("ascii"))
    _load_own(context, credentials)
    return context


def _load_own(context: ssl.SSLContext, credentials: TlsCredentials) -> None:
    """The library reads keys from files only: this one exists in memory and has no name."""
    try:
        key = load_der_private_key(credentials.private_key, None).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
        descriptor = os.memfd_create("gridpost-tls", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, key + to_pem(*credentials.chain))
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
    except (ssl.SSLError, ValueError, TypeError) as error:
        raise Refusal(
            Rule.BAD_KEY, "the key and certificate for connections cannot be used", str(error)
        ) from error
