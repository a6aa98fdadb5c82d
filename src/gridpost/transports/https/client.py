"""The HTTPS client: a request goes out only after the server's certificate has been judged.

One connection serves one request, unless the caller says how long it may be kept: exchanges with a
component-directory are minutes apart. A kept one is judged again before each request, and is given up
when our certificate was renewed, when it is old, and when nobody used it.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpcore

from gridpost.core.https import Authorise, HttpAnswer, HttpRequest
from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.https.judging import JudgingBackend
from gridpost.transports.https.tls import verified_chain

# What leads to the next URL after an answer came: the server in front of a directory speaks.
_GATEWAY_FAULTS = (502, 503, 504)

# How long a working secondary URL is preferred before the primary one is tried again.
_PREFERENCE_SECONDS = 900.0

_PIECE = 256 * 1024

_PROXY_SCHEMES = ("http", "socks5", "socks5h")


@dataclass(frozen=True, slots=True)
class Timeouts:
    connect: float = 10.0
    exchange: float = 60.0
    """From the first attempt to connect to the last byte of the answer."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long a connection may serve further requests; each of these may safely be made twice."""

    idle: float = 20.0
    """Less than servers wait for the next request (`Limits.idle_seconds`)."""
    age: float = 300.0
    """A peer whose certificate has ended meanwhile is found out after this at the latest."""


class HttpsClient:
    """Requests to peers that have one or more URLs, tried in order (503 Table 18, urls)."""

    def __init__(
        self,
        tls: Callable[[], ssl.SSLContext],
        *,
        proxy: str = "",
        timeouts: Timeouts | None = None,
        max_answer: int = 128 * 1024 * 1024,
        keeping: Keeping | None = None,
    ) -> None:
        """`proxy` is `http://[user:password@]host:port` or the same with `socks5`.

        Whoever keeps connections closes them with `close`.
        """
        self._tls = tls
        self._keeping = keeping
        self._kept: dict[str, list[_Line]] = {}
        self._proxy = _proxy(proxy) if proxy else None
        self._timeouts = timeouts or Timeouts()
        self._max_answer = max_answer
        self._working: dict[tuple[str, ...], tuple[str, float]] = {}

    async def request(
        self, request: HttpRequest, *, urls: Sequence[str], authorise: Authorise
    ) -> HttpAnswer:
        """The first answer of one of the URLs; a refusal that tells what each of them did."""
        if not urls:
            raise Refusal(Rule.UNREACHABLE, "the peer publishes no URL")
        failures: list[Refusal] = []
        for url in self._in_order(tuple(urls)):
            attempt = _Attempt(request, url, authorise, self._max_answer)
            try:
                answer = await self._answer(attempt)
            except Refusal as refusal:
                failures.append(refusal)
                # What may have arrived must not arrive twice.
                if attempt.sent and not request.repeatable:
                    break
                continue
            if answer.status in _GATEWAY_FAULTS and request.repeatable:
                failures.append(Refusal(Rule.UNREACHABLE, f"{url} answered {answer.status}"))
                continue
            if self._preferred(tuple(urls)) != url:
                # The time of preference runs from the first use of a URL, not from the last.
                self._working[tuple(urls)] = (url, time.monotonic())
            return answer
        self._working.pop(tuple(urls), None)
        raise _worst(failures)

    async def close(self) -> None:
        """Everything that was kept."""
        kept, self._kept = self._kept, {}
        for line in (line for lines in kept.values() for line in lines):
            await line.close()

    async def _answer(self, attempt: _Attempt) -> HttpAnswer:
        line = await self._take(attempt.url)
        if line is not None:
            try:
                answer = await attempt.run(line, self._timeouts)
            except Refusal as refusal:
                await line.close()
                # The server may have closed it at this moment: a new one tells.
                if refusal.rule is not Rule.UNREACHABLE or attempt.connected:
                    raise
            except BaseException:
                await line.close()
                raise
            else:
                await self._keep(attempt.url, line)
                return answer
        line = _Line(self._tls(), self._proxy, self._keeping)
        try:
            answer = await attempt.run(line, self._timeouts)
        except BaseException:
            await line.close()
            raise
        await self._keep(attempt.url, line)
        return answer

    async def _take(self, url: str) -> _Line | None:
        """A kept connection that still counts; those that do not are closed."""
        if self._keeping is None:
            return None
        context, now = self._tls(), time.monotonic()
        lines = self._kept.get(url, [])
        while lines:
            line = lines.pop()
            if line.context is context and now < line.until and line.open:
                return line
            await line.close()
        return None

    async def _keep(self, url: str, line: _Line) -> None:
        if self._keeping is None or not line.open:
            await line.close()
            return
        self._kept.setdefault(url, []).append(line)

    def _in_order(self, urls: tuple[str, ...]) -> list[str]:
        preferred = self._preferred(urls)
        return [preferred, *(url for url in urls if url != preferred)]

    def _preferred(self, urls: tuple[str, ...]) -> str:
        url, since = self._working.get(urls, (urls[0], 0.0))
        return url if time.monotonic() - since <= _PREFERENCE_SECONDS else urls[0]


class _Line:
    """One connection at a time to one server, with the chain that the server showed."""

    def __init__(
        self, context: ssl.SSLContext, proxy: httpcore.Proxy | None, keeping: Keeping | None
    ) -> None:
        self.context = context
        self.until = time.monotonic() + (0.0 if keeping is None else keeping.age)
        self.kept = keeping is not None
        self.chain: tuple[bytes, ...] = ()
        self.judge: Callable[[ssl.SSLObject | None], None] = lambda peer: None
        self._backend = JudgingBackend(lambda peer: self.judge(peer))
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=context,
            proxy=proxy,
            network_backend=self._backend,
            max_connections=1,
            max_keepalive_connections=int(self.kept),
            keepalive_expiry=None if keeping is None else keeping.idle,
        )

    @property
    def pool(self) -> httpcore.AsyncConnectionPool:
        return self._pool

    @property
    def open(self) -> bool:
        """Is there a connection that another request could take?"""
        return any(c.is_available() and not c.has_expired() for c in self._pool.connections)

    async def close(self) -> None:
        try:
            await self._pool.aclose()
        finally:
            await self._backend.close()


class _Attempt:
    """One request to one URL."""

    def __init__(
        self, request: HttpRequest, url: str, authorise: Authorise, max_answer: int
    ) -> None:
        self._request = request
        self.url = self._url = url
        self._authorise = authorise
        self._max_answer = max_answer
        self._chain: tuple[bytes, ...] = ()
        self.sent = False
        """May a byte of the request have reached the server?"""
        self.connected = False
        """Was a connection opened for it?"""

    async def run(self, line: _Line, timeouts: Timeouts) -> HttpAnswer:
        target = self._target()
        line.judge = self._judge
        if line.chain:
            # What was true at the handshake may not be any more.
            self._authorise(line.chain)
            self._chain = line.chain
            self.sent = True
        try:
            async with (
                asyncio.timeout(timeouts.exchange),
                line.pool.stream(
                    self._request.method,
                    target,
                    headers=self._headers(line.kept),
                    content=_in_pieces(self._request.body),
                    extensions={"timeout": {"connect": timeouts.connect}},
                ) as response,
            ):
                body = await self._body(response)
        except Refusal:
            raise
        except TimeoutError:
            raise self._failed(f"no answer within {timeouts.exchange:g} s") from None
        except (httpcore.NetworkError, httpcore.TimeoutException) as error:
            raise self._network_failure(error) from error
        except (httpcore.ProtocolError, httpcore.ProxyError, OSError) as error:
            raise self._failed(str(error) or type(error).__name__) from error
        line.chain = self._chain
        headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in response.headers}
        return HttpAnswer(response.status, body, self._url, headers, self._chain)

    def _target(self) -> str:
        parts = urlsplit(self._url)
        # 503 cl. 7.4: nothing but HTTPS, whatever was configured.
        if parts.scheme.lower() != "https" or not parts.hostname:
            raise Refusal(Rule.INCONSISTENT_CONFIGURATION, f"'{self._url}' is no https URL")
        return self._url.rstrip("/") + self._request.path

    def _headers(self, kept: bool) -> list[tuple[str, str]]:
        parts = urlsplit(self._url)
        headers = [
            ("Host", parts.netloc.rpartition("@")[2]),
            ("Accept", self._request.media_type),
        ]
        if not kept:
            headers.append(("Connection", "close"))
        if self._request.body:
            headers += [
                ("Content-Type", self._request.media_type),
                ("Content-Length", str(len(self._request.body))),
            ]
        return headers

    async def _body(self, response: httpcore.Response) -> bytes:
        chunks: list[bytes] = []
        size = 0
        async for chunk in response.aiter_stream():
            size += len(chunk)
            if size > self._max_answer:
                raise Refusal(
                    Rule.LIMIT_EXCEEDED, f"{self._url} answers more than {self._max_answer} bytes"
                )
            chunks.append(chunk)
        return b"".join(chunks)

    def _judge(self, peer: ssl.SSLObject | None) -> None:
        """503 cl. 8.4.1, and whose certificate it is, before a byte of the request goes out."""
        chain = verified_chain(peer)
        if not chain:
            raise Refusal(Rule.CHAIN_NOT_TRUSTED, f"{self._url} shows no verified certificate")
        self._authorise(chain)
        self._chain = chain
        self.sent = self.connected = True

    def _network_failure(self, error: Exception) -> Refusal:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, ssl.SSLCertVerificationError):
                return Refusal(
                    Rule.CHAIN_NOT_TRUSTED,
                    f"the certificate of {self._url} is not trusted: {cause.verify_message}",
                )
            cause = cause.__cause__ or cause.__context__
        return self._failed(str(error) or type(error).__name__)

    def _failed(self, reason: str) -> Refusal:
        return Refusal(Rule.UNREACHABLE, f"{self._url} cannot be reached: {reason}")


def _in_pieces(body: bytes) -> bytes | AsyncIterator[bytes]:
    """A large body is encrypted and sent bit by bit, not copied as a whole at every step."""
    if len(body) <= _PIECE:
        return body

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), _PIECE):
            yield body[start : start + _PIECE]

    return pieces()


def _proxy(url: str) -> httpcore.Proxy:
    parts = urlsplit(url)
    # TLS to the proxy itself would look like TLS to the peer.
    if parts.scheme not in _PROXY_SCHEMES or not parts.hostname or not parts.port:
        raise Refusal(
            Rule.INCONSISTENT_CONFIGURATION,
            f"a proxy is given as http://host:port or socks5://host:port, not as '{url}'",
        )
    auth = (parts.username, parts.password or "") if parts.username else None
    return httpcore.Proxy(f"{parts.scheme}://{parts.hostname}:{parts.port}", auth=auth)


def _worst(failures: list[Refusal]) -> Refusal:
    """What an operator has to mend comes before what may pass by itself."""
    if len(failures) == 1:
        return failures[0]
    chosen = next((f for f in failures if not f.retryable), failures[0])
    others = "; ".join(f.message for f in failures if f is not chosen)
    return Refusal(chosen.rule, chosen.message, others)
