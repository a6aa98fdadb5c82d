"""The SOAP channel against input that is wrong, hostile or slow: a clear answer, and nothing stored."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator
from io import BytesIO

import pytest

from gridpost.services.endpoint.context import EndpointSettings
from gridpost.wire.soap.envelope import EnvelopeLimits
from gridpost.wire.soap.mtom import MtomMessage, MtomReader, MtomType
from gridpost.wire.soap.version import SOAP_11, SOAP_12, SoapVersion
from support.soap import NS, SoapWorld, envelope, request, send_request

B64 = b64encode(b"document").decode()
GOOD = envelope("1.1", send_request())


@pytest.fixture
def world() -> SoapWorld:
    return SoapWorld(settings=EndpointSettings(max_content=3000))


@pytest.mark.parametrize(
    "text",
    [
        '<!DOCTYPE a [<!ENTITY e "x">]>' + GOOD,
        "<!DOCTYPE a SYSTEM 'http://example.org/a.dtd'>" + GOOD,
        GOOD.replace("A01", "&e;"),
        GOOD[:-20],
        GOOD + "<a/>",
        "not XML at all",
        "",
        envelope("1.1", ""),
        envelope("1.1", send_request() + send_request()),
        "<Envelope/>",
        '<x:Envelope xmlns:x="urn:other"/>',
        GOOD.replace("s:Body", "s:Corpse"),
        GOOD.replace(B64, "%%%%"),
        GOOD.replace(B64, B64 + B64),
        GOOD.replace(B64, B64[:-1]),
        GOOD.replace(B64, "ZG9j=dW1lbnQ"),
        GOOD.replace(B64, f"{B64[:4]}<!-- half -->{B64[4:]}"),
        GOOD.replace(B64, f"{B64[:4]}<?half it?>{B64[4:]}"),
        GOOD.replace(B64, f"{B64}<more/>"),
        GOOD.replace(B64, f"<more>{B64}</more>"),
        GOOD.replace(f"<content>{B64}</content>", f"<content>{B64}</content>" * 2),
        GOOD.replace("<message>", "<message>" * 70),
        GOOD.replace("A01", "A" * 30_000),
        GOOD.replace("<message>", f'<message padding="{"x" * 30_000}">'),
        GOOD.replace("<message>", "<!--" + "x" * 30_000 + "--><message>"),
        GOOD.replace(B64, B64 + "<!--" + "x" * 200_000),
    ],
)
@pytest.mark.parametrize("piece", [7, 100_000])
async def test_bad_input_is_a_clients_fault_and_nothing_is_stored(
    world: SoapWorld, text: str, piece: int
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        data = text.encode()
        for start in range(0, len(data), piece):
            yield data[start : start + piece]

    answer = await world.sender.answer(await world.sender.post(pieces()))
    assert answer.status == 500
    assert answer.fault_code in ("Client", "VersionMismatch")
    assert await world.sender.stored() == 0
    assert len(await world.sender.refusals()) == 1
    assert (await world.sender.call(send_request())).status == 200


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 64, 100_000])
async def test_where_the_network_cuts_a_request_does_not_matter(
    world: SoapWorld, piece: int
) -> None:
    lines = "\r\n".join([B64[:4], "  ", B64[4:8] + "&#10;", "<![CDATA[" + B64[8:] + "]]>"])
    text = '<?xml version="1.0" encoding="UTF-8"?>\n' + GOOD.replace(B64, lines)

    async def pieces() -> AsyncIterator[bytes]:
        data = text.encode()
        for start in range(0, len(data), piece):
            yield data[start : start + piece]

    answer = await world.sender.answer(await world.sender.post(pieces()))
    assert answer.name == "SendMessageResponse", answer.reason
    await world.carry()
    assert (await world.recipient.receive()).content == b"document"


async def test_utf_16_is_read_as_well(world: SoapWorld) -> None:
    text = '<?xml version="1.0" encoding="UTF-16"?>' + GOOD
    answer = await world.sender.answer(await world.sender.post(text.encode("utf-16")))
    assert answer.name == "SendMessageResponse", answer.reason


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "application/xml", "text/xml; charset=latin-1", "multipart/related", "x"],
)
async def test_another_media_type_is_not_supported(world: SoapWorld, content_type: str) -> None:
    answer = await world.sender.post(GOOD, content_type=content_type)
    assert answer.status_code == 415
    assert await world.sender.stored() == 0


async def test_other_methods_are_told_what_to_do(world: SoapWorld) -> None:
    async with world.sender.client() as client:
        for method in ("GET", "PUT", "DELETE"):
            answer = await client.request(method, "/mades/2")
            assert answer.status_code == 405
            assert answer.headers["allow"] == "GET, POST"


async def test_a_user_sends_only_its_message_types(world: SoapWorld) -> None:
    answer = await world.sender.call(send_request(), user="narrow")
    assert (answer.status, answer.error_code) == (500, "AUTHENTICATION_ERROR")
    assert (await world.sender.call(send_request(message_type="B1"), user="narrow")).status == 200


async def test_what_is_too_large_is_read_to_its_end_and_then_refused(world: SoapWorld) -> None:
    taken = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal taken
        for piece in (GOOD.partition(B64)[0], *["QUJD" * 500] * 3, GOOD.partition(B64)[2]):
            taken += 1
            yield piece.encode()

    answer = await world.sender.answer(await world.sender.post(pieces()))
    assert answer.error_code == "VALIDATION_ERROR"
    assert taken == 5
    assert await world.sender.stored() == 0


async def test_requests_are_counted_by_operation_and_outcome(world: SoapWorld) -> None:
    await world.sender.call(send_request())
    await world.sender.call(send_request(receiver="NOBODY"))
    await world.sender.call(request("Unknown"))
    assert world.sender.counted("SendMessage", "answered") == 1
    assert world.sender.counted("SendMessage", "VALIDATION_ERROR") == 1
    assert world.sender.counted("", "INVALID_PARAMETERS") == 1


async def test_foreign_text_in_an_error_cannot_break_the_answer(world: SoapWorld) -> None:
    answer = await world.sender.call(send_request(receiver='<x a="&">]]>'))
    assert answer.error_fields["receiverCode"] == '<x a="&">]]>'


async def test_the_wsdl_says_where_it_was_asked_for(world: SoapWorld) -> None:
    async with world.sender.client("") as client:
        answer = await client.get("/mades/2?WSDL", headers={"host": 'evil"<&'})
    assert answer.status_code == 200
    assert b'evil"<' not in answer.content
    assert NS.encode() in answer.content


@pytest.mark.parametrize("version", [SOAP_11, SOAP_12])
async def test_documents_may_travel_as_attachments(world: SoapWorld, version: SoapVersion) -> None:
    head, tail = envelope(version.name, send_request(b"HERE")).split(b64encode(b"HERE").decode())
    message = MtomMessage.of(version, head, tail, bytes(range(256)))
    answer = await world.sender.answer(
        await world.sender.post(b"".join(message.pieces()), content_type=message.content_type)
    )
    assert (answer.name, answer.version) == ("SendMessageResponse", version.name)
    await world.carry()
    # Asked with an attachment, answered with one.
    asked = envelope(
        version.name,
        request(
            "ReceiveMessage",
            "<messageType>A01</messageType>",
            "<downloadMessage>1</downloadMessage>",
        ),
    )
    bare = MtomMessage(version, (asked, ""), (b"",), "b", "x@y")
    root = b"".join(bare.pieces()).decode()
    include = root[root.index("<xop:Include") : root.index("/>", root.index("<xop:Include")) + 2]
    response = await world.recipient.post(root.replace(include, ""), content_type=bare.content_type)
    assert response.status_code == 200
    found = MtomType.read(response.headers["content-type"], None)
    assert found is not None
    place = (f"{{{NS}}}ReceiveMessageResponse", "receivedMessage", "content")
    reader = MtomReader(found, [place], EnvelopeLimits(10_000), BytesIO)
    reader.feed(response.content)
    assert reader.close().binaries[place].read() == bytes(range(256))
    too_large = MtomMessage.of(version, head, tail, bytes(3001))
    refused = await world.sender.answer(
        await world.sender.post(b"".join(too_large.pieces()), content_type=too_large.content_type)
    )
    assert refused.error_code == "VALIDATION_ERROR"
    assert await world.sender.stored() == 1
