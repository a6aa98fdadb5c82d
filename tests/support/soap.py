"""Two endpoints with the SOAP channel in front of them, and SOAP written and read by hand.

Whatever comes back is checked against the schema of the WSDL as it is served.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any
from xml.sax.saxutils import escape

import httpx
from lxml import etree
from prometheus_client import CollectorRegistry

from gridpost.core.channels import Bindings
from gridpost.core.identifiers import MessageTypePattern
from gridpost.core.journal import RefusalRow
from gridpost.core.message_box import Search
from gridpost.services.endpoint.request_counts import RequestCounts
from gridpost.services.endpoint.soap_api import PATH, SoapApi
from gridpost.services.endpoint.soap_operations import SoapOperations
from gridpost.services.endpoint.users import User, Users
from gridpost.services.operations.passwords import hash_password
from support.post import TestEndpoint, World

NS = "http://mades.entsoe.eu/2/"
ENVELOPES = {
    "1.1": "http://schemas.xmlsoap.org/soap/envelope/",
    "1.2": "http://www.w3.org/2003/05/soap-envelope",
}
VERSIONS = tuple(ENVELOPES)
ALL = (MessageTypePattern("*"),)
HASH = hash_password("secret")
XSD = "{http://www.w3.org/2001/XMLSchema}schema"


def envelope(version: str, body: str, header: str = "") -> str:
    return (
        f'<s:Envelope xmlns:s="{ENVELOPES[version]}" '
        'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">'
        f"{header}<s:Body>{body}</s:Body></s:Envelope>"
    )


def request(operation: str, *fields: str) -> str:
    return f'<m:{operation}Request xmlns:m="{NS}">{"".join(fields)}</m:{operation}Request>'


def field(name: str, text: str | None) -> str:
    return "" if text is None else f"<{name}>{escape(text)}</{name}>"


def send_request(
    content: bytes = b"document",
    *,
    receiver: str | None = "E2",
    message_type: str | None = "A01",
    application: str | None = None,
    ba_id: str | None = None,
    conversation: str | None = None,
) -> str:
    return request(
        "SendMessage",
        "<message>",
        field("receiverCode", receiver),
        field("messageType", message_type),
        field("content", b64encode(content).decode()),
        field("senderApplication", application),
        field("baMessageID", ba_id),
        "</message>",
        field("conversationID", conversation),
    )


@dataclass
class Answer:
    """A response or a fault, out of its envelope."""

    status: int
    version: str
    body: etree._Element
    headers: httpx.Headers

    @property
    def name(self) -> str:
        return etree.QName(self.body).localname

    def text(self, path: str) -> str | None:
        found = self.body.find(path)
        return None if found is None else found.text or ""

    @property
    def content(self) -> bytes:
        return b64decode(self.text("receivedMessage/content") or "")

    # ---- of a fault

    @property
    def fault_code(self) -> str:
        path = "faultcode" if self.version == "1.1" else "{*}Code/{*}Value"
        return (self.text(path) or "").partition(":")[2]

    @property
    def reason(self) -> str:
        path = "faultstring" if self.version == "1.1" else "{*}Reason/{*}Text"
        return self.text(path) or ""

    @property
    def error(self) -> etree._Element:
        (error,) = self.body.find("detail" if self.version == "1.1" else "{*}Detail")  # type: ignore[misc]
        return error

    @property
    def error_fields(self) -> dict[str, str]:
        return {str(item.tag): item.text or "" for item in self.error}

    @property
    def error_code(self) -> str:
        return self.error_fields["errorCode"]


@dataclass
class SoapEndpoint:
    world: World
    endpoint: TestEndpoint
    bindings: Bindings
    requests_per_user: int = 64

    def __post_init__(self) -> None:
        one = self.endpoint
        self.registry = CollectorRegistry()
        self.users = Users(
            [
                User("app", HASH, send=ALL, receive=ALL),
                User("narrow", HASH, send=(MessageTypePattern("B*"),)),
                User("other", HASH, send=ALL, receive=ALL),
            ],
            self.bindings,
        )
        self.app = SoapApi(
            one.context,
            self.users,
            SoapOperations(one.context, self.users, one.submission, one.handover, one.enquiry),
            lambda scope: (),
            BytesIO,
            RequestCounts(self.registry),
            requests_per_user=self.requests_per_user,
            max_envelope=20_000,
        )

    def client(self, user: str = "app", password: str = "secret") -> httpx.AsyncClient:
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app),
            base_url="http://endpoint",
            auth=(user, password) if user else None,
        )

    async def wsdl(self) -> etree._Element:
        async with self.client("") as client:
            return etree.fromstring((await client.get(PATH + "?wsdl")).content)

    async def post(
        self,
        content: str | bytes | AsyncIterator[bytes],
        version: str = "1.1",
        *,
        action: str | None = "",
        user: str = "app",
        password: str = "secret",
        content_type: str = "",
    ) -> httpx.Response:
        headers = {"content-type": content_type or "text/xml; charset=utf-8"}
        if version == "1.2" and not content_type:
            parameter = f'; action="{action}"' if action else ""
            headers["content-type"] = f"application/soap+xml; charset=utf-8{parameter}"
        elif action is not None:
            headers["soapaction"] = f'"{action}"'
        data = content.encode() if isinstance(content, str) else content
        async with self.client(user, password) as client:
            return await client.post(PATH, content=data, headers=headers)

    async def call(self, body: str, version: str = "1.1", **more: Any) -> Answer:
        return await self.answer(await self.post(envelope(version, body), version, **more))

    async def answer(self, response: httpx.Response) -> Answer:
        """Out of its envelope, and valid."""
        root = etree.fromstring(response.content)
        namespace = etree.QName(root).namespace
        (version,) = (v for v, n in ENVELOPES.items() if n == namespace)
        media = "text/xml" if version == "1.1" else "application/soap+xml"
        assert response.headers["content-type"] == f"{media}; charset=utf-8"
        (body,) = root.find(f"{{{namespace}}}Body")  # type: ignore[misc]
        answer = Answer(response.status_code, version, body, response.headers)
        (schema,) = (await self.wsdl()).iter(XSD)
        compiled = etree.XMLSchema(etree.fromstring(etree.tostring(schema)))
        if answer.name != "Fault":
            compiled.assertValid(etree.ElementTree(body))
        else:
            detail = body.find("detail" if version == "1.1" else "{*}Detail")
            for error in () if detail is None else detail:
                compiled.assertValid(etree.ElementTree(error))
        return answer

    async def sent(self, content: bytes = b"document", **more: Any) -> str:
        answer = await self.call(send_request(content, **more))
        assert answer.status == 200, answer.reason
        found = answer.text("messageID")
        assert found is not None
        return found

    async def receive(self, message_type: str = "A01", download: str = "true") -> Answer:
        return await self.call(
            request(
                "ReceiveMessage",
                field("messageType", message_type),
                field("downloadMessage", download),
            )
        )

    async def confirm(self, message_id: str) -> Answer:
        return await self.call(request("ConfirmReceiveMessage", field("messageID", message_id)))

    async def check(self, message_id: str) -> Answer:
        return await self.call(request("CheckMessageStatus", field("messageID", message_id)))

    async def stored(self) -> int:
        """How many messages this endpoint has."""
        found, _ = await self.endpoint.enquiry.search(Search(), 1000, None)
        return len(found)

    async def refusals(self) -> list[RefusalRow]:
        return [row for row in await self.endpoint.journal() if isinstance(row, RefusalRow)]

    def counted(self, operation: str, outcome: str) -> float | None:
        return self.registry.get_sample_value(
            "gridpost_endpoint_requests_total",
            {"channel": "soap", "operation": operation, "outcome": outcome},
        )


class SoapWorld(World):
    """E1 sends, E2 receives."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        bindings = more.pop("bindings", Bindings())
        per_user = more.pop("requests_per_user", 64)
        super().__init__(*arguments, **more)
        self.sender = SoapEndpoint(self, self["E1"], bindings, per_user)
        self.recipient = SoapEndpoint(self, self["E2"], bindings, per_user)
