"""What an operator has stopped for a while: a partner, a message-type, a channel, or all new documents.

A pause keeps documents where they are: what is accepted waits for its transfer, what was received
waits for its hand-over. Acknowledgements are never paused. Maintenance refuses new documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from gridpost.core.channels import Channel, Origin
from gridpost.core.delivery import Side
from gridpost.core.identifiers import clip, component_code, matches
from gridpost.core.refusal import Refusal, Rule


class HoldKind(StrEnum):
    PARTNER = "partner"
    TYPE = "type"
    CHANNEL = "channel"
    MAINTENANCE = "maintenance"


@dataclass(frozen=True, slots=True)
class Hold:
    kind: HoldKind
    value: str
    """A component code, a message-type or pattern, a channel; empty for maintenance."""
    by: str
    at: datetime
    reason: str = ""

    def __str__(self) -> str:
        what = "maintenance" if self.kind is HoldKind.MAINTENANCE else f"{self.kind} {self.value}"
        why = f": {self.reason}" if self.reason else ""
        return f"{what}, by {self.by} since {self.at:%Y-%m-%dT%H:%M:%SZ}{why}"


class Holds:
    """All that holds at one moment."""

    def __init__(self, holds: Iterable[Hold] = ()) -> None:
        self.all: tuple[Hold, ...] = tuple(holds)
        self._channels = {h.value: h for h in self.all if h.kind is HoldKind.CHANNEL}
        self._partners = {h.value: h for h in self.all if h.kind is HoldKind.PARTNER}
        self._types = [h for h in self.all if h.kind is HoldKind.TYPE]

    @property
    def maintenance(self) -> Hold | None:
        return next((h for h in self.all if h.kind is HoldKind.MAINTENANCE), None)

    @property
    def pauses(self) -> tuple[Hold, ...]:
        return tuple(h for h in self.all if h.kind is not HoldKind.MAINTENANCE)

    @property
    def by_channel(self) -> bool:
        return bool(self._channels)

    @property
    def by_partner(self) -> bool:
        return bool(self._partners)

    def partner(self, code: str) -> Hold | None:
        return self._partners.get(code)

    def type(self, message_type: str) -> Hold | None:
        return next((h for h in self._types if matches(h.value, message_type)), None)

    def channel(self, channel: Channel | None) -> Hold | None:
        return None if channel is None else self._channels.get(channel)

    def origin(self, application: str) -> Hold | None:
        """By the channel through which a sent message came in."""
        origin = Origin.parse(application)
        return None if origin is None else self.channel(origin.channel)

    def of_message(self, peer: str, message_type: str) -> Hold | None:
        return self.partner(peer) or self.type(message_type)


def read_hold_value(kind: HoldKind, value: str) -> str:
    """What an operator typed, as it is compared later."""
    match kind:
        case HoldKind.PARTNER:
            return component_code(value)
        case HoldKind.CHANNEL:
            if value not in set(Channel):
                raise Refusal(
                    Rule.USAGE,
                    f"'{clip(value)}' is no channel: {', '.join(sorted(Channel))}",
                )
        case HoldKind.TYPE:
            if not value or len(value) > 255 or "*" in value[:-1]:
                raise Refusal(
                    Rule.BAD_MESSAGE_TYPE_PATTERN,
                    f"'{clip(value)}' is neither a message-type nor a pattern that ends in '*'",
                )
        case HoldKind.MAINTENANCE:
            return ""
    return value


@dataclass(frozen=True, slots=True)
class Links:
    """How a message belongs to others: sent again as, and sent again instead of."""

    resent_as: tuple[str, ...] = ()
    resend_of: str = ""


class Controls(Protocol):
    """What operators decided, and what is archived beside messages; inside a transaction."""

    def holds(self) -> Sequence[Hold]: ...

    def hold(self, hold: Hold) -> bool:
        """False: it holds already, and who did it first stays."""
        ...

    def release(self, kind: HoldKind, value: str) -> bool: ...

    def link(self, old: str, new: str) -> None:
        """`new`, a sent message that was put in this transaction, repeats `old`."""
        ...

    def links(self, message_ids: Sequence[str]) -> Mapping[str, Links]:
        """Of those that have any."""
        ...

    def elsewhere(self, message_id: str) -> bool:
        """Does another process that shares the store make the transfer of this sent message?"""
        ...

    def held_back(self, limit: int) -> Sequence[str]:
        """Identifiers of received messages that wait for an operator, oldest first."""
        ...

    def keep_papers(self, side: Side, message_id: str, papers: Mapping[str, bytes]) -> None:
        """Archive what a proof set needs (503 cl. 4.5.4), by name, as long as the message's metadata.

        Equal papers of many messages are stored once. A name that is there already is kept.
        """
        ...

    def papers(self, side: Side, message_id: str) -> Mapping[str, bytes]: ...

    def tidy_papers(self, limit: int) -> int:
        """Remove papers that no message needs any more; how many went."""
        ...
