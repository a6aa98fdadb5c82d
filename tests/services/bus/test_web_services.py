"""The web services of a bus: generic and typed SOAP, REST, callbacks, listeners, and what is refused."""

from __future__ import annotations

import asyncio
import base64
from typing import TypeVar
from uuid import uuid4

import pytest
import pytest_asyncio
from lxml import etree

from gridpost.core.envelope import Error
from gridpost.envelope import (
    EventMessage,
    FaultMessage,
    Identifier,
    ResponseMessage,
    Result,
    Verb,
    decode,
    failed,
)
from gridpost.wire.envelope import decode_element, element_text
from gridpost.wire.envelope.wsdl import BASE, message_xsd
from gridpost.wire.soap.mtom import MtomMessage
from gridpost.wire.soap.version import SOAP_11
from support import bus_handlers
from support.bus_site import CONTEXT
from support.bus_web import NOTE, NOTES, WebBus, WebService, child, web_bus, web_service
from support.soap import envelope
from support.waiting import eventually

T = TypeVar("T", ResponseMessage, EventMessage)
pytestmark = pytest.mark.asyncio(loop_scope="module")


def wsdl(row: str) -> pytest.MarkDecorator:
    return pytest.mark.req(row, component="wsdl")


def bus(row: str) -> pytest.MarkDecorator:
    return pytest.mark.req(row, component="bus")


def transport(row: str) -> pytest.MarkDecorator:
    return pytest.mark.req(row, component="transport")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def listeners():
    async with web_service() as one, web_service() as two:
        yield one, two


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(rabbitmq, tmp_path_factory, listeners):
    one, two = listeners
    subscribers = [
        {"name": "down", "to": "http://127.0.0.1:1/x", "noun": "Notes", "retries": ("10ms",)},
        {"name": "one", "to": one.url, "noun": "Notes", "retries": ("10ms", "10ms")},
        {"name": "two", "to": two.url, "noun": "Notes", "form": "xml"},
    ]
    home = tmp_path_factory.mktemp("bus")
    async with web_bus(rabbitmq, home, subscribers=subscribers) as found:
        yield found


def fault_of(answer: bytes) -> FaultMessage:
    fault = child(answer)
    assert etree.QName(fault).localname == "Fault"
    (detail,) = fault.find("detail")
    message = decode_element(etree.fromstring(etree.tostring(detail)))
    assert isinstance(message, FaultMessage)
    return message


@bus("100-5.2.1-a")
@wsdl("100-5.2.1-a")
@bus("100-D-c")
@wsdl("100-D-c")
@wsdl("100-6.6-a")
@transport("100-6.6-a")
@wsdl("100-3.3.6-a")
@transport("100-3.3.6-a")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
async def test_a_request_is_answered_in_the_same_exchange_and_version(
    site: WebBus, version: str
) -> None:
    request = site.sender.request("get", "Notes", ids=["a", "b"])
    answer = await site.soap(request, version=version)
    root = etree.fromstring(answer.content)
    assert answer.headers["content-type"].startswith(
        "text/xml" if version == "1.1" else "application/soap+xml"
    )
    (body,) = [e for e in root if etree.QName(e).localname == "Body"]
    assert len(body) == 1
    message = decode_element(child(answer.content))
    assert isinstance(message, ResponseMessage)
    assert message.reply.result is Result.OK
    assert message.header.correlation_id == request.header.correlation_id
    assert message.payload.content[0].text.count("<n:Note>") == 2
    # In the header of the SOAP message it is no request.
    text = element_text(request)
    misplaced = (
        f'<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Header>{text}'
        "</s:Header><s:Body/></s:Envelope>"
    )
    refused = await site.web.post(
        site.url + "/soap", content=misplaced, headers={"content-type": "text/xml"}
    )
    assert refused.status_code == 500
    assert etree.QName(child(refused.content)).localname == "Fault"


@wsdl("100-D-a")
@bus("100-6.7-f")
@transport("100-6.7-f")
async def test_any_verb_and_noun_passes_one_generic_service(site: WebBus) -> None:
    served = await site.web.get(site.url + "/xsd/Message.xsd")
    assert served.content == message_xsd()
    for verb in bus_handlers.VERBS:
        payload = NOTE.format(verb) if verb in ("create", "change", "execute") else None
        ids = () if payload else ["x"]
        request = site.sender.request(verb, "Notes", payload, ids=ids)
        answer = await site.ask(request)
        assert answer.reply.result is Result.OK, verb
        assert answer.header.verb is Verb.REPLY
    other = await site.ask(site.sender.request("get", "MeterReadings", ids=["nobody"]))
    assert other.header.noun == "MeterReadings"
    # The same over AMQP comes back over AMQP.
    over_amqp = await site.client.call(site.sender.request("get", "Notes", ids=["a"]))
    assert over_amqp.reply.result is Result.OK


@wsdl("100-6.3.6-a")
@wsdl("100-D-i")
async def test_what_cannot_be_read_is_a_fault_with_a_fault_message(site: WebBus) -> None:
    request = site.sender.request("get", "Notes", ids=["a"])
    good = element_text(request)
    bad = good.replace("<Noun>Notes</Noun>", "")
    answer = await site.soap(bad)
    assert answer.status_code == 500
    message = fault_of(answer.content)
    assert message.reply.result is Result.FAILED
    assert message.reply.codes == {"SCHEMA_INVALID"}
    for text in ("<a>", "", "<!DOCTYPE a><a/>"):
        refused = await site.web.post(
            site.url + "/soap", content=text, headers={"content-type": "text/xml"}
        )
        assert refused.status_code == 500
    unknown = await site.soap('<x:Something xmlns:x="urn:x"/>')
    assert unknown.status_code == 500
    other = await site.web.post(
        site.url + "/soap", content="{}", headers={"content-type": "application/json"}
    )
    assert other.status_code == 415
    wrong = await site.soap(request, soapaction='"http://iec.ch/61968/PublishEvent"')
    assert "is not Request" in wrong.text
    # A rule that only the bus knows is a reply, not a fault.
    foreign = site.sender.request("create", "Notes", NOTE.format("refuse"))
    failed_reply = await site.ask(foreign)
    assert failed_reply.reply.result is Result.FAILED
    assert failed_reply.reply.codes == {"OBJECT_EXISTS"}


async def test_a_request_that_comes_twice_has_its_effect_once_and_the_same_answer(
    site: WebBus,
) -> None:
    request = site.sender.request("create", "Notes", NOTE.format("once"))
    first, second = await site.ask(request), await site.ask(request)
    assert first == second
    assert bus_handlers.CALLS.count(("create", request.header.message_id)) == 1


@bus("100-5.2.1-c")
@wsdl("100-5.2.1-c")
@bus("100-4.6-a")
@bus("100-4.6-b")
@transport("100-6.3.2-k")
async def test_the_reply_of_an_asynchronous_request_is_a_call_of_the_client(site: WebBus) -> None:
    async with web_service() as client:
        # It answers 503 at first: the callback is open until it was replied to.
        client.statuses = [503]
        requests = [
            site.sender.request("create", "Notes", NOTE.format(n), reply_address=client.url)
            for n in "ab"
        ]
        for request in requests:
            answer = await site.ask(request)
            assert answer.reply.result is Result.PARTIAL
            assert answer.reply.codes == {"0.1"}
            assert answer.header.correlation_id == request.header.correlation_id
        await eventually(lambda: len(client.taken) == 2)
        found = {m.header.correlation_id: m for m in client.taken}
        assert set(found) == {r.header.correlation_id for r in requests}
        assert all(isinstance(m, ResponseMessage) for m in found.values())
        assert {m.reply.result for m in found.values()} == {Result.OK}
        assert client.headers[0]["soapaction"] == '"http://iec.ch/61968/Response"'
        await eventually(lambda: _unsent(site) == 0)


def _unsent(site: WebBus) -> int:
    from gridpost.stores.sqlite.database import connect_reader

    connection = connect_reader(site.home / "store")
    try:
        query = "SELECT count(*) FROM outbox WHERE sent = 0"
        return int(connection.execute(query).fetchone()[0])
    finally:
        connection.close()


@bus("100-5.2.5-b")
@transport("100-5.2.5-b")
@transport("100-6.3.2-i")
@transport("100-6.3.2-j")
async def test_replies_go_to_the_url_the_topic_or_the_queue_that_was_given(site: WebBus) -> None:
    queue, topic = "parts-replies", f"{CONTEXT}.REPLIES.Parts"
    for name in (queue, "parts-listener"):
        await site.channel.declare_queue(name)
    await site.channel.bind("parts-listener", CONTEXT, topic)

    async def three(place: str) -> list[ResponseMessage]:
        found = []
        async with asyncio.timeout(60):
            while len(found) < 3:
                incoming = await site.channel.get(place)
                if incoming is not None:
                    await site.channel.ack(incoming.tag)
                    found.append(decode(incoming.body))
                await asyncio.sleep(0.01)
        return found

    async with web_service() as client:
        for address in (client.url, f"topic:{topic}", f"queue:{queue}"):
            request = site.sender.request("get", "Parts", reply_address=address)
            assert (await site.ask(request)).reply.result is Result.PARTIAL
            if address == client.url:
                await eventually(lambda: len(client.taken) == 3)
                found = client.taken
            else:
                found = await three(queue if address.startswith("queue") else "parts-listener")
            # In their order, so that the last one comes last.
            assert [m.reply.ids[0].value for m in found] == ["a", "b", "c"]
            assert [sorted(m.reply.codes) for m in found] == [["0.1"], ["0.1"], ["0.2"]]
            assert {m.header.correlation_id for m in found} == {request.header.correlation_id}
            # ... and nowhere else.
            for name in (queue, "parts-listener"):
                assert await site.channel.get(name) is None
            assert len(client.taken) == 3


@bus("100-5.2.5-g")
async def test_an_error_after_the_acknowledgement_comes_to_the_reply_address(site: WebBus) -> None:
    async with web_service() as client:
        request = site.sender.request(
            "create", "Notes", NOTE.format("refuse"), reply_address=client.url
        )
        assert (await site.ask(request)).reply.result is Result.PARTIAL
        await eventually(lambda: client.taken)
        (reply,) = client.taken
        assert reply.reply.result is Result.FAILED
        assert reply.reply.codes == {"OBJECT_EXISTS"}


async def test_a_callback_that_is_never_taken_ends_with_the_dead_letters(site: WebBus) -> None:
    async with web_service() as client:
        client.statuses = [503] * 10
        request = site.sender.request("create", "Notes", NOTE.format("x"), reply_address=client.url)
        await site.ask(request)
        await eventually(lambda: len(client.statuses) <= 7)
    found = await _dead(site, request.header.correlation_id, ResponseMessage)
    assert found.reply.result is Result.OK


async def _dead(site: WebBus, correlation: str | None, kind: type[T]) -> T:
    import asyncio

    for _ in range(600):
        found = await site.channel.get(f"{CONTEXT}.DEAD")
        if found is None:
            await asyncio.sleep(0.1)
            continue
        await site.channel.ack(found.tag)
        message = decode(found.body)
        if isinstance(message, kind) and message.header.correlation_id == correlation:
            return message
    raise AssertionError("no such dead letter")


async def test_one_way_over_the_web_is_accepted_without_a_reply(site: WebBus) -> None:
    request = site.sender.request("create", "Notes", NOTE.format("quiet"), one_way=True)
    answer = await site.soap(request)
    assert (answer.status_code, answer.content) == (202, b"")
    await eventually(lambda: ("create", request.header.message_id) in bus_handlers.CALLS)


@bus("100-5.2.1-d")
@wsdl("100-5.2.1-d")
@bus("100-4.4-a")
@bus("100-D-e")
@wsdl("100-D-e")
async def test_an_event_reaches_every_listener_topics_and_urls(
    site: WebBus, listeners: tuple[WebService, WebService]
) -> None:
    one, two = listeners
    heard: list[EventMessage] = []
    await site.client.subscribe(heard.append, noun="Notes")
    event = site.sender.event("changed", "Notes", NOTE.format("news"), correlation_id="c-1")
    one.statuses = [503, 503]  # taken by the third attempt
    answer = await site.ask(event)
    assert (answer.reply.result, answer.header.correlation_id) == (Result.OK, "c-1")
    mine = event.header.message_id
    for taken in (heard, one.taken, two.taken):
        await eventually(lambda t=taken: mine in [m.header.message_id for m in t])
        assert [m.header.message_id for m in taken].count(mine) == 1
    # The listener that is down does not stop the others, and what it missed is kept.
    missed = await _dead(site, "c-1", EventMessage)
    assert missed.header.message_id == mine
    # The same again is not published again; other bytes with its id are refused.
    assert (await site.ask(event)).reply.result is Result.OK


@bus("100-4.4-b")
async def test_a_listener_gets_events_in_their_order_also_when_one_is_tried_again(
    site: WebBus, listeners: tuple[WebService, WebService]
) -> None:
    one, _ = listeners
    events = [
        site.sender.event("changed", "Notes", NOTE.format(n), correlation_id=f"order-{n}")
        for n in range(3)
    ]
    one.statuses = [503]
    for event in events:
        await site.ask(event)
    mine = [e.header.message_id for e in events]

    def order() -> list[str]:
        return [m.header.message_id for m in one.taken if m.header.message_id in mine]

    await eventually(lambda: len(order()) == 3)
    assert order() == mine


@bus("100-D-d")
@wsdl("100-D-d")
async def test_a_response_is_matched_by_its_correlation_or_refused(site: WebBus) -> None:
    queue, _ = await site.channel.declare_queue(durable=False, auto_delete=False)
    request = site.sender.request("get", "Elsewhere")
    key = request.header.correlation_id
    now = site.running.service.clock.now()
    await site.running.ledger.run(lambda unit: unit.expect(key, f"queue:{queue}", "t-1", now))
    reply = site.sender.response(request, failed(Error("2.15")))
    answer = await site.ask(reply)
    assert answer.reply.result is Result.OK
    found = None
    while found is None:
        found = await site.channel.get(queue)
    assert decode(found.body).header.message_id == reply.header.message_id
    assert found.properties.correlation_id == "t-1"
    late = await site.ask(reply)
    assert late.reply.result is Result.FAILED
    assert late.reply.codes == {"NOT_EXPECTED"}


# -- typed services


def typed(operation: str, verb: str, payload: str = "", request: str = "", **header: str) -> str:
    get = "Get" if operation.startswith("Get") else ""
    fields = "".join(f"<m:{n}>{v}</m:{n}>" for n, v in header.items())
    return (
        f'<t:{operation} xmlns:t="{BASE}/{get}NotesMessage" '
        'xmlns:m="http://iec.ch/TC57/2011/schema/message">'
        f"<t:Header><m:Verb>{verb}</m:Verb><m:Noun>Notes</m:Noun>{fields}</t:Header>{request}"
        + (f"<t:Payload>{payload}</t:Payload>" if payload else "")
        + f"</t:{operation}>"
    )


@wsdl("100-8.3.1-a")
@wsdl("100-8.3.4.1-a")
@wsdl("100-C.4-j")
@wsdl("100-C.4-d")
@transport("100-C.4-d")
async def test_a_typed_service_is_the_generic_one_with_a_checked_payload(site: WebBus) -> None:
    described = await site.web.get(site.url + "/typed/Notes/Request?wsdl")
    assert f"{site.url}/typed/Notes/Request" in described.text
    made = await site.soap(
        typed("CreateNotes", "create", NOTE.format("typed")),
        path="/typed/Notes/Request",
        soapaction=f'"{BASE}/Notes/CreateNotes"',
    )
    assert made.status_code == 200, made.text
    answer = child(made.content)
    assert answer.tag == f"{{{BASE}/NotesMessage}}NotesResponseMessage"
    assert "note-1" in made.text
    generic = await site.ask(site.sender.request("create", "Notes", NOTE.format("typed")))
    assert generic.reply.ids == (Identifier("note-1"),)
    wanted = "<t:Request><t:ID>a</t:ID><t:ID>b</t:ID></t:Request>"
    got = await site.soap(
        typed("GetNotes", "get", request=wanted),
        path="/typed/Notes/Get",
        soapaction=f'"{BASE}/GetNotes/GetNotes"',
    )
    assert child(got.content).tag == f"{{{BASE}/GetNotesMessage}}NotesResponseMessage"
    assert got.text.count("<n:Note>") == 2
    described = await site.web.get(site.url + "/typed/Notes/Get?wsdl")
    assert f'soapAction="{BASE}/GetNotes/GetNotes"' in described.text
    # A payload that the schema does not know never comes to the handler.
    before = len(bus_handlers.CALLS)
    wrong = f'<n:Notes xmlns:n="{NOTES}"><n:Wrong/></n:Notes>'
    for body in (
        typed("CreateNotes", "create", wrong),
        typed("CreateNotes", "change", NOTE.format("x")),
    ):
        refused = await site.soap(body, path="/typed/Notes/Request")
        assert refused.status_code == 500
        (detail,) = child(refused.content).find("detail")
        assert detail.tag == f"{{{BASE}/NotesMessage}}NotesFaultMessage"
    assert len(bus_handlers.CALLS) == before
    # Events by the same noun, and a pattern that has no such operation.
    sent = await site.soap(
        typed("ChangedNotes", "changed", NOTE.format("e")), path="/typed/Notes/Send"
    )
    assert sent.status_code == 200
    assert (await site.soap(typed("GetNotes", "get"), path="/typed/Notes/Send")).status_code == 500
    assert (await site.web.get(site.url + "/typed/Nothing/Get?wsdl")).status_code == 404


async def test_a_typed_service_takes_attachments(site: WebBus) -> None:
    picture = bytes(range(256)) * 8
    note = (
        f'<n:Notes xmlns:n="{NOTES}"><n:Note><n:text>{{}}</n:text><n:picture>|</n:picture>'
        "</n:Note></n:Notes>"
    )
    before, after = envelope("1.1", typed("CreateNotes", "create", note)).split("|")
    message = MtomMessage.of(SOAP_11, before, after, picture)
    got: list[bytes] = []

    def keep(request: object, unit: object) -> None:
        text = request.payload.content[0].element.findtext(".//{*}picture")  # type: ignore[attr-defined]
        got.append(base64.b64decode(text))

    handlers = site.running.service.handlers.requests
    own = handlers[Verb.CREATE, "Notes"]
    handlers[Verb.CREATE, "Notes"] = keep
    try:
        answer = await site.web.post(
            site.url + "/typed/Notes/Request",
            content=b"".join(message.pieces()),
            headers={"content-type": message.content_type},
        )
    finally:
        handlers[Verb.CREATE, "Notes"] = own
    assert answer.status_code == 200, answer.text
    assert got == [picture]


# -- REST


async def test_the_rest_binding_serves_the_same_handlers(site: WebBus) -> None:
    url, xml = f"{site.url}/rest/Notes", {"content-type": "application/xml"}
    key = str(uuid4())
    headers = {**xml, "x-source": "EMS", "idempotency-key": key, "x-correlation-id": "r-1"}
    made = await site.web.post(url, content=NOTE.format("rest"), headers=headers)
    assert made.status_code == 201, made.text
    assert made.headers["x-correlation-id"] == "r-1"
    again = await site.web.post(url, content=NOTE.format("rest"), headers=headers)
    assert again.content == made.content
    assert bus_handlers.CALLS.count(("create", key)) == 1
    got = await site.web.get(url, params={"id": ["a", "b"]})
    message = decode(got.content)
    assert message.reply.result is Result.OK
    bare = await site.web.get(
        f"{url}/a", headers={"accept": "application/vnd.gridpost.payload+xml"}
    )
    assert etree.fromstring(bare.content).tag == f"{{{NOTES}}}Notes"
    assert (await site.web.get(f"{url}/nothing")).status_code == 404
    assert (await site.web.delete(f"{url}/a")).status_code == 200
    assert (await site.web.post(f"{url}/a/cancel")).status_code == 200
    assert (await site.web.post(f"{url}/a/burn")).status_code == 400
    assert (await site.web.put(url, content=NOTE.format("r"), headers=xml)).status_code == 200
    clash = await site.web.post(url, content=NOTE.format("refuse"), headers=xml)
    assert clash.status_code == 409
    assert (await site.web.get(f"{url}?start=yesterday")).status_code == 400
    assert (await site.web.get(f"{site.url}/rest/Unknown")).status_code == 404
    other = site.url.replace(CONTEXT, "PRODUCTION")
    assert (await site.web.get(f"{other}/rest/Notes")).status_code == 404


async def test_a_series_is_one_answer_where_there_is_room_for_one(site: WebBus) -> None:
    answer = await site.ask(site.sender.request("get", "Parts"))
    assert answer.reply.result is Result.OK
    assert [i.value for i in answer.reply.ids] == ["a", "b", "c"]


@wsdl("100-D-j")
async def test_the_served_description_says_where_it_is_served(site: WebBus) -> None:
    described = etree.fromstring((await site.web.get(site.url + "/soap?wsdl")).content)
    (address,) = described.iter("{http://schemas.xmlsoap.org/wsdl/soap/}address")
    assert len(address) == 0
    assert address.get("location") == site.url + "/soap"
    assert (await site.web.get(site.url + "/soap")).status_code == 405
