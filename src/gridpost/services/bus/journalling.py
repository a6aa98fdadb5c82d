"""What is written down of every envelope: when it came or went, what it was, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from gridpost.core.bus import Outgoing
from gridpost.core.envelope import EventMessage, FaultMessage, RequestMessage, ResponseMessage
from gridpost.core.journal import EnvelopeRow
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal
from gridpost.services.bus.handlers import Answer
from gridpost.services.bus.settings import BusSettings

Known = RequestMessage | ResponseMessage | EventMessage | FaultMessage
UNREADABLE = "unreadable"
"""The kind of an envelope of which not even the header counts."""
_MILLISECOND = timedelta(milliseconds=1)


class EnvelopeJournal:
    def __init__(self, settings: BusSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock

    def came(
        self,
        message: Known | None,
        body: bytes,
        context: str,
        destination: str,
        *,
        answers: Sequence[Answer] = (),
        refusal: Refusal | None = None,
        elapsed: timedelta | None = None,
        limit: timedelta | None = None,
    ) -> EnvelopeRow:
        """`message` None: it could not be read."""
        result = answers[-1].reply.result.value if answers else ""
        codes = {code for answer in answers for code in answer.reply.codes}
        if refusal is not None:
            result, codes = "FAILED", {refusal.rule.name}
        return self._row(
            "in", message, body, context, destination, result, codes, elapsed=elapsed, limit=limit
        )

    def goes(self, message: Known, outgoing: Outgoing, context: str) -> EnvelopeRow:
        result, codes = "", set[str]()
        if isinstance(message, ResponseMessage | FaultMessage):
            result, codes = message.reply.result.value, set(message.reply.codes)
        return self._row("out", message, outgoing.body, context, outgoing.address, result, codes)

    def _row(
        self,
        direction: str,
        message: Known | None,
        body: bytes,
        context: str,
        destination: str,
        result: str,
        codes: set[str],
        *,
        elapsed: timedelta | None = None,
        limit: timedelta | None = None,
    ) -> EnvelopeRow:
        header = None if message is None or isinstance(message, FaultMessage) else message.header
        rules = None if header is None else self._settings.nouns.get(header.noun)
        return EnvelopeRow(
            self._clock.now(),
            direction,
            _kind(message),
            "" if header is None else header.verb.value,
            "" if header is None else header.noun,
            context,
            (header.source if header is not None else None) or "",
            (header.message_id if header is not None else None) or "",
            (header.correlation_id if header is not None else None) or "",
            len(body),
            destination,
            result,
            " ".join(sorted(codes)),
            -1 if elapsed is None else elapsed // _MILLISECOND,
            -1 if limit is None else limit // _MILLISECOND,
            body if rules is not None and rules.journal_content else None,
        )


def _kind(message: Known | None) -> str:
    match message:
        case RequestMessage():
            return "request"
        case ResponseMessage():
            return "response"
        case EventMessage():
            return "event"
        case FaultMessage():
            return "fault"
        case None:
            return UNREADABLE
