"""Private keys in the database of an endpoint, encrypted with a passphrase that is not in it.

A key is sealed with AES-256-GCM under a key that scrypt makes of the passphrase; its name is part of
what is authenticated, so that nobody can exchange two of them. Certificates are public and stand open.
"""

from __future__ import annotations

import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.keys import rsa_operations
from gridpost.stores.keys.off_loop import KeyPool
from gridpost.stores.keys.ring import KeptKeyring, key_id
from gridpost.stores.postgres.faults import refusing
from gridpost.stores.postgres.session import Connection, connect
from gridpost.stores.postgres.settings import PostgresSettings
from gridpost.wire.seal import STANDARD, Registry
from gridpost.wire.x509 import public_key_bytes, read_certificate

# 64 MiB of memory for each guess of the passphrase.
WORK_FACTOR = 2**16
_BLOCK, _LANES = 8, 1
_SALT, _NONCE, _KEY = 16, 12, 32
_PROBE = "probe"

_MAKE_LOCK = """
    INSERT INTO key_lock (one, salt, work_factor, probe) VALUES (1, %s, %s, %s)
    ON CONFLICT (one) DO NOTHING
"""
_LOCK = "SELECT salt, work_factor, probe FROM key_lock"
_KEYS = "SELECT name, sealed, kind, certificate_id, certificate FROM key ORDER BY name"
_ADD = "INSERT INTO key (name, sealed) VALUES (%s, %s) ON CONFLICT (name) DO NOTHING"
_CERTIFY = """
    UPDATE key SET kind = %s, certificate_id = %s, certificate = %s WHERE name = %s
"""


class PostgresKeyring(KeptKeyring):
    """`core.ports.KeyCabinet` over the schema of an endpoint, whose tables are there already."""

    def __init__(
        self,
        settings: PostgresSettings,
        passphrase: bytes,
        pool: KeyPool | None = None,
        registry: Registry = STANDARD,
    ) -> None:
        """Blocks. Refuses a passphrase that is not the one of the keys that are here."""
        super().__init__(settings.place(), pool, registry)
        self._settings = settings
        with refusing(), connect(settings) as connection:
            self._cipher = _unlock(connection, passphrase, settings.place())
        self.reload()

    def reload(self) -> None:
        keys = dict(self._keys)
        certificates: dict[str, Certificate] = {}
        with refusing(), connect(self._settings) as connection:
            rows = connection.execute(_KEYS).fetchall()
        for name, sealed, kind, certificate_id, certificate in rows:
            if name not in keys:
                keys[name] = self._open(name, bytes(sealed))
            if certificate is not None:
                certificates[name] = read_certificate(
                    bytes(certificate), CertificateKind(kind), certificate_id
                )
        self._keys, self._certificates = keys, certificates

    def _keep_key(self, name: str, key: rsa.RSAPrivateKey) -> None:
        sealed = _seal(self._cipher, name, rsa_operations.to_pkcs8(key))
        with refusing(), connect(self._settings) as connection:
            connection.execute(_ADD, (name, sealed))

    def _keep_certificate(self, name: str, certificate: Certificate) -> None:
        values = (certificate.kind.value, certificate.certificate_id, certificate.der, name)
        with refusing(), connect(self._settings) as connection:
            if connection.execute(_CERTIFY, values).rowcount != 1:
                raise Refusal(Rule.BAD_KEY, f"{self._place} holds no private key for this one")

    def _open(self, name: str, sealed: bytes) -> rsa.RSAPrivateKey:
        try:
            key = rsa_operations.from_pkcs8(_unseal(self._cipher, name, sealed))
        except InvalidTag:
            raise Refusal(
                Rule.BAD_KEY, f"the key {name} in {self._place} was changed by somebody else"
            ) from None
        if key_id(public_key_bytes(key.public_key())) != name:
            raise Refusal(Rule.BAD_KEY, f"the key {name} in {self._place} is another one")
        return key


def _unlock(connection: Connection, passphrase: bytes, place: str) -> AESGCM:
    found = connection.execute(_LOCK).fetchone()
    if found is None:
        salt = secrets.token_bytes(_SALT)
        cipher = _derive(passphrase, salt, WORK_FACTOR)
        probe = _seal(cipher, _PROBE, secrets.token_bytes(_KEY))
        connection.execute(_MAKE_LOCK, (salt, WORK_FACTOR, probe))
        # Another process may have been first.
        found = connection.execute(_LOCK).fetchone()
    if found is None:
        raise Refusal(Rule.BAD_KEY, f"there is no place for keys in {place}")
    salt, work_factor, probe = found
    cipher = _derive(passphrase, bytes(salt), work_factor)
    try:
        _unseal(cipher, _PROBE, bytes(probe))
    except InvalidTag:
        raise Refusal(
            Rule.BAD_KEY,
            f"the passphrase does not open the keys in {place}",
            "all processes of an endpoint need the same keys.passphrase",
        ) from None
    return cipher


def _derive(passphrase: bytes, salt: bytes, work_factor: int) -> AESGCM:
    scrypt = Scrypt(salt=salt, length=_KEY, n=work_factor, r=_BLOCK, p=_LANES)
    return AESGCM(scrypt.derive(passphrase))


def _seal(cipher: AESGCM, name: str, clear: bytes) -> bytes:
    nonce = secrets.token_bytes(_NONCE)
    return nonce + cipher.encrypt(nonce, clear, name.encode())


def _unseal(cipher: AESGCM, name: str, sealed: bytes) -> bytes:
    return cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], name.encode())
