"""How secrets of people and applications are kept in configuration: as scrypt hashes, never as themselves."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from binascii import Error as Base64Error

from gridpost.core.refusal import Refusal, Rule

# About 50 ms and 16 MiB for one guess.
_N, _R, _P = 2**14, 8, 1
_MAX_MEMORY = 64 * 1024 * 1024
MAX_SECRET = 1024


def hash_password(password: str) -> str:
    salt = secrets.token_bytes(16)
    return f"scrypt${_N}${_R}${_P}${_text(salt)}${_text(_digest(password, salt, _N, _R, _P))}"


class PasswordHash:
    """One configured hash. A password that was right is remembered; guessing stays slow."""

    def __init__(self, text: str) -> None:
        self._n, self._r, self._p, self._salt, self._expected = _parse(text)
        self._key = secrets.token_bytes(32)
        self._right = b""
        # Guesses take turns: many at once would take the memory of the machine.
        self._turn = asyncio.Semaphore(1)

    async def fits(self, password: str) -> bool:
        if len(password) > MAX_SECRET:
            return False
        mark = hmac.digest(self._key, password.encode(), "sha256")
        if self._right and hmac.compare_digest(mark, self._right):
            return True
        async with self._turn:
            found = await asyncio.to_thread(
                _digest, password, self._salt, self._n, self._r, self._p
            )
        if not hmac.compare_digest(found, self._expected):
            return False
        self._right = mark
        return True


def check_hash(text: str) -> None:
    """Refuses what is no hash of ours, when the configuration is read."""
    _parse(text)


def _parse(text: str) -> tuple[int, int, int, bytes, bytes]:
    try:
        scheme, n, r, p, salt, digest = text.split("$")
        if scheme != "scrypt":
            raise ValueError(scheme)
        return int(n), int(r), int(p), b64decode(salt), b64decode(digest)
    except (ValueError, Base64Error):
        raise Refusal(Rule.USAGE, "a password is configured as scrypt$n$r$p$salt$hash") from None


def _digest(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=n, r=r, p=p, maxmem=_MAX_MEMORY, dklen=32)


def _text(octets: bytes) -> str:
    return b64encode(octets).decode("ascii")
