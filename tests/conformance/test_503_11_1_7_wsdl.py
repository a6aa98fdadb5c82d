"""503 cl. 11.1.7: the description of the service, and that both versions of SOAP are spoken as it says."""

from __future__ import annotations

import pytest
from lxml import etree

from support.soap import NS, VERSIONS, XSD, SoapWorld, envelope, send_request

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
