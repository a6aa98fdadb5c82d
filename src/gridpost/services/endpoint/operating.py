"""What the operator of an endpoint does to messages: send again, cancel, pause, hold back, maintain.

Every action is journalled with who did it, in the commit of what it did.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from gridpost.core.acknowledgement import compose
from gridpost.core.delivery import Decision, Event, Occurrence, Side, State
from gridpost.core.holds import Hold, HoldKind, Holds, read_hold_value
from gridpost.core.identifiers import MessageId, new_message_id
from gridpost.core.journal import AdministrationRow
from gridpost.core.message import InternalMessage, InternalType
from gridpost.core.message_box import BoxEntry
from gridpost.core.ports import UnitOfWork
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.submission import Document, Submission
from gridpost.services.endpoint.tracking import acknowledgement_row, happen
from gridpost.wire.mades11.compression import expand

MOST_REASON = 1000
MOST_HELD_BACK = 1000


class Stopping(Protocol):
    """The part of the dispatcher that an operator needs."""

    def forbid(self, message_id: str) -> bool:
        """Begin no transfer of it from now on; False: one is under way."""
        ...

    def permit(self, message_id: str) -> None: ...

    def unpause(self) -> None:
        """What was paused is looked at again."""
        ...


class Operating:
    def __init__(self, context: EndpointContext, submission: Submission, stop: Stopping) -> None:
        self._context = context
        self._submission = submission
        self._stop = stop
        self.ask_owner: Callable[[str, str, str], Awaitable[None]] = _nobody
        """How a message is cancelled whose transfer another process of this endpoint has."""

    async def open(self) -> None:
        """503 cl. 10: what an operator decided counts after a restart as well."""
        await self.reload()

    @property
    def holds(self) -> Holds:
        return self._context.holding.current

    # ------------------------------------------------------------ sent messages

    async def resend(self, message_id: str, by: str, reason: str = "") -> MessageId:
        """The document of a FAILED message as a new one; both know of each other."""
        reason = _reason(reason)

        def look(work: UnitOfWork) -> tuple[BoxEntry, bytes]:
            entry = _sent(work, message_id)
            self._check_failed(work, entry)
            content = work.box.content(Side.SENT, message_id)
            if content is None:
                raise Refusal(
                    Rule.MESSAGE_UNKNOWN,
                    f"the document of {message_id} is no longer here",
                    "retention has removed it: let the application send it again",
                )
            return entry, content

        entry, content = await self._context.store.read(look)
        metadata = entry.metadata
        # What was packed for an old network is packed anew where the new message goes.
        limit = max(len(content), self._context.settings.max_content)
        document = Document(
            metadata.receiver_code,
            metadata.message_type,
            expand(InternalMessage(metadata, content), limit),
            metadata.ba_message_id,
            metadata.sender_application,
            metadata.extension,
        )

        def also(work: UnitOfWork, new: MessageId) -> None:
            old = _sent(work, message_id)
            self._check_failed(work, old)
            work.controls.link(message_id, new)
            now = self._context.clock.now()
            happen(work, old, Occurrence(Event.RESEND, f"sent again by {by} as {new}"), now)
            self._journal(work, by, "message sent again", message_id, after=new, reason=reason)

        return await self._submission.send(
            entry.application, document, also, f"sent again by {by} instead of {message_id}"
        )

    def _check_failed(self, work: UnitOfWork, entry: BoxEntry) -> None:
        message_id = entry.message_id
        if entry.delivery.state is not State.FAILED:
            raise Refusal(
                Rule.NOT_FAILED,
                f"message {message_id} is {entry.delivery.status}: only a FAILED one is sent again",
            )
        if entry.metadata.internal_type is not InternalType.STANDARD_MESSAGE:
            raise Refusal(Rule.NOT_FAILED, f"{message_id} is a connectivity test: make a new one")
        links = work.controls.links([message_id]).get(message_id)
        for later in links.resent_as if links else ():
            found = work.box.find(Side.SENT, later)
            if found is not None and found.delivery.state is not State.FAILED:
                raise Refusal(
                    Rule.RESENT_ALREADY,
                    f"message {message_id} was sent again as {later}, "
                    f"which is {found.delivery.status}",
                )

    async def cancel(self, message_id: str, by: str, reason: str = "") -> None:
        """An ACCEPTED message that was not transferred yet never will be; its status is FAILED."""
        reason = _reason(reason)
        if not await self.cancel_here(message_id, by, reason):
            await self.ask_owner(message_id, by, reason)

    async def cancel_here(
        self,
        message_id: str,
        by: str,
        reason: str,
        also: Callable[[UnitOfWork], None] = lambda work: None,
    ) -> bool:
        """False: the transfer is not ours, and nothing was done. `also` belongs to the same commit."""
        if not self._stop.forbid(message_id):
            raise Refusal(
                Rule.UNDER_WAY, f"message {message_id} is being transferred at this moment"
            )

        def cancel(work: UnitOfWork) -> tuple[BoxEntry, Decision] | None:
            entry = _sent(work, message_id)
            if work.controls.elsewhere(message_id):
                # Only that one knows whether the transfer has begun.
                return None
            detail = f"cancelled by {by}" + (f": {reason}" if reason else "")
            now = self._context.clock.now()
            decision = happen(work, entry, Occurrence(Event.CANCEL, detail), now)
            self._journal(work, by, "message cancelled", message_id, reason=reason)
            also(work)
            return entry, decision

        try:
            cancelled = await self._context.store.run(cancel)
        except BaseException:
            self._stop.permit(message_id)
            raise
        if cancelled is None:
            self._stop.permit(message_id)
            return False
        self._context.signals.decided(*cancelled)
        return True

    # ------------------------------------------------------------ pauses and maintenance

    async def pause(self, kind: HoldKind, value: str, by: str, reason: str = "") -> Hold:
        """Of a partner, a message-type or a channel: documents stay where they are."""
        return await self._hold(kind, value, by, reason)

    async def resume(self, kind: HoldKind, value: str, by: str) -> bool:
        """False: it was not paused."""
        return await self._release(kind, value, by)

    async def maintain(self, on: bool, by: str, reason: str = "") -> bool:
        """Did it change anything?"""
        if on:
            before = self.holds.maintenance
            await self._hold(HoldKind.MAINTENANCE, "", by, reason)
            return before is None
        return await self._release(HoldKind.MAINTENANCE, "", by)

    async def _hold(self, kind: HoldKind, value: str, by: str, reason: str) -> Hold:
        now = self._context.clock.now()
        hold = Hold(kind, read_hold_value(kind, value), by, now, _reason(reason))

        def write(work: UnitOfWork) -> None:
            if work.controls.hold(hold):
                action = "maintenance begun" if kind is HoldKind.MAINTENANCE else "paused"
                self._journal(work, by, action, _target(hold), reason=hold.reason)

        await self._context.store.run(write)
        await self.reload()
        return next(h for h in self.holds.all if (h.kind, h.value) == (hold.kind, hold.value))

    async def _release(self, kind: HoldKind, value: str, by: str) -> bool:
        value = read_hold_value(kind, value)

        def write(work: UnitOfWork) -> bool:
            if not work.controls.release(kind, value):
                return False
            action = "maintenance ended" if kind is HoldKind.MAINTENANCE else "resumed"
            self._journal(work, by, action, f"{kind} {value}".strip())
            return True

        changed = await self._context.store.run(write)
        await self.reload()
        return changed

    async def reload(self) -> None:
        """What operators of this or another process have decided."""
        found = await self._context.store.read(lambda work: work.controls.holds())
        ended = set(self.holds.pauses) - set(found)
        self._context.holding.change(Holds(found))
        if ended:
            # Also where another process has resumed: this one may have put something aside since.
            self._stop.unpause()

    # ------------------------------------------------------------ documents that a check held back

    async def held_back(self) -> list[tuple[BoxEntry, str]]:
        """Each with the reason, oldest first."""

        def look(work: UnitOfWork) -> list[tuple[BoxEntry, str]]:
            found = []
            for message_id in work.controls.held_back(MOST_HELD_BACK):
                entry = work.box.find(Side.RECEIVED, message_id)
                if entry is not None:
                    trace = work.box.trace(Side.RECEIVED, message_id)
                    reasons = [line.detail for line in trace if line.event is Event.HOLD_BACK]
                    found.append((entry, reasons[-1] if reasons else ""))
            return found

        return await self._context.store.read(look)

    async def release(self, message_id: str, by: str, reason: str = "") -> None:
        """Offer it to the applications after all."""
        reason = _reason(reason)

        def release(work: UnitOfWork) -> BoxEntry:
            entry = _received(work, message_id)
            now = self._context.clock.now()
            detail = f"released by {by}" + (f": {reason}" if reason else "")
            happen(work, entry, Occurrence(Event.RELEASE, detail), now)
            self._journal(work, by, "document released", message_id, reason=reason)
            return entry

        self._context.signals.offered(await self._context.store.run(release))

    async def drop(self, message_id: str, by: str, reason: str = "") -> None:
        """503 Table 1 event 5: no application gets it, and its sender is told FAILED."""
        reason = _reason(reason)

        def drop(work: UnitOfWork) -> BoxEntry:
            entry, now = _received(work, message_id), self._context.clock.now()
            if entry.delivery.state is not State.HELD_BACK:
                raise Refusal(Rule.NOT_HELD_BACK, f"message {message_id} is not held back")
            detail = f"dropped by {by}" + (f": {reason}" if reason else "")
            happen(work, entry, Occurrence(Event.REFUSE, detail), now)
            failure = compose(
                InternalType.FAILURE_ACKNOWLEDGEMENT,
                entry.metadata,
                b"VALIDATION_ERROR: the recipient does not accept this document",
                message_id=new_message_id(),
                now=now,
            )
            priority = self._context.settings.priority(entry.metadata.message_type)
            work.box.enqueue(failure, entry.route, entry.delivery.expires_at, priority)
            work.journal.append(acknowledgement_row(Side.SENT, failure, entry.route, now))
            self._journal(work, by, "document dropped", message_id, reason=reason)
            return entry

        entry = await self._context.store.run(drop)
        self._context.signals.enqueued(entry.route, entry.metadata.sender_code)

    def _journal(
        self,
        work: UnitOfWork,
        by: str,
        action: str,
        target: str,
        *,
        after: str = "",
        reason: str = "",
    ) -> None:
        now = self._context.clock.now()
        work.journal.append(AdministrationRow(now, by, action, target, after=after, reason=reason))


def _sent(work: UnitOfWork, message_id: str) -> BoxEntry:
    entry = work.box.find(Side.SENT, message_id)
    if entry is None:
        raise Refusal(Rule.MESSAGE_UNKNOWN, f"no message {message_id} was sent here")
    return entry


def _received(work: UnitOfWork, message_id: str) -> BoxEntry:
    entry = work.box.find(Side.RECEIVED, message_id)
    if entry is None:
        raise Refusal(Rule.MESSAGE_UNKNOWN, f"no message {message_id} was received here")
    return entry


async def _nobody(message_id: str, by: str, reason: str) -> None:
    raise Refusal(
        Rule.UNDER_WAY, f"another process of this endpoint transfers message {message_id}"
    )


def _target(hold: Hold) -> str:
    return f"{hold.kind} {hold.value}".strip()


def _reason(text: str) -> str:
    if len(text) > MOST_REASON:
        raise Refusal(Rule.USAGE, f"a reason has at most {MOST_REASON} characters")
    return text.strip()


def told(holds: Sequence[Hold]) -> list[dict[str, str]]:
    """For health, the JSON API and the command line."""
    return [
        {
            "kind": hold.kind.value,
            "value": hold.value,
            "by": hold.by,
            "since": hold.at.isoformat(),
            "reason": hold.reason,
        }
        for hold in holds
    ]
