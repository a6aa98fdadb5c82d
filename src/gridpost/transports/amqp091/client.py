"""Who we are at RabbitMQ (EXTERNAL or a password, over TLS), and which of its nodes is asked."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

import aio_pika
from aio_pika.connection import make_url

from gridpost.core.amqp091 import RabbitConnection
from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.amqp091.connection import Amqp091Connection
from gridpost.transports.amqp091.faults import refusing
from gridpost.transports.amqp091.keeper import Amqp091Keeper


@dataclass(frozen=True, slots=True)
class Amqp091Tls:
    """Files of a client: read again for each connection, so that renewed ones count."""

    roots: Path
    certificate: Path | None = None
    """With a key: EXTERNAL, the user is the certificate's common name."""
    key: Path | None = None

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(self.roots))
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.certificate is not None:
            context.load_cert_chain(str(self.certificate), str(self.key or self.certificate))
        return context


class Amqp091Client:
    """core.amqp091.RabbitClient."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        virtual_host: str = "/",
        tls: Callable[[], ssl.SSLContext] | None = None,
        user: str = "",
        password: str = "",
        heartbeat: int = 10,
        timeout: float = 15,
        name: str = "gridpost",
    ) -> None:
        """`urls` are `amqps://host:port` (or `amqp://`, where the network is trusted).

        Without a password the certificate says who we are (SASL EXTERNAL), whatever the user is.
        """
        self._urls = tuple(urls)
        self._virtual_host = virtual_host
        self._tls = tls
        self._user = user
        self._password = password
        self._heartbeat = heartbeat
        self._timeout = timeout
        self._name = name

    async def connect(self, purpose: str = "") -> Amqp091Connection:
        refusals = []
        for url in self._urls:
            try:
                return await self._connect(url, purpose)
            except Refusal as refusal:
                refusals.append(refusal)
        denied = [r for r in refusals if r.rule is not Rule.AMQP091_UNREACHABLE]
        raise (denied or refusals)[-1]

    def keep(
        self,
        work: Callable[[RabbitConnection], Awaitable[None]],
        *,
        purpose: str = "",
        lost: Callable[[Refusal], None] | None = None,
    ) -> Amqp091Keeper:
        return Amqp091Keeper(self, work, purpose=purpose, lost=lost)

    async def _connect(self, url: str, purpose: str) -> Amqp091Connection:
        parts = urlsplit(url)
        query = {
            "heartbeat": str(self._heartbeat),
            "name": f"{self._name} {purpose}".strip(),
        }
        if not self._password:
            query["auth"] = "external"
        context = None
        if parts.scheme == "amqps":
            if self._tls is None:
                raise Refusal(Rule.USAGE, f"'{url}' needs TLS, and no certificates are configured")
            context = self._tls()
        secret = f":{quote(self._password, safe='')}" if self._password else ""
        login = f"{quote(self._user, safe='')}{secret}@"
        port = parts.port or (5671 if context else 5672)
        address = f"{parts.hostname}:{port}"
        target = (
            f"{parts.scheme}://{login if self._user else ''}{parts.hostname}:{port}/"
            f"{quote(self._virtual_host, safe='')}?"
            + "&".join(f"{key}={quote(value)}" for key, value in query.items())
        )
        with refusing(f"connecting to {address}"):
            connection = aio_pika.Connection(make_url(target), ssl_context=context)
            try:
                await connection.connect(timeout=self._timeout)
            except BaseException:
                # Not closed, it would try to close itself when it is collected, in any loop.
                await connection.close()
                raise
        return Amqp091Connection(connection, address)
