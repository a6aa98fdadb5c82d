"""Which business applications may use an endpoint, how they show who they are, and for what types.

Shared by the channels that know their user by a name: each has its own door, all ask here.
"""

from __future__ import annotations

import binascii
import hashlib
from base64 import b64decode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gridpost.core.identifiers import MessageTypePattern, clip, matches
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.operations.passwords import PasswordHash


@dataclass(frozen=True, slots=True)
class User:
    """One application."""

    name: str
    password: str = ""
    """scrypt hash; empty: no basic authentication."""
    certificate: str = ""
    """SHA-256 of its client certificate, in hexadecimal; empty: none."""
    send: tuple[MessageTypePattern, ...] = ()
    receive: tuple[MessageTypePattern, ...] = ()

    def may_send(self, message_type: str) -> bool:
        return any(matches(pattern, message_type) for pattern in self.send)

    def may_receive(self, message_type: str) -> bool:
        return any(matches(pattern, message_type) for pattern in self.receive)


class Users:
    def __init__(self, users: Iterable[User]) -> None:
        self._by_name = {user.name: user for user in users}
        self._by_certificate = {
            user.certificate.lower().replace(":", ""): user
            for user in self._by_name.values()
            if user.certificate
        }
        self._hashes = {
            user.name: PasswordHash(user.password)
            for user in self._by_name.values()
            if user.password
        }

    async def who(self, authorization: str, chain: Sequence[bytes]) -> User:
        """By the certificate that TLS verified, else by HTTP basic authentication; or a refusal."""
        if chain:
            user = self._by_certificate.get(hashlib.sha256(chain[0]).hexdigest())
            if user is not None:
                return user
        name, password = _basic(authorization)
        known = self._hashes.get(name)
        if known is None or not await known.fits(password):
            raise Refusal(Rule.ACCESS_DENIED, "this user and password are not known here")
        return self._by_name[name]


def check_send(user: User, message_type: str) -> None:
    if not user.may_send(message_type):
        raise Refusal(
            Rule.ACCESS_DENIED, f"{user.name} may not send message-type '{clip(message_type)}'"
        )


def check_receive(user: User, message_type: str) -> None:
    if not user.may_receive(message_type):
        raise Refusal(
            Rule.ACCESS_DENIED, f"{user.name} may not receive message-type '{clip(message_type)}'"
        )


def _basic(authorization: str) -> tuple[str, str]:
    scheme, _, credentials = authorization.partition(" ")
    if scheme.lower() == "basic":
        try:
            name, colon, password = b64decode(credentials, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            name = colon = password = ""
        if colon:
            return name, password
    raise Refusal(
        Rule.ACCESS_DENIED, "an application shows a client certificate or a user and password"
    )
