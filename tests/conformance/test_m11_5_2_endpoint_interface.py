"""MADES 1.1 cl. 5.2.2: the old interface for applications, beside the new one on the same endpoint."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from io import BytesIO
from uuid import UUID

import httpx
import pytest
from lxml import etree
from prometheus_client import CollectorRegistry

from gridpost.core.holds import Hold, HoldKind, Holds
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.context import EndpointSettings
from gridpost.services.endpoint.request_counts import RequestCounts
from gridpost.services.endpoint.soap_api import OLD_SERVICE, SoapApi
from gridpost.services.endpoint.soap_operations11 import SoapOperations11
from gridpost.wire.mades11.services import ENDPOINT, NAMESPACE, NODE_INTERFACES
from support.soap import VERSIONS, SoapEndpoint, SoapWorld, envelope, field


class Old:
    """The old interface of one endpoint, with the users of the new one."""

    def __init__(self, new: SoapEndpoint) -> None:
        one = new.endpoint
        operations = SoapOperations11(
            one.context, new.users, one.submission, one.handover, one.enquiry
        )
        counts = RequestCounts(CollectorRegistry())
        self.app = SoapApi(
            one.context, new.users, operations, lambda scope: (), BytesIO, counts,
            service=OLD_SERVICE,
        )  # fmt: skip

    async def call(
        self, operation: str, *fields: str, version: str = "1.1", password: str = "secret"
    ) -> etree._Element:
        """The answer, or the error in the detail of a fault; valid in any case."""
        body = (
            f'<m:{operation}Request xmlns:m="{NAMESPACE}">{"".join(fields)}</m:{operation}Request>'
        )
        media = "text/xml" if version == "1.1" else "application/soap+xml"
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://e", auth=("app", password)
        ) as client:
            response = await client.post(
                "/mades/1", content=envelope(version, body), headers={"content-type": media}
            )
        root = etree.fromstring(response.content)
        found = next(
            e
            for e in root.iter(etree.Element)
            if str(e.tag).startswith(f"{{{NAMESPACE}}}{operation}")
        )
        ENDPOINT.schema.validate(found)
        return found


def message(
    content: bytes, receiver: str = "E2", type_: str = "A01", conversation: str | None = None
) -> list[str]:
    return [
        "<message>",
        field("receiverCode", receiver),
        field("businessType", type_),
        field("content", b64encode(content).decode()),
        field("senderApplication", "App7"),
        field("baMessageID", "4711"),
        "</message>",
        field("conversationID", conversation),
    ]


@pytest.mark.req("m11-5.2.1-a")
@pytest.mark.req("m11-T16-a")
@pytest.mark.req("m11-T17-a")
@pytest.mark.req("m11-T20-a")
@pytest.mark.req("m11-T20-b")
@pytest.mark.req("m11-5.2.2.2-a")
@pytest.mark.req("m11-T22-a")
@pytest.mark.req("m11-T28-a")
@pytest.mark.req("m11-T69-b")
@pytest.mark.req("m11-T74-a")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.req("m11-5.2.2.1-a", component="endpoint")
async def test_a_delivery_as_an_old_application_sees_it(version: str) -> None:
    world = SoapWorld()
    sender, recipient = Old(world.sender), Old(world.recipient)
    document = b"\0\xffdocument"
    parts = message(document, conversation="App7-4711")
    sent = await sender.call("SendMessage", *parts, version=version)
    message_id = sent.findtext("messageID") or ""
    UUID(message_id)
    again = await sender.call("SendMessage", *parts, version=version)
    assert again.findtext("messageID") == message_id
    before = await sender.call("CheckMessageStatus", field("messageID", message_id))
    assert before.findtext("messageStatus/state") == "ACCEPTED"
    assert before.findtext("messageStatus/receiveTimestamp") is None
    assert [e.text for e in before.iterfind(".//trace/trace/state")] == ["VERIFYING", "ACCEPTED"]
    nothing = await recipient.call(
        "ReceiveMessage", field("businessType", "A01"), field("downloadMessage", "true")
    )
    assert nothing.find("receivedMessage") is None
    assert nothing.findtext("remainingMessagesCount") == "0"
    await world.carry()
    wanted = (field("businessType", "A01"), field("downloadMessage", "true"))
    for _ in range(2):
        got = await recipient.call("ReceiveMessage", *wanted, version=version)
        assert got.findtext("receivedMessage/messageID") == message_id
        assert b64decode(got.findtext("receivedMessage/content") or "") == document
        assert got.findtext("receivedMessage/businessType") == "A01"
        assert got.findtext("receivedMessage/senderApplication") == "App7"
        assert got.findtext("remainingMessagesCount") == "0"
    bare = await recipient.call(
        "ReceiveMessage", field("businessType", "A01"), field("downloadMessage", "false")
    )
    assert (bare.findtext("receivedMessage/content") or "") == ""
    assert bare.findtext("remainingMessagesCount") == "1"
    # The new interface sees the same message.
    assert (await world.recipient.receive()).text("receivedMessage/messageID") == message_id
    done = await recipient.call("ConfirmReceiveMessage", field("messageID", message_id))
    assert done.findtext("messageID") == message_id
    await world.carry()
    after = await sender.call("CheckMessageStatus", field("messageID", message_id))
    status = after.find("messageStatus")
    assert status is not None
    assert status.findtext("state") == "RECEIVED"
    states = [e.text for e in status.iterfind("trace/trace/state")]
    assert states[:2] == ["VERIFYING", "ACCEPTED"]
    assert states[-2:] == ["DELIVERED", "RECEIVED"]
    assert set(states[2:-2]) <= {"TRANSPORTED"}
    delivered = [
        item.findtext("timestamp")
        for item in status.iterfind("trace/trace")
        if item.findtext("state") == "DELIVERED"
    ]
    assert [status.findtext("receiveTimestamp")] == delivered
    first = status.find("trace/trace")
    assert first is not None
    assert first.findtext("timestamp") == status.findtext("sendTimestamp")


@pytest.mark.req("m11-T18-a")
@pytest.mark.req("m11-T21-a")
@pytest.mark.req("m11-T25-a")
@pytest.mark.req("m11-5.2.2.4-a")
async def test_refusals_and_the_connectivity_test() -> None:
    world = SoapWorld()
    sender, recipient = Old(world.sender), Old(world.recipient)
    refused = await sender.call("SendMessage", *message(b"x", receiver="NOBODY"))
    assert refused.findtext("errorCode") == "VALIDATION_ERROR"
    assert refused.findtext("receiverCode") == "NOBODY"
    refused = await sender.call("SendMessage", *message(b"x", type_="A 1"))
    assert refused.findtext("errorCode") == "INVALID_PARAMETERS"
    refused = await recipient.call(
        "ReceiveMessage", field("businessType", "A 1"), field("downloadMessage", "true")
    )
    assert refused.findtext("businessType") == "A 1"
    refused = await sender.call("ConnectivityTest", field("receiverCode", "E 2"))
    assert refused.findtext("errorCode") == "INVALID_PARAMETERS"
    assert refused.findtext("receiverCode") == "E 2"
    test = await sender.call("ConnectivityTest", field("receiverCode", "E2"))
    message_id = test.findtext("messageID") or ""
    before = await sender.call("CheckMessageStatus", field("messageID", message_id))
    assert before.findtext("messageStatus/state") == "ACCEPTED"
    await world.carry()
    after = await sender.call("CheckMessageStatus", field("messageID", message_id))
    assert after.findtext("messageStatus/state") == "DELIVERED"
    unknown = "11111111-1111-4111-8111-111111111111"
    for operation in ("CheckMessageStatus", "ConfirmReceiveMessage"):
        refused = await sender.call(operation, field("messageID", unknown))
        assert refused.findtext("messageID") == unknown


@pytest.mark.req("m11-5.6.1-b", component="endpoint")
@pytest.mark.req("m11-5.6.1-c", component="endpoint")
@pytest.mark.req("m11-5.6.2-a", component="endpoint")
@pytest.mark.req("m11-4.1.5-a", component="endpoint")
def test_names_in_the_description() -> None:
    """And nothing in it about versions: an application knows none."""
    text = ENDPOINT.wsdl("https://x")
    root = etree.fromstring(text)
    wsdl = {"w": "http://schemas.xmlsoap.org/wsdl/"}
    assert root.nsmap.get("mades") == root.get("targetNamespace") == NAMESPACE
    assert root.tag == "{http://schemas.xmlsoap.org/wsdl/}definitions"
    assert [e.get("name") for e in root.findall("w:portType", wsdl)] == ["MadesEndpoint"]
    assert [e.get("name") for e in root.findall("w:service", wsdl)] == ["MadesEndpointService"]
    both = {"MadesEndpointSOAP11", "MadesEndpointSOAP12"}
    assert {e.get("name") for e in root.findall("w:binding", wsdl)} == both
    assert {e.get("name") for e in root.findall("w:service/w:port", wsdl)} == both
    for version in ("soap", "soap12"):
        space = f"{{http://schemas.xmlsoap.org/wsdl/{version}/}}"
        bindings = list(root.iter(f"{space}binding"))
        assert {e.get("style") for e in bindings} == {"document"}
        assert {e.get("transport") for e in bindings} == {"http://schemas.xmlsoap.org/soap/http"}
        actions = {e.get("soapAction") for e in root.iter(f"{space}operation")}
        assert actions == {operation.action for operation in ENDPOINT.operations}
    assert b"mversion" not in (text if isinstance(text, bytes) else text.encode()).lower()


@pytest.mark.req("m11-5.6.1-a", component="endpoint")
@pytest.mark.req("m11-5.6.1-d", component="endpoint")
@pytest.mark.req("m11-5.6.1-e", component="endpoint")
@pytest.mark.req("m11-5.6.2-b", component="endpoint")
@pytest.mark.req("m11-T14-a", component="endpoint")
@pytest.mark.req("m11-T15-a", component="endpoint")
@pytest.mark.req("m11-T19-a", component="endpoint")
@pytest.mark.req("m11-T76-a", component="endpoint")
@pytest.mark.parametrize("version", VERSIONS)
async def test_requests_out_of_form_are_told_what_is_wrong(version: str) -> None:
    world = SoapWorld()
    sender = Old(world.sender)
    ids = set()
    good = message(b"x")
    wrong_order = [good[0], good[2], good[1], *good[3:]]
    for operation, fields in (
        ("SendMessage", wrong_order),
        ("SendMessage", message(b"x", receiver="a b")),
        ("SendMessage", message(b"x", type_="a b")),
        ("SendMessage", message(b"x", type_="")),
        ("ReceiveMessage", [field("businessType", "A01")]),
        ("ReceiveMessage", [field("downloadMessage", "true")]),
        ("ReceiveMessage", [field("businessType", "a b"), field("downloadMessage", "true")]),
        ("ConfirmReceiveMessage", [field("messageID", "no uuid")]),
        ("CheckMessageStatus", [field("messageID", "")]),
        ("ConnectivityTest", [field("receiverCode", "a b")]),
    ):
        found = await sender.call(operation, *fields, version=version)
        assert found.tag == f"{{{NAMESPACE}}}{operation}Error", (operation, fields)
        assert all(not str(e.tag).startswith("{") for e in found.iterdescendants())
        assert found.findtext("errorCode") == "INVALID_PARAMETERS", fields
        assert found.findtext("errorMessage")
        names = [str(e.tag) for e in found]
        assert names[:3] == ["errorCode", "errorID", "errorMessage"]
        ids.add(found.findtext("errorID"))
    assert len(ids) == 10
    nil = ' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:nil="true"/>'
    bare = [*good[:4], f"<senderApplication{nil}", f"<baMessageID{nil}", *good[6:]]
    sent = await sender.call("SendMessage", *bare, version=version)
    assert sent.tag == f"{{{NAMESPACE}}}SendMessageResponse"
    hyphened = await sender.call("SendMessage", *message(b"x", type_="BP1-A"), version=version)
    assert hyphened.tag == f"{{{NAMESPACE}}}SendMessageResponse"


@pytest.mark.req("m11-5.6.2-c", component="endpoint")
@pytest.mark.req("m11-5.6.2-d", component="endpoint")
@pytest.mark.req("m11-5.6.2-e", component="endpoint")
@pytest.mark.req("m11-T69-a", component="endpoint")
@pytest.mark.req("m11-5.1.3-a", component="endpoint")
@pytest.mark.req("m11-5.2.2.5-a", component="endpoint")
@pytest.mark.req("m11-T19-b", component="endpoint")
async def test_elements_of_answers_stand_in_their_order() -> None:
    world = SoapWorld()
    sender, recipient = Old(world.sender), Old(world.recipient)
    first = (await sender.call("SendMessage", *message(b"one"))).findtext("messageID")
    await sender.call("SendMessage", *message(b"two"))
    await world.carry()
    wanted = field("businessType", "A01")
    order = ["messageID", "receiverCode", "senderCode", "businessType", "content"]
    for download, content in (("true", "b25l"), ("false", None)):
        got = await recipient.call("ReceiveMessage", wanted, field("downloadMessage", download))
        received = got.find("receivedMessage")
        assert received is not None
        assert [str(e.tag) for e in received] == [*order, "senderApplication", "baMessageID"]
        assert received.findtext("messageID") == first
        assert (received.findtext("content") or None) == content
    await recipient.call("ConfirmReceiveMessage", field("messageID", first or ""))
    await world.carry()
    told = await sender.call("CheckMessageStatus", field("messageID", first or ""))
    status = told.find("messageStatus")
    assert status is not None
    assert [str(e.tag) for e in status] == [
        "messageID", "state", "receiverCode", "senderCode", "businessType", "senderApplication",
        "baMessageID", "sendTimestamp", "receiveTimestamp", "trace",
    ]  # fmt: skip
    assert status.findtext("state") == "RECEIVED"
    times = [status.findtext("sendTimestamp"), status.findtext("receiveTimestamp")]
    for item in status.iterfind("trace/trace"):
        assert [str(e.tag) for e in item] == [
            "timestamp", "state", "component", "componentDescription", "details"
        ]  # fmt: skip
        times.append(item.findtext("timestamp"))
        details = item.find("details")
        assert details is not None
        nil = details.get("{http://www.w3.org/2001/XMLSchema-instance}nil")
        assert (nil == "true") != bool(details.text)
    assert all(time is not None and time.endswith("Z") for time in times)


@pytest.mark.req("m11-3.3-a", component="endpoint")
async def test_a_paused_channel_hands_nothing_over_here_either() -> None:
    world = SoapWorld()
    recipient = Old(world.recipient)
    await Old(world.sender).call("SendMessage", *message(b"one"))
    await world.carry()
    context = world["E2"].context
    hold = Hold(HoldKind.CHANNEL, "soap", "olga", context.clock.now())
    asked = field("businessType", "A01"), field("downloadMessage", "true")
    for holds, content in ((Holds([hold]), None), (Holds([]), "b25l")):
        context.holding.change(holds)
        answer = await recipient.call("ReceiveMessage", *asked)
        assert answer.findtext("receivedMessage/content") == content


async def test_many_applications_at_once() -> None:
    world = SoapWorld()
    sender, recipient = Old(world.sender), Old(world.recipient)
    documents = {b"document %d" % n for n in range(20)}
    sent = await asyncio.gather(*(sender.call("SendMessage", *message(d)) for d in documents))
    assert len({answer.findtext("messageID") for answer in sent}) == 20
    await world.carry()
    got = set()
    for _ in documents:
        answer = await recipient.call(
            "ReceiveMessage", field("businessType", "A01"), field("downloadMessage", "true")
        )
        got.add(b64decode(answer.findtext("receivedMessage/content") or ""))
        found = answer.findtext("receivedMessage/messageID") or ""
        await recipient.call("ConfirmReceiveMessage", field("messageID", found))
    assert got == documents


@pytest.mark.req("m11-T76-b", component="endpoint")
async def test_hyphens_where_patterns_are_strict() -> None:
    world = SoapWorld(settings=EndpointSettings(strict_patterns=True))
    found = await Old(world.sender).call("SendMessage", *message(b"x", type_="BP1-A"))
    assert found.findtext("errorCode") == "INVALID_PARAMETERS"
    lax = await Old(SoapWorld().sender).call("SendMessage", *message(b"x", type_="BP1-A"))
    assert lax.findtext("messageID")


@pytest.mark.req("m11-2.9-a", component="endpoint")
async def test_an_endpoint_has_its_own_services_and_no_others() -> None:
    world = SoapWorld()
    sender = Old(world.sender)
    sent = (await sender.call("SendMessage", *message(b"x"))).findtext("messageID") or ""
    await world.carry()
    calls = {
        "ReceiveMessage": [field("businessType", "A01"), field("downloadMessage", "true")],
        "ConfirmReceiveMessage": [field("messageID", sent)],
        "CheckMessageStatus": [field("messageID", sent)],
        "ConnectivityTest": [field("receiverCode", "E1")],
    }
    assert {"SendMessage", *calls} == {operation.name for operation in ENDPOINT.operations}
    recipient = Old(world.recipient)
    for name, fields in calls.items():
        where = sender if name == "CheckMessageStatus" else recipient
        answer = await where.call(name, *fields)
        assert answer.tag == f"{{{NAMESPACE}}}{name}Response", name
    transport = httpx.ASGITransport(sender.app)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://e", auth=("app", "secret")
    ) as client:
        for interface in NODE_INTERFACES.values():
            for operation in interface.operations:
                body = f'<m:{operation.name}Request xmlns:m="{NAMESPACE}"/>'
                response = await client.post(
                    "/mades/1", content=envelope("1.1", body), headers={"content-type": "text/xml"}
                )
                assert response.status_code == 500, operation.name
                assert "Fault" in response.text


@pytest.mark.req("m11-T15-b", component="endpoint")
async def test_whoever_cannot_be_authenticated_is_told_so() -> None:
    world = SoapWorld()
    sender = Old(world.sender)
    refused = await sender.call("SendMessage", *message(b"x"), password="guessed")
    assert refused.tag == f"{{{NAMESPACE}}}SendMessageError"
    assert refused.findtext("errorCode") == "AUTHENTICATION_ERROR"


@pytest.mark.req("m11-T15-d", component="endpoint")
@pytest.mark.parametrize("fault", [Refusal(Rule.STORE_FULL, "the disk is full"), KeyError("bug")])
async def test_a_fault_of_the_endpoint_itself_is_no_mistake_of_the_application(
    monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    world = SoapWorld()
    sender = Old(world.sender)
    store = world.sender.endpoint.context.store
    real = store.run

    async def broken(work: object) -> object:
        monkeypatch.setattr(store, "run", real)  # the refusal itself can be written down
        raise fault

    monkeypatch.setattr(store, "run", broken)
    refused = await sender.call("SendMessage", *message(b"x"))
    assert refused.findtext("errorCode") == "INTERNAL_ERROR"
    assert refused.findtext("errorID")
    assert (await sender.call("SendMessage", *message(b"x"))).findtext("messageID")


@pytest.mark.req("m11-3.5.5-e", component="endpoint")
async def test_a_document_of_an_application_is_not_larger_than_what_can_be_kept() -> None:
    world = SoapWorld(settings=EndpointSettings(max_content=1000))
    sender = Old(world.sender)
    refused = await sender.call("SendMessage", *message(b"x" * 1001))
    assert refused.findtext("errorCode") == "VALIDATION_ERROR"
    assert (await sender.call("SendMessage", *message(b"x" * 1000))).findtext("messageID")
