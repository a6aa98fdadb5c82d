"""The algorithms that messages can be sealed with, by the names that stand in their metadata.

503 cl. 9.3: a new algorithm is first installed everywhere, then sent. Being in a registry means
that it is installed; a `Profile` says what is received from a peer and, apart from that, sent to
it. A registry is a value: adding to it makes another one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import (
    MGF1,
    OAEP,
    AsymmetricPadding,
    PKCS1v15,
)

from gridpost.core.identifiers import clip
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.seal.ciphers import decrypt_cbc, decrypt_gcm, encrypt_cbc, encrypt_gcm
from gridpost.wire.seal.manifest import NewHash

SHA_512 = "SHA-512"
AES_256 = "AES-256"
GCM = "GCM"
CBC = "CBC"
OAEP_SHA256 = "OAEP-SHA256-MGF1-SHA256"
OAEP_SHA256_MGF1_SHA1 = "OAEP-SHA256-MGF1-SHA1"
PKCS1_V1_5 = "PKCS1-v1_5"

C14N = "http://www.w3.org/TR/2001/REC-xml-c14n-20010315"
XMLDSIG = "http://www.w3.org/2000/09/xmldsig#"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SignatureAlgorithm:
    """A value of the entry `Algorithm` (503 Table 10).

    The first URI of each kind is the one we write; all of them are read.
    """

    name: str
    new_hash: NewHash
    rsa_hash: hashes.HashAlgorithm
    rsa_padding: AsymmetricPadding
    method_uris: tuple[str, ...]
    digest_uris: tuple[str, ...]
    digest_size: int


@dataclass(frozen=True, slots=True)
class ContentCipher:
    """A value of the entry `Cipher` (503 Table 9) in one of its modes."""

    cipher: str
    mode: str
    key_size: int
    encrypt: Callable[[bytes, bytes, bytes], bytes | memoryview]
    """From key, content and associated data to the body."""
    decrypt: Callable[[bytes, bytes | memoryview, bytes], tuple[bytes, bool]]
    """From key, body and associated data to a content, and whether it is the right one."""
    binds_attributes: bool = False
    """Does a changed associated data make `decrypt` fail?"""


@dataclass(frozen=True, slots=True)
class KeyPadding:
    """How RSA wraps the session key."""

    name: str
    rsa: AsymmetricPadding


@dataclass(frozen=True, slots=True)
class Registry:
    """What is installed."""

    signatures: Mapping[str, SignatureAlgorithm] = field(default_factory=dict)
    ciphers: Mapping[tuple[str, str], ContentCipher] = field(default_factory=dict)
    paddings: Mapping[str, KeyPadding] = field(default_factory=dict)

    def adding(self, *algorithms: SignatureAlgorithm | ContentCipher | KeyPadding) -> Registry:
        signatures, ciphers = dict(self.signatures), dict(self.ciphers)
        paddings = dict(self.paddings)
        for algorithm in algorithms:
            match algorithm:
                case SignatureAlgorithm():
                    signatures[algorithm.name] = algorithm
                case ContentCipher():
                    ciphers[algorithm.cipher, algorithm.mode] = algorithm
                case KeyPadding():
                    paddings[algorithm.name] = algorithm
        return replace(
            self,
            signatures=MappingProxyType(signatures),
            ciphers=MappingProxyType(ciphers),
            paddings=MappingProxyType(paddings),
        )

    def signature(self, name: str) -> SignatureAlgorithm:
        return _known(self.signatures.get(name), "signature algorithm", name)

    def cipher(self, cipher: str, mode: str) -> ContentCipher:
        if all(known != cipher for known, _ in self.ciphers):
            _known(None, "cipher", cipher)
        return _known(self.ciphers.get((cipher, mode)), f"mode of {cipher}", mode)

    def padding(self, name: str) -> KeyPadding:
        return _known(self.paddings.get(name), "padding", name)


def _known(algorithm: _T | None, what: str, name: str) -> _T:
    if algorithm is None:
        raise Refusal(Rule.SEAL_ALGORITHM_UNKNOWN, f"the {what} '{clip(name)}' is not known here")
    return algorithm


STANDARD = Registry().adding(
    # 503 cl. 6.5.4, 6.5.6. The printed URIs do not exist in XML-DSig; the registered ones are read.
    SignatureAlgorithm(
        name=SHA_512,
        new_hash=hashlib.sha512,
        rsa_hash=hashes.SHA512(),
        rsa_padding=PKCS1v15(),
        method_uris=(
            f"{XMLDSIG}rsa-sha512",
            "http://www.w3.org/2001/04/xmldsig-more#rsa-sha512",
        ),
        digest_uris=(f"{XMLDSIG}sha512", "http://www.w3.org/2001/04/xmlenc#sha512"),
        digest_size=64,
    ),
    # 503 cl. 6.5.3 gives neither mode nor padding: see divergences, encryption.
    ContentCipher(AES_256, GCM, 32, encrypt_gcm, decrypt_gcm, binds_attributes=True),
    ContentCipher(AES_256, CBC, 32, encrypt_cbc, decrypt_cbc),
    KeyPadding(OAEP_SHA256, OAEP(MGF1(hashes.SHA256()), hashes.SHA256(), None)),
    KeyPadding(OAEP_SHA256_MGF1_SHA1, OAEP(MGF1(hashes.SHA1()), hashes.SHA256(), None)),
    KeyPadding(PKCS1_V1_5, PKCS1v15()),
)
