"""A whole bus with web services in this process, and a small web service of somebody else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from lxml import etree
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gridpost.assembly.bus import RunningBus, running_bus
from gridpost.core.amqp091 import Channel
from gridpost.envelope import AnyMessage, Sender, complete, decode, encode
from gridpost.envelope.client import BusClient
from gridpost.transports.loopback import serve_loopback
from gridpost.wire.envelope import decode_element, element_text
from support.bus_site import CONTEXT, configuration
from support.rabbitmq import Rabbit
from support.soap import ENVELOPES, envelope

NOTES_XSD = """<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"
  xmlns:t="http://iec.ch/TC57/2011/Notes#" targetNamespace="http://iec.ch/TC57/2011/Notes#"
  elementFormDefault="qualified" version="1.0">
  <xs:annotation><xs:documentation>1.0 2026-01-01: first</xs:documentation></xs:annotation>
  <xs:element name="Notes" type="t:Notes"/>
  <xs:complexType name="Notes"><xs:sequence>
    <xs:element name="Note" minOccurs="0" maxOccurs="unbounded"><xs:complexType><xs:sequence>
      <xs:element name="mRID" type="xs:string" minOccurs="0"/>
      <xs:element name="text" type="xs:string" minOccurs="0"/>
      <xs:element name="picture" type="xs:base64Binary" minOccurs="0"/>
    </xs:sequence></xs:complexType></xs:element></xs:sequence></xs:complexType>
</xs:schema>"""
NOTES = "http://iec.ch/TC57/2011/Notes#"
NOTE = f'<n:Notes xmlns:n="{NOTES}"><n:Note><n:text>{{}}</n:text></n:Note></n:Notes>'
CONTENT_TYPES = {"1.1": "text/xml; charset=utf-8", "1.2": "application/soap+xml; charset=utf-8"}


@dataclass
class WebBus:
    running: RunningBus
    web: httpx.AsyncClient
    client: BusClient
    channel: Channel
    sender: Sender
    virtual_host: str
    home: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.running.web_port}/bus/{CONTEXT}"

    async def soap(
        self, message: AnyMessage | str, *, version: str = "1.1", path: str = "/soap", **more: Any
    ) -> httpx.Response:
        body = message if isinstance(message, str) else element_text(message)
        headers = {"content-type": CONTENT_TYPES[version], **more}
        return await self.web.post(
            self.url + path, content=envelope(version, body).encode(), headers=headers
        )

    async def ask(self, message: AnyMessage, **more: Any) -> AnyMessage:
        answer = await self.soap(message, **more)
        assert answer.status_code == 200, answer.text
        return decode_element(child(answer.content))


def child(soap: bytes) -> etree._Element:
    """The one element in the body of a SOAP message."""
    root = etree.fromstring(soap)
    namespace = etree.QName(root).namespace
    assert namespace in ENVELOPES.values()
    body = root.find(f"{{{namespace}}}Body")
    (found,) = body
    return etree.fromstring(etree.tostring(found))


@asynccontextmanager
async def web_bus(rabbit: Rabbit, home: Path, **fields: Any) -> AsyncIterator[WebBus]:
    (home / "Notes.xsd").write_text(NOTES_XSD)
    virtual_host = fields.pop("virtual_host", "") or rabbit.virtual_host()
    values: dict[str, Any] = {
        "web": {"port": 0},
        "handlers": ("support.bus_handlers",),
        "nouns": ({"name": "Notes", "xsd": home / "Notes.xsd", "typed": True},),
        "calling": {"retries": ("50ms", "50ms")},
        **fields,
    }
    async with running_bus(configuration(rabbit, virtual_host, home, **values)) as running:
        connection = await rabbit.client(virtual_host=virtual_host).connect()
        channel = await connection.channel()
        client = await BusClient(connection, CONTEXT).open()
        async with httpx.AsyncClient(timeout=60) as web:
            yield WebBus(running, web, client, channel, Sender("EMS", CONTEXT), virtual_host, home)
        await connection.close()


@dataclass
class WebService:
    """A generic web service that is not ours; `statuses` are what it answers first, then 200."""

    port: int = 0
    taken: list[AnyMessage] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    answer: Callable[[AnyMessage], bytes | None] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/service"

    async def _take(self, request: Request) -> Response:
        body = await request.body()
        if self.statuses:
            return Response(status_code=self.statuses.pop(0))
        soap = request.headers["content-type"].startswith("text/xml")
        message = decode_element(child(body)) if soap else decode(body)
        self.taken.append(message)
        self.headers.append(dict(request.headers))
        if self.answer is not None:
            said = self.answer(message)
        else:
            said = encode(Sender("PARTNER", CONTEXT).response(message, complete()))
        if said is None:
            return Response(status_code=202)
        text = etree.tostring(etree.fromstring(said), encoding="unicode")
        return Response(envelope("1.1", text), media_type="text/xml")


@asynccontextmanager
async def web_service() -> AsyncIterator[WebService]:
    service = WebService()
    app = Starlette(routes=[Route("/service", service._take, methods=["POST"])])
    async with serve_loopback(app, "127.0.0.1", 0) as port:
        service.port = port
        yield service
