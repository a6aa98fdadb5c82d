"""HTTP requests to web services that are not ours: a plain POST with a deadline and a bounded answer."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

import httpx

from gridpost.core.refusal import Refusal, Rule


class WebPost:
    """Keeps connections; close it. Redirects are not followed: an address is what was configured."""

    def __init__(
        self,
        *,
        roots: str = "",
        certificate: str = "",
        key: str = "",
        seconds: float = 30.0,
        max_answer: int = 64 * 1024 * 1024,
    ) -> None:
        context = ssl.create_default_context(cafile=roots or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if certificate:
            context.load_cert_chain(certificate, key or None)
        self._max_answer = max_answer
        self._client = httpx.AsyncClient(verify=context, timeout=seconds, trust_env=False)

    async def __call__(
        self, url: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, Mapping[str, str], bytes]:
        try:
            async with self._client.stream("POST", url, content=body, headers=headers) as answer:
                parts, size = [], 0
                async for part in answer.aiter_bytes():
                    size += len(part)
                    if size > self._max_answer:
                        raise Refusal(
                            Rule.LIMIT_EXCEEDED, f"{url} answers more than {self._max_answer} bytes"
                        )
                    parts.append(part)
                return answer.status_code, dict(answer.headers), b"".join(parts)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = str(error) or type(error).__name__
            raise Refusal(Rule.UNREACHABLE, f"{url} cannot be reached: {reason}") from None

    async def close(self) -> None:
        await self._client.aclose()
