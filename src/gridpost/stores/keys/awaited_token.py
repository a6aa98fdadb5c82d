"""A signing device that may be away: it is opened when it is needed, and looked for again each time.

Decides when not to look: a PIN that the device refused is not shown to it again, because devices lock
themselves after a few wrong ones.
"""

from __future__ import annotations

import asyncio
from threading import Lock

from gridpost.core.certificate import Certificate
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.keys.pkcs11 import TokenAccess, TokenKeyring
from gridpost.wire.seal.registry import SHA_512


class AwaitedToken:
    """The keys of certificates that are known, in a PKCS#11 token that need not be there."""

    def __init__(self, access: TokenAccess) -> None:
        self._access = access
        self._open: TokenKeyring | None = None
        self._turn = Lock()
        self._locked_out: Refusal | None = None

    def sign(self, certificate: Certificate, data: bytes) -> bytes:
        """Refuses with KEY_TOKEN while the device is away. Blocks."""
        with self._turn:
            if self._locked_out is not None:
                raise self._locked_out
            try:
                if self._open is None:
                    self._open = TokenKeyring(self._access, ())
                return self._open.sign_function(certificate)(data)
            except Refusal as refusal:
                self._leave()
                if _is_about_the_pin(refusal):
                    self._locked_out = Refusal(
                        Rule.KEY_TOKEN,
                        f"the token '{self._access.token}' does not accept the PIN",
                        "set the right PIN and restart the endpoint: a wrong one is not tried again",
                    )
                    raise self._locked_out from refusal
                raise

    def close(self) -> None:
        with self._turn:
            self._leave()

    def _leave(self) -> None:
        ring, self._open = self._open, None
        if ring is not None:
            ring.close()


class AwaitedSigner:
    """`core.ports.Signer` over a device that may be away."""

    def __init__(self, token: AwaitedToken, certificate: Certificate) -> None:
        self._token = token
        self._certificate = certificate

    @property
    def certificate(self) -> Certificate:
        return self._certificate

    async def sign(self, data: bytes, algorithm: str = SHA_512) -> bytes:
        if algorithm != SHA_512:
            raise Refusal(Rule.SEAL_ALGORITHM_UNKNOWN, f"the token cannot sign with {algorithm}")
        return await asyncio.to_thread(self._token.sign, self._certificate, data)


def _is_about_the_pin(refusal: Refusal) -> bool:
    try:
        from pkcs11 import exceptions
    except ImportError:
        return False
    about = (exceptions.PinIncorrect, exceptions.PinInvalid, exceptions.PinLenRange)
    return isinstance(refusal.__cause__, (*about, exceptions.PinLocked, exceptions.PinExpired))
