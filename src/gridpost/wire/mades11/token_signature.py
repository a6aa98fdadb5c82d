"""Signed tokens and signed component IDs (MADES 1.1 Tables 41, 53, 60): SHA-1 with RSA, base64.

SHA-1 is what the tables demand, and it is used nowhere else. A token is random and short-lived, so
that a collision helps nobody; messages are signed with SHA-512.
"""

from __future__ import annotations

import binascii

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.x509 import public_key

_MAX_TEXT = 4096


def sign_text(text: str, key: RSAPrivateKey) -> str:
    signature = key.sign(text.encode(), PKCS1v15(), hashes.SHA1())
    return binascii.b2a_base64(signature, newline=False).decode("ascii")


def check_text(text: str, signature: str, certificate: bytes, what: str) -> None:
    """Refuses unless the owner of the certificate (DER) signed exactly this text."""
    try:
        if len(signature) > _MAX_TEXT:
            raise ValueError
        value = binascii.a2b_base64("".join(signature.split()).encode("ascii"), strict_mode=True)
        public_key(certificate).verify(value, text.encode(), PKCS1v15(), hashes.SHA1())
    except (ValueError, InvalidSignature):
        raise Refusal(
            Rule.TOKEN_SIGNATURE, f"the signature of the {what} does not belong to its certificate"
        ) from None
