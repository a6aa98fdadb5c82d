"""Octets between a socket and whoever speaks HTTP on it, through TLS, on either side.

Why not asyncio's own TLS: it copies a document once more in each direction, takes a new buffer for
each record, holds 256 KiB for each idle connection, and cannot be aborted while it closes (ADR 11).
All connections of a thread share their buffers: octets are passed on before the next read.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from contextlib import suppress
from typing import Any, Final, cast

_READ: Final = 256 * 1024
_CLEAR: Final = 256 * 1024
HIGH_WATER: Final = 256 * 1024
"""So much may wait for the socket before whoever writes has to wait."""


class _Buffers(threading.local):
    def __init__(self) -> None:
        self.raw = memoryview(bytearray(_READ))
        self.clear = memoryview(bytearray(_CLEAR))


_BUFFERS: Final = _Buffers()


class TlsStream(asyncio.BufferedProtocol):
    """One connection. Who speaks on it overrides what begins with `on_`; each is called by the loop."""

    def __init__(self, close_seconds: float) -> None:
        """`close_seconds`: how long a peer may take to hang up after us."""
        self._loop = asyncio.get_running_loop()
        self._close_seconds = close_seconds
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._transport: asyncio.Transport | None = None
        self._secured = self._paused = self._closing = self._ended = False
        self._error: Exception | None = None
        self._last: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------ for whoever speaks on it

    def on_made(self) -> None:
        """There is a connection: `start_tls` is called here or later."""

    def on_secured(self, tls: ssl.SSLObject) -> None:
        """The handshake is done, and nothing was sent or passed on yet."""

    def on_octets(self, octets: memoryview) -> None:
        """The view is good only during the call."""

    def on_writable(self, writable: bool) -> None:
        """More than `HIGH_WATER` waits, or no longer."""

    def on_lost(self, error: Exception | None, orderly: bool) -> None:
        """No more octets in either direction; `orderly`: the peer has said that it was all."""

    def start_tls(self, context: ssl.SSLContext, *, server_side: bool, host: str = "") -> None:
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=host or None
        )
        self._handshake()

    def write(self, octets: bytes | bytearray | memoryview) -> None:
        if self._closing or self._tls is None or not octets:
            return
        try:
            self._tls.write(octets)
        except ssl.SSLError as error:
            self._fail(error)
            return
        self._flush()

    def pause_reading(self) -> None:
        if not self._paused and not self._closing and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._paused and not self._closing and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
            # Not here: whoever resumes is in the middle of something.
            self._loop.call_soon(self._decrypt)

    def close(self) -> None:
        """Write what is written, say goodbye, and leave when the peer has hung up, or after a while.

        To leave at once, with something of the peer's unread, would make TCP drop what it has not
        read of ours: the reason why it was refused.
        """
        if self._closing or self._transport is None:
            return
        if self._tls is not None and self._secured:
            with suppress(ssl.SSLError):
                self._tls.unwrap()  # close_notify; the peer's own is not waited for
        self._flush()
        self._hang_up()

    def leave(self) -> None:
        """Say goodbye and leave at once: both sides have said all."""
        if self._closing or self._transport is None:
            return
        if self._tls is not None:
            with suppress(ssl.SSLError):
                self._tls.unwrap()
        self._flush()
        self._closing = True
        self._transport.close()

    def abort(self) -> None:
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def is_closing(self) -> bool:
        return self._closing or self._transport is None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._tls
        if name == "sslcontext":
            return None if self._tls is None else self._tls.context
        return default if self._transport is None else self._transport.get_extra_info(name, default)

    # ------------------------------------------------------------ from asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER)
        self.on_made()

    def get_buffer(self, sizehint: int) -> memoryview:
        return _BUFFERS.raw

    def buffer_updated(self, nbytes: int) -> None:
        if self._closing:
            return
        self._incoming.write(_BUFFERS.raw[:nbytes])
        if not self._secured:
            self._handshake()
        if self._secured:
            self._decrypt()

    def eof_received(self) -> bool:
        return False  # asyncio closes the transport

    def pause_writing(self) -> None:
        self.on_writable(False)

    def resume_writing(self) -> None:
        self.on_writable(True)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        if self._last is not None:
            self._last.cancel()
        self.on_lost(self._error or exc, self._ended)

    # ------------------------------------------------------------ TLS

    def _handshake(self) -> None:
        if self._tls is None:
            return
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._fail(error)
            return
        self._flush()
        self._secured = True
        self.on_secured(self._tls)

    def _decrypt(self) -> None:
        tls: Any = self._tls
        clear = _BUFFERS.clear
        more = True
        while more and not self._paused and not self._closing:
            filled = 0
            try:
                while filled < _CLEAR and more:
                    got = tls.read(_CLEAR - filled, clear[filled:])
                    filled += got
                    if not got:
                        self._ended, more = True, False
            except ssl.SSLWantReadError:
                more = False
            except ssl.SSLError as error:
                more = False
                self._error = error
            if filled:
                self.on_octets(clear[:filled])
        self._flush()  # an answer to a change of keys, or an alert
        if (self._ended or self._error is not None) and not self._closing:
            self.close()

    def _flush(self) -> None:
        if self._outgoing.pending and self._transport is not None:
            self._transport.write(self._outgoing.read())

    def _fail(self, error: ssl.SSLError) -> None:
        """Tell the peer by a TLS alert, when OpenSSL has made one, and leave."""
        self._error = error
        self._flush()
        if not self._closing:
            self._hang_up()

    def _hang_up(self) -> None:
        assert self._transport is not None
        self._closing = True
        self._transport.resume_reading()
        with suppress(OSError, RuntimeError):  # it may be gone already
            self._transport.write_eof()
        self._last = self._loop.call_later(self._close_seconds, self._transport.abort)
