"""OUT_LOG: the events of each file that was accepted, one line each (503 Tables 42 and 48)."""

from __future__ import annotations

from gridpost.core.delivery import STATUS, Side, State
from gridpost.core.delivery_report import StatusEvent, report, said
from gridpost.core.instant import Instant
from gridpost.core.notices import Notice
from gridpost.core.ports import UnitOfWork
from gridpost.core.refusal import Refusal
from gridpost.core.shared_folders import LogFolder
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.folders import LOGGED, Alarm, FolderHealth, FolderSettings
from gridpost.wire.fssf.log_line import LogLine, encode

_AT_ONCE = 500


class FolderLog:
    def __init__(
        self,
        context: EndpointContext,
        logs: LogFolder,
        health: FolderHealth,
        settings: FolderSettings,
    ) -> None:
        self._context = context
        self._logs = logs
        self._health = health
        self._settings = settings
        self._alarm = Alarm()
        self.wake = self._alarm.ring
        context.signals.on_traced(lambda entry: self._alarm.ring())

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            pause = await self.round()
            await self._alarm.wait(self._settings.retry_seconds if pause else None)

    async def round(self) -> bool:
        """Write every line that waits; is something to be tried again?"""
        try:
            while await self._write():
                self._health.works("OUT_LOG")
        except Refusal as refusal:
            self._health.failed("OUT_LOG", refusal)
            return True
        return False

    async def _write(self) -> bool:
        """Some lines; were there any?"""
        store = self._context.store
        notices = await store.read(lambda work: work.notices.read(LOGGED, 0, _AT_ONCE))
        if not notices:
            return False
        lines = await store.read(
            lambda work: [(n.reference, line) for n in notices for line in self._lines(work, n)]
        )
        await self._logs.append(lines)
        await store.run(lambda work: work.notices.remove([n.number for n in notices]))
        return True

    def _lines(self, work: UnitOfWork, notice: Notice) -> list[bytes]:
        """What CheckMessageStatus says since this event, and did not say before it."""
        line = notice.line
        if line is None:
            return []
        entry = work.box.find(Side.SENT, notice.message_id)
        trace = [] if entry is None else list(work.box.trace(Side.SENT, notice.message_id))
        if entry is None or line not in trace:
            # The folder was out of order for longer than messages are kept.
            told = StatusEvent(
                Instant.of(line.at),
                STATUS.get(line.state, STATUS[State.ACCEPTED]),
                self._context.code,
                said(notice.message_id, line),
            )
            return [self._encoded(told)]
        at = trace.index(line)
        kept = work.box.acknowledgements(notice.message_id)
        before = report(entry.metadata, trace[:at], kept).events
        after = report(entry.metadata, trace[: at + 1], kept).events
        return [self._encoded(event) for event in after[len(before) :]]

    def _encoded(self, event: StatusEvent) -> bytes:
        name = self._context.display_name(event.component)
        return encode(
            LogLine(event.timestamp.at, event.status.value, event.component, name, event.details)
        )
