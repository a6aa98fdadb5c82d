"""One HTTPS connection of a client: one request at a time out, its answer in.

Why not an HTTP library: those that can show the peer's certificate before the request leaves copy a
document several times in Python. Here llhttp reads what OpenSSL has decrypted (ADR 10).
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import httptools

from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.https.stream import TlsStream

_PIECE: Final = 256 * 1024
_MAX_HEAD: Final = 100 * 1024
"""Of an answer: what precedes its body."""
_CLOSE_SECONDS: Final = 1.0


class Answer:
    """An answer as llhttp finds it; `done` when it is complete."""

    def __init__(self, limit: int) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.keeps_alive = False
        self._limit = limit
        self._size = self._head = 0
        self._pieces: list[bytes] = []
        self._in_body = self._too_large = self._complete = self._more = False
        self._parser: Any = httptools.HttpResponseParser(self)

    @property
    def pieces(self) -> tuple[bytes, ...]:
        """Of the body."""
        return tuple(self._pieces)

    def feed(self, octets: memoryview) -> None:
        if self.done.done():
            self.keeps_alive = False  # it says more than it was asked
            return
        if not self._in_body:
            self._head += len(octets)
        try:
            self._parser.feed_data(octets)
        except httptools.HttpParserUpgrade:
            self.fail(OSError("the server changes the protocol"))
        except httptools.HttpParserError as error:
            if not self._complete:
                self.fail(OSError(f"this is no HTTP: {error}"))
        if self._too_large:
            self.fail(Refusal(Rule.LIMIT_EXCEEDED, f"more than {self._limit} bytes"))
        elif not self._in_body and self._head > _MAX_HEAD:
            self.fail(OSError(f"the head of the answer is larger than {_MAX_HEAD} bytes"))
        elif self._complete and not self.done.done():
            self.keeps_alive = self.keeps_alive and not self._more
            self.done.set_result(None)

    def ended(self, orderly: bool, error: Exception | None) -> None:
        """The server sends no more; that is the end of a body whose length it did not tell."""
        told = {"content-length", "transfer-encoding"} & self.headers.keys()
        if orderly and self._in_body and not told and not self.done.done():
            self.keeps_alive = False
            self.done.set_result(None)
        self.fail(error or OSError("the server hung up"))

    def fail(self, error: Exception) -> None:
        self.keeps_alive = False
        if not self.done.done():
            self.done.set_exception(error)
            self.done.exception()  # whoever waited may have gone

    # ------------------------------------------------------------ what llhttp finds

    def on_message_begin(self) -> None:
        self._more = self._complete

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._complete:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        if not self._complete:
            self.status = self._parser.get_status_code()
            self.keeps_alive = bool(self._parser.should_keep_alive())
            self._in_body = self.status >= 200

    def on_body(self, octets: bytes) -> None:
        self._size += len(octets)
        if self._size > self._limit:
            self._too_large = True
        elif not self._complete:
            self._pieces.append(octets)

    def on_message_complete(self) -> None:
        if self.status >= 200:
            self._complete = True
        elif not self._complete:
            self.headers = {}  # RFC 9110 15.2: the answer itself follows


def _split(head: bytes, body: Sequence[bytes | memoryview]) -> deque[bytes | memoryview]:
    """What is written at once: a small beginning of the body goes with the head."""
    together = bool(body) and len(body[0]) <= _PIECE
    left: deque[bytes | memoryview] = deque([b"".join([head, body[0]]) if together else head])
    for part in body[together:]:
        view = memoryview(part)
        left.extend(view[start : start + _PIECE] for start in range(0, len(view), _PIECE))
    return left


class Line(TlsStream):
    """Made for `create_connection`; `secured` when TLS stands and before anything was sent."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        super().__init__(_CLOSE_SECONDS)
        self._context, self._host = context, host
        self.secured: asyncio.Future[ssl.SSLObject] = self._loop.create_future()
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._writable = asyncio.Event()
        self._writable.set()
        self._answer: Answer | None = None
        self._usable = self._quiet = True

    @property
    def open(self) -> bool:
        """Could it take another request?"""
        return self._usable and not self.is_closing()

    async def exchange(self, head: bytes, body: Sequence[bytes | memoryview], limit: int) -> Answer:
        """The answer may come before the request has left."""
        answer = self._answer = Answer(limit)
        self._usable = self._quiet = False
        try:
            if self.is_closing():
                answer.ended(False, None)
            left = _split(head, body)
            self.write(left.popleft())
            while left and not answer.done.done():
                await self._writable.wait()
                self.write(left.popleft())
                await asyncio.sleep(0)  # others have something to do as well
            await answer.done
            self._quiet = not left
            self._usable = answer.keeps_alive and not left
        finally:
            self._answer = None
        return answer

    async def end(self) -> None:
        """Returns when the connection is closed; what is under way is given up."""
        if self._transport is None:
            return
        (self.leave if self._quiet else self.abort)()
        await asyncio.shield(self._lost)

    def on_made(self) -> None:
        self.start_tls(self._context, server_side=False, host=self._host)

    def on_secured(self, tls: ssl.SSLObject) -> None:
        if not self.secured.done():
            self.secured.set_result(tls)

    def on_octets(self, octets: memoryview) -> None:
        if self._answer is not None:
            self._answer.feed(octets)
        else:
            self.abort()  # it speaks without having been asked

    def on_writable(self, writable: bool) -> None:
        (self._writable.set if writable else self._writable.clear)()

    def on_lost(self, error: Exception | None, orderly: bool) -> None:
        self._writable.set()
        if not self.secured.done():
            self.secured.set_exception(error or OSError("the server hung up"))
            self.secured.exception()  # whoever waited may have gone
        if self._answer is not None:
            self._answer.ended(orderly, error)
        if not self._lost.done():
            self._lost.set_result(None)
