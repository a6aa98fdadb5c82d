"""Files that are handed between the administrators of a node and of an endpoint: keys, certificates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_public_key,
)

from gridpost.assembly.directory_keys import DirectoryKeys, issued_by
from gridpost.assembly.node_configuration import read_node_configuration
from gridpost.core.certificate import CertificateKind
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.keys import owner_only
from gridpost.wire.x509 import from_pem, public_key_bytes, read_certificate, to_pem


def read_paper(text: str, name: str) -> tuple[str, bytes]:
    """What a PEM text is, `key` or `certificate`, and its DER."""
    if "BEGIN CERTIFICATE-" in text:
        found = from_pem(text.encode())
        if len(found) != 1:
            raise Refusal(Rule.USAGE, f"{name} must hold one certificate")
        return "certificate", found[0]
    try:
        key = load_pem_public_key(text.encode())
    except ValueError:
        key = None
    if not isinstance(key, RSAPublicKey):
        raise Refusal(Rule.USAGE, f"{name} is neither an RSA public key nor a certificate (PEM)")
    return "key", public_key_bytes(key)


def write_papers(
    config: Path, folder: Path, keys: Mapping[str, RSAPrivateKey], issued: Mapping[str, bytes]
) -> None:
    """Per kind KIND.key and KIND.pem (with its INTEGRATED CA), and roots.pem."""
    configuration = read_node_configuration(config)
    authorities = DirectoryKeys(configuration).authorities
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for kind, key in keys.items():
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        owner_only.write(folder / f"{kind}.key", pem)
    for kind, der in issued.items():
        certificate = read_certificate(der, CertificateKind(kind.upper()))
        chain = [c.der for c in authorities if issued_by(certificate, c.der)]
        (folder / f"{kind}.pem").write_bytes(b"".join(map(to_pem, (der, *chain))))
    roots = b"".join(map(to_pem, configuration.trusted_roots()))
    (folder / "roots.pem").write_bytes(roots)
