"""What an operator decides about a bus, and how its queues and topics are named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, timedelta, tzinfo

from gridpost.core.envelope import EVENT_VERBS, Verb
from gridpost.core.envelope_exchange import Guard
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.envelope import Reading
from gridpost.wire.xml import Schema

ANY = "*"


@dataclass(frozen=True, slots=True)
class Names:
    """61968-100 cl. 8.4.2: the context comes first, so that contexts never meet."""

    requests: str = "{context}.REQUESTS.{noun}.{verb}"
    events: str = "{context}.EVENTS.{noun}.{verb}"
    dead: str = "{context}.DEAD"

    def __post_init__(self) -> None:
        for template in (self.requests, self.events, self.dead):
            if not template.startswith("{context}"):
                raise Refusal(Rule.USAGE, f"'{template}': a name begins with {{context}}")
            try:
                template.format(context="", noun="", verb="")
            except (KeyError, IndexError, ValueError):
                raise Refusal(
                    Rule.USAGE, f"'{template}' may hold {{context}}, {{noun}} and {{verb}} only"
                ) from None

    def exchange(self, context: str) -> str:
        return context

    def destination(self, context: str, verb: Verb | str, noun: str) -> str:
        template = self.events if verb in EVENT_VERBS else self.requests
        return template.format(context=context, verb=str(verb), noun=noun)

    def pattern(self, context: str, verb: str, noun: str) -> str:
        """Events by verb and noun, `*` is any."""
        return self.events.format(context=context, verb=verb, noun=noun)

    def dead_letters(self, context: str) -> str:
        return self.dead.format(context=context)


@dataclass(frozen=True, slots=True)
class Sla:
    """61968-100 cl. 6.14: how long a request may take, and how often that has to hold."""

    within: timedelta = timedelta(seconds=30)
    percent: float = 95.0


@dataclass(frozen=True, slots=True)
class NounRules:
    """What a noun's payload has to be; without a schema it is not looked at (cl. 7)."""

    schema: Schema | None = None
    journal_content: bool = False
    streamed: bool = False
    """Handlers take it piece by piece, so nobody reads it as a whole before."""


@dataclass(frozen=True, slots=True)
class BusSettings:
    name: str
    """The Source of what the bus itself writes."""
    contexts: frozenset[str]
    guard: Guard
    names: Names = field(default_factory=Names)
    slas: Mapping[tuple[str, str], Sla] = field(default_factory=dict)
    """By verb and noun; `*` is any."""
    nouns: Mapping[str, NounRules] = field(default_factory=dict)
    reading: Reading = field(default_factory=Reading)
    zone: tzinfo = UTC
    prefetch: int = 64
    queue_type: str = "quorum"
    delivery_limit: int = 5
    remember: timedelta = timedelta(days=2)
    heartbeat: timedelta = timedelta(seconds=5)
    max_bytes: int = 16 * 1024 * 1024
    max_unpacked: int = 256 * 1024 * 1024
    """Of a payload that is streamed."""
    retries: tuple[float, ...] = (1.0, 5.0, 30.0, 120.0, 600.0)
    """Seconds between the attempts to reach a web service."""

    def sla(self, verb: str, noun: str) -> Sla:
        for key in ((verb, noun), (ANY, noun), (verb, ANY), (ANY, ANY)):
            if key in self.slas:
                return self.slas[key]
        return Sla()
