"""Private keys as PKCS#8 files, and how costly it is to guess the passphrase of one.

The library protects such files with 2,048 rounds of PBKDF2 and offers no other choice. Here the key
is derived with scrypt (RFC 7914), as OpenSSL reads it, so any TLS library can still use the file.
"""

from __future__ import annotations

import base64
import hashlib
import os

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CBC
from cryptography.hazmat.primitives.padding import PKCS7
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.keys.rsa_operations import checked, to_pkcs8

# OpenSSL gives scrypt 32 MiB: N * r * 128 bytes must stay below. p makes up for the small N.
_N, _R, _P = 2**14, 8, 4

_PBES2 = bytes.fromhex("06092a864886f70d01050d")
_SCRYPT = bytes.fromhex("06092b06010401da47040b")
_AES_256_CBC = bytes.fromhex("060960864801650304012a")


def write(key: rsa.RSAPrivateKey, passphrase: bytes | None) -> bytes:
    """PEM; encrypted when there is a passphrase."""
    if not passphrase:
        return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    salt, iv = os.urandom(16), os.urandom(16)
    secret = hashlib.scrypt(passphrase, salt=salt, n=_N, r=_R, p=_P, maxmem=2**26, dklen=32)
    padder = PKCS7(128).padder()
    encryptor = Cipher(AES256(secret), CBC(iv)).encryptor()
    clear = padder.update(to_pkcs8(key)) + padder.finalize()
    # RFC 8018 A.4: PBES2 with a key derivation and a cipher, then the encrypted key.
    derivation = _sequence(
        _SCRYPT, _sequence(_octets(salt), _integer(_N), _integer(_R), _integer(_P))
    )
    scheme = _sequence(_PBES2, _sequence(derivation, _sequence(_AES_256_CBC, _octets(iv))))
    der = _sequence(scheme, _octets(encryptor.update(clear) + encryptor.finalize()))
    lines = base64.encodebytes(der).replace(b"\n", b"")
    body = b"\n".join(lines[at : at + 64] for at in range(0, len(lines), 64))
    label = b"ENCRYPTED PRIVATE KEY"
    return b"-----BEGIN %s-----\n%s\n-----END %s-----\n" % (label, body, label)


def read(pem: bytes, passphrase: bytes | None, what: str) -> rsa.RSAPrivateKey:
    encrypted = b"ENCRYPTED" in pem[:100]
    if encrypted and not passphrase:
        raise Refusal(Rule.KEY_PROTECTION, f"{what} needs a passphrase, none is configured")
    try:
        key = load_pem_private_key(pem, passphrase if encrypted else None)
    except (ValueError, TypeError) as error:
        raise Refusal(
            Rule.BAD_KEY, f"{what} cannot be read: the passphrase may be wrong", str(error)
        ) from None
    return checked(key)


def _sequence(*parts: bytes) -> bytes:
    return _tlv(0x30, b"".join(parts))


def _octets(value: bytes) -> bytes:
    return _tlv(0x04, value)


def _integer(value: int) -> bytes:
    return _tlv(0x02, value.to_bytes(value.bit_length() // 8 + 1))


def _tlv(tag: int, value: bytes) -> bytes:
    size = len(value)
    if size < 0x80:
        return bytes((tag, size)) + value
    length = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes((tag, 0x80 | len(length))) + length + value
