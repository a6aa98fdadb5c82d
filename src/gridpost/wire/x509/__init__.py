"""X.509 on the wire: read, issue and verify certificates (503 cl. 8). No private key lives here."""

from gridpost.wire.x509.chain import Purpose, VerifiedChain, trusted_path, verify_chain
from gridpost.wire.x509.issue import (
    KEY_BITS,
    Issuer,
    Sign,
    Validity,
    build_root_ca,
    integrated_ca_name,
    issue,
    issue_installation,
    issue_integrated_ca,
    issue_tls,
)
from gridpost.wire.x509.pkcs12 import KeyBundle, read_pkcs12, write_pkcs12
from gridpost.wire.x509.read import (
    certificate_id,
    certificate_id_candidates,
    from_pem,
    public_key,
    public_key_bytes,
    read_certificate,
    read_public_key,
    to_pem,
)
from gridpost.wire.x509.request import CaRequest, read_ca_request, write_ca_request

__all__ = [
    "KEY_BITS",
    "CaRequest",
    "Issuer",
    "KeyBundle",
    "Purpose",
    "Sign",
    "Validity",
    "VerifiedChain",
    "build_root_ca",
    "certificate_id",
    "certificate_id_candidates",
    "from_pem",
    "integrated_ca_name",
    "issue",
    "issue_installation",
    "issue_integrated_ca",
    "issue_tls",
    "public_key",
    "public_key_bytes",
    "read_ca_request",
    "read_certificate",
    "read_pkcs12",
    "read_public_key",
    "to_pem",
    "trusted_path",
    "verify_chain",
    "write_ca_request",
    "write_pkcs12",
]
