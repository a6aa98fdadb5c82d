"""The seal of a message: manifest, signature, encryption, proof (503 cl. 4.5, 6.5.3, 6.5.4, 6.5.6).

Pure functions; what needs a private key goes through `core.ports`.
"""

from gridpost.wire.seal.closing import encrypt, seal_message, unencrypted
from gridpost.wire.seal.manifest import associated_data, fingerprint, manifest
from gridpost.wire.seal.opening import (
    PEER_TEXT,
    Opened,
    PublicReason,
    open_sealed,
    public_reason,
)
from gridpost.wire.seal.profile import DEFAULT, Profile, Suite
from gridpost.wire.seal.proof import Finding, Standing, Verdict, verify_proof
from gridpost.wire.seal.registry import (
    STANDARD,
    ContentCipher,
    KeyPadding,
    Registry,
    SignatureAlgorithm,
)
from gridpost.wire.seal.signing import (
    Prepared,
    Verified,
    assemble,
    prepare_signature,
    sign,
    verify,
)

__all__ = [
    "DEFAULT",
    "PEER_TEXT",
    "STANDARD",
    "ContentCipher",
    "Finding",
    "KeyPadding",
    "Opened",
    "Prepared",
    "Profile",
    "PublicReason",
    "Registry",
    "SignatureAlgorithm",
    "Standing",
    "Suite",
    "Verdict",
    "Verified",
    "assemble",
    "associated_data",
    "encrypt",
    "fingerprint",
    "manifest",
    "open_sealed",
    "prepare_signature",
    "public_reason",
    "seal_message",
    "sign",
    "unencrypted",
    "verify",
    "verify_proof",
]
