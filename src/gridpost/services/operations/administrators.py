"""Who may administer: named tokens, of which the configuration holds only a scrypt hash."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping

from gridpost.core.refusal import Refusal, Rule

# About 50 ms and 16 MiB for one guess.
_N, _R, _P = 2**14, 8, 1
_MAX_MEMORY = 64 * 1024 * 1024
MAX_TOKEN = 1024


def new_token() -> str:
    return secrets.token_urlsafe(32)


def hash_token(token: str) -> str:
    salt = secrets.token_bytes(16)
    return f"scrypt${_N}${_R}${_P}${_text(salt)}${_text(_digest(token, salt, _N, _R, _P))}"


def check_hash(text: str) -> None:
    """Refuses what is no hash of ours, when the configuration is read."""
    _parse(text)


class Administrators:
    """Name -> hash. The name is what the journal says about who did something."""

    def __init__(self, hashes: Mapping[str, str]) -> None:
        self._one_at_a_time = asyncio.Semaphore(1)
        self.replace(hashes)

    def replace(self, hashes: Mapping[str, str]) -> None:
        self._hashes = {name: _parse(text) for name, text in hashes.items()}
        # A token that was right stays right until the configuration changes; guessing stays slow.
        self._known: dict[bytes, str] = {}

    async def who(self, authorization: str) -> str:
        """The name behind an Authorization header; or a refusal."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not 0 < len(token) <= MAX_TOKEN:
            raise Refusal(Rule.ACCESS_DENIED, "an administrator shows a bearer token")
        mark = hashlib.sha256(token.encode()).digest()
        known = self._known.get(mark)
        if known is not None:
            return known
        async with self._one_at_a_time:
            name = await asyncio.to_thread(self._match, token)
        if name is None:
            raise Refusal(Rule.ACCESS_DENIED, "this token is not an administrator's")
        self._known[mark] = name
        return name

    def _match(self, token: str) -> str | None:
        found = None
        for name, (n, r, p, salt, expected) in self._hashes.items():
            if hmac.compare_digest(_digest(token, salt, n, r, p), expected):
                found = name
        return found


def _parse(text: str) -> tuple[int, int, int, bytes, bytes]:
    try:
        scheme, n, r, p, salt, digest = text.split("$")
        if scheme != "scrypt":
            raise ValueError(scheme)
        return int(n), int(r), int(p), b64decode(salt), b64decode(digest)
    except (ValueError, Base64Error):
        raise Refusal(
            Rule.USAGE, "an administrator's token is configured as scrypt$n$r$p$salt$hash"
        ) from None


def _digest(token: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(token.encode(), salt=salt, n=n, r=r, p=p, maxmem=_MAX_MEMORY, dklen=32)


def _text(octets: bytes) -> str:
    return b64encode(octets).decode("ascii")
