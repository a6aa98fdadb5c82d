"""The HTTPS client against real servers: what it shows, whom it believes, and which URL it takes."""

import asyncio
import gc
import os
import ssl
from collections.abc import Sequence

import pytest
from starlette.types import Receive, Scope, Send

from gridpost.core.certificate import CertificateKind
from gridpost.core.https import HttpRequest
from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.https import (
    ClientTls,
    HttpsClient,
    Keeping,
    ServerTls,
    Timeouts,
    serve,
)
from gridpost.transports.https.tls import ClientCertificate, server_context
from support.https import Echo, Proxy, credentials, listening, live, live_pki

GET = HttpRequest("GET", "/api/v1/components", b"<query/>")
POST = HttpRequest("POST", "/api/v1/registrations", b"<request/>")


def client(proxy: str = "", timeouts: Timeouts | None = None) -> HttpsClient:
    return HttpsClient(ClientTls(lambda: live("E1")), proxy=proxy, timeouts=timeouts)


def anybody(chain: Sequence[bytes]) -> None:
    assert chain


def nobody(chain: Sequence[bytes]) -> None:
    raise Refusal(Rule.CERTIFICATE_NOT_OF_COMPONENT, "not the one that was dialled")


def tls(code: str = "CD-1") -> ServerTls:
    return ServerTls(lambda: live(code))


async def test_a_get_carries_its_body_and_both_sides_show_their_chain() -> None:
    app = Echo()
    async with serve(app, "127.0.0.1", 0, tls()) as server:
        url = f"https://127.0.0.1:{server.port}"
        answer = await client().request(GET, urls=[url], authorise=anybody)
    assert (answer.status, answer.body) == (200, b"<echo><query/></echo>")
    assert (answer.url, answer.chain) == (url, live("CD-1").chain)
    assert app.seen == [("GET", "/api/v1/components", b"<query/>")]
    assert app.chains == [live("E1").chain]


class Recorder:
    """Takes a connection and writes down every byte that comes through it."""

    def __init__(self, *, tls: bool = True) -> None:
        self._tls = tls
        self.bytes = b""
        self.sent: list[list[bytes]] = []
        self.begun = asyncio.Event()
        self.closed = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._tls:
            peer = writer.get_extra_info("ssl_object")._sslobj
            self.sent.append([c.public_bytes(2) for c in peer.get_unverified_chain()])
        self.begun.set()
        try:
            self.bytes += await reader.read()
        except (OSError, ssl.SSLError):
            pass
        finally:
            self.closed.set()
            writer.close()


async def test_not_a_byte_of_the_request_leaves_for_a_server_that_is_not_the_one_dialled() -> None:
    recorder = Recorder()
    context = server_context(live("CD-2"), ClientCertificate.REQUIRED)
    async with listening(recorder, context) as port:
        with pytest.raises(Refusal) as caught:
            await client().request(POST, urls=[f"https://127.0.0.1:{port}"], authorise=nobody)
        await asyncio.wait_for(recorder.closed.wait(), 60)
    assert caught.value.rule is Rule.CERTIFICATE_NOT_OF_COMPONENT
    assert recorder.bytes == b""
    # 503 cl. 8.4.1: the own certificate, then the INTEGRATED CA.
    assert recorder.sent == [list(live("E1").chain)]


async def test_a_server_of_another_root_is_not_trusted() -> None:
    other = credentials(live_pki("CD-1", "OTHER").component("CD-1"), live_pki().root)
    app = Echo()
    async with serve(app, "127.0.0.1", 0, ServerTls(lambda: other)) as server:
        with pytest.raises(Refusal) as caught:
            await client().request(
                GET, urls=[f"https://127.0.0.1:{server.port}"], authorise=anybody
            )
    assert caught.value.rule is Rule.CHAIN_NOT_TRUSTED
    assert app.seen == []


async def test_an_installation_certificate_serves_nobody() -> None:
    pki = live_pki()
    me = pki.component("CD-1", [CertificateKind.AUTHENTICATION], key_name="CD-1 installation")
    shown = credentials(me)
    forged = type(shown)(
        (pki.installation("CD-1"), pki.integrated_ca), shown.private_key, shown.roots
    )
    with pytest.raises(Refusal, match="cannot be used"):
        server_context(forged, ClientCertificate.REQUIRED)  # another key: refused at the start


async def test_plain_http_urls_are_refused_before_anything_is_dialled() -> None:
    recorder = Recorder()
    async with listening(recorder) as port:
        with pytest.raises(Refusal, match="no https URL"):
            await client().request(GET, urls=[f"http://127.0.0.1:{port}"], authorise=anybody)
    assert not recorder.closed.is_set()


async def test_the_secondary_url_serves_when_the_primary_is_down_and_is_remembered() -> None:
    app = Echo()
    dialled: list[int] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        dialled.append(1)
        writer.close()

    async with listening(refuse) as dead, serve(app, "127.0.0.1", 0, tls()) as server:
        caller = client()
        urls = [f"https://127.0.0.1:{dead}", f"https://127.0.0.1:{server.port}"]
        for _ in range(3):
            answer = await caller.request(GET, urls=urls, authorise=anybody)
            assert answer.url == urls[1]
    assert len(app.seen) == 3
    assert len(dialled) == 1


async def test_a_post_that_may_have_arrived_is_not_sent_again() -> None:
    app = Echo()

    async def cut(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["extensions"]["tls"]["connection"].close()

    async with serve(cut, "127.0.0.1", 0, tls()) as first, serve(app, "127.0.0.1", 0, tls()) as two:
        urls = [f"https://127.0.0.1:{first.port}", f"https://127.0.0.1:{two.port}"]
        with pytest.raises(Refusal) as caught:
            await client().request(POST, urls=urls, authorise=anybody)
        assert caught.value.rule is Rule.UNREACHABLE
        assert app.seen == []
        assert (await client().request(GET, urls=urls, authorise=anybody)).url == urls[1]


async def test_a_silent_server_is_given_up() -> None:
    app = Echo()
    app.hold.clear()
    async with serve(app, "127.0.0.1", 0, tls()) as server:
        caller = client(timeouts=Timeouts(connect=5, exchange=0.3))
        with pytest.raises(Refusal, match="no answer within"):
            await caller.request(GET, urls=[f"https://127.0.0.1:{server.port}"], authorise=anybody)
        app.hold.set()


@pytest.mark.parametrize("scheme", ["", "http", "socks5"])
@pytest.mark.parametrize("given_up", ["cancelled", "timeout"])
async def test_a_handshake_that_is_given_up_leaves_no_connection_open(
    scheme: str, given_up: str
) -> None:
    silent = Recorder(tls=False)
    short = Timeouts(exchange=0.5) if given_up == "timeout" else None
    async with listening(silent) as port:
        address = f"127.0.0.1:{port}"
        caller = client(f"{scheme}://{address}" if scheme else "", short)
        asking = asyncio.create_task(
            caller.request(GET, urls=[f"https://{address}"], authorise=anybody)
        )
        await asyncio.wait_for(silent.begun.wait(), 60)
        if given_up == "cancelled":
            asking.cancel()
        with pytest.raises((asyncio.CancelledError, Refusal)):
            await asking
        # The server sees the end of it now, not when somebody collects garbage.
        gc.disable()
        try:
            await asyncio.wait_for(silent.closed.wait(), 60)
        finally:
            gc.enable()


async def test_an_answer_larger_than_the_limit_is_refused() -> None:
    async with serve(Echo(), "127.0.0.1", 0, tls()) as server:
        caller = HttpsClient(ClientTls(lambda: live("E1")), max_answer=10)
        with pytest.raises(Refusal) as caught:
            await caller.request(GET, urls=[f"https://127.0.0.1:{server.port}"], authorise=anybody)
    assert caught.value.rule is Rule.LIMIT_EXCEEDED


@pytest.mark.parametrize("scheme", ["http", "socks5"])
async def test_a_proxy_leads_to_the_server_and_the_server_is_still_judged(scheme: str) -> None:
    proxy = Proxy()
    app = Echo()
    async with listening(proxy) as port, serve(app, "127.0.0.1", 0, tls()) as server:
        caller = client(f"{scheme}://127.0.0.1:{port}")
        url = f"https://127.0.0.1:{server.port}"
        answer = await caller.request(GET, urls=[url], authorise=anybody)
        assert answer.body == b"<echo><query/></echo>"
        assert answer.chain == live("CD-1").chain
        with pytest.raises(Refusal, match="not the one"):
            await caller.request(GET, urls=[url], authorise=nobody)
    assert proxy.targets == [f"127.0.0.1:{server.port}"] * 2
    assert len(app.seen) == 1


@pytest.mark.parametrize("url", ["https://p:1", "p:1", "socks4://p:1", "http://p"])
def test_a_proxy_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(Refusal, match="a proxy is given as"):
        client(url)


def keeping() -> HttpsClient:
    return HttpsClient(ClientTls(lambda: live("E1")), keeping=Keeping())


class Counting(Echo):
    """Counts connections by the port of the client."""

    def __init__(self) -> None:
        super().__init__()
        self.ports: list[int] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self.ports.append(scope["client"][1])
        await super().__call__(scope, receive, send)


async def test_a_kept_connection_serves_further_requests() -> None:
    app, kept = Counting(), keeping()
    async with serve(app, "127.0.0.1", 0, tls()) as server:
        url = f"https://127.0.0.1:{server.port}"
        try:
            for _ in range(3):
                answer = await kept.request(POST, urls=[url], authorise=anybody)
                assert answer.chain == live("CD-1").chain
            assert len(set(app.ports)) == 1
            # Several at once have one each.
            both = [kept.request(POST, urls=[url], authorise=anybody) for _ in range(2)]
            assert [a.status for a in await asyncio.gather(*both)] == [200, 200]
            assert len(set(app.ports)) == 2
            for _ in range(2):
                await client().request(POST, urls=[url], authorise=anybody)
            assert len(set(app.ports)) == 4
        finally:
            await kept.close()


async def test_a_kept_connection_is_judged_before_each_request() -> None:
    app, kept = Counting(), keeping()
    async with serve(app, "127.0.0.1", 0, tls()) as server:
        url = f"https://127.0.0.1:{server.port}"
        try:
            await kept.request(POST, urls=[url], authorise=anybody)
            with pytest.raises(Refusal, match="not the one that was dialled"):
                await kept.request(POST, urls=[url], authorise=nobody)
            assert len(app.ports) == 1
            await kept.request(POST, urls=[url], authorise=anybody)
            assert len(set(app.ports)) == 2
        finally:
            await kept.close()


async def test_a_kept_connection_ends_with_our_certificate_and_with_its_time() -> None:
    app, shown = Counting(), [live("E1")]
    kept = HttpsClient(ClientTls(lambda: shown[0]), keeping=Keeping())
    short = HttpsClient(ClientTls(lambda: live("E1")), keeping=Keeping(age=0.0))
    async with serve(app, "127.0.0.1", 0, tls()) as server:
        url = f"https://127.0.0.1:{server.port}"
        try:
            await kept.request(POST, urls=[url], authorise=anybody)
            shown[0] = live("E2")
            await kept.request(POST, urls=[url], authorise=anybody)
            assert app.chains == [live("E1").chain, live("E2").chain]
            assert len(set(app.ports)) == 2
            for _ in range(2):
                await short.request(POST, urls=[url], authorise=anybody)
            assert len(set(app.ports)) == 4
        finally:
            await kept.close()
            await short.close()


async def test_a_server_that_was_restarted_is_asked_by_a_new_connection() -> None:
    kept = keeping()
    try:
        async with serve(Echo(), "127.0.0.1", 0, tls()) as server:
            port = server.port
            url = f"https://127.0.0.1:{port}"
            await kept.request(POST, urls=[url], authorise=anybody)
        with pytest.raises(Refusal, match="cannot be reached"):
            await kept.request(POST, urls=[url], authorise=anybody)
        async with serve(Echo(), "127.0.0.1", port, tls()):
            assert (await kept.request(POST, urls=[url], authorise=anybody)).status == 200
    finally:
        await kept.close()


@pytest.mark.parametrize(
    ("told", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", b"hello"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", b"hi"),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", None),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000, None),
        (b"nonsense", None),
        (b"", None),
    ],
)
async def test_an_answer_is_read_in_each_of_its_forms_or_refused(
    told: bytes, body: bytes | None
) -> None:
    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"<query/>")
        writer.write(told)
        await writer.drain()

    context = server_context(live("CD-1"), ClientCertificate.REQUIRED)
    async with listening(answering, context) as port:
        asking = client().request(GET, urls=[f"https://127.0.0.1:{port}"], authorise=anybody)
        if body is None:
            with pytest.raises(Refusal, match="cannot be reached"):
                await asking
        else:
            assert (await asking).body == body


async def test_an_answer_that_comes_before_the_request_has_left_is_taken() -> None:
    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        await reader.read()

    context = server_context(live("CD-1"), ClientCertificate.REQUIRED)
    async with listening(answering, context) as port:
        post = HttpRequest("POST", "/", bytes(64 * 1024 * 1024))
        answer = await client().request(post, urls=[f"https://127.0.0.1:{port}"], authorise=anybody)
    assert answer.status == 413


async def test_a_body_in_pieces_arrives_as_one() -> None:
    large = os.urandom(700 * 1024)
    app = Echo()
    async with serve(app, "127.0.0.1", 0, tls()) as server:
        post = HttpRequest("POST", "/", (b"<a>", large, memoryview(large)[5:9], b"", b"</a>"))
        url = f"https://127.0.0.1:{server.port}"
        answer = await client().request(post, urls=[url], authorise=anybody)
    (whole,) = (body for _, _, body in app.seen)
    assert whole == b"<a>" + large + large[5:9] + b"</a>"
    assert len(answer.pieces) > 1
    assert answer.body == b"<echo>" + whole + b"</echo>"
