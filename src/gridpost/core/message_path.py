"""How messages reach a recipient: message-paths, the search among them, and broker restriction.

This file alone decides the route of a message (503 cl. 5.3) and what a broker lets through (5.4);
`acceptance.py` builds the acceptance of 5.5 on both. Every refusal names its rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from gridpost.core.identifiers import (
    ANY,
    ComponentCode,
    MessageTypePattern,
    clip,
    component_code,
    matches,
)
from gridpost.core.instant import Instant
from gridpost.core.refusal import Refusal, Rule


@dataclass(frozen=True, slots=True)
class Route:
    """DIRECT when there is no broker, otherwise through exactly one (503 cl. 4.4.2).

    `old`: not by 503 at all, but through the nodes of a MADES 1.1 network. No directory says that.
    """

    broker: ComponentCode | None = None
    old: bool = False

    @classmethod
    def parse(cls, text: str) -> Route:
        """503 Table 21; `DIRECT:` is read as well (see divergences, path forms)."""
        word, colon, code = text.partition(":")
        if word == "DIRECT" and not code:
            return DIRECT
        if word == "INDIRECT" and colon and code:
            return cls(component_code(code))
        raise Refusal(
            Rule.BAD_PATH, f"'{clip(text)}' is not a path: write DIRECT or INDIRECT:<broker code>"
        )

    @classmethod
    def stored(cls, text: str) -> Route:
        """As `str` wrote it; unlike `parse` it may be the old network."""
        return OLD_NETWORK if text == _OLD else cls.parse(text)

    def __str__(self) -> str:
        if self.old:
            return _OLD
        return "DIRECT" if self.broker is None else f"INDIRECT:{self.broker}"


_OLD = "MADES-1.1"
DIRECT = Route()
OLD_NETWORK = Route(old=True)


@dataclass(frozen=True, slots=True)
class MessagePath:
    """503 cl. 5.3 and Table 21."""

    message_type: MessageTypePattern
    route: Route
    valid_from: Instant
    valid_until: Instant | None = None
    senders: frozenset[ComponentCode] | None = None
    """None: any endpoint. An empty set: nobody (see divergences, senders of a path)."""

    def usable_at(self, at: datetime) -> bool:
        """From is inclusive, To is exclusive."""
        return self.valid_from.at <= at and (self.valid_until is None or at < self.valid_until.at)

    def allows(self, sender: ComponentCode) -> bool:
        return self.senders is None or sender in self.senders

    def overlaps(self, other: MessagePath) -> bool:
        """Do the usage periods share an instant?"""
        return (self.valid_until is None or other.valid_from < self.valid_until) and (
            other.valid_until is None or self.valid_from < other.valid_until
        )


@dataclass(frozen=True, slots=True)
class Restriction:
    """503 cl. 5.4 and Table 22: an empty list allows all."""

    components: frozenset[ComponentCode] = frozenset()
    message_types: tuple[MessageTypePattern, ...] = ()

    def allows_component(self, code: str) -> bool:
        return not self.components or code in self.components

    def allows_message_type(self, message_type: str) -> bool:
        return not self.message_types or any(matches(p, message_type) for p in self.message_types)


def senders_of(codes: Iterable[str]) -> frozenset[ComponentCode] | None:
    """The senders of a path from their list; `*` anywhere in it means any endpoint."""
    listed = frozenset(codes)
    return None if ANY in listed else frozenset(component_code(code) for code in listed)


def find_path(
    paths: Iterable[MessagePath],
    *,
    message_type: str,
    sender: ComponentCode,
    sender_takes_connections: bool,
    recipient: ComponentCode,
    at: datetime,
) -> MessagePath:
    """503 cl. 5.3: the one message-path that `sender` uses towards `recipient` at this time.

    `paths` are the recipient's. The senders of a path take no part in the selection: a sender
    that the selected path excludes has no path, even if a wider pattern would admit it.
    """
    # Step 1: usable now, and matching.
    kept = [p for p in paths if p.usable_at(at) and matches(p.message_type, message_type)]

    # Step 2: the identical message-type displaces every pattern.
    exact = [p for p in kept if p.message_type == message_type]
    if exact:
        kept = exact
    elif kept:
        # Step 3: the longest pattern.
        longest = max(len(p.message_type) for p in kept)
        kept = [p for p in kept if len(p.message_type) == longest]

    # Step 4.
    if not kept:
        raise Refusal(
            Rule.NO_PATH_MATCHES,
            f"{recipient} has no message-path for message-type {message_type} at this time",
            f"ask the administrator of {recipient} to publish one",
        )
    if len(kept) > 1:
        raise Refusal(
            Rule.PATHS_OVERLAP,
            f"{recipient} has {len(kept)} message-paths for message-type {message_type} "
            "that are usable at the same time",
            f"{kept[0].message_type}: " + ", ".join(str(p.route) for p in kept),
        )
    path = kept[0]
    # The print checks the recipient here; it means the sender (see divergences, step 4).
    if not path.allows(sender):
        raise Refusal(
            Rule.SENDER_NOT_ALLOWED_ON_PATH,
            f"{recipient} does not let {sender} send message-type {message_type}",
            f"the message-path {path.message_type} names other senders",
        )
    if path.route == DIRECT and not sender_takes_connections:
        raise Refusal(
            Rule.SENDER_TAKES_NO_CONNECTIONS,
            f"{recipient} takes message-type {message_type} by direct transfer, and {sender} "
            "accepts no incoming connection, so that no acknowledgement could come back",
        )
    return path
