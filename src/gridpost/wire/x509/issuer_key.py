"""The one place where a signing function takes the shape of the library's private key.

The library's certificate builder asks for a private key object but only calls its `sign`. A key
in a token cannot be such an object; a function can stand for any key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import AsymmetricPadding, PKCS1v15
from cryptography.hazmat.primitives.asymmetric.utils import NoDigestInfo, Prehashed
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    KeySerializationEncryption,
    PrivateFormat,
)

from gridpost.core.refusal import Refusal, Rule


class IssuerKey(rsa.RSAPrivateKey):
    """An RSA key that can do nothing but sign, with PKCS#1 v1.5 and SHA-512."""

    def __init__(self, public: rsa.RSAPublicKey, sign: Callable[[bytes], bytes]) -> None:
        self._public = public
        self._sign = sign

    def sign(
        self,
        data: bytes,
        padding: AsymmetricPadding,
        algorithm: Prehashed | hashes.HashAlgorithm | NoDigestInfo,
    ) -> bytes:
        signature = self._sign(bytes(data))
        # A function for another key would give a certificate that nobody can verify.
        try:
            self._public.verify(signature, bytes(data), PKCS1v15(), hashes.SHA512())
        except InvalidSignature as error:
            raise Refusal(
                Rule.BAD_KEY, "the private key does not belong to the issuer's certificate"
            ) from error
        return signature

    def public_key(self) -> rsa.RSAPublicKey:
        return self._public

    @property
    def key_size(self) -> int:
        return self._public.key_size

    def __copy__(self) -> IssuerKey:
        return self

    def __deepcopy__(self, memo: dict[object, object]) -> IssuerKey:
        return self

    def decrypt(self, ciphertext: bytes, padding: AsymmetricPadding) -> NoReturn:
        raise TypeError("this key can only sign")

    def private_numbers(self) -> NoReturn:
        raise TypeError("this key can only sign")

    def private_bytes(
        self,
        encoding: Encoding,
        format: PrivateFormat,
        encryption_algorithm: KeySerializationEncryption,
    ) -> NoReturn:
        raise TypeError("this key can only sign")
