"""HTTP requests to web services that are not ours: a plain POST with a deadline and a bounded answer."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

import httpcore

from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.web_streams import WebStreams

_IDLE_SECONDS = 5.0


def web_context(roots: str = "", certificate: str = "", key: str = "") -> ssl.SSLContext:
    """Without roots, those of this machine."""
    context = ssl.create_default_context(cafile=roots or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate:
        context.load_cert_chain(certificate, key or None)
    return context


class WebPost:
    """Keeps connections; close it. Redirects are not followed: an address is what was configured."""

    def __init__(
        self,
        context: ssl.SSLContext,
        *,
        seconds: float = 30.0,
        max_answer: int = 64 * 1024 * 1024,
    ) -> None:
        """`seconds` for each step: to connect, and until something is sent or heard."""
        self._max_answer = max_answer
        self._timeouts = dict.fromkeys(("connect", "read", "write", "pool"), seconds)
        self._backend = WebStreams()
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=context, network_backend=self._backend, keepalive_expiry=_IDLE_SECONDS
        )

    async def __call__(
        self, url: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, Mapping[str, str], bytes]:
        try:
            async with self._pool.stream(
                "POST",
                url,
                content=body,
                headers=[*headers.items(), *_credentials(url)],
                extensions={"timeout": self._timeouts},
            ) as answer:
                parts, size = [], 0
                async for part in answer.aiter_stream():
                    size += len(part)
                    if size > self._max_answer:
                        raise Refusal(
                            Rule.LIMIT_EXCEEDED, f"{url} answers more than {self._max_answer} bytes"
                        )
                    parts.append(part)
        except (
            httpcore.NetworkError,
            httpcore.TimeoutException,
            httpcore.ProtocolError,
            httpcore.UnsupportedProtocol,
            OSError,
            ValueError,
        ) as error:
            reason = str(error) or type(error).__name__
            raise Refusal(Rule.UNREACHABLE, f"{url} cannot be reached: {reason}") from None
        told = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in answer.headers}
        return answer.status, told, b"".join(parts)

    async def close(self) -> None:
        await self._pool.aclose()
        await self._backend.close()


def _credentials(url: str) -> list[tuple[str, str]]:
    """A name and a password in an address are for the service that is there."""
    parts = urlsplit(url)
    if parts.username is None:
        return []
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return [("Authorization", "Basic " + base64.b64encode(pair.encode()).decode())]
