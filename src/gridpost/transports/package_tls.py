"""TLS contexts from a PKCS#12 package (CMM 4.2): certificate and key never touch the disk again."""

from __future__ import annotations

import base64
import os
import ssl
from pathlib import Path

from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.x509 import read_pkcs12, to_pem


def package_context(roots: Path, package: Path, passphrase: str) -> ssl.SSLContext:
    """For a client that shows the package's certificate and trusts the CA roots in a PEM file."""
    try:
        data = package.read_bytes()
    except OSError as error:
        raise Refusal(
            Rule.BAD_KEY, f"{package} cannot be read: {error.strerror or type(error).__name__}"
        ) from None
    bundle = read_pkcs12(data, passphrase)
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(roots))
    except (OSError, ssl.SSLError) as error:
        raise Refusal(
            Rule.BAD_CERTIFICATE, f"the CA roots in {roots} cannot be read", str(error)
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    key = base64.encodebytes(bundle.private_key)
    pem = b"-----BEGIN PRIVATE KEY-----\n" + key + b"-----END PRIVATE KEY-----\n"
    # The library reads files only: this one exists in memory and has no name.
    descriptor = os.memfd_create("gridpost-tls", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, pem + to_pem(bundle.certificate))
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    return context
