"""OUT: each file of an application becomes a message, and is deleted when that is safely stored.

The law of this file: the row that says "taken" commits with the message and stays until the file is
gone. So a stop at any moment neither loses a file nor sends it twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from gridpost.core.channels import Channel, Origin
from gridpost.core.identifiers import MessageId
from gridpost.core.journal import refusal_row
from gridpost.core.notices import Notice, Subscription
from gridpost.core.ports import UnitOfWork
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.shared_folders import Found, LogFolder, OutFolder
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.folders import LOGGED, TAKEN, Alarm, FolderHealth, FolderSettings
from gridpost.services.endpoint.submission import Document, Submission
from gridpost.services.endpoint.users import Users, check_channel, check_send
from gridpost.wire.fssf.names import OutName, printable, read_out_name

log = structlog.get_logger(__name__)

_CHUNK = 256
"""Files between two removals."""
_READ = 1000


@dataclass(frozen=True, slots=True)
class _Taken:
    number: int
    """Of the notice that remembers it."""
    message_id: str
    size: int | None
    """None: taken before the last start."""


class FolderOut:
    def __init__(
        self,
        context: EndpointContext,
        users: Users,
        submission: Submission,
        out: OutFolder,
        logs: LogFolder,
        health: FolderHealth,
        settings: FolderSettings,
    ) -> None:
        self._context = context
        self._users = users
        self._submission = submission
        self._out = out
        self._logs = logs
        self._health = health
        self._settings = settings
        self._alarm = Alarm()
        self._room = asyncio.Semaphore(settings.at_once)
        self._taken: dict[str, _Taken] = {}
        self._later: dict[str, float] = {}
        """Files that could not be dealt with, and when they are tried again."""
        self.wake = self._alarm.ring

    @property
    def waiting(self) -> int:
        """Files whose messages are stored, but that could not be deleted yet."""
        return len(self._taken)

    async def run(self) -> None:
        """Until cancelled."""
        await self._remember()
        while True:
            pause = await self.round()
            await self._alarm.wait(self._settings.retry_seconds if pause else None)

    async def round(self) -> bool:
        """Look once and deal with everything that is there; is something to be tried again?"""
        try:
            found = await self._out.scan()
        except Refusal as refusal:
            self._health.failed("OUT", refusal)
            return True
        now = asyncio.get_running_loop().time()
        self._later = {f.key: self._later[f.key] for f in found if f.key in self._later}
        due = [f for f in found if self._later.get(f.key, 0.0) <= now]
        for one in due:
            self._later.pop(one.key, None)
        for start in range(0, len(due), _CHUNK):
            await self._chunk(due[start : start + _CHUNK])
        await self._forget_missing(found)
        if not self._later:
            for what in ("OUT", "OUT_ERROR"):
                self._health.works(what)
        return bool(self._later)

    # ------------------------------------------------------------ files that come

    async def _chunk(self, files: Sequence[Found]) -> None:
        last: dict[tuple[str, str], asyncio.Task[bool]] = {}
        tasks: list[asyncio.Task[bool]] = []
        async with asyncio.TaskGroup() as group:
            for found in files:
                key = self._order(found)
                before = last.get(key) if key is not None else None
                task = group.create_task(self._take(found, before))
                if key is not None:
                    last[key] = task
                tasks.append(task)
        done = [found for found, task in zip(files, tasks, strict=True) if task.result()]
        if done:
            await self._remove(done)

    def _order(self, found: Found) -> tuple[str, str] | None:
        """503 cl. 5.11: what keeps its order is accepted by the age of the files."""
        try:
            name = read_out_name(found.name)
        except Refusal:
            return None
        if not self._context.settings.keeps_order(name.message_type):
            return None
        return name.receiver_code, name.message_type

    async def _take(self, found: Found, before: asyncio.Task[bool] | None) -> bool:
        """Is its message stored, so that the file can go?"""
        if before is not None:
            await asyncio.wait([before])
        async with self._room:
            try:
                known = self._taken.get(found.key)
                if known is None:
                    return await self._accept(found, read_out_name(found.name))
                if known.size not in (None, found.size):
                    raise Refusal(
                        Rule.CONVERSATION_REUSED,
                        f"the file has changed since it became message {known.message_id}",
                    )
                return True
            except Refusal as refusal:
                await self._refused(found, refusal)
                return False

    async def _accept(self, found: Found, name: OutName) -> bool:
        user = self._users.named(self._settings.user)
        if user is None:
            raise Refusal(Rule.ACCESS_DENIED, f"{self._settings.user} is no user")
        check_channel(user, Channel.FOLDER)
        check_send(user, name.message_type)
        if not found.size:
            # 503 cl. 11.2.2.
            raise Refusal(Rule.EMPTY_CONTENT, "the file is empty")
        content = await self._out.read(found, self._context.settings.max_content)
        if content is None:
            # Gone or changed since it was seen: the next look finds what is there now.
            self._alarm.ring()
            return False
        log_name = await self._logs.choose(found.name)
        now = self._context.clock.now()
        numbers: list[int] = []

        def also(work: UnitOfWork, message_id: MessageId) -> None:
            work.notices.subscribe(Subscription(message_id, LOGGED, log_name))
            numbers.append(work.notices.append(Notice(TAKEN, message_id, found.key, now)))

        document = Document(
            name.receiver_code,
            name.message_type,
            content,
            name.ba_message_id,
            name.sender_application,
            name.extension,
        )
        origin = str(Origin(Channel.FOLDER, user.name))
        message_id = await self._submission.send(origin, document, also)
        self._taken[found.key] = _Taken(numbers[-1], message_id, found.size)
        return True

    async def _refused(self, found: Found, refusal: Refusal) -> None:
        if refusal.retryable:
            # Not the file's fault: it stays where it is.
            self._health.failed("OUT", refusal)
            self._try_later(found)
            return
        log.warning(
            "file refused",
            file=printable(found.name),
            rule=refusal.rule.name,
            reason=refusal.message,
            id=refusal.id,
        )
        reason = f"{refusal.code}: {refusal.message}"
        if refusal.details:
            reason += f"\n{refusal.details}"
        try:
            row = refusal_row(refusal, self._context.clock.now(), peer=self._settings.user)
            await self._context.store.run(lambda work: work.journal.append(row))
            await self._out.reject(found, f"{reason}\n{refusal.rule.name} {refusal.id}")
        except Refusal as failed:
            self._health.failed("OUT_ERROR", failed)
            self._try_later(found)

    # ------------------------------------------------------------ files that go

    async def _remove(self, done: Sequence[Found]) -> None:
        try:
            gone = await self._out.remove(done)
        except Refusal as refusal:
            self._health.failed("OUT", refusal)
            gone = []
        numbers = [self._taken[found.key].number for found in gone]
        if numbers:
            try:
                await self._context.store.run(lambda work: work.notices.remove(numbers))
            except Refusal as refusal:
                self._health.failed("OUT", refusal)
                return
        for found in gone:
            del self._taken[found.key]
        stuck = set(done) - set(gone)
        if stuck:
            self._health.failed(
                "OUT",
                Refusal(
                    Rule.FOLDER_FAILED,
                    f"{len(stuck)} files whose messages are stored cannot be deleted",
                    "let this endpoint delete files in OUT; none of them is sent again",
                ),
            )
        for found in stuck:
            self._try_later(found)

    async def _forget_missing(self, found: Sequence[Found]) -> None:
        """Somebody else has removed a file that we had taken: its key may be used again."""
        present = {one.key for one in found}
        missing = {key: taken for key, taken in self._taken.items() if key not in present}
        if missing:
            numbers = [taken.number for taken in missing.values()]
            await self._context.store.run(lambda work: work.notices.remove(numbers))
            for key in missing:
                del self._taken[key]

    def _try_later(self, found: Found) -> None:
        loop = asyncio.get_running_loop()
        self._later[found.key] = loop.time() + self._settings.retry_seconds * 0.9

    async def _remember(self) -> None:
        """What was taken before the last stop, and the logs that were promised."""
        for notice in await self._all(TAKEN):
            self._taken[notice.reference] = _Taken(notice.number, notice.message_id, None)
        self._logs.remember([notice.reference for notice in await self._all(LOGGED)])

    async def _all(self, channel: str) -> list[Notice]:
        found: list[Notice] = []
        while True:
            after = found[-1].number if found else 0
            more = await self._context.store.read(partial(_read, channel=channel, after=after))
            found += more
            if len(more) < _READ:
                return found


def _read(work: UnitOfWork, channel: str, after: int) -> Sequence[Notice]:
    return work.notices.read(channel, after, _READ)
