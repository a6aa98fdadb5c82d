"""E-mail, webhook, syslog and NTP against servers that speak the real protocols."""

from __future__ import annotations

import asyncio
import email
import hashlib
import hmac
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP

from gridpost.core.alerts import AlertKind, Condition, Notice, Phase
from gridpost.core.refusal import Refusal
from gridpost.transports.notices import MailNotifier, MailServer, WebhookNotifier
from gridpost.transports.ntp import clock_offset
from gridpost.transports.syslog import SyslogPort

AT = datetime(2026, 6, 1, 12, tzinfo=UTC)
NOTICES = [
    Notice(Phase.RAISED, Condition(AlertKind.DISK_SPACE, "data", "12 MiB are free"), AT, AT),
    Notice(Phase.CLEARED, Condition(AlertKind.CLOCK_OFFSET, "clock", "2 s off"), AT, AT),
]


class Mailbox:
    def __init__(self) -> None:
        self.mails: list[Any] = []

    async def handle_DATA(self, server, session, envelope) -> str:
        self.mails.append((envelope.rcpt_tos, email.message_from_bytes(envelope.content)))
        return "250 OK"


async def test_an_email_names_the_component_and_what_is_wrong():
    box = Mailbox()
    loop = asyncio.get_running_loop()
    smtp = await loop.create_server(lambda: SMTP(box, loop=loop), "127.0.0.1", 0)
    async with smtp:
        server = MailServer(
            "127.0.0.1",
            smtp.sockets[0].getsockname()[1],
            "gridpost@grid.example",
            ("ops@grid.example",),
            security="none",
        )
        await MailNotifier(server).tell("NORTHGRID", NOTICES)
    [(recipients, mail)] = box.mails
    assert recipients == ["ops@grid.example"]
    assert mail["Subject"] == "[gridpost NORTHGRID] disk space raised and 1 more"
    assert "12 MiB are free" in mail.get_payload()
    assert "over: 2 s off" in mail.get_payload()


async def test_a_mail_server_that_is_away_raises():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        server = MailServer("127.0.0.1", taken.getsockname()[1], "a@b", ("c@d",), security="none")
        with pytest.raises(OSError, match="refused"):
            await MailNotifier(server).tell("E1", NOTICES)


@pytest.fixture
def hook() -> Iterator[tuple[str, list[tuple[dict[str, str], bytes]], list[int]]]:
    taken: list[tuple[dict[str, str], bytes]] = []
    answers = [200]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            taken.append(({k.lower(): v for k, v in self.headers.items()}, body))
            self.send_response(answers[0])
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook", taken, answers
    server.shutdown()
    thread.join()
    server.server_close()


async def test_a_webhook_gets_json_with_a_signature_over_it(hook):
    url, taken, _ = hook
    await WebhookNotifier(url, "shared secret").tell("E1", NOTICES)
    [(headers, body)] = taken
    told = json.loads(body)
    assert told["component"] == "E1"
    assert [alert["phase"] for alert in told["alerts"]] == ["raised", "cleared"]
    digest = hmac.new(b"shared secret", body, hashlib.sha256).hexdigest()
    assert headers["x-gridpost-signature"] == f"sha256={digest}"


async def test_a_webhook_that_does_not_want_it_raises(hook):
    url, _, answers = hook
    answers[0] = 503
    with pytest.raises(Refusal, match="answered 503"):
        await WebhookNotifier(url).tell("E1", NOTICES)


async def test_syslog_over_tcp_counts_octets_and_comes_back_after_a_broken_connection():
    received = bytearray()
    connections: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        while data := await reader.read(1000):
            received.extend(data)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = SyslogPort(f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        await port.send([b"<107>1 first", b"<107>1 second"])
        async with asyncio.timeout(60):
            while b"second" not in received:
                await asyncio.sleep(0.01)
        assert bytes(received) == b"12 <107>1 first13 <107>1 second"
        connections[0].close()
        await asyncio.sleep(0.05)
        with pytest.raises(ConnectionError):
            await port.send([b"lost?"])
        await port.send([b"<107>1 again"])
        async with asyncio.timeout(60):
            while b"again" not in received:
                await asyncio.sleep(0.01)
    finally:
        await port.close()
        server.close()
        for connection in connections:
            connection.close()
            await connection.wait_closed()


async def test_syslog_over_udp_is_one_datagram_a_line():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(60)
        await SyslogPort(f"udp://127.0.0.1:{server.getsockname()[1]}").send([b"<107>1 x"])
        assert await asyncio.to_thread(server.recv, 100) == b"<107>1 x"


def test_an_address_that_is_none_is_refused():
    with pytest.raises(Refusal, match="no syslog address"):
        SyslogPort("http://127.0.0.1")


def ntp_answer(request: bytes, ahead: float) -> bytes:
    """RFC 5905: a server whose clock is ahead of ours."""
    now = time.time() + ahead + 2_208_988_800
    stamp = struct.pack("!II", int(now), int((now % 1) * 2**32))
    return (
        struct.pack("!BBbb11I", 0x24, 1, 0, -20, *[0] * 11)[:16]
        + stamp
        + request[40:48]
        + 2 * stamp
    )


@pytest.mark.parametrize("ahead", [0.0, 5.0, -3.0])
async def test_the_offset_is_what_the_server_says(ahead):
    expected, near = timedelta(seconds=ahead), timedelta(seconds=0.5)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(60)

        def serve() -> None:
            while (received := server.recvfrom(100))[0]:
                server.sendto(ntp_answer(received[0], ahead), received[1])

        thread = threading.Thread(target=serve)
        thread.start()
        port = server.getsockname()[1]
        # An answer that lay about is off by half of the time that it lay: ask again.
        for _ in range(10):
            offset = await clock_offset(["no-such-host.invalid", f"127.0.0.1:{port}"])
            if abs(offset - expected) < near:
                break
        server.sendto(b"", server.getsockname())
        thread.join()
    assert abs(offset - expected) < near


async def test_no_server_that_answers_is_an_error():
    with pytest.raises(OSError, match="no NTP server"):
        await clock_offset([])
