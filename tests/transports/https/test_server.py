"""The HTTPS server against real TLS clients: who gets in, how slow they may be, when they are put out."""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from gridpost.core.certificate import CertificateKind
from gridpost.core.https import TlsCredentials
from gridpost.core.refusal import Refusal
from gridpost.stores.keys.rsa_operations import to_pkcs8
from gridpost.transports.https import ClientCertificate, HttpsServer, Limits, ServerTls, serve
from gridpost.transports.https.tls import client_context
from gridpost.wire.x509 import Validity, to_pem
from support.https import Echo, credentials, ended, live, live_pki, raw_tls
from support.pki import TestPki

GET = b"GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
QUICK = Limits(header_seconds=2, body_seconds=2, idle_seconds=2)


@asynccontextmanager
async def running(
    app: object = None,
    limits: Limits | None = None,
    tls: ServerTls | None = None,
) -> AsyncIterator[HttpsServer]:
    tls = tls or ServerTls(lambda: live("CD-1"))
    async with serve(app or Echo(), "127.0.0.1", 0, tls, limits) as server:  # type: ignore[arg-type]
        yield server


async def test_the_application_sees_the_verified_chain_of_the_client() -> None:
    app = Echo()
    async with (
        running(app) as server,
        raw_tls(server.port, client_context(live("E1"))) as (reader, writer),
    ):
        writer.write(GET)
        answer = await reader.readuntil(b"</echo>")
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"\r\ndate: " in answer
    assert app.chains == [live("E1").chain]


async def test_curl_gets_an_answer_to_a_get_with_a_body(tmp_path: Path) -> None:
    pki = live_pki()
    me = pki.component("E1", [CertificateKind.AUTHENTICATION])
    chain, key, roots = tmp_path / "chain.pem", tmp_path / "key.pem", tmp_path / "roots.pem"
    chain.write_bytes(to_pem(*me.chain))
    der = tmp_path / "key.der"
    der.write_bytes(credentials(me).private_key)
    await _run("openssl", "pkey", "-inform", "DER", "-in", str(der), "-out", str(key))
    roots.write_bytes(to_pem(pki.root))
    app = Echo()
    async with running(app) as server:
        # curl insists on matching host names, which certificates here do not carry.
        out = await _run(
            "curl", "-sS", "--insecure", "--cacert", str(roots), "--cert", str(chain),
            "--key", str(key), "-X", "GET", "--data-binary", "<query/>",
            "-H", "Content-Type: application/xml", f"https://127.0.0.1:{server.port}/api",
        )  # fmt: skip
    assert out == b"<echo><query/></echo>"
    assert app.seen == [("GET", "/api", b"<query/>")]
    assert app.chains == [tuple(me.chain)]


async def test_a_client_without_certificate_gets_no_answer() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    app = Echo()
    async with running(app) as server:
        assert await _answer(server, context) == b""
    assert app.seen == []


async def test_a_server_may_take_clients_without_certificate() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    app = Echo()
    tls = ServerTls(lambda: live("CD-1"), ClientCertificate.OPTIONAL)
    async with running(app, tls=tls) as server:
        assert b"200 OK" in await _answer(server, context)
        assert b"200 OK" in await _answer(server, client_context(live("E1")))
    assert app.chains == [(), live("E1").chain]


@pytest.mark.parametrize("kind", [CertificateKind.SIGNING, CertificateKind.ENCRYPTION])
async def test_a_certificate_of_another_kind_opens_no_connection(kind: CertificateKind) -> None:
    me = live_pki().component("E1", [kind])
    shown = TlsCredentials(
        (me.certificate(kind).der, me.issuer), to_pkcs8(me.keys[kind]), (live_pki().root,)
    )
    async with running() as server:
        assert await _answer(server, client_context(shown)) == b""


async def test_a_certificate_of_another_root_opens_no_connection() -> None:
    other = live_pki("CD-1", "OTHER")
    shown = credentials(other.component("E1"), live_pki().root)
    async with running() as server:
        assert await _answer(server, client_context(shown)) == b""


async def test_an_expired_certificate_opens_no_connection() -> None:
    now = datetime.now(UTC)
    old = live_pki().component(
        "E1",
        [CertificateKind.AUTHENTICATION],
        Validity(now - timedelta(days=2), now - timedelta(days=1)),
    )
    async with running() as server:
        assert await _answer(server, client_context(credentials(old))) == b""


async def test_clients_under_the_old_and_the_new_root_are_served() -> None:
    other: TestPki = live_pki("CD-2", "NEW-ROOT")
    both = (live_pki().root, other.root)
    tls = ServerTls(lambda: replace(live("CD-1"), roots=both))
    async with running(tls=tls) as server:
        for shown in (live("E1"), credentials(other.component("E2"), *both)):
            assert b"200 OK" in await _answer(server, client_context(shown))


async def test_a_connection_ends_when_its_certificate_expires() -> None:
    now = datetime.now(UTC)
    me = live_pki().component(
        "E1",
        [CertificateKind.AUTHENTICATION],
        Validity(now - timedelta(minutes=1), now + timedelta(seconds=10)),
    )
    async with (
        running() as server,
        raw_tls(server.port, client_context(credentials(me))) as (reader, writer),
    ):
        writer.write(GET)
        await reader.readuntil(b"</echo>")
        await ended(reader)
        assert datetime.now(UTC) >= me.authentication.not_after - timedelta(seconds=1)
        assert server.connections == set()


async def test_connections_of_a_revoked_client_are_closed_and_no_others() -> None:
    async with (
        running() as server,
        raw_tls(server.port, client_context(live("E1"))) as (gone, gone_writer),
        raw_tls(server.port, client_context(live("E2"))) as (kept, kept_writer),
    ):
        for reader, writer in ((gone, gone_writer), (kept, kept_writer)):
            writer.write(GET)
            await reader.readuntil(b"</echo>")
        assert server.close_where(lambda c: c.chain[0] == live("E1").chain[0]) == 1
        assert await ended(gone) == b""
        kept_writer.write(GET)
        assert b"200 OK" in await kept.readuntil(b"</echo>")


async def test_new_connections_see_renewed_credentials_and_old_ones_go_on() -> None:
    current = [live("CD-1")]
    tls = ServerTls(lambda: current[0])
    async with (
        running(tls=tls) as server,
        raw_tls(server.port, client_context(live("E1"))) as (reader, writer),
    ):
        writer.write(GET)
        await reader.readuntil(b"</echo>")
        renewed = live_pki().component("CD-1", [CertificateKind.AUTHENTICATION], key_name="new")
        current[0] = credentials(renewed)
        async with raw_tls(server.port, client_context(live("E1"))) as (_, second):
            shown = second.get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert shown == renewed.authentication.der
        writer.write(GET)
        assert b"200 OK" in await reader.readuntil(b"</echo>")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_no_session_is_resumed(version: ssl.TLSVersion) -> None:
    context = client_context(live("E1"))
    context.minimum_version = context.maximum_version = version
    async with running() as server:

        def twice() -> list[bytes]:
            answers: list[bytes] = []
            session: ssl.SSLSession | None = None
            for _ in range(2):
                with (
                    socket.create_connection(("127.0.0.1", server.port)) as plain,
                    context.wrap_socket(plain, session=session) as secured,
                ):
                    try:
                        secured.sendall(GET)
                        got = secured.recv(65536)
                    except OSError:
                        got = b""
                    # Resumed by the session cache of TLS 1.2, the connection would bring no chain.
                    assert not (got and secured.session_reused)
                    answers.append(got)
                    session = secured.session
            return answers

        answers = await asyncio.to_thread(twice)
    assert b"200 OK" in answers[0]


async def test_tls_1_1_is_not_spoken() -> None:
    context = client_context(live("E1"))
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    async with running() as server:
        out = await _run(
            "openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", "-tls1_1",
            "-cipher", "ALL:@SECLEVEL=0", check=False,
        )  # fmt: skip
    assert b"Cipher is (NONE)" in out or b"New, (NONE)" in out


async def test_plain_http_gets_no_data() -> None:
    app = Echo()
    async with running(app) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(GET)
        assert b"200" not in await ended(reader)
        writer.close()
    assert app.seen == []


@pytest.mark.parametrize(
    "trickle", [b"", b"GET /", b"GET / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc"]
)
async def test_a_client_that_does_not_finish_its_request_is_put_out(trickle: bytes) -> None:
    async with (
        running(limits=QUICK) as server,
        raw_tls(server.port, client_context(live("E1"))) as (reader, writer),
    ):
        writer.write(trickle)
        assert b"200" not in await ended(reader)


async def test_trickling_bytes_do_not_prolong_the_deadline() -> None:
    async with (
        running(limits=QUICK) as server,
        raw_tls(server.port, client_context(live("E1"))) as (reader, writer),
    ):
        writer.write(b"GET / HTTP/1.1\r\n")
        closed = asyncio.ensure_future(ended(reader))
        for sent in range(1000):
            done, _ = await asyncio.wait({closed}, timeout=0.05)
            if done:
                break
            writer.write(b"X-Slow: %d\r\n" % sent)
        assert closed.done()
        assert sent < 200


async def test_a_second_request_has_deadlines_too() -> None:
    async with (
        running(limits=QUICK) as server,
        raw_tls(server.port, client_context(live("E1"))) as (reader, writer),
    ):
        writer.write(GET)
        await reader.readuntil(b"</echo>")
        writer.write(b"GET / HT")
        assert await ended(reader) == b""


async def test_a_client_that_never_shakes_hands_is_put_out() -> None:
    async with running(limits=Limits(handshake_seconds=0.5)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        assert await ended(reader) == b""
        writer.close()


async def test_more_connections_than_allowed_are_refused_and_room_comes_back() -> None:
    async with running(limits=Limits(max_connections=1)) as server:
        async with raw_tls(server.port, client_context(live("E1"))) as (reader, writer):
            writer.write(GET)
            await reader.readuntil(b"</echo>")
            assert await _answer(server, client_context(live("E2"))) == b""
        for _ in range(1000):
            if b"200 OK" in await _answer(server, client_context(live("E2"))):
                return
        pytest.fail("the room of the first connection never came back")


@pytest.mark.parametrize(
    "request_",
    [
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n" + b"a" * 1001,
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n"
        + b"a" * 1001
        + b"\r\n0\r\n\r\n",
    ],
)
async def test_a_body_that_is_too_large_is_a_refusal_for_the_application(request_: bytes) -> None:
    caught: list[Refusal] = []
    echo = Echo()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await echo(scope, receive, send)
        except Refusal as refusal:
            caught.append(refusal)
            await send({"type": "http.response.start", "status": 413, "headers": []})
            await send({"type": "http.response.body", "body": b"too large"})

    async with (
        running(app, limits=Limits(idle_seconds=1, max_body=1000)) as server,
        raw_tls(server.port, client_context(live("E1"))) as (reader, writer),
    ):
        writer.write(request_)
        assert b"413" in await ended(reader)
    assert [refusal.rule.name for refusal in caught] == ["LIMIT_EXCEEDED"]
    assert echo.seen == []


async def test_what_is_no_http_gets_the_answer_of_the_application() -> None:
    tls = ServerTls(lambda: live("CD-1"))
    async with (
        serve(
            Echo(), "127.0.0.1", 0, tls, malformed_answer=lambda _: ("application/xml", b"<error/>")
        ) as server,
        raw_tls(server.port, client_context(live("E1"))) as (reader, writer),
    ):
        writer.write(b"nonsense\r\n\r\n")
        answer = await ended(reader)
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.endswith(b"<error/>")


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 20_000,
        b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 5_000 + b"\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    ],
)
async def test_a_head_that_is_too_large_or_names_no_host_reaches_no_application(
    head: bytes,
) -> None:
    app = Echo()
    async with (
        running(app) as server,
        raw_tls(server.port, client_context(live("E1"))) as (reader, writer),
    ):
        writer.write(head)
        assert (await ended(reader)).startswith(b"HTTP/1.1 400")
    assert app.seen == []


async def test_a_request_behind_a_large_body_is_answered_too() -> None:
    app = Echo()
    body = bytes(50_000)
    first = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\n" + body
    second = b"GET /second HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    async with (
        running(app) as server,
        raw_tls(server.port, client_context(live("E1"))) as (reader, writer),
    ):
        writer.write(first + second[:10])
        await reader.readuntil(b"</echo>")
        writer.write(second[10:])
        assert b"<echo></echo>" in await ended(reader)
    assert [(path, size) for _, path, seen in app.seen if (size := len(seen)) is not None] == [
        ("/", 50_000),
        ("/second", 0),
    ]


async def test_chunks_that_arrive_while_the_application_is_busy_are_read_in_order_and_within_bounds() -> (
    None
):
    largest, read = 0, b""
    first = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal largest, read
        if scope["type"] != "http":
            return
        more = True
        while more:
            message = await receive()
            largest = max(largest, len(message["body"]))
            read, more = read + message["body"], message["more_body"]
            if not first.is_set():
                first.set()
                await asyncio.sleep(0.3)  # meanwhile more comes than may wait
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    chunks = [os.urandom(size % 40) + b"!" for size in range(2_000)] + [os.urandom(4_000_000)]
    async with (
        running(slow) as server,
        raw_tls(server.port, client_context(live("E1"))) as (reader, writer),
    ):
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"%x\r\n%b\r\n" % (len(chunks[0]), chunks[0]))
        await first.wait()
        for chunk in chunks[1:]:
            writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        writer.write(b"0\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")
    assert read == b"".join(chunks)
    assert largest <= 1024 * 1024


async def test_stopping_waits_for_the_answer_under_way() -> None:
    app = Echo()
    app.hold.clear()
    async with asyncio.timeout(60):
        async with running(app) as server:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=client_context(live("E1"))
            )
            writer.write(GET)
            await app.asked.wait()
            asyncio.get_running_loop().call_later(0.2, app.hold.set)
        assert b"<echo>abc</echo>" in await ended(reader)
        writer.close()


async def test_stopping_leaves_no_connection_that_has_just_arrived() -> None:
    async with running() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        while not server._arriving:
            await asyncio.sleep(0)
        # Its handshake has not taken its first step.
    await ended(reader)
    writer.close()
    assert server._open == 0


async def test_a_connection_that_the_listener_took_last_is_not_served() -> None:
    async with running() as server:
        await server.stop()
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        transport, stream = await loop.connect_accepted_socket(server.stream, ours)
        assert transport.is_closing()
        assert stream.is_closing()  # type: ignore[attr-defined]
        assert server._open == 0
        theirs.close()


async def _answer(server: HttpsServer, context: ssl.SSLContext) -> bytes:
    try:
        async with raw_tls(server.port, context) as (reader, writer):
            writer.write(GET)
            return await asyncio.wait_for(reader.readuntil(b"</echo>"), 60)
    except (OSError, ssl.SSLError, asyncio.IncompleteReadError):
        return b""


async def _run(*command: str, check: bool = True) -> bytes:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    assert not check or process.returncode == 0, out
    return out
