"""Proton's engine: the only file that imports it, and the only one that creates and frees its objects.

Others call `lib` with the pointers they got from here. They must never do so after `Engine.free`
and must not touch a link or delivery that they freed or settled: C would not notice.
"""

from __future__ import annotations

import threading
from typing import Any, Final

import cproton  # noqa: F401  prepares cproton_ffi
from cproton_ffi import ffi as _ffi
from cproton_ffi import lib as _lib

from gridpost.transports.amqp10.limits import AmqpLimits
from gridpost.wire.amqp.codec import decode, encode
from gridpost.wire.amqp.types import Array, Symbol, Value

ffi: Final[Any] = _ffi
lib: Final[Any] = _lib

# AMQP 3.4 and 4.5: descriptors of delivery states
RECEIVED: Final = 0x23
ACCEPTED: Final = 0x24
REJECTED: Final = 0x25
RELEASED: Final = 0x26
MODIFIED: Final = 0x27
DECLARED: Final = 0x33
TRANSACTIONAL: Final = 0x34

END_OF_STREAM: Final = -1
OUTPUT: Final = 256 * 1024
SCRATCH: Final = 128 * 1024


class _Buffers(threading.local):
    """Shared by all connections of a thread: filled and emptied within one call."""

    def __init__(self) -> None:
        octets = bytearray(OUTPUT)
        self.output_view = memoryview(octets)
        self.output = ffi.from_buffer(octets)
        self.scratch = ffi.new("char[]", SCRATCH)


BUFFERS: Final = _Buffers()


class Engine:
    """The protocol state of one connection: octets go in, events and octets come out."""

    __slots__ = ("collector", "connection", "transport")

    def __init__(self, *, server: bool, container: str, hostname: str, limits: AmqpLimits) -> None:
        self.transport = lib.pn_transport()
        self.connection = lib.pn_connection()
        self.collector = lib.pn_collector()
        if server:
            lib.pn_transport_set_server(self.transport)
        lib.pn_transport_set_max_frame(self.transport, limits.max_frame_size)
        lib.pn_transport_set_channel_max(self.transport, limits.max_sessions - 1)
        lib.pn_transport_set_idle_timeout(self.transport, int(limits.idle_seconds * 1000))
        lib.pn_connection_set_container(self.connection, container.encode())
        if hostname:
            lib.pn_connection_set_hostname(self.connection, hostname.encode())
        lib.pn_connection_collect(self.connection, self.collector)
        lib.pn_transport_bind(self.transport, self.connection)

    def push(self, octets: bytes | memoryview) -> None:
        """Let proton read. After an error of the protocol it reads nothing more."""
        base, at, end = ffi.from_buffer(octets), 0, len(octets)
        while at < end:
            taken = lib.pn_transport_push(self.transport, base + at, end - at)
            if taken <= 0:
                return
            at += taken

    def free(self) -> None:
        """In the order of proton's own connection driver."""
        lib.pn_transport_unbind(self.transport)
        lib.pn_connection_collect(self.connection, ffi.NULL)
        lib.pn_connection_release(self.connection)
        lib.pn_decref(self.connection)
        lib.pn_decref(self.transport)
        lib.pn_collector_free(self.collector)


def text(octets: Any) -> str | None:
    """A C string. It comes from the peer: what is not UTF-8 must not become an exception."""
    if not octets:
        return None
    value: str = ffi.string(octets).decode("utf-8", "replace")
    return value


def set_condition(condition: Any, name: str, description: str) -> None:
    lib.pn_condition_set_name(condition, name.encode())
    lib.pn_condition_set_description(condition, description.encode())


def condition_of(condition: Any) -> tuple[str, str] | None:
    if not lib.pn_condition_is_set(condition):
        return None
    name = text(lib.pn_condition_get_name(condition)) or ""
    return name, text(lib.pn_condition_get_description(condition)) or ""


def read_value(data: Any) -> Value:
    """What proton holds as decoded data; None when it holds nothing."""
    if not data:
        return None
    size = lib.pn_data_encoded_size(data)
    if size <= 0:
        return None
    buffer = ffi.new("char[]", size)
    written = lib.pn_data_encode(data, buffer, size)
    return decode(bytes(ffi.buffer(buffer, written)))


def write_value(data: Any, value: Value) -> None:
    octets = encode(value)
    lib.pn_data_clear(data)
    lib.pn_data_decode(data, ffi.from_buffer(octets), len(octets))


def symbols(data: Any) -> tuple[str, ...]:
    """AMQP 1.4: a field that may hold several symbols is one symbol or an array of them."""
    value = read_value(data)
    items = value.items if isinstance(value, Array) else (value,)
    return tuple(str(item) for item in items if isinstance(item, Symbol))
