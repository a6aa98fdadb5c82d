"""AES-256 over a content, in the two layouts of REPAIRS 6.5.3.

`decrypt` never raises and takes the same way whether it succeeds or not: a failed content has the
length of a good one, so that whoever hashes it next spends the same time (see `opening`).
"""

from __future__ import annotations

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CBC, GCM
from cryptography.hazmat.primitives.padding import PKCS7

from gridpost.core.refusal import Refusal, Rule

NONCE_SIZE = 12
TAG_SIZE = 16
BLOCK_SIZE = 16

_LARGE = 256 * 1024
# What the library can take in one call.
MAX_CONTENT = 2**31 - 1 - 64


def encrypt_gcm(key: bytes, content: bytes, associated: bytes) -> bytes | memoryview:
    """Nonce, ciphertext, tag. The key is used once, so a random nonce cannot repeat under it."""
    _check_size(content)
    nonce = os.urandom(NONCE_SIZE)
    if len(content) < _LARGE:
        return nonce + AESGCM(key).encrypt(nonce, content, associated)
    # Written where it stays: putting the nonce in front of it would be another copy.
    body = memoryview(bytearray(NONCE_SIZE + len(content) + TAG_SIZE))
    encryptor = Cipher(AES256(key), GCM(nonce)).encryptor()
    encryptor.authenticate_additional_data(associated)
    body[:NONCE_SIZE] = nonce
    encryptor.update_into(content, body[NONCE_SIZE:])
    encryptor.finalize()
    body[-TAG_SIZE:] = encryptor.tag
    return body


def decrypt_gcm(key: bytes, body: bytes | memoryview, associated: bytes) -> tuple[bytes, bool]:
    clear_size = len(body) - NONCE_SIZE - TAG_SIZE
    if clear_size < 0 or clear_size > MAX_CONTENT:
        return b"", False
    view = memoryview(body)
    try:
        return AESGCM(key).decrypt(view[:NONCE_SIZE], view[NONCE_SIZE:], associated), True
    except InvalidTag:
        return bytes(clear_size), False


def encrypt_cbc(key: bytes, content: bytes, associated: bytes) -> bytes:
    """IV, ciphertext with PKCS#7 padding. Only the signature covers the associated data here."""
    _check_size(content)
    iv = os.urandom(BLOCK_SIZE)
    padder = PKCS7(8 * BLOCK_SIZE).padder()
    encryptor = Cipher(AES256(key), CBC(iv)).encryptor()
    padded = padder.update(content) + padder.finalize()
    return iv + encryptor.update(padded) + encryptor.finalize()


def decrypt_cbc(key: bytes, body: bytes | memoryview, associated: bytes) -> tuple[bytes, bool]:
    if len(body) < 2 * BLOCK_SIZE or len(body) % BLOCK_SIZE or len(body) > MAX_CONTENT:
        return b"", False
    view = memoryview(body)
    decryptor = Cipher(AES256(key), CBC(bytes(view[:BLOCK_SIZE]))).decryptor()
    padded = decryptor.update(view[BLOCK_SIZE:]) + decryptor.finalize()
    unpadder = PKCS7(8 * BLOCK_SIZE).unpadder()
    try:
        return unpadder.update(padded) + unpadder.finalize(), True
    except ValueError:
        # The padding must not be an oracle: the caller goes on with these bytes.
        return padded, False


def _check_size(content: bytes) -> None:
    if len(content) > MAX_CONTENT:
        raise Refusal(Rule.CONTENT_TOO_LARGE, f"a content of {len(content)} bytes is too large")
