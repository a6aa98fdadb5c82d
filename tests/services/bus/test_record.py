"""The bus as a system of record: relations of its objects, and whom it tells of a change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from lxml import etree
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gridpost.envelope import Identifier, ResponseMessage, Result, complete, decode, encode
from gridpost.services.bus.reference import CONTROLS
from gridpost.transports.loopback import serve_loopback
from gridpost.wire.envelope.typed import TypedService
from support.bus_site import CONTEXT
from support.bus_web import WebBus, child, web_bus
from support.soap import envelope
from support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")
NOUN = "EndDeviceControls"
XSD = f"""<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns:c="{CONTROLS}"
  targetNamespace="{CONTROLS}" elementFormDefault="qualified" version="1.0">
  <xs:element name="{NOUN}"><xs:complexType><xs:sequence>
    <xs:element name="EndDeviceControl" maxOccurs="unbounded"><xs:complexType><xs:sequence>
      <xs:any minOccurs="0" maxOccurs="unbounded" processContents="lax"/>
    </xs:sequence></xs:complexType></xs:element>
  </xs:sequence></xs:complexType></xs:element>
</xs:schema>"""


class Target:
    """Somebody else's SendEndDeviceControls; it reads what it gets by the schema of Annex C."""

    def __init__(self) -> None:
        self.service = TypedService(NOUN, XSD.encode(), None, Path())
        self.port = 0
        self.calls: list[tuple[str, str]] = []

    async def take(self, request: Request) -> Response:
        call = self.service.read("Send", child(await request.body()))
        action = request.headers["soapaction"].strip('"')
        assert action == self.service.action(call.operation)
        event = decode(call.envelope)
        self.calls.append((call.operation, event.header.correlation_id))
        from gridpost.envelope import Sender

        answer = encode(Sender("MDM2", CONTEXT).response(event, complete()))
        text = self.service.answer(answer, call.namespace)
        return Response(envelope("1.1", text), media_type="text/xml")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def target() -> AsyncIterator[Target]:
    found = Target()
    app = Starlette(routes=[Route("/send", found.take, methods=["POST"])])
    async with serve_loopback(app, "127.0.0.1", 0) as port:
        found.port = port
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(rabbitmq, tmp_path_factory, target: Target) -> AsyncIterator[WebBus]:
    home = tmp_path_factory.mktemp("bus")
    (home / f"{NOUN}.xsd").write_text(XSD)
    noun = {
        "name": NOUN,
        "xsd": home / f"{NOUN}.xsd",
        "typed": True,
        "relations": {
            "EndDevices": {"members": "add"},
            "Groups": {"members": "replace"},
            "Parent": {"noun": NOUN},
        },
    }
    url = f"http://127.0.0.1:{target.port}/send"
    subscriber = {"name": "send", "noun": NOUN, "to": url, "form": "typed"}
    async with web_bus(rabbitmq, home, nouns=[noun], subscribers=[subscriber]) as found:
        yield found


def control(mrid: str, inner: str = "") -> str:
    return (
        f'<c:{NOUN} xmlns:c="{CONTROLS}"><c:EndDeviceControl><c:mRID>{mrid}</c:mRID>{inner}'
        f"</c:EndDeviceControl></c:{NOUN}>"
    )


def member(relation: str, mrid: str) -> str:
    return f"<c:{relation}><c:mRID>{mrid}</c:mRID></c:{relation}>"


async def do(site: WebBus, verb: str, body: str) -> ResponseMessage:
    answer = await site.client.call(site.sender.request(verb, NOUN, body))
    assert isinstance(answer, ResponseMessage)
    return answer


async def members(site: WebBus, mrid: str, relation: str) -> list[str]:
    found = await site.client.call(site.sender.request("get", NOUN, ids=[mrid]))
    path = f".//{{{CONTROLS}}}{relation}/{{{CONTROLS}}}mRID"
    return [e.text for e in etree.fromstring(found.payload.content[0].text).iterfind(path)]


@pytest.mark.req("100-6.2.2-a", component="bus")
async def test_members_of_a_relation_are_added_or_replaced_by_its_rule(site: WebBus) -> None:
    both = [member(name, m) for name in ("EndDevices", "Groups") for m in ("d1", "d2")]
    await do(site, "create", control("r1", "".join(both)))
    changed = [member(name, m) for name in ("EndDevices", "Groups") for m in ("d2", "d3")]
    assert (await do(site, "change", control("r1", "".join(changed)))).reply.result is Result.OK
    assert await members(site, "r1", "EndDevices") == ["d1", "d2", "d3"]
    assert await members(site, "r1", "Groups") == ["d2", "d3"]
    # What is not given stays as it is.
    await do(site, "change", control("r1", member("Groups", "d9")))
    assert await members(site, "r1", "EndDevices") == ["d1", "d2", "d3"]
    assert await members(site, "r1", "Groups") == ["d9"]


@pytest.mark.req("100-A-aa", component="bus")
async def test_a_link_to_an_unknown_object_names_both(site: WebBus) -> None:
    await do(site, "create", control("p1"))
    assert (await do(site, "create", control("p2", member("Parent", "p1")))).reply.ids
    for verb, mrid in (("create", "p3"), ("change", "p2")):
        answer = await do(site, verb, control(mrid, member("Parent", "nobody")))
        assert answer.reply.result is Result.FAILED
        (error,) = answer.reply.real_errors
        assert (error.code, error.id, error.related_id) == (
            "OBJECT_UNKNOWN", Identifier(mrid), Identifier("nobody"),
        )  # fmt: skip
    # Nothing of it was kept.
    assert await members(site, "p2", "Parent") == ["p1"]
    gone = await site.client.call(site.sender.request("get", NOUN, ids=["p3"]))
    assert gone.reply.result is Result.FAILED


@pytest.mark.req("100-8.3.4.2-a", component="wsdl")
async def test_send_is_called_once_for_each_change_of_state_and_for_nothing_else(
    site: WebBus, target: Target
) -> None:
    # Events come one after the other: when one is there, so is everything before it.
    first = await do(site, "create", control("s0"))
    await eventually(lambda: first.header.correlation_id in dict(map(reversed, target.calls)))
    target.calls.clear()
    await do(site, "create", control("s1", "<c:reason>a</c:reason>"))
    for reason in ("a", "b", "b"):
        answer = await do(site, "change", control("s1", f"<c:reason>{reason}</c:reason>"))
        assert answer.reply.result is Result.OK
    assert (await do(site, "create", control("s1"))).reply.result is Result.FAILED
    for _ in range(2):
        ended = await site.client.call(site.sender.request("close", NOUN, ids=["s1"]))
        assert ended.reply.result is Result.OK
    last = await do(site, "create", control("s2"))
    await eventually(lambda: last.header.correlation_id in dict(map(reversed, target.calls)))
    assert [operation for operation, _ in target.calls] == [
        f"Created{NOUN}", f"Changed{NOUN}", f"Closed{NOUN}", f"Created{NOUN}",
    ]  # fmt: skip
    assert len({number for _, number in target.calls}) == 4
