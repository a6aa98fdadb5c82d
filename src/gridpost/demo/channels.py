"""The ways on which the applications of the demonstration send and receive; one class per channel."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Protocol
from uuid import uuid4
from xml.sax.saxutils import escape

import httpx

from gridpost.client import AsyncEndpoint
from gridpost.core.links import Peer, ReceivedDelivery
from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.amqp10 import AmqpClient, ClientConnection, Credentials
from gridpost.transports.amqp10.client import ClientProducer
from gridpost.transports.folder_watch import FolderWatch
from gridpost.wire.application_amqp import OutboxMessage, read_any, write_outbox
from gridpost.wire.xml import parse

APPLICATION = "gridpost-demo"


class Channel(Protocol):
    """An application at one endpoint, on one channel."""

    name: ClassVar[str]
    message_type: ClassVar[str]

    async def send(self, receiver: str, document: bytes, ba_message_id: str) -> str:
        """The message ID under which the endpoint has accepted the document."""
        ...

    async def receive(self) -> None:
        """Takes and confirms documents of this channel's message-type until it is cancelled."""
        ...


class JsonChannel:
    name: ClassVar[str] = "json"
    message_type: ClassVar[str] = "A09-CONFIRMATION"

    def __init__(self, api: AsyncEndpoint, arrived: asyncio.Event) -> None:
        self._api = api
        self._arrived = arrived

    async def send(self, receiver: str, document: bytes, ba_message_id: str) -> str:
        return await self._api.send(
            receiver,
            self.message_type,
            document,
            ba_message_id=ba_message_id,
            sender_application=APPLICATION,
            key=ba_message_id,
        )

    async def receive(self) -> None:
        while True:
            self._arrived.clear()
            while (found := await self._api.receive(self.message_type)) is not None:
                await self._api.confirm(found.message.message_id)
            await self._arrived.wait()


class SoapChannel:
    """As an application that knows nothing but the WSDL."""

    name: ClassVar[str] = "soap"
    message_type: ClassVar[str] = "A01-SCHEDULE"
    _NAMESPACE = "http://mades.entsoe.eu/2/"

    def __init__(self, url: str, user: str, password: str, arrived: asyncio.Event) -> None:
        self._url = f"{url}/mades/2"
        self._auth = (user, password)
        self._arrived = arrived

    async def send(self, receiver: str, document: bytes, ba_message_id: str) -> str:
        found = await self._call(
            "SendMessage",
            f"<message><receiverCode>{escape(receiver)}</receiverCode>"
            f"<messageType>{self.message_type}</messageType>"
            f"<content>{b64encode(document).decode()}</content>"
            f"<senderApplication>{APPLICATION}</senderApplication>"
            f"<baMessageID>{escape(ba_message_id)}</baMessageID></message>"
            f"<conversationID>{escape(ba_message_id)}</conversationID>",
        )
        return found["messageID"]

    async def receive(self) -> None:
        wanted = (
            f"<messageType>{self.message_type}</messageType><downloadMessage>true</downloadMessage>"
        )
        while True:
            self._arrived.clear()
            while "messageID" in (found := await self._call("ReceiveMessage", wanted)):
                confirmed = f"<messageID>{found['messageID']}</messageID>"
                await self._call("ConfirmReceiveMessage", confirmed)
            await self._arrived.wait()

    async def _call(self, operation: str, body: str) -> dict[str, str]:
        """The text of every element in the answer, by name."""
        envelope = (
            '<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body>'
            f'<m:{operation}Request xmlns:m="{self._NAMESPACE}">{body}</m:{operation}Request>'
            "</s:Body></s:Envelope>"
        )
        headers = {
            "content-type": "text/xml; charset=utf-8",
            "soapaction": f'"{self._NAMESPACE}{operation}"',
        }
        async with httpx.AsyncClient(auth=self._auth, timeout=60, trust_env=False) as client:
            answer = await client.post(self._url, content=envelope.encode(), headers=headers)
        found = {
            str(element.tag).rpartition("}")[2]: element.text or ""
            for element in parse(answer.content).iter("*")
        }
        if not answer.is_success:
            reason = found.get("errorMessage") or found.get("faultstring", "")
            raise Refusal(Rule.INTERNAL, f"{operation} was answered with {reason}")
        return found


class FolderChannel:
    """As an application that knows nothing but files (503 cl. 11.2)."""

    name: ClassVar[str] = "folder"
    message_type: ClassVar[str] = "A26-CAPACITY"

    def __init__(self, folders: Path, find: Callable[[str], Awaitable[str]]) -> None:
        self._out = folders / "OUT"
        self._in = folders / "IN"
        self._find = find

    async def send(self, receiver: str, document: bytes, ba_message_id: str) -> str:
        name = f"{APPLICATION}_{receiver}_{self.message_type}_{ba_message_id}"
        part = self._out / f"{uuid4().hex}.tmp"
        part.write_bytes(document)
        part.rename(self._out / f"{name}.xml")
        return await self._find(ba_message_id)

    async def receive(self) -> None:
        """The file is the document, and taking it away is all there is to do."""

        def take() -> None:
            for file in self._in.glob("*.xml"):
                file.unlink()

        await FolderWatch(self._in, take).run()


class AmqpChannel:
    """As an application that speaks AMQP 1.0 with its own endpoint."""

    name: ClassVar[str] = "amqp"
    message_type: ClassVar[str] = "A44-PRICES"
    _QUEUE = "ecp.endpoint."

    def __init__(self, port: int, user: str, password: str) -> None:
        self._client = AmqpClient(
            [f"amqp://127.0.0.1:{port}"],
            container=APPLICATION,
            tls=None,
            check=_own_endpoint,
            credentials=Credentials(user, password),
        )
        self._replies: dict[str, asyncio.Future[str]] = {}
        self._connection: ClientConnection | None = None
        self._outbox: ClientProducer | None = None

    async def __aenter__(self) -> AmqpChannel:
        self._connection = await self._client.connect()
        self._outbox = await self._connection.attach_producer(f"{self._QUEUE}outbox")
        await self._connection.attach_consumer(
            f"{self._QUEUE}outbox.reply", self._answered, credit=100
        )
        await self._connection.attach_consumer(f"{self._QUEUE}send.event", _seen, credit=100)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._connection is not None:
            self._connection.close()
            await self._connection.lost

    async def send(self, receiver: str, document: bytes, ba_message_id: str) -> str:
        assert self._outbox is not None
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._replies[ba_message_id] = answer
        message = OutboxMessage(
            receiver,
            self.message_type,
            document,
            ba_message_id,
            APPLICATION,
            conversation_id=ba_message_id,
        )
        await self._outbox.send(write_outbox(message, ba_message_id))
        return await answer

    async def receive(self) -> None:
        """Accepting a message is the confirmation."""
        assert self._connection is not None
        await self._connection.attach_consumer(f"{self._QUEUE}inbox", _seen, credit=100)
        await asyncio.Event().wait()

    def _answered(self, delivery: ReceivedDelivery) -> None:
        found = read_any(delivery.message)
        delivery.accept()
        answer = self._replies.pop(str(found.properties.correlation_id), None)
        if answer is None or answer.done():
            return
        named = found.application_properties
        if "errorMessage" in named:
            answer.set_exception(Refusal(Rule.INTERNAL, f"refused: {named['errorMessage']!s}"))
        else:
            answer.set_result(str(named["messageID"]))


def _seen(delivery: ReceivedDelivery) -> None:
    delivery.accept()


async def _own_endpoint(peer: Peer) -> None:
    """On loopback and without TLS: the address is the identity."""
