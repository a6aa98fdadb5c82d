"""MADES 1.1 cl. 5.3 to 5.6 on the wire: descriptions, elements, error codes and MTOM of a node."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from lxml import etree

from gridpost.core.certificate import CertificateKind
from gridpost.wire.mades11 import message as message_form
from gridpost.wire.mades11.services import NODE_INTERFACES
from gridpost.wire.xml_text import element
from support.directory_process import TestRoot
from support.old_network import TestNode
from support.old_raw import Raw

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def raw(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Raw]:
    root = TestRoot(tmp_path_factory.mktemp("root"))
    node = TestNode(tmp_path_factory.mktemp("N1"), "N1", root)
    async with node.run():
        yield Raw(await node.endpoint("E1"))


@pytest.mark.req("m11-5.6.3.1-a", component="node")
@pytest.mark.req("m11-5.6.3.2-a", component="node")
@pytest.mark.req("m11-5.6.3.3-a", component="node")
@pytest.mark.req("m11-5.6.3.4-a", component="node")
@pytest.mark.req("m11-5.6.1-c", component="node")
async def test_names_in_the_descriptions() -> None:
    wsdl = {"w": "http://schemas.xmlsoap.org/wsdl/"}
    for name, interface in NODE_INTERFACES.items():
        root = etree.fromstring(interface.wsdl("https://x"))
        service = name if name != "MadesInternalMessaging" else "MadesInternalMessagingService"
        assert root.get("name") == name
        assert root.get("targetNamespace") == "http://mades.entsoe.eu/"
        assert [e.get("name") for e in root.findall("w:portType", wsdl)] == [name]
        assert [e.get("name") for e in root.findall("w:service", wsdl)] == [service]
        both = {f"{name}SOAP11", f"{name}SOAP12"}
        assert {e.get("name") for e in root.findall("w:binding", wsdl)} == both
        assert {e.get("name") for e in root.findall("w:service/w:port", wsdl)} == both
        for version in ("soap", "soap12"):
            space = f"{{http://schemas.xmlsoap.org/wsdl/{version}/}}"
            assert {e.get("style") for e in root.iter(f"{space}binding")} == {"document"}
            actions = {e.get("soapAction") for e in root.iter(f"{space}operation")}
            assert actions == {operation.action for operation in interface.operations}
            bodies = list(root.iter(f"{space}body"))
            assert len(bodies) == 2 * len(interface.operations)


@pytest.mark.req("m11-T33-a", component="node")
async def test_a_token_with_and_without_the_version_of_the_service(raw: Raw) -> None:
    code = element("componentCode", "E1")
    for more in ("", element("serviceMversion", "1")):
        answer = await raw.call("GetAuthenticationToken", code + more)
        assert [str(e.tag) for e in answer.body] == ["authToken", "expiration", "serviceMversion"]
    refused = await raw.refused("GetAuthenticationToken", code + element("serviceMversion", "3"))
    assert refused == "AUTHENTICATION_ERROR"
    unknown = await raw.refused("GetAuthenticationToken", element("componentCode", "NOBODY"))
    assert unknown == "AUTHENTICATION_ERROR"
    assert await raw.refused("GetAuthenticationToken", "") == "INVALID_PARAMETERS"


@pytest.mark.req("m11-5.5-a", component="node")
@pytest.mark.req("m11-T37-a", component="node")
@pytest.mark.req("m11-5.6.3.2-c", component="node")
async def test_mtom_both_ways(raw: Raw) -> None:
    one = raw.endpoint
    metadata, content = await one.message(one, b"\0\xff\r\n--" * 500_000)
    before, after = message_form.encode(metadata)
    answer = await raw.call("UploadMessages", before, after + await raw.last(), contents=(content,))
    assert answer.body.findtext("uploadedMessages") == metadata.message_id
    assert raw.size < 1.05 * len(content)
    signer = one.token_signer
    endpoint = (
        "<endpoints>"
        + element("code", "E1")
        + element("signature", signer.sign("E1"))
        + element("certificateID", signer.certificate_id)
        + "</endpoints>"
    )
    request = endpoint + await raw.last()
    for attach, media in ((True, "multipart/related"), (False, "application/soap+xml")):
        down = await raw.call("DownloadMessages", request, attach=attach)
        assert raw.content_type.startswith(media)
        (item,) = down.body.iterfind("messages")
        holder = item.find("content")
        assert holder is not None
        document = down.document(holder)
        assert document is not None
        assert document.read() == content
    await one.session().confirm([metadata.message_id])
    # Table 61 calls metadata optional.
    bare, body = one.acknowledgement(metadata)
    before, after = message_form.encode(bare)
    after = after.replace("<metadata></metadata>", "")
    answer = await raw.call("UploadMessages", before, after + await raw.last(), contents=(body,))
    assert answer.body.findtext("uploadedMessages") == bare.message_id
    # Table 37: exactly one endpoint.
    for wrong in (endpoint * 2, ""):
        request = wrong + await raw.last()
        assert await raw.refused("DownloadMessages", request) == "INVALID_PARAMETERS"


@pytest.mark.req("m11-T15-a", component="node")
@pytest.mark.req("m11-T41-b", component="node")
@pytest.mark.req("m11-T43-a", component="node")
@pytest.mark.req("m11-T46-a", component="node")
@pytest.mark.req("m11-T48-a", component="node")
@pytest.mark.req("m11-T55-a", component="node")
@pytest.mark.req("m11-5.6.3.3-c", component="node")
async def test_elements_of_requests(raw: Raw) -> None:
    one, last = raw.endpoint, await raw.last()
    signer = one.token_signer
    right = [
        element("componentCode", "E1"),
        element("signature", signer.sign("E1")),
        element("certificateID", signer.certificate_id),
        element("componentMVersion", "1"),
    ]
    answer = await raw.call("SetComponentMversion", "".join(right) + last)
    assert [(str(e.tag), e.text) for e in answer.body] == [
        ("nodeMversion", "1"),
        ("acceptance", "true"),
    ]
    for left_out in range(4):
        parts = [part for number, part in enumerate(right) if number != left_out]
        refused = await raw.refused("SetComponentMversion", "".join(parts) + last)
        assert refused == "INVALID_PARAMETERS"
    small = "".join(right).replace("componentMVersion", "componentMversion")
    assert await raw.refused("SetComponentMversion", small + last) == "INVALID_PARAMETERS"
    kind = CertificateKind.SIGNING
    wrong = [
        right[0],
        element("signature", type(signer)(one.certificates[kind], one.keys[kind]).sign("E1")),
        *right[2:],
    ]
    answer = await raw.call("SetComponentMversion", "".join(wrong) + last)
    assert answer.body.findtext("acceptance") == "false"
    assert await raw.refused("GetComponent", last) == "INVALID_PARAMETERS"
    wanted = element("componentCode", "E1")
    for type_ in ("OTHER", "signing", ""):
        refused = await raw.refused("GetCertificate", wanted + element("type", type_) + last)
        assert refused == "INVALID_PARAMETERS"
    for known in CertificateKind:
        if known is not CertificateKind.INTEGRATED_CA:
            asked = wanted + element("type", known)
            asked += element("certificateID", one.certificate_id(known))
            answer = await raw.call("GetCertificate", asked + last)
            assert answer.body.find("certificate") is not None
    assert await raw.refused("GetNodeMversion", "") == "INVALID_PARAMETERS"
    answer = await raw.call("GetNodeMversion", element("mversion", "1"))
    assert [(str(e.tag), e.text) for e in answer.body] == [("mversion", "1"), ("nodeCode", "N1")]
