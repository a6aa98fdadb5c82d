"""The blocking client of an endpoint's JSON API."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterator
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


class Endpoint:
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
        self._client = httpx.Client(
            **requests.options(url, user, password, certificate, key, ca, timeout)
        )

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def send(
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
        return str(self._ask(call).json()["messageID"])

    def receive(self, message_type: str, *, content: bool = True) -> Received | None:
        return Received.read(self._ask(requests.receive(message_type, content)).json())

    def confirm(self, message_id: str) -> None:
        self._ask(requests.confirm(message_id))

    def process(
        self,
        message_type: str,
        take: Callable[[Received], None],
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
        while (found := self.receive(message_type)) is not None:
            try:
                if found.message.message_id not in processed:
                    take(found)
            except BadDocument as error:
                log.error(
                    "message %s is confirmed unprocessed: %s", found.message.message_id, error
                )
            self.confirm(found.message.message_id)
            count += 1
        return count

    def status(self, message_id: str, side: str = "sent") -> Message:
        return Message.read(self._ask(requests.about(message_id, "", side)).json())

    def trace(self, message_id: str, side: str = "sent") -> list[TraceLine]:
        form = self._ask(requests.about(message_id, "/trace", side)).json()
        return [TraceLine.read(line) for line in form["trace"]]

    def explain(self, message_id: str, side: str = "sent") -> Explained:
        return Explained.read(self._ask(requests.about(message_id, "/explanation", side)).json())

    def proof(self, message_id: str, side: str = "sent") -> bytes:
        """The proof file; `gridpost proof verify` checks it."""
        return self._ask(requests.about(message_id, "/proof", side)).content

    def search(self, **fields: str) -> list[Message]:
        """Newest first, `limit` of them (100). Fields as in the API: side, status, peer, messageType, ..."""
        found: list[Message] = []
        call: requests.Call | None = requests.search(fields)
        while call is not None:
            form = self._ask(call).json()
            found += [Message.read(message) for message in form["messages"]]
            call = requests.further(fields, form["next"], len(found))
        return found

    def test(self, receiver: str, message_type: str) -> str:
        """A connectivity test: its status becomes DELIVERED when the recipient has answered."""
        return str(self._ask(requests.test(receiver, message_type)).json()["messageID"])

    # ------------------------------------------------------------ for operators

    def resend(self, message_id: str, reason: str = "") -> str:
        """A FAILED message as a new one; its message ID."""
        call = requests.act("messages", message_id, "resend", reason)
        return str(self._ask(call).json()["messageID"])

    def cancel(self, message_id: str, reason: str = "") -> None:
        """An ACCEPTED message that was not transferred yet."""
        self._ask(requests.act("messages", message_id, "cancel", reason))

    def pause(self, kind: str, value: str, reason: str = "") -> Hold:
        """`kind` is partner, type or channel."""
        return Hold.read(self._ask(requests.pause(kind, value, reason)).json())

    def resume(self, kind: str, value: str) -> bool:
        """False: it was not paused."""
        return bool(self._ask(requests.resume(kind, value)).json()["changed"])

    def holds(self) -> list[Hold]:
        form = self._ask(Call("GET", "/holds")).json()
        return [Hold.read(hold) for hold in form["holds"]]

    def maintenance(self, on: bool, reason: str = "") -> bool:
        """Did it change anything?"""
        return bool(self._ask(requests.maintenance(on, reason)).json()["changed"])

    def held_back(self) -> list[HeldBack]:
        """Received documents that a check held back, oldest first."""
        form = self._ask(Call("GET", "/held-back")).json()
        return [HeldBack.read(message) for message in form["messages"]]

    def release(self, message_id: str, reason: str = "") -> None:
        self._ask(requests.act("received", message_id, "release", reason))

    def drop(self, message_id: str, reason: str = "") -> None:
        self._ask(requests.act("received", message_id, "drop", reason))

    def events(self) -> Iterator[StatusEvent]:
        """Until the endpoint ends the stream: then ask for what was missed, and come again."""
        timeout = httpx.Timeout(60.0)
        try:
            with self._client.stream("GET", f"{PREFIX}/events", timeout=timeout) as response:
                if not response.is_success:
                    response.read()
                    checked(response)
                lines: list[str] = []
                for line in response.iter_lines():
                    if line:
                        lines.append(line)
                        continue
                    event = read_event(lines)
                    lines = []
                    if event is not None:
                        yield event
        except httpx.HTTPError as error:
            raise unreachable(self._url, error) from None

    def _ask(self, call: Call) -> httpx.Response:
        arguments: dict[str, Any] = call.arguments()
        try:
            return checked(self._client.request(**arguments))
        except httpx.HTTPError as error:
            raise unreachable(self._url, error) from None
