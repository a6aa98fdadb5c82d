"""Whether a chain of certificates leads to a trusted root, and may be used for what it is used for.

503 cl. 8.4.1 fixes the chain that a peer shows: its own certificate, then the INTEGRATED CA that
issued it. Two roots may be trusted at once while the ROOT CA is renewed (8.5). Whose certificate
it is, is not decided here but in `core.peer_identity`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import (
    Criticality,
    ExtensionPolicy,
    Policy,
    PolicyBuilder,
    Store,
    VerificationError,
)

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.x509.issue import INSTALLATION
from gridpost.wire.x509.read import load, read_certificate, unreadable

# Deep enough for the external CAs in use (503 cl. 8.3.3); path building is exponential in it.
MAX_EXTERNAL_DEPTH = 4
MAX_INTERMEDIATES = 16

_Extension = TypeVar("_Extension", bound=x509.ExtensionType)


class Purpose(Enum):
    """The role in which the holder of the leaf certificate acts."""

    CLIENT = "open a connection"
    SERVER = "accept a connection"
    INSTALLATION = "register a component"
    SIGNING = "sign messages"


@dataclass(frozen=True, slots=True)
class VerifiedChain:
    """503 cl. 8.4.1: a chain that was verified, with the root that it leads to."""

    leaf: Certificate
    issuer: bytes
    root: bytes


def verify_chain(
    chain: Sequence[bytes],
    roots: Sequence[bytes],
    at: datetime,
    purpose: Purpose = Purpose.CLIENT,
) -> VerifiedChain:
    """The chain exactly as the peer sent it, leaf first, in DER; or a refusal.

    No subject alternative name is asked for: components are known by their certificate, not by
    the host they run on.
    """
    if len(chain) != 2:
        raise _untrusted(
            "the chain must be the certificate and the INTEGRATED CA that issued it, "
            f"but holds {len(chain)} certificates"
        )
    leaf = read_certificate(chain[0], CertificateKind.AUTHENTICATION)
    authority = read_certificate(chain[1], CertificateKind.INTEGRATED_CA)
    for certificate, what in ((leaf, "certificate"), (authority, "INTEGRATED CA certificate")):
        if not certificate.valid_at(at):
            raise Refusal(
                Rule.CERTIFICATE_EXPIRED,
                f"the {what} is valid from {certificate.not_before:%Y-%m-%d %H:%M} "
                f"to {certificate.not_after:%Y-%m-%d %H:%M} UTC only",
            )
    path = _verified_path(chain[0], chain[1:], roots, at, purpose, depth=1)
    # With the second certificate left unused, the leaf would hang on a root directly.
    if len(path) != 3 or path[1] != chain[1]:
        raise _untrusted("the certificate was not issued by the INTEGRATED CA shown with it")
    return VerifiedChain(leaf, path[1], path[2])


def trusted_path(
    leaf: bytes,
    intermediates: Iterable[bytes],
    roots: Sequence[bytes],
    at: datetime,
    purpose: Purpose = Purpose.SIGNING,
) -> tuple[bytes, ...]:
    """From a leaf to one of the roots over any of the intermediates, as external CAs need it."""
    offered = list(dict.fromkeys(intermediates))
    if len(offered) > MAX_INTERMEDIATES:
        raise _untrusted(f"more than {MAX_INTERMEDIATES} issuers are offered")
    return _verified_path(leaf, offered, roots, at, purpose, depth=MAX_EXTERNAL_DEPTH)


def _verified_path(
    leaf: bytes,
    intermediates: Sequence[bytes],
    roots: Sequence[bytes],
    at: datetime,
    purpose: Purpose,
    *,
    depth: int,
) -> tuple[bytes, ...]:
    if not roots:
        raise _untrusted("no ROOT CA is configured as trusted")
    certificate = load(leaf)
    _check_purpose(certificate, purpose)
    builder = (
        PolicyBuilder()
        .store(Store([load(root) for root in roots]))
        .time(at.astimezone(UTC))
        .max_chain_depth(depth)
        .extension_policies(ca_policy=_CA_POLICY, ee_policy=_LEAF_POLICY)
    )
    try:
        # The client verifier is the one that needs no host name; the role is checked above.
        verified = builder.build_client_verifier().verify(certificate, [*map(load, intermediates)])
    except VerificationError as error:
        raise _untrusted(
            "the certificate does not belong to a trusted certification chain", str(error)
        ) from error
    return tuple(c.public_bytes(Encoding.DER) for c in verified.chain)


def _check_purpose(certificate: x509.Certificate, purpose: Purpose) -> None:
    """The verifier checks no extended key usage once the policies are our own."""
    with unreadable("the extensions of the certificate cannot be read"):
        extensions = certificate.extensions
    usage = _extension(extensions, x509.KeyUsage)
    extended = _extension(extensions, x509.ExtendedKeyUsage)
    basic = _extension(extensions, x509.BasicConstraints)
    if basic is not None and basic.ca:
        raise _not_for(purpose, "it belongs to a certification authority")
    if usage is not None and not (
        usage.digital_signature or (purpose is Purpose.SIGNING and usage.content_commitment)
    ):
        raise _not_for(purpose, "its key usage has no digital signature")
    named = set(extended) if extended is not None else {ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}
    is_installation = INSTALLATION in named
    if is_installation and purpose is not Purpose.INSTALLATION:
        raise _not_for(purpose, "it is an installation certificate")
    if purpose is Purpose.INSTALLATION and not is_installation:
        raise _not_for(purpose, "it is not an installation certificate")
    wanted = _TLS_ROLES.get(purpose)
    if wanted and not named & {wanted, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}:
        raise _not_for(purpose, "its extended key usage names other purposes only")


_TLS_ROLES = {
    Purpose.CLIENT: ExtendedKeyUsageOID.CLIENT_AUTH,
    Purpose.SERVER: ExtendedKeyUsageOID.SERVER_AUTH,
    Purpose.INSTALLATION: ExtendedKeyUsageOID.CLIENT_AUTH,
}


def _extension(extensions: x509.Extensions, kind: type[_Extension]) -> _Extension | None:
    try:
        return extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _may_certify(
    _policy: Policy, _certificate: x509.Certificate, usage: x509.KeyUsage | None
) -> None:
    if usage is not None and not usage.key_cert_sign:
        raise ValueError("the key usage of the issuer does not include signing certificates")


# What the verifier itself still enforces: signatures, names, times, the CA flag, path lengths, key
# sizes, and that no critical extension is unknown.
_CA_POLICY = (
    ExtensionPolicy.permit_all()
    .require_present(x509.BasicConstraints, Criticality.AGNOSTIC, None)
    .may_be_present(x509.KeyUsage, Criticality.AGNOSTIC, _may_certify)
)
_LEAF_POLICY = ExtensionPolicy.permit_all()


def _untrusted(message: str, details: str = "") -> Refusal:
    return Refusal(Rule.CHAIN_NOT_TRUSTED, message, details)


def _not_for(purpose: Purpose, reason: str) -> Refusal:
    return _untrusted(f"the certificate may not {purpose.value}: {reason}")
