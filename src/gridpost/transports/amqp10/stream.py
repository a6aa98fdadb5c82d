"""Octets between a socket and whoever understands them, through TLS where there is TLS.

Why not asyncio's own TLS: a server picks its context by what the client says first, 5,000 idle
connections must not hold a receive buffer of 256 KiB each, and the verified chain has to be seen.
All connections of a thread share their buffers: octets are passed on before the next read.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from typing import Any, Final, Protocol, cast

from gridpost.transports.amqp10.tls import ServerContexts, complete_hello, verified_chain

_READ: Final = 256 * 1024
_CLEAR: Final = 256 * 1024


class StreamUser(Protocol):
    """Who gets the octets. A view is good only during the call."""

    def stream_ready(self, chain: tuple[bytes, ...]) -> None:
        """TLS is up, or there is none."""
        ...

    def stream_data(self, octets: memoryview) -> None: ...

    def stream_writable(self) -> None:
        """There is room to write again."""
        ...

    def stream_lost(self, error: Exception | None) -> None:
        """No more octets in either direction; called once."""
        ...


class _Buffers(threading.local):
    def __init__(self) -> None:
        self.raw = memoryview(bytearray(_READ))
        self.clear = memoryview(bytearray(_CLEAR))


_BUFFERS: Final = _Buffers()


class Stream(asyncio.BufferedProtocol):
    """One socket. `tls` is a context (we are the client), a choice of contexts (server) or None."""

    def __init__(
        self,
        user: StreamUser,
        tls: ssl.SSLContext | ServerContexts | None,
        *,
        write_high_water: int,
        close_seconds: float,
    ) -> None:
        self._user = user
        self._tls = tls
        self._write_high_water = write_high_water
        self._close_seconds = close_seconds
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._object: ssl.SSLObject | None = None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._hello: bytearray | None = None
        self._ready = False
        self._paused = False
        self._closing = False
        self._error: Exception | None = None
        self._abort: asyncio.TimerHandle | None = None
        self.writable = False
        self.address = ""
        self.octets_in = 0
        self.octets_out = 0

    # ------------------------------------------------------------ from asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._write_high_water)
        self.writable = True
        peer = transport.get_extra_info("peername")
        self.address = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer or "")
        if self._tls is None:
            self._ready = True
            self._user.stream_ready(())
        elif isinstance(self._tls, ServerContexts):
            self._hello = bytearray()
        else:
            self._start(self._tls, server_side=False)
            self._handshake()

    def get_buffer(self, sizehint: int) -> memoryview:
        return _BUFFERS.raw

    def buffer_updated(self, nbytes: int) -> None:
        self.octets_in += nbytes
        octets = _BUFFERS.raw[:nbytes]
        if self._closing:
            return
        if self._tls is None:
            self._user.stream_data(octets)
            return
        if self._hello is not None:
            self._hello += octets
            if not complete_hello(self._hello):
                return
            contexts = cast(ServerContexts, self._tls)
            hello, self._hello = bytes(self._hello), None
            self._start(contexts.for_hello(hello), server_side=True)
            self._incoming.write(hello)
        else:
            self._incoming.write(octets)
        if self._ready:
            self._decrypt()
        else:
            self._handshake()

    def eof_received(self) -> bool:
        return False  # asyncio closes the transport

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        if not self._closing:
            self._user.stream_writable()

    def connection_lost(self, exc: Exception | None) -> None:
        self.writable = False
        self._closing = True
        if self._abort is not None:
            self._abort.cancel()
            self._abort = None
        self._user.stream_lost(self._error or exc)

    # ------------------------------------------------------------ from the user

    def write(self, octets: bytes | bytearray | memoryview) -> None:
        if self._closing or self._transport is None:
            return
        if self._object is None:
            # asyncio may keep what it cannot write at once, and our buffers are shared.
            sealed = bytes(octets)
        else:
            try:
                self._object.write(octets)
            except ssl.SSLError as error:
                self._fail(error)
                return
            sealed = self._outgoing.read()
        self._put(sealed)

    def pause_reading(self) -> None:
        if not self._paused and not self._closing and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._paused and not self._closing and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
            if self._ready and self._object is not None:
                self._decrypt()

    def close(self) -> None:
        """Write what is written, say goodbye, and leave when the peer has hung up, or after a while.

        To leave at once, with something of the peer's unread, would make TCP drop what it has not
        read of ours: the reason why it was refused.
        """
        if self._closing or self._transport is None:
            return
        if self._object is not None and self._ready:
            # close_notify goes into the buffer; the peer's own is not waited for.
            with contextlib.suppress(ssl.SSLError):
                self._object.unwrap()
            self._put(self._outgoing.read())
        self._hang_up()

    def _hang_up(self) -> None:
        assert self._transport is not None
        self._closing = True
        self._transport.resume_reading()
        with contextlib.suppress(OSError):  # it may be gone already
            self._transport.write_eof()
        self._abort = self._loop.call_later(self._close_seconds, self._transport.abort)

    def abort(self) -> None:
        if self._transport is not None:
            self._closing = True
            self._transport.abort()

    def _put(self, sealed: bytes) -> None:
        if sealed and self._transport is not None:
            self.octets_out += len(sealed)
            self._transport.write(sealed)

    # ------------------------------------------------------------ TLS

    def _start(self, context: ssl.SSLContext, *, server_side: bool) -> None:
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)

    def _handshake(self) -> None:
        assert self._object is not None
        assert self._transport is not None
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            self._put(self._outgoing.read())
            return
        except ssl.SSLError as error:
            self._fail(error)
            return
        self._put(self._outgoing.read())
        self._ready = True
        self._user.stream_ready(verified_chain(self._object))
        self._decrypt()

    def _decrypt(self) -> None:
        tls: Any = self._object
        incoming, clear = self._incoming, _BUFFERS.clear
        filled, more, ended = 0, True, False
        while more and not self._paused and not self._closing:
            if incoming.pending or tls.pending():
                try:
                    got = tls.read(_CLEAR - filled, clear[filled:])
                except ssl.SSLWantReadError:
                    more = False
                except ssl.SSLError as error:
                    self._fail(error)
                    return
                else:
                    filled += got
                    ended = not got  # close_notify: we do not go on one-sided
                    more = not ended
                if more and filled < _CLEAR:
                    continue
            else:
                more = False
            if filled:
                octets, filled = clear[:filled], 0
                self._user.stream_data(octets)
        if ended:
            self.close()

    def _fail(self, error: ssl.SSLError) -> None:
        """Tell the peer by a TLS alert, when OpenSSL has made one, and leave."""
        if self._transport is None or self._closing:
            return
        self._error = error
        self._put(self._outgoing.read())
        self._hang_up()
