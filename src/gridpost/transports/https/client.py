"""The HTTPS client: a request goes out only after the server's certificate has been judged.

One connection serves one request, unless the caller says how long it may be kept: exchanges with a
component-directory are minutes apart. A kept one is judged again before each request, and is given up
when our certificate was renewed, when it is old, and when nobody used it.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from gridpost.core.https import Authorise, HttpAnswer, HttpRequest
from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.https.line import Line
from gridpost.transports.https.proxy import lead_through, read_proxy
from gridpost.transports.https.tls import verified_chain

# What leads to the next URL after an answer came: the server in front of a directory speaks.
_GATEWAY_FAULTS = (502, 503, 504)

# How long a working secondary URL is preferred before the primary one is tried again.
_PREFERENCE_SECONDS = 900.0


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
        proxy: str | Callable[[], str] = "",
        timeouts: Timeouts | None = None,
        max_answer: int = 128 * 1024 * 1024,
        keeping: Keeping | None = None,
    ) -> None:
        """`proxy` is `http://[user:password@]host:port` or the same with `socks5`, or tells it.

        Whoever keeps connections closes them with `close`.
        """
        self._tls = tls
        self._keeping = keeping
        self._kept: dict[str, list[_Kept]] = {}
        self._proxy = proxy if callable(proxy) else lambda: proxy
        if isinstance(proxy, str) and proxy:
            read_proxy(proxy)
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
        for held in (held for several in kept.values() for held in several):
            await held.line.end()

    async def _answer(self, attempt: _Attempt) -> HttpAnswer:
        kept = await self._take(attempt.url)
        if kept is not None:
            try:
                return await self._run(attempt, kept)
            except Refusal as refusal:
                # The server may have closed it at this moment: a new one tells.
                if refusal.rule is not Rule.UNREACHABLE:
                    raise
        return await self._run(attempt, None)

    async def _run(self, attempt: _Attempt, kept: _Kept | None) -> HttpAnswer:
        keeping = self._keeping
        try:
            async with asyncio.timeout(self._timeouts.exchange):
                if kept is None:
                    context, now = self._tls(), time.monotonic()
                    proxy = self._proxy()
                    line, chain = await attempt.connect(
                        context, read_proxy(proxy) if proxy else None, self._timeouts
                    )
                    until = now + (0.0 if keeping is None else keeping.age)
                    kept = _Kept(line, context, chain, until)
                else:
                    attempt.judge_again(kept.chain)
                answer = await attempt.run(kept.line, kept.chain, keep=keeping is not None)
        except TimeoutError:
            if kept is not None:
                await kept.line.end()
            seconds = self._timeouts.exchange
            raise attempt.failed(f"no answer within {seconds:g} s") from None
        except BaseException:
            if kept is not None:
                await kept.line.end()
            raise
        if keeping is None or not kept.line.open:
            await kept.line.end()
        else:
            kept.idle_until = time.monotonic() + keeping.idle
            self._kept.setdefault(attempt.url, []).append(kept)
        return answer

    async def _take(self, url: str) -> _Kept | None:
        """A kept connection that still counts; those that do not are closed."""
        if self._keeping is None:
            return None
        context, now = self._tls(), time.monotonic()
        several = self._kept.get(url, [])
        while several:
            kept = several.pop()
            counts = kept.context is context and now < min(kept.until, kept.idle_until)
            if counts and kept.line.open:
                return kept
            await kept.line.end()
        return None

    def _in_order(self, urls: tuple[str, ...]) -> list[str]:
        preferred = self._preferred(urls)
        return [preferred, *(url for url in urls if url != preferred)]

    def _preferred(self, urls: tuple[str, ...]) -> str:
        url, since = self._working.get(urls, (urls[0], 0.0))
        return url if time.monotonic() - since <= _PREFERENCE_SECONDS else urls[0]


@dataclass(slots=True)
class _Kept:
    """A connection with the chain that its server showed, and how long it may be used."""

    line: Line
    context: ssl.SSLContext
    chain: tuple[bytes, ...]
    until: float
    idle_until: float = 0.0


class _Attempt:
    """One request to one URL."""

    def __init__(
        self, request: HttpRequest, url: str, authorise: Authorise, max_answer: int
    ) -> None:
        self._request = request
        self._body = (request.body,) if isinstance(request.body, bytes) else request.body
        self.url = url
        self._authorise = authorise
        self._max_answer = max_answer
        self.sent = False
        """May a byte of the request have reached the server?"""

    async def connect(
        self, context: ssl.SSLContext, proxy: SplitResult | None, timeouts: Timeouts
    ) -> tuple[Line, tuple[bytes, ...]]:
        """503 cl. 8.4.1, and whose certificate it is, before a byte of the request goes out."""
        parts = self._checked()
        host, port = str(parts.hostname), parts.port or 443
        loop = asyncio.get_running_loop()
        line = Line(context, host)
        try:
            async with asyncio.timeout(timeouts.connect):
                if proxy is None:
                    await loop.create_connection(lambda: line, host, port)
                else:
                    led = await lead_through(proxy, host, port)
                    await loop.create_connection(lambda: line, sock=led)
                secured = await line.secured
            chain = verified_chain(secured)
            if not chain:
                raise Refusal(Rule.CHAIN_NOT_TRUSTED, f"{self.url} shows no verified certificate")
            self._authorise(chain)
        except ssl.SSLCertVerificationError as error:
            await line.end()
            raise Refusal(
                Rule.CHAIN_NOT_TRUSTED,
                f"the certificate of {self.url} is not trusted: {error.verify_message}",
            ) from error
        except TimeoutError:
            await line.end()
            raise self.failed(f"no connection within {timeouts.connect:g} s") from None
        except (OSError, ValueError) as error:
            await line.end()
            raise self.failed(str(error) or type(error).__name__) from error
        except BaseException:
            await line.end()
            raise
        return line, chain

    def judge_again(self, chain: tuple[bytes, ...]) -> None:
        """What was true at the handshake of a kept connection may not be any more."""
        self._authorise(chain)

    async def run(self, line: Line, chain: tuple[bytes, ...], *, keep: bool) -> HttpAnswer:
        self.sent = True
        try:
            found = await line.exchange(self._head(keep), self._body, self._max_answer)
        except Refusal:
            raise Refusal(
                Rule.LIMIT_EXCEEDED, f"{self.url} answers more than {self._max_answer} bytes"
            ) from None
        except OSError as error:
            raise self.failed(str(error) or type(error).__name__) from error
        return HttpAnswer(found.status, found.pieces, self.url, found.headers, chain)

    def _checked(self) -> SplitResult:
        parts = urlsplit(self.url)
        # 503 cl. 7.4: nothing but HTTPS, whatever was configured.
        if parts.scheme.lower() != "https" or not parts.hostname:
            raise Refusal(Rule.INCONSISTENT_CONFIGURATION, f"'{self.url}' is no https URL")
        return parts

    def _head(self, keep: bool) -> bytes:
        parts = urlsplit(self.url.rstrip("/") + self._request.path)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [
            f"{self._request.method} {target} HTTP/1.1",
            f"Host: {parts.netloc.rpartition('@')[2]}",
            f"Accept: {self._request.media_type}",
        ]
        if not keep:
            lines.append("Connection: close")
        size = sum(map(len, self._body))
        if size:
            lines += [
                f"Content-Type: {self._request.media_type}",
                f"Content-Length: {size}",
            ]
        if not all(line.isascii() and line.isprintable() for line in lines) or " " in target:
            raise Refusal(Rule.INCONSISTENT_CONFIGURATION, f"'{self.url}' is no https URL")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")

    def failed(self, reason: str) -> Refusal:
        return Refusal(Rule.UNREACHABLE, f"{self.url} cannot be reached: {reason}")


def _worst(failures: list[Refusal]) -> Refusal:
    """What an operator has to mend comes before what may pass by itself."""
    if len(failures) == 1:
        return failures[0]
    chosen = next((f for f in failures if not f.retryable), failures[0])
    others = "; ".join(f.message for f in failures if f is not chosen)
    return Refusal(chosen.rule, chosen.message, others)
