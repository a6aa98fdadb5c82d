"""Which documents are checked by whom, how many at once, and what a check that is down means."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from gridpost.core.checks import (
    CheckedDocument,
    DocumentCheck,
    Finding,
    Stage,
    WhenDown,
)
from gridpost.core.identifiers import MessageTypePattern, matches
from gridpost.core.refusal import Refusal, Rule

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class CheckRule:
    """One check, and the documents that it is for."""

    name: str
    check: DocumentCheck
    stages: frozenset[Stage] = frozenset(Stage)
    message_types: tuple[MessageTypePattern, ...] = (MessageTypePattern("*"),)
    timeout: float = 30.0
    """Seconds; the wait for a place is not counted."""
    at_once: int = 4
    when_down: WhenDown = WhenDown.REFUSE
    passed: int = 0
    refused: int = 0
    failed: int = 0
    under_way: int = 0
    room: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self.room = asyncio.Semaphore(self.at_once)

    def concerns(self, stage: Stage, message_type: str) -> bool:
        return stage in self.stages and any(matches(p, message_type) for p in self.message_types)


class Checking:
    def __init__(self, rules: Sequence[CheckRule] = ()) -> None:
        self._rules = tuple(rules)

    def change(self, rules: Sequence[CheckRule]) -> None:
        self._rules = tuple(rules)

    async def outgoing(self, document: CheckedDocument) -> str:
        """Refuses what must not be sent. What it returns is for the trace: checks that were down."""
        refused, notes = await self._judge(Stage.ACCEPTANCE, document)
        if refused:
            raise Refusal(Rule.DOCUMENT_REFUSED, refused)
        return notes

    async def incoming(self, document: CheckedDocument) -> tuple[str, str]:
        """Why it is held back, empty when it is not; and what the trace has to say besides.

        Refuses with CHECK_FAILED where the document has to wait until the check is back.
        """
        return await self._judge(Stage.HAND_OVER, document)

    async def _judge(self, stage: Stage, document: CheckedDocument) -> tuple[str, str]:
        """The first check that refuses it, empty when none does; and which checks were down."""
        notes = []
        for rule in self._rules:
            if not rule.concerns(stage, document.message_type):
                continue
            try:
                finding = await _ask(rule, document)
            except Refusal as failed:
                if rule.when_down is WhenDown.PASS:
                    notes.append(_unchecked(rule, failed))
                    continue
                if rule.when_down is WhenDown.WAIT:
                    raise
                finding = Finding(False, f"it could not be checked: {failed.message}")
            if not finding.passed:
                return f"the check '{rule.name}' refuses the document: {finding.reason}", ""
        return "", "; ".join(notes)

    def view(self) -> list[dict[str, Any]]:
        """For the health of this endpoint."""
        return [
            {
                "name": rule.name,
                "passed": rule.passed,
                "refused": rule.refused,
                "failed": rule.failed,
                "under_way": rule.under_way,
            }
            for rule in self._rules
        ]


async def _ask(rule: CheckRule, document: CheckedDocument) -> Finding:
    async with rule.room:
        rule.under_way += 1
        try:
            async with asyncio.timeout(rule.timeout):
                finding = await rule.check.check(document)
        except TimeoutError:
            rule.failed += 1
            refusal = Refusal(
                Rule.CHECK_FAILED, f"the check '{rule.name}' gave no answer in {rule.timeout:g} s"
            )
            log.error("check failed", check=rule.name, reason=refusal.message, id=refusal.id)
            raise refusal from None
        except Refusal as refusal:
            rule.failed += 1
            log.error("check failed", check=rule.name, reason=refusal.message, id=refusal.id)
            raise
        finally:
            rule.under_way -= 1
    if finding.passed:
        rule.passed += 1
    else:
        rule.refused += 1
    return finding


def _unchecked(rule: CheckRule, failed: Refusal) -> str:
    return f"not checked by '{rule.name}': {failed.message}"
