"""Which business applications may use an endpoint: how they show who they are, by which doors they
come, which message-types they send and which they are given.

Every channel asks here, and nowhere else is a right decided.
"""

from __future__ import annotations

import binascii
import hashlib
from base64 import b64decode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gridpost.core.channels import Bindings, Channel
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
    channels: frozenset[Channel] = frozenset(Channel)
    """Doors that are open to it."""
    operator: bool = False
    """May it send again, cancel, pause, release and maintain?"""

    def may_send(self, message_type: str) -> bool:
        return any(matches(pattern, message_type) for pattern in self.send)

    def may_receive(self, message_type: str) -> bool:
        """By its own rights; who is given a document, the binding of the type says as well."""
        return any(matches(pattern, message_type) for pattern in self.receive)


class Users:
    def __init__(self, users: Iterable[User], bindings: Bindings | None = None) -> None:
        self.change(users, bindings or Bindings())

    def change(self, users: Iterable[User], bindings: Bindings) -> None:
        """503 cl. 10: a changed configuration counts from the next request on."""
        self.bindings = bindings
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

    # ------------------------------------------------------------ who is it

    def named(self, name: str) -> User | None:
        """For a channel that knows its user without a secret, as a folder does."""
        return self._by_name.get(name)

    def certified(self, fingerprint: str) -> User | None:
        """By the SHA-256 of the certificate that TLS verified, in hexadecimal."""
        return self._by_certificate.get(fingerprint)

    def still(self, user: User, channel: Channel) -> User | None:
        """Who came in before the last change, as it is now; None: it would not be let in so today."""
        now = self._by_name.get(user.name)
        if now is None or channel not in now.channels:
            return None
        same = (now.password, now.certificate) == (user.password, user.certificate)
        return now if same else None

    def names(self) -> list[str]:
        return list(self._by_name)

    async def who(self, authorization: str, chain: Sequence[bytes]) -> User:
        """By the certificate that TLS verified, else by HTTP basic authentication; or a refusal."""
        if chain:
            user = self.certified(hashlib.sha256(chain[0]).hexdigest())
            if user is not None:
                return user
        return await self.log_in(*_basic(authorization))

    async def log_in(self, name: str, password: str) -> User:
        known = self._hashes.get(name)
        if known is None or not await known.fits(password):
            raise Refusal(Rule.ACCESS_DENIED, "this user and password are not known here")
        return self._by_name[name]

    # ------------------------------------------------------------ what may it do

    def may_receive(self, user: User, channel: Channel, message_type: str) -> bool:
        """Is a document of this type handed to this user, through this channel?"""
        binding = self.bindings.of(message_type)
        return binding.channel is channel.receiving and self.may_see(user, message_type)

    def may_see(self, user: User, message_type: str) -> bool:
        """May it ask what became of received documents, whichever channel they go to?"""
        return user.may_receive(message_type) and self.bindings.of(message_type).admits(user.name)

    def check_receive(self, user: User, channel: Channel, message_type: str) -> None:
        self.check_see(user, message_type)
        binding = self.bindings.of(message_type)
        if binding.channel is not channel.receiving:
            raise Refusal(
                Rule.ACCESS_DENIED,
                f"message-type '{clip(message_type)}' is handed over through the channel "
                f"{binding.channel}",
            )

    def check_see(self, user: User, message_type: str) -> None:
        if not self.may_see(user, message_type):
            raise Refusal(
                Rule.ACCESS_DENIED,
                f"{user.name} may not receive message-type '{clip(message_type)}'",
            )


def check_channel(user: User, channel: Channel) -> None:
    if channel not in user.channels:
        raise Refusal(Rule.ACCESS_DENIED, f"{user.name} may not use the channel {channel}")


def check_send(user: User, message_type: str) -> None:
    if not user.may_send(message_type):
        raise Refusal(
            Rule.ACCESS_DENIED, f"{user.name} may not send message-type '{clip(message_type)}'"
        )


def check_operator(user: User) -> None:
    if not user.operator:
        raise Refusal(
            Rule.ACCESS_DENIED,
            f"{user.name} is no operator of this endpoint",
            f"set operator = true under users.{user.name}",
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
