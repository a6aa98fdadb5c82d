"""A message of 100 MB, by each door of a bus: refused with a code, and the next one is served."""

from __future__ import annotations

from collections.abc import AsyncIterator
from tempfile import TemporaryFile

import httpx
from starlette.applications import Starlette

from gridpost.assembly.bus_trial import trial_bus
from gridpost.core.bus import BusUnit
from gridpost.envelope import FaultMessage, RequestMessage, Sender, decode
from gridpost.services.bus.door import WebDoor
from gridpost.services.bus.rest_api import RestApi
from gridpost.services.bus.service import BusService
from gridpost.services.bus.soap_api import SoapApi, SoapSettings
from gridpost.wire.envelope import element_text
from support.soap import envelope

MB = 1_000_000
CONTEXT = "TESTING"
REQUEST = Sender("EMS", CONTEXT).request("get", "Notes", ids=["a"])


def register(service: BusService) -> None:
    @service.handles("get", "Notes")
    def get(request: RequestMessage, unit: BusUnit) -> object:
        return '<n:Notes xmlns:n="urn:n"/>'


def swollen(text: str) -> tuple[bytes, bytes]:
    """What comes before and after a comment of any length in the header."""
    head, found, tail = text.partition("</Source>")
    assert found
    return (head + found + "<Comment>").encode(), ("</Comment>" + tail).encode()


async def chunks(head: bytes, tail: bytes) -> AsyncIterator[bytes]:
    yield head
    for _ in range(100):
        yield b"x" * MB
    yield tail


async def test_a_header_of_100_mb_is_refused_by_every_door() -> None:
    async with trial_bus(register) as bus:
        settings, door = bus.service.settings, WebDoor(bus.service)
        soap = SoapApi(door, settings, (), SoapSettings(TemporaryFile))
        app = Starlette(routes=[*soap.routes(), *RestApi(door, settings).routes()])
        head, tail = swollen(element_text(REQUEST))
        fault = (await bus.ask(head + b"x" * 100 * MB + tail)).response
        assert isinstance(fault, FaultMessage)
        assert fault.reply.codes == {"LIMIT_EXCEEDED"}
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url=f"http://bus/bus/{CONTEXT}"
        ) as web:
            kind = {"content-type": "text/xml; charset=utf-8"}
            head, tail = swollen(envelope("1.1", element_text(REQUEST)))
            answer = await web.post("/soap", content=chunks(head, tail), headers=kind)
            assert answer.status_code == 500
            assert "Traceback" not in answer.text
            assert len(answer.content) < 10_000
            payload = (b'<n:Notes xmlns:n="urn:n">', b"</n:Notes>")
            answer = await web.post("/rest/Notes", content=chunks(*payload))
            assert answer.status_code == 413
            assert decode(answer.content).reply.codes == {"LIMIT_EXCEEDED"}
            # Nobody was hurt.
            good = envelope("1.1", element_text(REQUEST)).encode()
            assert (await web.post("/soap", content=good, headers=kind)).status_code == 200
            assert (await web.get("/rest/Notes?id=a")).status_code == 200
