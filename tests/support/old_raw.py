"""Requests to a node of MADES 1.1 as a test writes them, to the letter."""

from __future__ import annotations

import pytest

from gridpost.core.https import HttpRequest
from gridpost.core.refusal import Refusal
from gridpost.services.directory_client.node_soap import belongs_to, compose, read_answer
from gridpost.transports.https import ClientTls, HttpsClient
from gridpost.wire.mades11.forms import container
from gridpost.wire.mades11.services import DOWNLOADED_CONTENT
from gridpost.wire.soap.envelope import Envelope
from support.old_network import OldEndpoint


class Raw:
    """Requests as they are written here, over real TLS."""

    def __init__(self, endpoint: OldEndpoint) -> None:
        self.endpoint = endpoint
        self.caller = HttpsClient(ClientTls(endpoint.credentials))
        self.content_type = ""
        self.size = 0

    async def call(
        self, operation: str, *texts: str, contents: tuple[bytes, ...] = (), attach: bool = False
    ) -> Envelope:
        whole = list(texts)
        head, _, tail = container(f"{operation}Request", "\0").partition("\0")
        whole[0] = head + whole[0]
        whole[-1] += tail
        media_type, body = compose(operation, whole, contents, attach=attach)
        answer = await self.caller.request(
            HttpRequest("POST", "", body, media_type),
            urls=[self.endpoint.node.url],
            authorise=belongs_to(self.endpoint.node.code),
        )
        self.content_type = answer.headers["content-type"]
        self.size = len(body) if isinstance(body, bytes) else sum(map(len, body))
        return read_answer(self.content_type, answer.pieces, (DOWNLOADED_CONTENT,), operation)

    async def refused(self, operation: str, *texts: str) -> str:
        """The errorCode."""
        with pytest.raises(Refusal) as found:
            await self.call(operation, *texts)
        return found.value.message.split(": ")[1]

    async def last(self) -> str:
        """authToken and serviceMversion."""
        session = self.endpoint.session()
        return await session._auth()
