"""Private keys that never leave a PKCS#11 token.

Decides how a token is asked to sign and to open a session key, and refuses at start-up a token
that cannot do what the configuration needs: a message that arrives is too late to find out.
Needs the optional package `python-pkcs11`.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import rsa

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.keys.off_loop import KeyPool, run
from gridpost.wire.seal import STANDARD
from gridpost.wire.seal.registry import (
    OAEP_SHA256,
    OAEP_SHA256_MGF1_SHA1,
    PKCS1_V1_5,
    SHA_512,
)
from gridpost.wire.x509 import public_key, public_key_bytes

# RFC 8017 section 9.2, note 1: what stands before a SHA-512 digest in a PKCS#1 v1.5 signature.
_DIGEST_INFO_SHA_512 = bytes.fromhex("3051300d060960864801650304020305000440")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class TokenAccess:
    """Which token, and how to log in to it."""

    module: str
    """Path of the vendor's library."""
    token: str
    pin: str = field(repr=False)


class TokenKeyring:
    """`core.ports.Keyring` over a token. Keys are found by the public key in the certificates.

    `paddings` are those by which session keys will arrive: the token must open every one of them.
    """

    def __init__(
        self,
        access: TokenAccess,
        certificates: Iterable[Certificate],
        paddings: Iterable[str] = (OAEP_SHA256,),
    ) -> None:
        self._certificates: tuple[Certificate, ...] = ()
        self._paddings = tuple(paddings)
        self._token = _Token(access)
        try:
            for certificate in certificates:
                self.add(certificate)
        except BaseException:
            self.close()
            raise

    def add(self, certificate: Certificate) -> None:
        """One that was issued for a key in the token; refused when the token cannot use that key."""
        if certificate.kind is CertificateKind.SIGNING:
            self._token.check_signing(certificate)
        elif certificate.kind is CertificateKind.ENCRYPTION:
            for padding in self._paddings:
                self._token.check_opening(certificate, padding)
        if certificate not in self._certificates:
            self._certificates = (*self._certificates, certificate)

    def create_key(self, bits: int, kind: CertificateKind) -> bytes:
        """A new key that never leaves the token; its SubjectPublicKeyInfo."""
        return self._token.create(bits, kind, self._paddings)

    def holds(self, certificate: Certificate) -> bool:
        return self._token.holds(certificate)

    def certificates(self) -> Sequence[Certificate]:
        return self._certificates

    def signers(self) -> Sequence[TokenSigner]:
        return [
            TokenSigner(self._token, c)
            for c in self._certificates
            if c.kind is CertificateKind.SIGNING
        ]

    def openers(self) -> Sequence[TokenOpener]:
        return [
            TokenOpener(self._token, c)
            for c in self._certificates
            if c.kind is CertificateKind.ENCRYPTION
        ]

    def sign_function(self, certificate: Certificate) -> Callable[[bytes], bytes]:
        """The key of a CA, as `wire.x509.Issuer` uses it."""
        return lambda data: self._token.sign(certificate, data, SHA_512)

    def close(self) -> None:
        self._token.close()


class TokenSigner:
    """`core.ports.Signer` over a key in a token."""

    def __init__(self, token: _Token, certificate: Certificate) -> None:
        self._token = token
        self._certificate = certificate

    @property
    def certificate(self) -> Certificate:
        return self._certificate

    async def sign(self, data: bytes, algorithm: str = SHA_512) -> bytes:
        token = self._token
        return await run(token.pool, token.sign, self._certificate, data, algorithm)


class TokenOpener:
    """`core.ports.SessionKeyOpener` over a key in a token."""

    def __init__(self, token: _Token, certificate: Certificate) -> None:
        self._token = token
        self._certificate = certificate

    @property
    def certificate(self) -> Certificate:
        return self._certificate

    async def open(self, wrapped: bytes, padding: str) -> bytes | None:
        token = self._token
        return await run(token.pool, token.open, self._certificate, wrapped, padding)


# python-pkcs11 initialises a library without asking it for locks. PKCS#11 then allows one thread
# at a time in the whole library, whatever the number of sessions.
_libraries: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
# How many of us use each library; those that were used before have an entry.
_users: dict[str, int] = {}


class _Token:
    """One session, used by one thread at a time."""

    def __init__(self, access: TokenAccess) -> None:
        self._access = access
        self._library = _libraries[access.module]
        self._keys: dict[bytes, Any] = {}
        self.pool = KeyPool(1, "gridpost-token", piece=1)
        try:
            import pkcs11
        except ImportError:
            raise Refusal(
                Rule.KEY_TOKEN, "keys in a token need the package python-pkcs11: install it"
            ) from None
        try:
            with self._library:
                library = pkcs11.lib(access.module)
                if _users.get(access.module) == 0:
                    # Some list their tokens once: one that has come since would never be found.
                    library.reinitialize()
                _users.setdefault(access.module, 0)
                self._token = library.get_token(token_label=access.token)
                self._mechanisms = set(self._token.slot.get_mechanisms())
                self._session = self._log_in()
                _users[access.module] += 1
        except (pkcs11.PKCS11Error, RuntimeError) as error:
            raise Refusal(
                Rule.KEY_TOKEN,
                f"the token '{access.token}' of {access.module} cannot be used: "
                f"{type(error).__name__}",
                str(error),
            ) from error

    def check_signing(self, certificate: Certificate) -> None:
        """The key is there and signs what its certificate verifies."""
        probe = os.urandom(32)
        signature = self.sign(certificate, probe, SHA_512)
        entry = STANDARD.signature(SHA_512)
        try:
            public_key(certificate.der).verify(signature, probe, entry.rsa_padding, entry.rsa_hash)
        except InvalidSignature:
            raise Refusal(
                Rule.KEY_TOKEN, "the token's signature does not verify with the certificate"
            ) from None

    def check_opening(self, certificate: Certificate, padding: str) -> None:
        """The token opens what a sender would wrap with this padding."""
        probe = os.urandom(32)
        wrapped = public_key(certificate.der).encrypt(probe, STANDARD.padding(padding).rsa)
        if self.open(certificate, wrapped, padding) != probe:
            raise self._cannot_open(padding)

    def holds(self, certificate: Certificate) -> bool:
        with self._library:
            return self._search(public_key(certificate.der)) is not None

    def create(self, bits: int, kind: CertificateKind, paddings: Iterable[str]) -> bytes:
        """Refuses before anybody certifies the key when the token could not use it."""
        from pkcs11 import Attribute, KeyType, PKCS11Error

        signs = kind is CertificateKind.SIGNING
        uses = {Attribute.SIGN: signs, Attribute.DECRYPT: not signs}
        try:
            with self._library, self._token.open(rw=True) as session:
                made, private = session.generate_keypair(
                    KeyType.RSA,
                    bits,
                    store=True,
                    label=f"gridpost {kind.value.lower()}",
                    public_template={Attribute.VERIFY: signs, Attribute.ENCRYPT: not signs},
                    private_template={
                        **uses,
                        Attribute.PRIVATE: True,
                        Attribute.SENSITIVE: True,
                        Attribute.EXTRACTABLE: False,
                    },
                )
                public = _public(made)
                for padding in () if signs else paddings:
                    probe = os.urandom(32)
                    wrapped = public.encrypt(probe, STANDARD.padding(padding).rsa)
                    if _decrypt(private, wrapped, padding) != probe:
                        made.destroy()
                        private.destroy()
                        raise self._cannot_open(padding)
        except PKCS11Error as error:
            raise self._failed(error) from error
        return public_key_bytes(public)

    def _cannot_open(self, padding: str) -> Refusal:
        return Refusal(
            Rule.KEY_TOKEN,
            f"the token '{self._access.token}' cannot open session keys with {padding}: keep "
            "the ENCRYPTION key in a file, or agree on another padding with the peers",
        )

    def _failed(self, error: Exception) -> Refusal:
        return Refusal(
            Rule.KEY_TOKEN,
            f"the token '{self._access.token}' failed: {type(error).__name__}",
            str(error),
        )

    def sign(self, certificate: Certificate, data: bytes, algorithm: str) -> bytes:
        from pkcs11 import Mechanism

        if algorithm != SHA_512:
            raise Refusal(Rule.SEAL_ALGORITHM_UNKNOWN, f"the token cannot sign with {algorithm}")
        mechanism, to_sign = Mechanism.SHA512_RSA_PKCS, data
        if mechanism not in self._mechanisms:
            mechanism = Mechanism.RSA_PKCS
            to_sign = _DIGEST_INFO_SHA_512 + hashlib.sha512(data).digest()
        return self._with_key(
            certificate, lambda key: bytes(key.sign(to_sign, mechanism=mechanism))
        )

    def open(self, certificate: Certificate, wrapped: bytes, padding: str) -> bytes | None:
        return self._with_key(certificate, lambda key: _decrypt(key, wrapped, padding))

    def close(self) -> None:
        self.pool.shutdown(wait=True)
        with self._library:
            self._leave()
            _users[self._access.module] -= 1

    def _with_key(self, certificate: Certificate, operation: Callable[[Any], _T]) -> _T:
        """Once more with a new session when the token was restarted meanwhile."""
        from pkcs11 import PKCS11Error

        with self._library:
            try:
                try:
                    return operation(self._key(certificate))
                except _lost():
                    self._leave()
                    self._session = self._log_in()
                    return operation(self._key(certificate))
            except PKCS11Error as error:
                raise self._failed(error) from error

    def _key(self, certificate: Certificate) -> Any:
        if certificate.der not in self._keys:
            self._keys[certificate.der] = self._find(certificate)
        return self._keys[certificate.der]

    def _find(self, certificate: Certificate) -> Any:
        found = self._search(public_key(certificate.der))
        if found is None:
            raise Refusal(
                Rule.KEY_TOKEN,
                f"the token '{self._access.token}' holds no private key for the certificate "
                f"{certificate.certificate_id}",
            )
        return found

    def _search(self, public: rsa.RSAPublicKey) -> Any:
        from pkcs11 import Attribute, KeyType, ObjectClass

        modulus = public.public_numbers().n
        wanted = modulus.to_bytes((modulus.bit_length() + 7) // 8)
        template = {
            Attribute.CLASS: ObjectClass.PRIVATE_KEY,
            Attribute.KEY_TYPE: KeyType.RSA,
        }
        for key in self._session.get_objects(template):
            if bytes(key[Attribute.MODULUS]).lstrip(b"\0") == wanted:
                return key
        return None

    def _log_in(self) -> Any:
        from pkcs11.exceptions import UserAlreadyLoggedIn

        try:
            return self._token.open(user_pin=self._access.pin)
        except UserAlreadyLoggedIn:
            # The login belongs to the token: another keyring of this process has it already.
            return self._token.open()

    def _leave(self) -> None:
        from pkcs11 import PKCS11Error

        self._keys.clear()
        # What the token has forgotten need not be closed.
        with suppress(PKCS11Error):
            self._session.close()


def _decrypt(key: Any, wrapped: bytes, padding: str) -> bytes | None:
    from pkcs11 import MGF, Mechanism, PKCS11Error

    oaep = Mechanism.RSA_PKCS_OAEP
    forms: dict[str, tuple[Mechanism, object]] = {
        OAEP_SHA256: (oaep, (Mechanism.SHA256, MGF.SHA256, None)),
        OAEP_SHA256_MGF1_SHA1: (oaep, (Mechanism.SHA256, MGF.SHA1, None)),
        PKCS1_V1_5: (Mechanism.RSA_PKCS, None),
    }
    if padding not in forms:
        raise Refusal(Rule.SEAL_ALGORITHM_UNKNOWN, f"the token cannot open {padding}")
    mechanism, parameters = forms[padding]
    try:
        return bytes(key.decrypt(wrapped, mechanism=mechanism, mechanism_param=parameters))
    except PKCS11Error as error:
        if isinstance(error, _lost()):
            raise
        # Tokens call a bad padding by many names; all of them mean: not a session key.
        return None


def _public(key: Any) -> rsa.RSAPublicKey:
    from pkcs11 import Attribute

    modulus, exponent = (
        int.from_bytes(bytes(key[a])) for a in (Attribute.MODULUS, Attribute.PUBLIC_EXPONENT)
    )
    return rsa.RSAPublicNumbers(exponent, modulus).public_key()


def _lost() -> tuple[type[Exception], ...]:
    """The token forgot us: it was removed, restarted, or someone logged out."""
    from pkcs11 import exceptions

    return (
        exceptions.SessionHandleInvalid,
        exceptions.SessionClosed,
        exceptions.UserNotLoggedIn,
        exceptions.DeviceRemoved,
        exceptions.TokenNotPresent,
        exceptions.ObjectHandleInvalid,
        exceptions.KeyHandleInvalid,
    )
