"""IN: a received document is handed over when its file is complete under its final name.

503 cl. 11.2.1: that is the confirmation; no application has to say anything. A stop between the two
leaves a file whose message is confirmed at the next start, because its name never changes.
"""

from __future__ import annotations

import asyncio

from gridpost.core.channels import Channel, Receiving
from gridpost.core.message_box import BoxEntry
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.shared_folders import Received
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.folders import Alarm, FolderHealth, FolderSettings, InPlace
from gridpost.services.endpoint.handover import Handover
from gridpost.services.endpoint.users import Users
from gridpost.wire.fssf.names import in_name

_FILES_AT_ONCE = 64
_TYPES_AT_ONCE = 4


class FolderIn:
    def __init__(
        self,
        context: EndpointContext,
        users: Users,
        handover: Handover,
        health: FolderHealth,
        settings: FolderSettings,
    ) -> None:
        self._context = context
        self._users = users
        self._handover = handover
        self._health = health
        self._settings = settings
        self._alarm = Alarm()
        self._room = asyncio.Semaphore(_TYPES_AT_ONCE)
        self.wake = self._alarm.ring
        context.signals.on_offered(self._offered)
        context.holding.on_change(self._alarm.ring)
        context.signals.on_offered_elsewhere(self._offered)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            pause = await self.round()
            await self._alarm.wait(self._settings.retry_seconds if pause else None)

    async def round(self) -> bool:
        """Hand over everything that waits; is something to be tried again?"""
        types = await self._context.store.read(lambda work: work.box.waiting_types())
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._hand_over(message_type))
                for message_type in types
                if self._holds(message_type)
            ]
        return any(task.result() for task in tasks)

    def _offered(self, entry: BoxEntry) -> None:
        if self._holds(entry.metadata.message_type):
            self._alarm.ring()

    def _holds(self, message_type: str) -> bool:
        return self._users.bindings.of(message_type).channel is Receiving.FOLDER

    async def _hand_over(self, message_type: str) -> bool:
        what = f"IN {message_type}"
        place = self._settings.place(message_type)
        if place is None:
            refusal = Refusal(
                Rule.FOLDER_FAILED,
                f"message-type {message_type} has no IN folder",
                "give it one under folders.types, or set folders.in",
            )
            self._health.failed(what, refusal)
            return False
        async with self._room:
            try:
                refusal_left = await self._empty(message_type, place)
            except Refusal as refusal:
                refusal_left = refusal
        if refusal_left is None:
            self._health.works(what)
            return False
        self._health.failed(what, refusal_left)
        return True

    async def _empty(self, message_type: str, place: InPlace) -> Refusal | None:
        """Everything of one type, oldest first; stops where the folder does not take more."""
        after, left = 0, None
        while True:
            batch = await self._handover.waiting(
                message_type, after, _FILES_AT_ONCE, Channel.FOLDER
            )
            if not batch:
                return left
            after = batch[-1][0].number
            names: list[tuple[BoxEntry, Received]] = []
            for entry, content in batch:
                try:
                    name = in_name(entry.metadata, place.extension)
                    names.append((entry, Received(name, content)))
                except Refusal as unnamed:
                    left = unnamed
            outcomes = await place.folder.write([file for _, file in names])
            written = [
                entry.message_id
                for (entry, _), refusal in zip(names, outcomes, strict=True)
                if refusal is None
            ]
            if written:
                # One that has expired meanwhile stays a file; its sender is not told RECEIVED.
                await self._handover.confirm_all(written)
            failed = next((refusal for refusal in outcomes if refusal is not None), None)
            if failed is not None:
                return failed
