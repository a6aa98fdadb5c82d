"""503 cl. 11.1.7: the description of the service, and that both versions of SOAP are spoken as it says."""

from __future__ import annotations

from io import BytesIO

import httpx
import pytest
from lxml import etree
from prometheus_client import CollectorRegistry

from gridpost.services.endpoint.request_counts import RequestCounts
from gridpost.services.endpoint.soap_api import OLD_SERVICE, SERVICE, SoapApi
from gridpost.services.endpoint.soap_operations11 import SoapOperations11
from gridpost.wire.mades11.services import NAMESPACE as OLD_NS
from support.soap import NS, VERSIONS, XSD, SoapWorld, envelope, field, request, send_request

WSDL = "{http://schemas.xmlsoap.org/wsdl/}"
SOAP = {
    "MadesEndpointSOAP11": "{http://schemas.xmlsoap.org/wsdl/soap/}",
    "MadesEndpointSOAP12": "{http://schemas.xmlsoap.org/wsdl/soap12/}",
}
OPERATIONS = [
    "SendMessage",
    "ReceiveMessage",
    "ConfirmReceiveMessage",
    "ConnectivityTest",
    "CheckMessageStatus",
]


@pytest.fixture
def world() -> SoapWorld:
    return SoapWorld()


@pytest.mark.req("503-11.1.7-a")
@pytest.mark.req("503-11.1.7-b")
@pytest.mark.req("503-9.1-f")
async def test_the_definitions_have_the_name_and_namespace_of_the_standard(
    world: SoapWorld,
) -> None:
    wsdl = await world.sender.wsdl()
    assert (wsdl.tag, wsdl.get("name")) == (WSDL + "definitions", "MadesEndpointV2")
    assert wsdl.get("targetNamespace") == NS
    (port_type,) = wsdl.findall(WSDL + "portType")
    assert port_type.get("name") == "MadesEndpointV2"
    assert [o.get("name") for o in port_type] == OPERATIONS
    (schema,) = wsdl.iter(XSD)
    assert schema.get("elementFormDefault") is None


@pytest.mark.req("503-11.1.7-o")
async def test_messages_parts_and_faults_are_named_after_their_service(world: SoapWorld) -> None:
    wsdl = await world.sender.wsdl()
    messages = {
        str(m.get("name")): [(p.get("name"), p.get("element")) for p in m]
        for m in wsdl.findall(WSDL + "message")
    }
    assert messages == {
        f"{operation}{kind}": [(part, f"mades:{operation}{element}")]
        for operation in OPERATIONS
        for kind, part, element in (
            ("Request", "parameters", "Request"),
            ("Response", "parameters", "Response"),
            ("Fault", "fault", "Error"),
        )
    }
    for operation in wsdl.find(WSDL + "portType"):  # type: ignore[union-attr]
        name = operation.get("name")
        (fault,) = operation.findall(WSDL + "fault")
        assert (fault.get("name"), fault.get("message")) == (f"{name}Error", f"mades:{name}Fault")


@pytest.mark.req("503-11.1.7-p")
@pytest.mark.req("503-11.1.7-q")
@pytest.mark.req("503-11.1.7-r")
async def test_bindings_and_ports_are_those_of_the_standard(world: SoapWorld) -> None:
    wsdl = await world.sender.wsdl()
    bindings = {str(b.get("name")): b for b in wsdl.findall(WSDL + "binding")}
    assert set(bindings) == set(SOAP)
    for name, binding in bindings.items():
        soap = SOAP[name]
        (style,) = binding.findall(soap + "binding")
        assert style.get("style") == "document"
        assert style.get("transport") == "http://schemas.xmlsoap.org/soap/http"
        actions = [o.get("soapAction") for o in binding.iter(soap + "operation")]
        assert actions == [NS + operation for operation in OPERATIONS]
        assert {b.get("use") for b in binding.iter(soap + "body", soap + "fault")} == {"literal"}
    (service,) = wsdl.findall(WSDL + "service")
    assert service.get("name") == "MadesEndpointV2Service"
    ports = {str(p.get("name")): p for p in service}
    assert set(ports) == set(SOAP)
    for name, port in ports.items():
        (address,) = port.findall(SOAP[name] + "address")
        # Where this endpoint is, in place of the standard's example.
        assert address.get("location") == "http://endpoint/mades/2"


@pytest.mark.req("503-11.1.7-n")
@pytest.mark.parametrize("name", ["MessageState", "MessageTraceState"])
async def test_states_are_exactly_four(world: SoapWorld, name: str) -> None:
    (schema,) = (await world.sender.wsdl()).iter(XSD)
    own = etree.fromstring(etree.tostring(schema))
    own.append(etree.Element(XSD.replace("schema", "element"), name="probe", type=f"mades:{name}"))
    compiled = etree.XMLSchema(own)

    def valid(text: str) -> bool:
        probe = etree.Element(f"{{{NS}}}probe")
        probe.text = text
        return compiled.validate(etree.ElementTree(probe))

    allowed = ["ACCEPTED", "DELIVERED", "RECEIVED", "FAILED"]
    assert [text for text in (*allowed, "DELIVERING", "", "accepted") if valid(text)] == allowed


@pytest.mark.req("503-11.1.7-p")
@pytest.mark.req("503-11.1.7-q")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("action", [NS + "SendMessage", "", None])
async def test_a_request_is_answered_in_its_own_version(
    world: SoapWorld, version: str, action: str | None
) -> None:
    answer = await world.sender.call(send_request(), version, action=action)
    assert (answer.status, answer.version) == (200, version)
    refused = await world.sender.call(send_request(receiver="NOBODY"), version, action=action)
    assert refused.version == version
    assert (refused.status, refused.fault_code) == (
        (500, "Client") if version == "1.1" else (400, "Sender")
    )


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_action_that_contradicts_the_body_is_refused(
    world: SoapWorld, version: str
) -> None:
    answer = await world.sender.call(send_request(), version, action=NS + "ConnectivityTest")
    assert "action" in answer.reason
    assert await world.sender.stored() == 0


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_envelope_of_the_other_version_is_a_version_mismatch(
    world: SoapWorld, version: str
) -> None:
    other = "1.2" if version == "1.1" else "1.1"
    answer = await world.sender.answer(
        await world.sender.post(envelope(other, send_request()), version)
    )
    assert (answer.status, answer.version, answer.fault_code) == (500, version, "VersionMismatch")


@pytest.mark.parametrize(
    ("version", "flag"), [("1.1", "1"), ("1.1", "0"), ("1.2", "1"), ("1.2", "true"), ("1.2", "0")]
)
async def test_a_header_that_must_be_understood_is_refused(
    world: SoapWorld, version: str, flag: str
) -> None:
    header = f'<s:Header><x:Route xmlns:x="urn:x" s:mustUnderstand="{flag}"/></s:Header>'
    text = envelope(version, send_request(), header)
    answer = await world.sender.answer(await world.sender.post(text, version))
    if flag == "0":
        assert answer.status == 200
        return
    assert (answer.status, answer.fault_code) == (500, "MustUnderstand")
    assert "Route" in answer.reason
    assert await world.sender.stored() == 0


async def test_a_header_for_somebody_else_is_left_alone(world: SoapWorld) -> None:
    block = '<x:R xmlns:x="urn:x" s:mustUnderstand="1" s:actor="urn:somebody"/>'
    text = envelope("1.1", send_request(), f"<s:Header>{block}</s:Header>")
    assert (await world.sender.post(text)).status_code == 200


@pytest.mark.req("503-9.2-j")
async def test_each_version_of_the_service_has_a_place_and_a_namespace_of_its_own(
    world: SoapWorld,
) -> None:
    """The services of MADES 1.1 stand beside those of version 2 on the same port: neither answers
    in the name of the other, and an application of either goes on working."""
    one = world.sender
    assert OLD_SERVICE.path != SERVICE.path
    assert OLD_NS != NS
    operations = SoapOperations11(
        one.endpoint.context,
        one.users,
        one.endpoint.submission,
        one.endpoint.handover,
        one.endpoint.enquiry,
    )
    old = SoapApi(
        one.endpoint.context, one.users, operations, lambda scope: (), BytesIO,
        RequestCounts(CollectorRegistry()), service=OLD_SERVICE,
    )  # fmt: skip
    sent = await one.sent()
    body = request("CheckMessageStatus", field("messageID", sent))
    older = body.replace(NS, OLD_NS)
    transport = httpx.ASGITransport(old)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://e", auth=("app", "secret")
    ) as client:

        async def ask(text: str) -> etree._Element:
            answer = await client.post(
                OLD_SERVICE.path,
                content=envelope("1.1", text),
                headers={"content-type": "text/xml"},
            )
            return etree.fromstring(answer.content)

        assert (await one.call(body)).name == "CheckMessageStatusResponse"
        assert (await one.call(older)).name == "Fault"
        answered = await ask(older)
        assert answered.find(f".//{{{OLD_NS}}}CheckMessageStatusResponse") is not None
        assert answered.find(f".//{{{NS}}}CheckMessageStatusResponse") is None
        assert next((await ask(body)).iter("{*}Fault")) is not None
