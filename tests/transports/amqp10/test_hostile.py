"""Peers that send anything: the server stays up, forgets them, and takes no harm.

The server is a process of its own: proton is C, and a crash would take everything with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest

from gridpost.transports.amqp10 import AmqpClient, AmqpLimits, Credentials
from support import amqp_frames as amqp
from support.amqp_frames import AMQP_HEADER, RECEIVER, SASL_HEADER, SENDER, sasl_init
from support.server_process import PASSWORD, USER, ServerProcess, server_process

LIMITS = AmqpLimits(
    handshake_seconds=60,
    close_seconds=0.3,
    max_message_size=100_000,
    max_incoming_octets=200_000,
    max_connections_per_identity=10_000,
)
GREETING = SASL_HEADER + sasl_init("PLAIN", f"\0{USER}\0{PASSWORD}".encode()) + AMQP_HEADER


@pytest.fixture(scope="module")
def server(authority: Any) -> Iterator[ServerProcess]:
    with server_process(authority.credentials("B1"), LIMITS, keep=20) as process:
        yield process


def valid_frames() -> list[bytes]:
    """A conversation in which every performative occurs."""
    declare = b"\x00\x53\x77\x00\x53\x31\x45"
    return [
        amqp.open_(),
        amqp.begin(),
        amqp.attach("out", 0, SENDER, "E2"),
        amqp.attach("in", 1, RECEIVER, "E2"),
        amqp.attach("control", 2, SENDER, None, coordinator=True),
        amqp.flow(1, 50),
        amqp.transfer(2, 0, declare),
        amqp.transfer(0, 1, b"whole"),
        amqp.transfer(0, 2, b"x" * 20_000, more=True),
        amqp.transfer(0, 2, b"y" * 20_000),
        amqp.transfer(0, 3, b"dropped", more=True),
        amqp.transfer(0, 3, b"", aborted=True),
        amqp.disposition(RECEIVER, 0, 5, settled=True, state=0x24),
        amqp.disposition(SENDER, 0, 5, settled=True, state=None),
        amqp.flow(None, 0),
        amqp.flow(1, 10, drain=True),
        amqp.begin(1),
        amqp.attach("more", 0, SENDER, "E3", channel=1),
        amqp.detach(1, closed=False),
        amqp.detach(0),
        amqp.end(1),
        amqp.close(),
    ]


ATTACHED = 5
"""So many of the valid frames come before anything may be transferred."""


def mutate(dice: random.Random, frames: list[bytes]) -> list[bytes]:
    """What is said before and after the server's answers."""
    frames = list(frames)
    for _ in range(dice.randint(0, 6)):
        at = dice.randrange(len(frames))
        kind = dice.randrange(7)
        frame = bytearray(frames[at])
        if kind == 0 and len(frame) > 8:
            for _ in range(dice.randint(1, 4)):
                frame[dice.randrange(8 if dice.random() < 0.2 else 4, len(frame))] = dice.randrange(
                    256
                )
        elif kind == 1:
            del frames[at]
            continue
        elif kind == 2:
            frames.insert(at, bytes(frame))
            continue
        elif kind == 3:
            frames.insert(dice.randrange(len(frames)), frames.pop(at))
            continue
        elif kind == 4:
            # A frame that says its own size rightly, with less or more in it.
            body = frame[8 : dice.randint(8, max(8, len(frame)))] + dice.randbytes(
                dice.randrange(20)
            )
            frame[:] = struct.pack(">I", 8 + len(body)) + frame[4:8] + body
        elif kind == 5:
            frame[6:8] = struct.pack(">H", dice.choice((0, 1, 2, 15, 16, 255, 32767, 65535)))
        else:
            frame[:4] = struct.pack(">I", dice.choice((0, 1, 7, 8, 2**31, 2**32 - 1)))
        frames[at] = bytes(frame)
    return [b"".join(frames[:ATTACHED]), b"".join(frames[ATTACHED:])]


async def attack(port: int, *portions: bytes) -> None:
    """Say each portion, and read until the server hangs up or falls silent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for portion in portions:
            writer.write(portion)
            await writer.drain()
            with contextlib.suppress(TimeoutError):
                while await asyncio.wait_for(reader.read(65536), 0.05):
                    pass
    except ConnectionError:
        pass
    finally:
        writer.transport.abort()


async def attack_many(port: int, attacks: Iterable[Sequence[bytes]]) -> None:
    waiting = asyncio.Semaphore(20)

    async def one(portions: Sequence[bytes]) -> None:
        async with waiting:
            await attack(port, *portions)

    await asyncio.gather(*(one(portions) for portions in attacks))


async def still_works(server: ServerProcess) -> None:
    assert server.process.is_alive()
    client = AmqpClient(
        [f"amqp://127.0.0.1:{server.plain_port}"],
        container="good",
        tls=None,
        credentials=Credentials(USER, PASSWORD),
    )
    connection = await client.connect()
    producer = await connection.attach_producer("somewhere")
    assert (await producer.send(b"x")).taken
    connection.close()
    await connection.lost
    async with asyncio.timeout(60):
        while server.state().connections:
            await asyncio.sleep(0.05)


async def test_noise_instead_of_tls(server: ServerProcess, soak: Any) -> None:
    dice = random.Random(soak.seed)
    noise = [dice.randbytes(dice.randrange(1, 2_000)) for _ in range(soak.scale(1_000))]
    hello = b"\x16\x03\x01"
    noise += [hello + dice.randbytes(dice.randrange(200)) for _ in range(soak.scale(1_000))]
    await attack_many(server.tls_port, [[octets] for octets in noise])
    await still_works(server)
    soak.report(attacks=len(noise))


async def test_noise_before_and_inside_sasl(server: ServerProcess, soak: Any) -> None:
    dice = random.Random(soak.seed)
    attacks = []
    for _ in range(soak.scale(5_000)):
        octets = bytearray(GREETING)
        for _ in range(dice.randint(1, 5)):
            octets[dice.randrange(len(octets))] = dice.randrange(256)
        attacks.append([bytes(octets[: dice.randrange(1, len(octets) + 1)])])
    await attack_many(server.plain_port, attacks)
    await still_works(server)
    soak.report(attacks=len(attacks))


async def test_broken_conversations_after_sasl(server: ServerProcess, soak: Any) -> None:
    dice = random.Random(soak.seed)
    frames = valid_frames()
    warm_up = [[GREETING, *mutate(dice, frames)] for _ in range(200)]
    await attack_many(server.plain_port, warm_up)
    await still_works(server)
    before = server.state().resident
    attacks = [[GREETING, *mutate(dice, frames)] for _ in range(soak.scale(20_000))]
    await attack_many(server.plain_port, attacks)
    await still_works(server)
    grown = server.state().resident - before
    soak.report(attacks=len(attacks), grown_kib=grown // 1024)
    assert grown < 30_000_000 + 5_000 * len(attacks)


async def test_the_same_octets_in_portions(server: ServerProcess) -> None:
    """Where a frame is cut by the network makes no difference."""
    frames = valid_frames()
    for size in (1, 7, 8, 13, 1000):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.plain_port)
        said = b""
        for octets in (GREETING + b"".join(frames[:ATTACHED]), b"".join(frames[ATTACHED:])):
            for at in range(0, len(octets), size):
                writer.write(octets[at : at + size])
                if at < 2_000:
                    await asyncio.sleep(0)
            async with asyncio.timeout(60):
                while b"control" not in said and (more := await reader.read(65536)):
                    said += more
        async with asyncio.timeout(60):
            while more := await reader.read(65536):
                said += more
        assert said.endswith(b"\x00\x53\x18\x45")  # CLOSE, and no error in it
        writer.close()
    await still_works(server)
