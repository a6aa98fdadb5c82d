"""OUT_LOG: the events of each file that was accepted, one line each (503 Tables 42 and 48)."""

from __future__ import annotations

from collections.abc import Callable

from gridpost.core.delivery import STATUS, Event, State, TraceEntry
from gridpost.core.notices import Notice
from gridpost.core.refusal import Refusal
from gridpost.core.shared_folders import LogFolder
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.folders import LOGGED, Alarm, FolderHealth, FolderSettings
from gridpost.wire.fssf.log_line import LogLine, encode

_AT_ONCE = 500

_SAID = {
    Event.ACCEPT: "accepted",
    Event.TRANSFERRED: "transferred",
    Event.TRANSFER_FAILED: "transfer failed, it is tried again",
    Event.DELIVERY_ACKNOWLEDGED: "the recipient endpoint has the message",
    Event.RECEIVE_ACKNOWLEDGED: "the recipient application has the document",
    Event.FAILURE_ACKNOWLEDGED: "the recipient endpoint refused the message",
    Event.FINGERPRINT_DIFFERS: "the recipient endpoint acknowledged another content",
    Event.ACKNOWLEDGEMENT_REFUSED: "an acknowledgement was refused",
    Event.ACKNOWLEDGEMENT_EXPIRED: "an acknowledgement came after the expiration time",
    Event.CANCEL: "cancelled",
    Event.ABANDON: "given up",
    Event.EXPIRE: "expired",
}


class FolderLog:
    def __init__(
        self,
        context: EndpointContext,
        logs: LogFolder,
        health: FolderHealth,
        settings: FolderSettings,
        describe: Callable[[], str],
    ) -> None:
        """`describe` gives the display name of this endpoint."""
        self._context = context
        self._logs = logs
        self._health = health
        self._settings = settings
        self._describe = describe
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
        await self._logs.append(
            [(n.reference, self._line(n, n.line)) for n in notices if n.line is not None]
        )
        await store.run(lambda work: work.notices.remove([n.number for n in notices]))
        return True

    def _line(self, notice: Notice, line: TraceEntry) -> bytes:
        said = _SAID.get(line.event, line.event.value)
        detail = f": {line.detail}" if line.detail else ""
        return encode(
            LogLine(
                line.at,
                STATUS.get(line.state, STATUS[State.ACCEPTED]).value,
                self._context.code,
                self._describe(),
                f"message {notice.message_id} {said}{detail}",
            )
        )
