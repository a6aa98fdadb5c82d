"""The holds of this process: what is paused now, as the store says it, ready for each message."""

from __future__ import annotations

from collections.abc import Callable

from gridpost.core.channels import Channel
from gridpost.core.delivery import Side
from gridpost.core.holds import Hold, Holds
from gridpost.core.message_box import BoxEntry, Outgoing
from gridpost.core.ports import UnitOfWork
from gridpost.core.refusal import Refusal, Rule


class Holding:
    def __init__(self) -> None:
        self.current = Holds()
        self._listeners: list[Callable[[], None]] = []

    def on_change(self, listener: Callable[[], None]) -> None:
        """Whoever hands over or transfers looks again."""
        self._listeners.append(listener)

    def change(self, holds: Holds) -> None:
        self.current = holds
        for listener in self._listeners:
            listener()

    def refuse_new(self) -> None:
        """Maintenance: no new document, by whichever channel it comes."""
        hold = self.current.maintenance
        if hold is not None:
            raise Refusal(
                Rule.MAINTENANCE,
                "this endpoint takes no new documents during maintenance"
                + (f": {hold.reason}" if hold.reason else ""),
                f"since {hold.at:%Y-%m-%dT%H:%M:%SZ}; try again later",
            )

    def transfer(self, work: UnitOfWork, outgoing: Outgoing) -> Hold | None:
        """What keeps a transfer from being made; acknowledgements always go."""
        holds, metadata = self.current, outgoing.message.metadata
        if not holds.pauses or metadata.internal_type.is_acknowledgement:
            return None
        found = holds.of_message(metadata.receiver_code, metadata.message_type)
        if found is None and holds.by_channel:
            entry = work.box.find(Side.SENT, metadata.message_id)
            found = None if entry is None else holds.origin(entry.application)
        return found

    def of_entry(self, entry: BoxEntry, channel: Channel | None = None) -> Hold | None:
        """What keeps a message in the box where it is; `channel` is where it would be handed over."""
        holds, metadata = self.current, entry.metadata
        if entry.delivery.side is Side.SENT:
            return holds.of_message(metadata.receiver_code, metadata.message_type) or holds.origin(
                entry.application
            )
        return holds.of_message(metadata.sender_code, metadata.message_type) or holds.channel(
            channel
        )
