"""The asyncio client of an endpoint's JSON API: the same calls as `blocking`, awaited."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Container
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from gridpost.client import requests
from gridpost.client.requests import PREFIX, Call
from gridpost.client.values import (
    BadDocument,
    Explained,
    HeldBack,
    Hold,
    Message,
    Received,
    StatusEvent,
    TraceLine,
    checked,
    read_event,
    unreachable,
)

log = logging.getLogger(__name__)


class AsyncEndpoint:
    """One endpoint, as one of its applications. What it refuses is raised as a `Refusal`."""

    def __init__(
        self,
        url: str,
        *,
        user: str = "",
        password: str = "",
        certificate: Path | None = None,
        key: Path | None = None,
        ca: Path | None = None,
        timeout: float = 60.0,
    ) -> None:
        self._url = url
        self._client = httpx.AsyncClient(
            **requests.options(url, user, password, certificate, key, ca, timeout)
        )

    async def __aenter__(self) -> AsyncEndpoint:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._client.aclose()

    async def send(
        self,
        receiver: str,
        message_type: str,
        content: bytes,
        *,
        ba_message_id: str = "",
        sender_application: str = "",
        extension: str = "",
        key: str | None = None,
    ) -> str:
        """The message ID. With the same `key` again, nothing is sent a second time.

        Without one, `sender_application` followed by `ba_message_id` is the key, where both are
        given; an empty key is none.
        """
        call = requests.send(
            receiver, message_type, content, ba_message_id, sender_application, extension, key
        )
        return str((await self._ask(call)).json()["messageID"])

    async def receive(self, message_type: str, *, content: bool = True) -> Received | None:
        return Received.read((await self._ask(requests.receive(message_type, content))).json())

    async def confirm(self, message_id: str) -> None:
        await self._ask(requests.confirm(message_id))

    async def process(
        self,
        message_type: str,
        take: Callable[[Received], Awaitable[None]],
        *,
        processed: Container[str] = (),
    ) -> int:
        """Hand every waiting document to `take`, and confirm each when that has returned.

        503 cl. 11.1.4: a document that can never be processed is confirmed as well, or it would
        come again for ever; `take` raises BadDocument for it, which is logged. Anything else that
        it raises leaves the document where it is. How many were confirmed.

        After a failure a document may come again (MADES 1.1 cl. 5.2.2.2): one whose ID is in
        `processed`, where the application remembers what it has done, is confirmed and not taken.
        """
        count = 0
        while (found := await self.receive(message_type)) is not None:
            try:
                if found.message.message_id not in processed:
                    await take(found)
            except BadDocument as error:
                log.error(
                    "message %s is confirmed unprocessed: %s", found.message.message_id, error
                )
            await self.confirm(found.message.message_id)
            count += 1
        return count

    async def status(self, message_id: str, side: str = "sent") -> Message:
        return Message.read((await self._ask(requests.about(message_id, "", side))).json())

    async def trace(self, message_id: str, side: str = "sent") -> list[TraceLine]:
        form = (await self._ask(requests.about(message_id, "/trace", side))).json()
        return [TraceLine.read(line) for line in form["trace"]]

    async def explain(self, message_id: str, side: str = "sent") -> Explained:
        return Explained.read(
            (await self._ask(requests.about(message_id, "/explanation", side))).json()
        )

    async def proof(self, message_id: str, side: str = "sent") -> bytes:
        """The proof file; `gridpost proof verify` checks it."""
        return (await self._ask(requests.about(message_id, "/proof", side))).content

    async def search(self, **fields: str) -> list[Message]:
        """Newest first, `limit` of them (100). Fields as in the API: side, status, peer, messageType, ..."""
        found: list[Message] = []
        call: requests.Call | None = requests.search(fields)
        while call is not None:
            form = (await self._ask(call)).json()
            found += [Message.read(message) for message in form["messages"]]
            call = requests.further(fields, form["next"], len(found))
        return found

    async def test(self, receiver: str, message_type: str) -> str:
        """A connectivity test: its status becomes DELIVERED when the recipient has answered."""
        return str((await self._ask(requests.test(receiver, message_type))).json()["messageID"])

    # ------------------------------------------------------------ for operators

    async def resend(self, message_id: str, reason: str = "") -> str:
        """A FAILED message as a new one; its message ID."""
        call = requests.act("messages", message_id, "resend", reason)
        return str((await self._ask(call)).json()["messageID"])

    async def cancel(self, message_id: str, reason: str = "") -> None:
        """An ACCEPTED message that was not transferred yet."""
        await self._ask(requests.act("messages", message_id, "cancel", reason))

    async def pause(self, kind: str, value: str, reason: str = "") -> Hold:
        """`kind` is partner, type or channel."""
        return Hold.read((await self._ask(requests.pause(kind, value, reason))).json())

    async def resume(self, kind: str, value: str) -> bool:
        """False: it was not paused."""
        return bool((await self._ask(requests.resume(kind, value))).json()["changed"])

    async def holds(self) -> list[Hold]:
        form = (await self._ask(Call("GET", "/holds"))).json()
        return [Hold.read(hold) for hold in form["holds"]]

    async def maintenance(self, on: bool, reason: str = "") -> bool:
        """Did it change anything?"""
        return bool((await self._ask(requests.maintenance(on, reason))).json()["changed"])

    async def held_back(self) -> list[HeldBack]:
        """Received documents that a check held back, oldest first."""
        form = (await self._ask(Call("GET", "/held-back"))).json()
        return [HeldBack.read(message) for message in form["messages"]]

    async def release(self, message_id: str, reason: str = "") -> None:
        await self._ask(requests.act("received", message_id, "release", reason))

    async def drop(self, message_id: str, reason: str = "") -> None:
        await self._ask(requests.act("received", message_id, "drop", reason))

    async def events(self) -> AsyncIterator[StatusEvent]:
        """Until the endpoint ends the stream: then ask for what was missed, and come again."""
        timeout = httpx.Timeout(60.0)
        try:
            async with self._client.stream("GET", f"{PREFIX}/events", timeout=timeout) as response:
                if not response.is_success:
                    await response.aread()
                    checked(response)
                lines: list[str] = []
                async for line in response.aiter_lines():
                    if line:
                        lines.append(line)
                        continue
                    event = read_event(lines)
                    lines = []
                    if event is not None:
                        yield event
        except httpx.HTTPError as error:
            raise unreachable(self._url, error) from None

    async def _ask(self, call: Call) -> httpx.Response:
        arguments: dict[str, Any] = call.arguments()
        try:
            return checked(await self._client.request(**arguments))
        except httpx.HTTPError as error:
            raise unreachable(self._url, error) from None
