"""Which channel and which users receive a message-type, and by what name an application is kept apart.

A message-type has one receiving channel: two channels that hand over the same documents would
each see half of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from gridpost.core.identifiers import ANY, MessageTypePattern, matches
from gridpost.core.refusal import Refusal, Rule


class Receiving(StrEnum):
    """How received documents reach their application."""

    PULL = "pull"
    """The application asks: SOAP and JSON together."""
    FOLDER = "folder"
    AMQP = "amqp"


class Channel(StrEnum):
    """A door through which applications come."""

    JSON = "json"
    SOAP = "soap"
    FOLDER = "folder"
    AMQP = "amqp"

    @property
    def receiving(self) -> Receiving:
        return _RECEIVING.get(self, Receiving.PULL)


_RECEIVING = {Channel.FOLDER: Receiving.FOLDER, Channel.AMQP: Receiving.AMQP}


@dataclass(frozen=True, slots=True)
class Origin:
    """Who handed a message in. Ids that make sending idempotent count per origin."""

    channel: Channel
    user: str

    def __str__(self) -> str:
        return f"{self.channel}/{self.user}"

    @classmethod
    def parse(cls, text: str) -> Origin | None:
        """None for the text of a message that no channel took in."""
        channel, slash, user = text.partition("/")
        return cls(Channel(channel), user) if slash and channel in set(Channel) else None


@dataclass(frozen=True, slots=True)
class Binding:
    pattern: MessageTypePattern
    channel: Receiving = Receiving.PULL
    users: tuple[str, ...] = ()
    """Nobody else receives; empty: every user that may receive the type by its own rights."""

    def admits(self, user: str) -> bool:
        return not self.users or user in self.users


DEFAULT = Binding(MessageTypePattern(ANY))
"""What no configured binding matches is pulled."""


class Bindings:
    def __init__(self, bindings: Iterable[Binding] = ()) -> None:
        self._bindings: dict[str, Binding] = {}
        for binding in bindings:
            if binding.pattern in self._bindings:
                raise Refusal(
                    Rule.INCONSISTENT_CONFIGURATION,
                    f"message-type {binding.pattern} is bound twice",
                    "leave one of the bindings: a message-type has one receiving channel",
                )
            self._bindings[binding.pattern] = binding
        self._bindings.setdefault(ANY, DEFAULT)

    def of(self, message_type: str) -> Binding:
        """The identical message-type, else the longest pattern."""
        exact = self._bindings.get(message_type)
        if exact is not None:
            return exact
        fitting = (b for b in self._bindings.values() if matches(b.pattern, message_type))
        return max(fitting, key=lambda binding: len(binding.pattern))

    def within(self, pattern: str) -> list[tuple[str, Binding]]:
        """The parts into which bindings cut the types of a pattern, each with what holds for it."""
        inner: list[tuple[str, Binding]] = [
            (b.pattern, b) for b in self._bindings.values() if covers(pattern, b.pattern)
        ]
        if any(part == pattern for part, _ in inner):
            return inner
        outer = [b for b in self._bindings.values() if covers(b.pattern, pattern)]
        return [(pattern, max(outer, key=lambda binding: len(binding.pattern))), *inner]


def covers(wide: str, narrow: str) -> bool:
    """Does every message-type of the narrow pattern match the wide one?"""
    if narrow.endswith(ANY):
        return wide.endswith(ANY) and narrow.startswith(wide[:-1])
    return matches(wide, narrow)


def meet(one: str, other: str) -> bool:
    """Is there a message-type that matches both? Wildcards stand at the end only."""
    return covers(one, other) or covers(other, one)
