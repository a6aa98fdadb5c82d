"""AMQP 1.0 frames made by hand, for peers that do what no library would."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from gridpost.wire.amqp.codec import decode, encode, encode_composite, skip
from gridpost.wire.amqp.types import Described, Symbol, UByte, UInt, ULong, UShort, Value

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"

OPEN, BEGIN, ATTACH, FLOW, TRANSFER = 0x10, 0x11, 0x12, 0x13, 0x14
DISPOSITION, DETACH, END, CLOSE = 0x15, 0x16, 0x17, 0x18
SENDER, RECEIVER = False, True
# AMQP 3.4 and 4.5
ACCEPTED, REJECTED, RELEASED = 0x24, 0x25, 0x26
DECLARED, TRANSACTIONAL = 0x33, 0x34


def frame(performative: bytes, payload: bytes = b"", *, channel: int = 0, kind: int = 0) -> bytes:
    size = 8 + len(performative) + len(payload)
    head = size.to_bytes(4, "big") + bytes((2, kind)) + channel.to_bytes(2, "big")
    return head + performative + payload


def sasl_init(mechanism: str, response: bytes | None) -> bytes:
    return frame(encode_composite(0x41, [Symbol(mechanism), response]), kind=1)


def open_(container: str = "raw", max_frame: int = 65536) -> bytes:
    return frame(encode_composite(OPEN, [container, None, UInt(max_frame), UShort(100)]))


def begin(channel: int = 0) -> bytes:
    fields: list[Value] = [None, UInt(0), UInt(1000), UInt(1000)]
    return frame(encode_composite(BEGIN, fields), channel=channel)


def terminus(code: int, address: str | None, *, dynamic: bool = False) -> Described:
    return Described(ULong(code), [address, UInt(0), None, UInt(0), dynamic])


def attach(
    name: str,
    handle: int,
    role: bool,
    address: str | None,
    *,
    dynamic: bool = False,
    coordinator: bool = False,
    channel: int = 0,
    unsettled: Value = None,
) -> bytes:
    own = terminus(0x28, address, dynamic=dynamic)
    target = terminus(0x29, address, dynamic=dynamic)
    if coordinator:
        target = Described(ULong(0x30), [])
    fields: list[Value] = [
        name, UInt(handle), role, UByte(2), UByte(0),
        own if role is RECEIVER else terminus(0x28, "here"),
        target if role is SENDER else terminus(0x29, "here"),
        unsettled, None, None if role is RECEIVER else UInt(0),
    ]  # fmt: skip
    return frame(encode_composite(ATTACH, fields), channel=channel)


def flow(handle: int | None, credit: int, *, drain: bool = False, count: int = 0) -> bytes:
    fields: list[Value] = [UInt(0), UInt(1000), UInt(0), UInt(1000)]
    if handle is not None:
        fields += [UInt(handle), UInt(count), UInt(credit), None, drain]
    return frame(encode_composite(FLOW, fields))


def transfer(
    handle: int,
    number: int,
    payload: bytes,
    *,
    more: bool = False,
    settled: bool = False,
    aborted: bool = False,
    state: Value = None,
) -> bytes:
    tag = number.to_bytes(4, "big")
    fields: list[Value] = [
        UInt(handle), UInt(number), tag, UInt(0), settled, more, None, state, None, aborted,
    ]  # fmt: skip
    return frame(encode_composite(TRANSFER, fields), payload)


def disposition(
    role: bool,
    first: int,
    last: int,
    *,
    settled: bool,
    state: int | None,
    transaction: bytes | None = None,
) -> bytes:
    said = Described(ULong(state), []) if state is not None else None
    if transaction is not None:
        said = Described(ULong(TRANSACTIONAL), [transaction, said])
    fields: list[Value] = [role, UInt(first), UInt(last), settled, said]
    return frame(encode_composite(DISPOSITION, fields))


def declare() -> bytes:
    """AMQP 4.5.2: the message that begins a transaction."""
    return encode(Described(ULong(0x77), Described(ULong(0x31), [])))


def discharge(transaction: bytes, *, fail: bool = False) -> bytes:
    return encode(Described(ULong(0x77), Described(ULong(0x32), [transaction, fail])))


def detach(handle: int, *, closed: bool = True) -> bytes:
    return frame(encode_composite(DETACH, [UInt(handle), closed]))


def end(channel: int = 0) -> bytes:
    return frame(encode_composite(END, []), channel=channel)


def close() -> bytes:
    return frame(encode_composite(CLOSE, []))


class RawPeer:
    """A peer that says what a test tells it to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def greet(self) -> None:
        """TLS is there; SASL EXTERNAL and the AMQP headers."""
        self.writer.write(SASL_HEADER + sasl_init("EXTERNAL", b"") + AMQP_HEADER)
        assert await self.reader.readexactly(8) == SASL_HEADER
        await self.read()
        assert (await self.read())[1] == [0]
        assert await self.reader.readexactly(8) == AMQP_HEADER

    async def say(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))
        await self.writer.drain()

    async def read(self) -> tuple[int, list[Any], bytes]:
        """Code, fields and payload of the next frame that is not a heartbeat."""
        while True:
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            body = (await self.reader.readexactly(size - 4))[4:]
            if body:
                break
        stop = skip(body, 0, len(body))
        value = decode(body[:stop])
        assert isinstance(value, Described)
        assert isinstance(value.descriptor, int)
        assert isinstance(value.value, list)
        return int(value.descriptor), value.value, body[stop:]

    async def expect(self, *codes: int) -> list[Any]:
        """The fields of the last of these frames; any others in between are skipped."""
        fields: list[Any] = []
        for code in codes:
            found = -1
            while found != code:
                found, fields, _ = await self.read()
        return fields

    async def ended(self) -> None:
        """Read until the server hangs up."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):  # also of TLS, when the server said something last
            await self.writer.wait_closed()


def condition(error: Any) -> str:
    """The symbol of an error, from DETACH or CLOSE."""
    assert isinstance(error, Described)
    assert isinstance(error.value, list)
    return str(error.value[0])
