"""Alerts and security events of running components, as people and a SIEM get them."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import pytest

from support.network import network
from support.waiting import eventually


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[int, bytearray]]:
    """A TCP server that keeps what it is told and answers HTTP with 200."""
    heard = bytearray()
    open_: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_.append(writer)
        while data := await reader.read(65536):
            heard.extend(data)
            if b"POST" in data or data.endswith(b"}"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                await writer.drain()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], heard
    finally:
        server.close()
        for writer in open_:
            writer.close()


def _health_port(file: Path) -> int:
    import tomllib

    return int(tomllib.loads(file.read_text())["operations"]["port"])


@pytest.mark.timeout(600)
async def test_a_message_that_waits_too_long_is_told_and_a_refused_user_reaches_the_siem(tmp_path):
    async with (
        listening() as (hook, posts),
        listening() as (syslog, lines),
        network(tmp_path) as net,
    ):
        await net.broker("B1", '[alerts]\ncycle = "200ms"\n[alerts.rules]\nqueue_age = "1s"\n')
        more = (
            f'[syslog]\naddress = "tcp://127.0.0.1:{syslog}"\n'
            f'[alerts]\ncycle = "200ms"\nwebhook = {{ url = "http://127.0.0.1:{hook}/" }}\n'
            '[alerts.rules]\nwaiting = "1s"\n'
        )
        probe = '[operations.probe]\npartner = "E2"\ntimeout = "2s"\n'
        await net.endpoint("E1", "INDIRECT:B1", more=more, last=probe)
        await net.endpoint("E2", "INDIRECT:B1")
        await net.start("B1", "E1", "E2")
        await net.known("E1", "E2")
        port = _health_port(tmp_path / "E1.toml")
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            deep = (await client.get(f"http://127.0.0.1:{port}/health/deep")).json()
            assert deep["probe"]["partner"] == "E2"
            figures = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
        assert 'gridpost_endpoint_status_total{status="DELIVERED"}' in figures
        assert 'gridpost_endpoint_connected{peer="B1"} 1.0' in figures
        await net.components["E2"].stop()
        async with net.api("E1") as api:
            message_id = await api.send("E2", "A01", b"document")

        await eventually(lambda: message_id.encode() in posts, 60)
        assert b"message_waiting" in posts
        await eventually(
            lambda: any(a.get("kind") == "queue_age" for a in net.components["B1"].logged("alert"))
        )
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            port = _health_port(tmp_path / "E1.toml")
            health = (await client.get(f"http://127.0.0.1:{port}/health")).json()
            assert {alert["kind"] for alert in health["alerts"]} == {"message_waiting"}
            # Whoever shows a wrong password is a security event.
            wrong = await client.get(
                f"http://127.0.0.1:{net.ports['E1']}/api/v1/messages", auth=("app", "guessed")
            )
            assert wrong.status_code == 401
        await eventually(lambda: b" security [gridpost@32473" in lines, 60)

        # The recipient comes back: the alert is over.
        await net.start("E2")
        await eventually(lambda: b'"cleared"' in posts, 60)


@contextmanager
def time_server(ahead: float) -> Iterator[int]:
    """RFC 5905: answers as a server whose clock is ahead of ours."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))

        def answer() -> None:
            while True:
                request, peer = server.recvfrom(100)
                if len(request) < 48:
                    return
                now = time.time() + ahead + 2_208_988_800
                stamp = struct.pack("!II", int(now), int((now % 1) * 2**32))
                head = struct.pack("!BBbb3I", 0x24, 1, 0, -20, 0, 0, 0)
                server.sendto(head + stamp + request[40:48] + 2 * stamp, peer)

        thread = threading.Thread(target=answer)
        thread.start()
        port = server.getsockname()[1]
        yield port
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
            end.sendto(b"end", ("127.0.0.1", port))
        thread.join()


@pytest.mark.timeout(600)
@pytest.mark.req("503-10-g")
@pytest.mark.req("503-10-h")
async def test_health_shows_the_offset_of_the_clock_and_open_alerts_survive_a_restart(tmp_path):
    with time_server(ahead=5.0) as ntp:
        await _alerts_over_a_restart(tmp_path, ntp)


async def _alerts_over_a_restart(tmp_path: Path, ntp: int) -> None:
    async with listening() as (hook, posts), network(tmp_path) as net:
        more = (
            f'[clock]\nntp = ["127.0.0.1:{ntp}"]\n'
            f'[alerts]\ncycle = "200ms"\nwebhook = {{ url = "http://127.0.0.1:{hook}/" }}\n'
            "[alerts.rules]\ndisk_free = 4611686018427387904\n"
        )
        broker = await net.broker("B1", more)
        await broker.start()
        await eventually(lambda: posts.count(b'"raised"') == 2, 60)
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            port = _health_port(tmp_path / "B1.toml")
            health = (await client.get(f"http://127.0.0.1:{port}/health")).json()
        # An answer that lay about is off by half of the time that it lay.
        assert abs(health["clock"]["offset_ms"] - 5000) < 3000
        assert {alert["kind"] for alert in health["alerts"]} == {"clock_offset", "disk_space"}
        assert json.loads((tmp_path / "B1" / "alerts.json").read_text())
        await broker.stop()
        await broker.start()
        await asyncio.sleep(1)
        assert posts.count(b'"raised"') == 2
