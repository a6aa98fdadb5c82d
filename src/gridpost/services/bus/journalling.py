"""What is written down of every envelope: when it came or went, what it was, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import structlog

from gridpost.core.bus import BusLedger, BusUnit
from gridpost.core.envelope import EventMessage, FaultMessage, RequestMessage, ResponseMessage
from gridpost.core.journal import EnvelopeRow, JournalRow, refusal_row
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.bus.handlers import Answer
from gridpost.services.bus.settings import BusSettings

log = structlog.get_logger(__name__)

Known = RequestMessage | ResponseMessage | EventMessage | FaultMessage
UNREADABLE = "unreadable"
"""The kind of an envelope of which not even the header counts."""
REPEATED = "REPEATED"
"""The code of a request or an event that came before."""
_MILLISECOND = timedelta(milliseconds=1)


class EnvelopeJournal:
    def __init__(self, settings: BusSettings, ledger: BusLedger, clock: Clock) -> None:
        self._settings = settings
        self._ledger = ledger
        self._clock = clock

    async def note(self, *rows: JournalRow) -> None:
        """Of what has no transaction of its own."""

        def work(unit: BusUnit) -> None:
            for row in rows:
                unit.record(row)

        await self._ledger.run(work)

    async def refused(
        self, refusal: Refusal, destination: str, message_id: str, *rows: EnvelopeRow
    ) -> None:
        log.warning(
            "refused an envelope",
            refusal=refusal.id,
            rule=refusal.rule.name,
            reason=refusal.message,
            destination=destination,
        )
        row = refusal_row(
            refusal,
            self._clock.now(),
            peer=destination,
            message_id=message_id,
            security=refusal.rule
            in (Rule.ENVELOPE_REPLAY, Rule.ENVELOPE_STALE, Rule.ENVELOPE_CONTEXT),
        )
        await self.note(*rows, row)

    def came(
        self,
        message: Known | None,
        body: bytes,
        context: str,
        destination: str,
        *,
        answers: Sequence[Answer] = (),
        said: Known | None = None,
        refusal: Refusal | None = None,
        elapsed: timedelta | None = None,
        limit: timedelta | None = None,
    ) -> EnvelopeRow:
        """`message` None: it could not be read; `answers` or `said`: what was replied to it."""
        result, codes = _said(said or message)
        if answers:
            result = answers[-1].reply.result.value
            codes = {code for answer in answers for code in answer.reply.codes}
        if refusal is not None:
            result, codes = "FAILED", {refusal.rule.name}
        return self._row(
            "in", message, body, context, destination, result, codes, elapsed=elapsed, limit=limit
        )

    def again(
        self,
        message: Known,
        body: bytes,
        context: str,
        destination: str,
        elapsed: timedelta | None = None,
    ) -> EnvelopeRow:
        """It came before, with the same bytes: what was said then is said again."""
        header = None if isinstance(message, FaultMessage) else message.header
        limit = None
        if isinstance(message, RequestMessage) and header is not None:
            limit = self._settings.sla(header.verb, header.noun).within
        return self._row(
            "in", message, body, context, destination, "", {REPEATED}, elapsed=elapsed, limit=limit
        )

    def goes(
        self,
        message: Known | None,
        body: bytes,
        context: str,
        destination: str,
        *,
        refusal: Refusal | None = None,
    ) -> EnvelopeRow:
        """`refusal`: whoever it was for did not take it."""
        result, codes = _said(message)
        if refusal is not None:
            result, codes = "FAILED", {refusal.rule.name}
        return self._row("out", message, body, context, destination, result, codes)

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


def _said(message: Known | None) -> tuple[str, set[str]]:
    if isinstance(message, ResponseMessage | FaultMessage):
        return message.reply.result.value, set(message.reply.codes)
    return "", set()


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
