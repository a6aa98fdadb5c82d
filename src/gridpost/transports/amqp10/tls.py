"""Which TLS contexts AMQP connections use, and what of the peer's certificates is believed.

503 cl. 8.4.1: both sides convey their own certificate and the INTEGRATED CA that issued it, the
other side holds the root. Host names are not matched (divergences, 8.3.2); whose certificate it is,
is decided by whoever gets the verified chain.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_SUPPORTED_VERSIONS: Final = 43
_TLS13: Final = b"\x03\x04"
_MAX_HELLO: Final = 5 + 16 * 1024


@dataclass(frozen=True, slots=True)
class TlsCredentials:
    """Our own certificate with its key, and the roots that peers' certificates must lead to."""

    chain_pem: bytes
    """Own authentication certificate, then the INTEGRATED CA that issued it."""
    key_pem: bytes
    roots_pem: bytes
    """Several during the renewal of the ROOT CA (503 cl. 8.5)."""
    key_password: bytes | None = None
    ask_client: bool = True
    """False only where applications on this machine authenticate by password."""

    def __repr__(self) -> str:
        return f"TlsCredentials({len(self.chain_pem)} octets of certificates)"


TlsProvider: TypeAlias = Callable[[], TlsCredentials]
"""Asked for every new connection; after a renewal it answers with other credentials."""


class ServerContexts:
    """Contexts for connections that we accept: never with session resumption.

    TLS 1.3 resumes by tickets alone, and none are issued. TLS 1.2 also resumes by session id, from
    a cache inside the context that Python cannot switch off: a client that does not offer TLS 1.3
    gets a context of its own, whose cache is empty.
    """

    def __init__(self, provider: TlsProvider) -> None:
        self._provider = provider
        self._credentials: TlsCredentials | None = None
        self._shared: ssl.SSLContext | None = None

    def for_hello(self, hello: bytes) -> ssl.SSLContext:
        credentials = self._provider()
        if not _offers_tls13(hello):
            return server_context(credentials)
        if self._shared is None or credentials is not self._credentials:
            self._shared = server_context(credentials)
            self._credentials = credentials
        return self._shared


class ClientContexts:
    """Contexts for connections that we open."""

    def __init__(self, provider: TlsProvider) -> None:
        self._provider = provider
        self._credentials: TlsCredentials | None = None
        self._shared: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        credentials = self._provider()
        if self._shared is None or credentials is not self._credentials:
            self._shared = client_context(credentials)
            self._credentials = credentials
        return self._shared


def server_context(credentials: TlsCredentials) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET
    return _fill(context, credentials, verify=credentials.ask_client)


def client_context(credentials: TlsCredentials) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    return _fill(context, credentials, verify=True)


def _fill(context: ssl.SSLContext, own: TlsCredentials, *, verify: bool) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.load_verify_locations(cadata=own.roots_pem.decode("ascii"))
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    _load_key(context, own)
    return context


def _load_key(context: ssl.SSLContext, own: TlsCredentials) -> None:
    """Python reads keys from files only: this one exists in memory and has no name."""
    descriptor = os.memfd_create("gridpost-tls", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as memory:
            memory.write(own.chain_pem + b"\n" + own.key_pem)
        path = Path(f"/proc/self/fd/{descriptor}")
        # An empty password makes a protected key without one fail instead of asking the terminal.
        context.load_cert_chain(path, password=own.key_password or b"")
    finally:
        os.close(descriptor)


def verified_chain(tls: ssl.SSLObject) -> tuple[bytes, ...]:
    """The certificates that led from the peer to a root, as DER; empty when nothing was verified."""
    if tls.context.verify_mode != ssl.CERT_REQUIRED or tls.session_reused:
        return ()
    if hasattr(tls, "get_verified_chain"):  # public from Python 3.13
        return tuple(tls.get_verified_chain())
    internal: Any = tls
    found = internal._sslobj.get_verified_chain() or ()
    # 2 is _ssl.ENCODING_DER
    return tuple(bytes(certificate.public_bytes(2)) for certificate in found)


def complete_hello(octets: bytes | bytearray) -> bool:
    """Whether the first record is here, or will not become one however long we wait."""
    if len(octets) < 5:
        return False
    size = 5 + int.from_bytes(octets[3:5], "big")
    return octets[0] != _HANDSHAKE or size > _MAX_HELLO or len(octets) >= size


def _offers_tls13(record: bytes) -> bool:
    """RFC 8446 4.2.1. Whatever cannot be read offers nothing: OpenSSL will say what is wrong."""
    try:
        at = 5
        if record[0] != _HANDSHAKE or record[at] != _CLIENT_HELLO:
            return False
        at += 4 + 2 + 32
        at += 1 + record[at]
        at += 2 + int.from_bytes(record[at : at + 2], "big")
        at += 1 + record[at]
        end = at + 2 + int.from_bytes(record[at : at + 2], "big")
        at += 2
        while at + 4 <= min(end, len(record)):
            kind = int.from_bytes(record[at : at + 2], "big")
            size = int.from_bytes(record[at + 2 : at + 4], "big")
            at += 4
            if kind == _SUPPORTED_VERSIONS:
                versions = record[at + 1 : at + size]
                return any(versions[i : i + 2] == _TLS13 for i in range(0, len(versions), 2))
            at += size
    except IndexError:
        pass
    return False
