"""What services need of the world outside: the protocols that stores, keys and transports fulfil.

Services know these and never a concrete class; `assembly` joins the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from gridpost.core.certificate import Certificate


class Clock(Protocol):
    """The only source of the current time."""

    def now(self) -> datetime:
        """An aware datetime in UTC."""
        ...


class Signer(Protocol):
    """A private key behind one of our own SIGNING certificates."""

    @property
    def certificate(self) -> Certificate: ...

    async def sign(self, data: bytes, algorithm: str = "SHA-512") -> bytes:
        """A signature over `data`. `algorithm` is a name of the seal's registry.

        "SHA-512" (503 cl. 6.5.4) is RSASSA-PKCS1-v1_5 with SHA-512.
        """
        ...


class SessionKeyOpener(Protocol):
    """A private key behind one of our own ENCRYPTION certificates."""

    @property
    def certificate(self) -> Certificate: ...

    async def open(self, wrapped: bytes, padding: str) -> bytes | None:
        """The session key, or None when it does not decrypt.

        `padding` is a name of the seal's registry. A caller that gets None goes on with a random
        key, so that a peer cannot tell a bad session key from a bad content.
        """
        ...


class Keyring(Protocol):
    """All private keys of one component; several of a kind are valid during a renewal (503 cl. 8.5)."""

    def signers(self) -> Sequence[Signer]: ...

    def openers(self) -> Sequence[SessionKeyOpener]: ...
