"""The bus over a real RabbitMQ: requests, replies, events, and what goes wrong (61968-100 cl. 5, 6)."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio
from lxml import etree

from gridpost.core.amqp091 import Properties, RabbitConnection
from gridpost.core.bus import BusUnit
from gridpost.core.envelope_exchange import prevailing
from gridpost.core.journal import EnvelopeRow, RefusalRow
from gridpost.core.refusal import Refusal, Rule
from gridpost.envelope import (
    EventMessage,
    FaultMessage,
    Fragment,
    Identifier,
    Operation,
    OperationSet,
    Pair,
    Payload,
    ReplayDetection,
    RequestMessage,
    ResponseMessage,
    Result,
    Verb,
    complete,
    content,
    decode,
    encode,
    file_payload,
)
from gridpost.envelope.client import BusClient
from gridpost.services.bus.answering import Arrival
from gridpost.services.bus.handlers import Answer, Series
from gridpost.services.bus.reference import CONTROLS, READINGS
from gridpost.services.bus.service import BusService
from support.bus_site import CONTEXT, Site, bus_site, journal
from support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")
HANG = threading.Event()
CALLS: list[str] = []
STUMBLES: list[str] = []
"""Steps at which the bus itself breaks, each once."""


def stumble(name: str) -> None:
    if name in STUMBLES:
        STUMBLES.remove(name)
        raise ZeroDivisionError(name)


def bus(row: str) -> pytest.MarkDecorator:
    return pytest.mark.req(row, component="bus")


def transport(row: str) -> pytest.MarkDecorator:
    return pytest.mark.req(row, component="transport")


def register(service: BusService) -> None:
    @service.handles("get", "Broken")
    def broken(request: RequestMessage, unit: BusUnit) -> object:
        raise ValueError("secret inside")

    @service.handles("get", "Slow")
    def slow(request: RequestMessage, unit: BusUnit) -> object:
        HANG.wait(30)
        return None

    @service.handles("get", "Parts")
    def parts(request: RequestMessage, unit: BusUnit) -> object:
        options = request.request.options if request.request else ()
        open_end = Pair("open", "true") in options
        return Series(tuple(Answer(complete([Identifier(n)])) for n in "abc"), open_end)

    @service.handles("create", "Parts")
    def make_parts(request: RequestMessage, unit: BusUnit) -> object:
        return Series(tuple(Answer(complete([Identifier(n)])) for n in "ab"))

    @service.handles("create", "Notes")
    def notes(request: RequestMessage, unit: BusUnit) -> object:
        CALLS.append(request.header.message_id or "")
        if "refuse" in request.payload.content[0].text:
            raise Refusal(Rule.OBJECT_EXISTS, "no such note")
        return None

    @service.listens("changed", "Notes")
    def heard(event: EventMessage, unit: BusUnit) -> None:
        CALLS.append(f"heard {event.header.message_id}")
        if "refuse" in event.payload.content[0].text:
            raise Refusal(Rule.OBJECT_UNKNOWN, "nothing to change")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(rabbitmq, tmp_path_factory):
    home = tmp_path_factory.mktemp("bus")
    async with bus_site(rabbitmq, home, register, step=stumble) as running:
        yield running
        HANG.set()


def control(mrid: str, extra: str = "", names: str = "") -> str:
    return (
        f'<c:EndDeviceControls xmlns:c="{CONTROLS}"><c:EndDeviceControl><c:mRID>{mrid}</c:mRID>'
        f"{extra}{names}</c:EndDeviceControl></c:EndDeviceControls>"
    )


def readings(meter: str, *values: tuple[str, str]) -> str:
    inner = "".join(
        f"<m:Readings><m:timeStamp>{at}</m:timeStamp><m:value>{value}</m:value>"
        f'<m:ReadingType ref="kWh"/></m:Readings>'
        for at, value in values
    )
    return (
        f'<m:MeterReadings xmlns:m="{READINGS}"><m:MeterReading><m:Meter><m:mRID>{meter}</m:mRID>'
        f"</m:Meter>{inner}</m:MeterReading></m:MeterReadings>"
    )


NOTE = '<n:Notes xmlns:n="urn:notes"><n:Note>{}</n:Note></n:Notes>'


async def call(site: Site, request: RequestMessage) -> ResponseMessage:
    answer = await site.client.call(request)
    assert isinstance(answer, ResponseMessage)
    assert answer.header.verb is Verb.REPLY
    assert answer.header.noun == request.header.noun
    return answer


@bus("100-Table1-b")
@bus("100-Table1-a")
@pytest.mark.req("100-Table1-c")
@pytest.mark.req("100-Table1-d")
@pytest.mark.req("100-6.8-c")
@pytest.mark.req("100-B-a")
@pytest.mark.req("100-B-b")
@pytest.mark.req("100-B-c")
@pytest.mark.req("100-B-d")
@pytest.mark.req("100-B-e")
@pytest.mark.req("100-B-f")
@pytest.mark.req("100-6.2.4-f")
@pytest.mark.req("100-8.2-a")
@bus("100-6.2.4-h")
@bus("100-6.2.4-i")
@bus("100-6.2.4-d")
@bus("100-6.2.4-e")
@pytest.mark.req("100-6.3.3-f")
@pytest.mark.req("100-6.3.4-d")
@bus("100-A-r")
@pytest.mark.req("100-6.9-c")
async def test_an_object_lives_through_all_its_verbs(site: Site) -> None:
    events: list[EventMessage] = []
    await site.client.subscribe(events.append, noun="EndDeviceControls")
    make = site.sender.request("create", "EndDeviceControls", control("k1"))
    other = site.sender.request("create", "EndDeviceControls", control("k2"))
    third = site.sender.request("create", "EndDeviceControls", control("k3"))
    change = site.sender.request(
        "change", "EndDeviceControls", control("k1", "<c:priceSignal>7</c:priceSignal>")
    )
    for request, ids in ((make, ("k1",)), (other, ("k2",)), (third, ("k3",)), (change, ("k1",))):
        answer = await call(site, request)
        assert (answer.reply.result, answer.reply.codes) == (Result.OK, {"0.0"})
        assert answer.reply.ids == tuple(map(Identifier, ids))
        assert answer.payload is None
        assert answer.header.correlation_id == request.header.correlation_id
    got = await call(site, site.sender.request("get", "EndDeviceControls", ids=["k1", "k2"]))
    (found,) = content(got.payload or Payload())
    assert "priceSignal>7<" in found.text
    assert found.text.count(":mRID>") == 4
    for verb, mrid in (("cancel", "k1"), ("close", "k2"), ("delete", "k3")):
        request = site.sender.request(verb, "EndDeviceControls", ids=[mrid])
        answer = await call(site, request)
        assert (answer.reply.result, answer.payload) == (Result.OK, None)
    await eventually(lambda: len(events) == 7)
    assert [event.header.verb for event in events] == [
        "created", "created", "created", "changed", "canceled", "closed", "deleted",
    ]  # fmt: skip
    assert events[0].payload == make.payload
    assert events[3].payload == change.payload
    assert [event.payload.ids for event in events[4:]] == [
        (Identifier("k1"),), (Identifier("k2"),), (Identifier("k3"),),
    ]  # fmt: skip
    assert events[0].header.correlation_id == make.header.correlation_id
    states = await site.ledger.run(
        lambda unit: {
            m: [s.state.value for s in unit.history("EndDeviceControls", m)]
            for m in ("k1", "k2", "k3")
        }
    )
    assert states == {
        "k1": ["active", "active", "canceled"],
        "k2": ["active", "closed"],
        "k3": ["active", "deleted"],
    }
    gone = await call(site, site.sender.request("get", "EndDeviceControls", ids=["k3"]))
    assert (gone.reply.result, gone.payload) == (Result.FAILED, None)


@pytest.mark.req("100-6.3.3-e")
@pytest.mark.req("100-6.3.3-b")
@pytest.mark.req("100-6.3.3-i")
@pytest.mark.req("100-B-g")
@bus("100-6.2.4-g")
@bus("100-6.2.4-j")
@bus("100-6.3.4-b")
async def test_readings_are_found_by_meter_time_and_profile(site: Site) -> None:
    for meter in ("m1", "m2"):
        values = (("2026-11-16T00:00:00Z", "1"), ("2026-11-16T01:00:00Z", "2"))
        await call(site, site.sender.request("create", "MeterReadings", readings(meter, *values)))

    async def get(**fields: object) -> tuple[str, ResponseMessage]:
        answer = await call(site, site.sender.request("get", "MeterReadings", **fields))
        return "" if answer.payload is None else answer.payload.content[0].text, answer

    text, _ = await get(ids=["m1"])
    assert (text.count("timeStamp>"), "m2" in text) == (4, False)
    text, _ = await get(ids=["m1", "m2"], start=datetime(2026, 11, 16, 1, tzinfo=UTC))
    assert (text.count("timeStamp>"), "m2" in text) == (4, True)
    text, _ = await get(ids=["m1"], end=datetime(2026, 11, 16, 1, tzinfo=UTC))
    assert text.count("timeStamp>") == 2
    profile = Fragment.parse(
        '<g:GetMeterReadings xmlns:g="urn:g"><g:EndDevice><g:mRID>m2</g:mRID></g:EndDevice>'
        "<g:TimeSchedule><g:scheduleInterval><g:start>2026-11-16T01:00:00Z</g:start>"
        "</g:scheduleInterval></g:TimeSchedule></g:GetMeterReadings>"
    )
    text, _ = await get(ids=["m1"], profile=profile, start=datetime(2026, 1, 1, tzinfo=UTC))
    assert ("m1" in text, "m2" in text, text.count("timeStamp>")) == (False, True, 2)
    text, answer = await get(ids=["m1", "nobody"])
    assert answer.reply.result is Result.OK
    assert [e.id for e in answer.reply.real_errors] == [Identifier("nobody")]
    text, answer = await get(start=datetime(2030, 1, 1, tzinfo=UTC))
    assert (answer.reply.result, answer.payload) == (Result.OK, None)


@pytest.mark.req("100-6.3.4-h")
@pytest.mark.req("100-6.3.4-i")
@pytest.mark.req("100-6.3.4-j")
@pytest.mark.req("100-6.3.4-k")
@pytest.mark.req("100-5.2.2-c")
async def test_a_series_says_which_reply_is_the_last(site: Site) -> None:
    answers = [a async for a in site.client.replies(site.sender.request("get", "Parts"))]
    assert [a.reply.result for a in answers] == [Result.PARTIAL] * 3
    assert [sorted(a.reply.codes) for a in answers] == [["0.1"], ["0.1"], ["0.2"]]
    client = site.client
    client._within, before = timedelta(seconds=5), client._within
    try:
        found = []
        with pytest.raises(Refusal) as refused:
            request = site.sender.request("get", "Parts", options=[Pair("open", "true")])
            async for answer in client.replies(request):
                found.append(answer)
        assert refused.value.rule is Rule.NO_REPLY
        assert [a.reply.codes for a in found] == [{"0.1"}] * 3
    finally:
        client._within = before


@pytest.mark.req("100-6.3.2-d")
@bus("100-6.3.2-c")
@pytest.mark.req("100-6.3.2-r")
async def test_a_request_has_its_effect_once_and_other_bytes_with_its_ids_are_refused(
    site: Site,
) -> None:
    queue = await site.reply_queue()
    request = site.sender.request("create", "Notes", NOTE.format("once"))
    body = encode(request)
    answers = []
    for _ in range(3):
        await site.put("create", "Notes", body, reply_to=queue, correlation_id="t")
        answers.append((await site.next(queue)).body)
    assert len(set(answers)) == 1
    assert CALLS.count(request.header.message_id or "") == 1
    # The same MessageID, and then the same nonce, with other bytes.
    header = request.header
    for forged in (
        replace(header, comment="other", replay_detection=None),
        replace(header, comment="other", message_id="another"),
    ):
        await site.put("create", "Notes", encode(replace(request, header=forged)), reply_to=queue)
        answer = decode((await site.next(queue)).body)
        assert isinstance(answer, ResponseMessage)
        assert answer.reply.codes == {"ENVELOPE_REPLAY"}
    assert CALLS.count(header.message_id or "") == 1
    again = replace(
        site.sender.request("create", "Notes", NOTE.format("twice")).header,
        correlation_id=header.correlation_id,
    )
    await call(site, replace(request, header=again))
    assert CALLS.count(again.message_id or "") == 1


@pytest.mark.req("100-6.3.2-p")
@pytest.mark.req("100-6.3.2-q")
@pytest.mark.req("100-6.9-b")
@pytest.mark.req("100-6.3.2-w", component="bus")
@pytest.mark.req("100-6.3.2-w", component="transport")
@pytest.mark.req("100-6.3.2-v", component="transport")
async def test_each_level_has_its_own_correlation(site: Site) -> None:
    queue = await site.reply_queue()
    plain = site.sender.request("get", "EndDeviceControls")
    for header, expected in (
        (replace(plain.header, correlation_id="c"), "c"),
        (replace(plain.header, correlation_id=None, message_id="m"), "m"),
        (replace(plain.header, correlation_id=None, message_id=None), None),
    ):
        fresh = replace(header, replay_detection=None)
        body = encode(replace(plain, header=fresh))
        await site.put("get", "EndDeviceControls", body, reply_to=queue, correlation_id="transport")
        incoming = await site.next(queue)
        answer = decode(incoming.body)
        assert isinstance(answer, ResponseMessage)
        assert answer.header.correlation_id == expected
        assert incoming.properties.correlation_id == "transport"
        assert incoming.properties.message_id == answer.header.message_id


async def test_ids_that_amqp_has_no_room_for_are_in_the_envelopes_alone(site: Site) -> None:
    long = "i" * 300
    plain = site.sender.request("get", "EndDeviceControls")
    header = replace(plain.header, correlation_id=long, message_id=long, replay_detection=None)
    others = [site.sender.request("get", "EndDeviceControls") for _ in range(3)]
    found = await asyncio.gather(
        *(site.client.call(one) for one in (replace(plain, header=header), *others))
    )
    assert [answer.reply.result for answer in found] == [Result.OK] * 4
    assert found[0].header.correlation_id == long


@pytest.mark.req("100-6.7-a")
@bus("100-6.7-b")
@pytest.mark.req("100-E-a", component="transport")
async def test_what_cannot_be_read_is_answered_by_a_fault_and_kept(site: Site) -> None:
    queue = await site.reply_queue()
    for body, code in (
        (b"<RequestMessage", "MALFORMED_XML"),
        (b"<a/>", "ENVELOPE_FORM"),
        (b"\x00\xff", "MALFORMED_XML"),
        (b'<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/passwd">]><a>&e;</a>', "FORBIDDEN_XML"),
        (
            encode(site.sender.request("get", "Notes")).replace(b">get<", b">fetch<"),
            "SCHEMA_INVALID",
        ),
    ):
        await site.put("create", "Notes", body, reply_to=queue, correlation_id="f")
        answer = decode((await site.next(queue)).body)
        assert isinstance(answer, FaultMessage)
        assert (answer.reply.result, answer.reply.codes) == (Result.FAILED, {code})
        assert (await site.dead()).body == body
        # Without an address to answer to it is kept all the same.
        await site.put("create", "Notes", body)
        assert (await site.dead()).body == body


@pytest.mark.req("100-6.7-c")
@bus("100-6.3.2-e")
@bus("100-6.3.4-c")
@pytest.mark.req("100-6.3.4-e")
@bus("100-6.2.4-a")
@bus("100-6.2.4-b")
@bus("100-6.2.4-c")
async def test_what_must_not_be_done_is_answered_by_a_failure(site: Site) -> None:
    queue = await site.reply_queue()

    async def codes(body: bytes, noun: str = "Notes", verb: str = "create") -> set[str]:
        await site.put(verb, noun, body, reply_to=queue)
        answer = decode((await site.next(queue)).body)
        assert isinstance(answer, ResponseMessage | FaultMessage)
        assert answer.reply.result is Result.FAILED
        if isinstance(answer, FaultMessage):
            await site.dead()
        return set(answer.reply.codes)

    note = site.sender.request("create", "Notes", NOTE.format("x"))
    training = replace(note, header=replace(note.header, context="TRAINING"))
    assert await codes(encode(training)) == {"ENVELOPE_CONTEXT"}
    assert await codes(encode(site.sender.request("close", "Switches", ids=["a"]))) == {
        "NOT_HANDLED"
    }
    stale = prevailing(datetime.now(UTC) - timedelta(hours=2), UTC)
    late = replace(note.header, replay_detection=ReplayDetection("x", stale))
    assert await codes(encode(replace(note, header=late))) == {"ENVELOPE_STALE"}
    without = encode(note).split(b"<Payload>")[0] + b"</RequestMessage>"
    assert await codes(without) == {"ENVELOPE_PAYLOAD"}
    refused = site.sender.request("create", "Notes", NOTE.format("refuse"))
    assert await codes(encode(refused)) == {"OBJECT_EXISTS"}
    bomb = replace(note, header=site.sender.request("get", "X").header)
    bomb = replace(
        bomb,
        header=replace(bomb.header, verb=Verb.CREATE, noun="Notes"),
        payload=file_payload(bytes(40_000_000), "XML"),
    )
    assert await codes(encode(bomb)) == {"LIMIT_EXCEEDED"}
    assert not {note.header.message_id, bomb.header.message_id} & set(CALLS)


async def test_a_handler_that_breaks_tells_nothing_of_itself(site: Site) -> None:
    answer = await call(site, site.sender.request("get", "Broken"))
    assert (answer.reply.result, answer.reply.codes) == (Result.FAILED, {"INTERNAL"})
    assert b"secret" not in encode(answer)


@pytest.mark.req("100-6.14-b")
async def test_a_handler_that_hangs_is_left_behind_and_the_others_go_on(site: Site) -> None:
    hanging = asyncio.create_task(site.client.call(site.sender.request("get", "Slow")))
    answer = await hanging
    assert answer.reply.codes == {"HANDLER_TIMEOUT"}
    assert site.ledger.abandoned == 1
    after = await call(site, site.sender.request("create", "Notes", NOTE.format("after")))
    assert after.reply.result is Result.OK


@bus("100-6.3.2-m")
@pytest.mark.req("100-6.3.2-l")
@pytest.mark.req("100-4.5-a")
@pytest.mark.req("100-4.5-b")
@pytest.mark.req("100-5.2.4-d")
@pytest.mark.req("100-6.8-a")
@pytest.mark.req("100-6.8-b")
async def test_one_way_messages_and_events_are_done_and_never_answered(site: Site) -> None:
    queue = await site.reply_queue()
    done = site.sender.request("create", "Notes", NOTE.format("quiet"), one_way=True)
    bad = site.sender.request("create", "Notes", NOTE.format("refuse quietly"), one_way=True)
    for request in (done, bad):
        told = replace(request, header=replace(request.header, reply_address=f"queue:{queue}"))
        await site.put("create", "Notes", encode(told), reply_to=queue)
    await eventually(lambda: bad.header.message_id in CALLS)
    event = site.sender.event("changed", "Notes", NOTE.format("news"))
    event = replace(event, header=replace(event.header, ack_required=True))
    wrong = site.sender.event("changed", "Notes", NOTE.format("refuse"))
    for message in (event, wrong):
        await site.client.send(message)
    await site.channel.publish(
        b"<broken", Properties(reply_to=queue), exchange=CONTEXT,
        routing_key=f"{CONTEXT}.EVENTS.Notes.changed",
    )  # fmt: skip
    await eventually(lambda: f"heard {wrong.header.message_id}" in CALLS)
    assert {(await site.dead()).body for _ in range(2)} == {encode(wrong), b"<broken"}
    assert CALLS.count(f"heard {event.header.message_id}") == 1
    assert done.header.message_id in CALLS
    assert await site.count(queue) == 0
    errors = [r for r in journal(site.home) if isinstance(r, RefusalRow)]
    assert any(r.message_id == bad.header.message_id and r.rule == "OBJECT_EXISTS" for r in errors)


@pytest.mark.req("100-5.2.5-a")
@bus("100-5.2.5-d")
@pytest.mark.req("100-5.2.5-e")
@bus("100-6.3.2-h")
async def test_an_asynchronous_request_is_acknowledged_at_once(site: Site) -> None:
    first, later = await site.reply_queue(), await site.reply_queue()
    request = site.sender.request(
        "create",
        "Notes",
        NOTE.format("async"),
        reply_address=f"queue:{later}",
        correlation_id="as-1",
    )
    await site.put("create", "Notes", encode(request), reply_to=first)
    acknowledged = decode((await site.next(first)).body)
    assert isinstance(acknowledged, ResponseMessage)
    assert (acknowledged.reply.result, acknowledged.reply.codes) == (Result.PARTIAL, {"0.1"})
    assert (acknowledged.payload, acknowledged.header.correlation_id) == (None, "as-1")
    final = decode((await site.next(later)).body)
    assert isinstance(final, ResponseMessage)
    assert (final.reply.result, final.header.correlation_id) == (Result.OK, "as-1")
    assert await site.count(first) == 0


PARTS = '<p:Parts xmlns:p="urn:parts"/>'


@bus("100-5.2.1-b")
@pytest.mark.req("100-5.2.1-b", component="transport")
@pytest.mark.req("100-5.2.3-e", component="transport")
@pytest.mark.parametrize("later", [False, True])
async def test_requests_and_replies_are_exchanged_on_queues(site: Site, later: bool) -> None:
    await site.channel.declare_queue("fixed-replies")
    for queue in ("fixed-replies", await site.reply_queue()):
        address = {"reply_address": f"queue:{queue}"} if later else {}
        request = site.sender.request("create", "Notes", NOTE.format("queues"), **address)
        assert bool(request.header.async_reply) is later
        said = {} if later else {"reply_to": queue}
        await site.put("create", "Notes", encode(request), **said)
        answer = decode((await site.next(queue)).body)
        assert isinstance(answer, ResponseMessage)
        assert answer.reply.result is Result.OK
        assert answer.header.correlation_id == request.header.correlation_id


@pytest.mark.req("100-5.2.3-a", component="transport")
async def test_a_service_takes_requests_from_its_queue_and_from_its_topic(site: Site) -> None:
    queue, spy = await site.reply_queue(), await site.reply_queue()
    name = f"{CONTEXT}.REQUESTS.Notes.create"
    await site.channel.bind(spy, CONTEXT, f"{CONTEXT}.REQUESTS.Notes.*")
    for exchange, copies in (("", 0), (CONTEXT, 1)):
        request = site.sender.request("create", "Notes", NOTE.format("either way"))
        await site.channel.publish(
            encode(request), Properties(reply_to=queue), exchange=exchange, routing_key=name
        )
        answer = decode((await site.next(queue)).body)
        assert answer.reply.result is Result.OK
        assert CALLS.count(request.header.message_id or "") == 1
        # Whoever else listens to the topic has a copy; nobody has one of the queue's.
        assert await site.count(spy) == copies


@bus("100-5.2.5-c")
async def test_everything_that_comes_of_a_request_has_its_correlation(site: Site) -> None:
    first, later, events = [await site.reply_queue() for _ in range(3)]
    await site.channel.bind(events, CONTEXT, f"{CONTEXT}.EVENTS.Parts.*")
    request = site.sender.request(
        "create", "Parts", PARTS, reply_address=f"queue:{later}", correlation_id="all-of-it"
    )
    await site.put("create", "Parts", encode(request), reply_to=first)
    found = [await site.next(queue) for queue in (first, later, later, events)]
    messages = [decode(one.body) for one in found]
    assert [type(m) for m in messages] == [ResponseMessage] * 3 + [EventMessage]
    assert [m.header.correlation_id for m in messages] == ["all-of-it"] * 4
    assert len({m.header.message_id for m in messages}) == 4


@bus("100-5.2.5-f")
async def test_an_exchange_is_over_with_ok_and_what_comes_after_it_is_flagged(site: Site) -> None:
    client = site.client
    request = site.sender.request(
        "create", "Notes", NOTE.format("done"), reply_address=f"queue:{client.reply_queue}"
    )
    before = client.unexpected
    found = [answer async for answer in client.replies(request)]
    assert [answer.reply.result for answer in found] == [Result.OK]
    # The service has nothing more to say: what comes next to the queue is what a stranger sends.
    assert client.unexpected == before
    again = encode(site.sender.response(request, complete()))
    await site.channel.publish(again, Properties(), routing_key=client.reply_queue)
    await eventually(lambda: client.unexpected == before + 1)


@pytest.mark.req("100-E-a", component="transport")
@pytest.mark.req("100-E-a", component="envelope")
async def test_what_is_sent_by_amqp_is_the_envelope_and_nothing_else(site: Site) -> None:
    from gridpost.wire.envelope.wsdl import message_xsd

    schema = etree.XMLSchema(etree.fromstring(message_xsd()))
    replies, topic = await site.reply_queue(), await site.reply_queue()
    for pattern in ("REQUESTS.Notes.create", "EVENTS.Notes.*"):
        await site.channel.bind(topic, CONTEXT, f"{CONTEXT}.{pattern}")
    request = site.sender.request("create", "Notes", NOTE.format("as it is"))
    await site.client.call(request)
    sent, event = await site.next(topic), await site.next(topic)
    another = site.sender.request("create", "Notes", NOTE.format("and another"))
    await site.put("create", "Notes", encode(another), reply_to=replies)
    response = await site.next(replies)
    await site.put("create", "Notes", b"<no", reply_to=replies)
    fault = await site.next(replies)
    assert (await site.dead()).body == b"<no"
    assert sent.body == encode(request)
    for incoming, kind in (
        (sent, RequestMessage), (event, EventMessage), (response, ResponseMessage),
        (fault, FaultMessage),
    ):  # fmt: skip
        assert schema.validate(etree.fromstring(incoming.body)), schema.error_log
        assert isinstance(decode(incoming.body), kind)


async def test_a_mistake_of_the_bus_itself_keeps_no_message_from_others(site: Site) -> None:
    """Once more, by whoever takes it then; and what breaks again is a dead letter."""
    replies = await site.reply_queue()
    for broken in (["taken"], ["committed"], ["published"]):
        STUMBLES.extend(broken)
        request = site.sender.request("create", "Notes", NOTE.format("stumbled"))
        await site.put("create", "Notes", encode(request), reply_to=replies)
        answer = decode((await site.next(replies)).body)
        assert answer.header.correlation_id == request.header.correlation_id
        await eventually(lambda: not STUMBLES)
        assert CALLS.count(request.header.message_id or "") == 1
        if broken == ["published"]:
            assert decode((await site.next(replies)).body) == answer
        # The next stumble is another message's: this one has to be let go first.
        await eventually(lambda: not site.service._tasks)
    STUMBLES.extend(["taken", "taken"])
    request = site.sender.request("create", "Notes", NOTE.format("never"))
    await site.put("create", "Notes", encode(request), reply_to=replies)
    assert (await site.dead()).body == encode(request)
    assert request.header.message_id not in CALLS


async def test_a_reply_to_nobody_is_kept(site: Site) -> None:
    request = site.sender.request("create", "Notes", NOTE.format("nobody"))
    await site.put("create", "Notes", encode(request), reply_to="no-such-queue")
    dead = await site.dead()
    assert dead.properties.headers["x-undeliverable-to"] == "queue:no-such-queue"
    answer = decode(dead.body)
    assert isinstance(answer, ResponseMessage)
    assert answer.reply.result is Result.OK
    # Nobody listens to the one topic, and the other is in no context of this bus.
    for topic in (f"{CONTEXT}.REPLIES.Nobody", "ELSEWHERE.X"):
        request = site.sender.request(
            "create", "Notes", NOTE.format("nobody"), reply_address=f"topic:{topic}"
        )
        await site.put("create", "Notes", encode(request))
        lost = await site.dead()
        assert lost.properties.headers["x-undeliverable-to"] == f"topic:{topic}"
        assert decode(lost.body).header.correlation_id == request.header.correlation_id


@transport("100-6.3.2-j")
@transport("100-8.4.2-a")
@bus("100-8.4.2-a")
@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("ftp:replies", "ENVELOPE_REPLY_ADDRESS"),
        ("queue:PRODUCTION.REQUESTS.Notes.create", "ENVELOPE_CONTEXT"),
        ("topic:PRODUCTION.EVENTS.Notes.created", "ENVELOPE_CONTEXT"),
    ],
)
async def test_what_is_to_be_answered_in_another_place_than_ours_is_not_done(
    site: Site, address: str, code: str
) -> None:
    """The context is the first word of a name: training never reaches production."""
    production, replies = address.partition(":")[2], await site.reply_queue()
    await site.channel.declare_queue(production)
    request = site.sender.request(
        "create", "Notes", NOTE.format("elsewhere"), reply_address=address
    )
    # Whoever can be told is told by the transport's own address ...
    await site.put("create", "Notes", encode(request), reply_to=replies)
    answer = decode((await site.next(replies)).body)
    assert isinstance(answer, ResponseMessage)
    assert answer.reply.codes == {code}
    # ... and what nobody can be told about is kept.
    request = site.sender.request(
        "create", "Notes", NOTE.format("elsewhere"), reply_address=address
    )
    await site.put("create", "Notes", encode(request))
    assert (await site.dead()).body == encode(request)
    assert request.header.message_id not in CALLS
    assert await site.count(production) == 0
    await site.channel.delete_queue(production)


@pytest.mark.req("100-A-ag")
@pytest.mark.req("100-6.3.2-s")
@pytest.mark.req("100-8.4.3-b")
async def test_time_stamp_comment_and_priority_decide_nothing(site: Site) -> None:
    queue = await site.reply_queue()
    for at, comment in ((1990, "'; DROP TABLE request; --"), (2190, "<b>")):
        request = site.sender.request("create", "Notes", NOTE.format(at))
        stamp = prevailing(datetime(at, 1, 1, tzinfo=UTC), UTC)
        header = replace(request.header, timestamp=stamp, comment=comment)
        body = encode(replace(request, header=header))
        await site.put("create", "Notes", body, reply_to=queue, priority=3)
        answer = decode((await site.next(queue)).body)
        assert isinstance(answer, ResponseMessage)
        assert answer.reply.result is Result.OK


@bus("100-6.10.1-a")
@bus("100-6.10.1-b")
@bus("100-6.10.1-c")
@bus("100-6.10.1-d")
@bus("100-6.10.3-a")
@pytest.mark.req("100-6.10.1-e")
@pytest.mark.req("100-6.10.1-f")
@pytest.mark.req("100-6.10.1-h")
@pytest.mark.req("100-6.10.1-j")
@pytest.mark.req("100-6.10.3-c")
@pytest.mark.req("100-6.10.3-d")
@bus("100-A-v")
async def test_a_set_of_operations_is_carried_out(site: Site) -> None:
    noun = "EndDeviceControls"

    def operation(number: int, verb: str, body: str, element: bool | None = None) -> Operation:
        return Operation(number, noun, verb, element, Fragment.parse(body))

    async def run(*operations: Operation, separate: bool = False) -> list[ResponseMessage]:
        asked = OperationSet(operations, True, True)
        options = [Pair("responseMode", "Streaming")] if separate else []
        request = site.sender.request(
            "execute", "OperationSet", Payload(operation_set=asked), options=options
        )
        return [a async for a in site.client.replies(request)]

    async def text(mrid: str) -> str:
        found = await call(site, site.sender.request("get", noun, ids=[mrid]))
        return "" if found.payload is None else found.payload.content[0].text

    events: list[EventMessage] = []
    await site.client.subscribe(events.append, noun="OperationSet")
    two = "<c:issuerID>i</c:issuerID><c:reason>r</c:reason>"
    (answer,) = await run(
        operation(2, "change", control("o1", "<c:reason>changed</c:reason>")),
        operation(1, "create", control("o1", two)),
        operation(3, "create", control("o2")),
    )
    assert answer.reply.result is Result.OK
    assert {e.operation_id for e in answer.reply.errors} == {1, 2, 3}
    # Only what was given has changed.
    assert "changed" in await text("o1")
    assert "issuerID" in await text("o1")
    await eventually(lambda: len(events) == 1)
    assert [o.verb for o in events[0].payload.operation_set.operations] == [
        "changed", "created", "created",
    ]  # fmt: skip
    (answer,) = await run(
        operation(1, "create", control("o9")), operation(2, "create", control("o2"))
    )
    assert answer.reply.result is Result.FAILED
    assert {e.operation_id: e.code for e in answer.reply.errors} == {
        1: "OPERATION_FAILED", 2: "OPERATION_FAILED",
    }  # fmt: skip
    assert await text("o9") == ""
    separate = await run(
        operation(1, "delete", control("o1", "<c:reason/>"), True),
        operation(2, "create", control("o3")),
        operation(3, "delete", control("o2")),
        separate=True,
    )
    assert [a.reply.operation_id for a in separate] == [1, 2, 3]
    assert len({a.header.correlation_id for a in separate}) == 1
    assert "reason" not in await text("o1")
    assert "issuerID" in await text("o1")
    assert await text("o2") == ""
    await eventually(lambda: len(events) == 2)
    empty = RequestMessage(
        site.sender.request("get", "OperationSet").header,
        None,
        Payload(operation_set=OperationSet()),
    )
    queue = await site.reply_queue()
    from gridpost.envelope import encode_unchecked

    empty = replace(empty, header=replace(empty.header, verb=Verb.EXECUTE))
    await site.put("execute", "OperationSet", encode_unchecked(empty), reply_to=queue)
    refused = decode((await site.next(queue)).body)
    assert isinstance(refused, FaultMessage)
    assert refused.reply.codes == {"OPERATION_SET"}
    await site.dead()


@pytest.mark.req("100-6.3.4-g")
@bus("100-6.3.3-g")
@bus("100-6.3.3-h")
async def test_objects_are_found_by_qualified_names_and_errors_name_each_object(site: Site) -> None:
    from gridpost.envelope import IdKind

    def names(authority: str) -> str:
        return (
            "<c:Names><c:name>N1</c:name><c:NameType><c:name>Badge</c:name><c:NameTypeAuthority>"
            f"<c:name>{authority}</c:name></c:NameTypeAuthority></c:NameType></c:Names>"
        )

    for mrid, authority in (("q1", "A"), ("q2", "B")):
        request = site.sender.request(
            "create", "EndDeviceControls", control(mrid, names=names(authority))
        )
        await call(site, request)
    wanted = Identifier("N1", IdKind.NAME, "Badge", "B")
    found = await call(site, site.sender.request("get", "EndDeviceControls", ids=[wanted]))
    assert "q2" in found.payload.content[0].text
    assert "q1" not in found.payload.content[0].text
    gone = site.sender.request("delete", "EndDeviceControls", ids=["x1", "x2", "x3", "q1"])
    answer = await call(site, gone)
    assert [(e.code, e.id.value) for e in answer.reply.real_errors] == [
        ("OBJECT_UNKNOWN", name) for name in ("x1", "x2", "x3")
    ]
    # Nothing was deleted, as not everything could be.
    still = await call(site, site.sender.request("get", "EndDeviceControls", ids=["q1"]))
    assert still.reply.result is Result.OK


@pytest.mark.req("100-8.4.2-c")
@pytest.mark.req("100-8.4.2-d")
@pytest.mark.req("100-5.2.4-a")
@pytest.mark.req("100-5.2.4-b")
@pytest.mark.req("100-8.4.1-a")
@pytest.mark.req("100-5.2.4-c")
@pytest.mark.req("100-8.4.1-b")
async def test_listeners_get_what_they_subscribed_to(site: Site) -> None:
    one: list[EventMessage] = []
    two: list[EventMessage] = []
    only: list[EventMessage] = []
    await site.client.subscribe(one.append, noun="BidSet")
    await site.client.subscribe(two.append, noun="BidSet")
    await site.client.subscribe(only.append, noun="BidSet", verb="deleted")
    lasting, _ = await site.channel.declare_queue("lasting-listener")
    await site.channel.bind(lasting, CONTEXT, f"{CONTEXT}.EVENTS.BidSet.*")
    body = '<b:BidSet xmlns:b="urn:b"/>'
    for verb in ("created", "changed", "deleted"):
        await site.client.send(site.sender.event(verb, "BidSet", body))
    await site.client.send(site.sender.event("created", "Others", '<o:Others xmlns:o="urn:o"/>'))
    await eventually(lambda: len(one) == len(two) == 3)
    assert [e.header.verb for e in only] == ["deleted"]
    # A durable subscription has what came while nobody listened; a new listener has nothing.
    assert await site.count(lasting) == 3
    late: list[EventMessage] = []
    await site.client.subscribe(late.append, noun="BidSet")
    await site.client.send(site.sender.event("closed", "BidSet", body))
    await eventually(lambda: late)
    assert [e.header.verb for e in late] == ["closed"]


async def test_a_durable_subscription_of_a_client_loses_no_event(site: Site) -> None:
    """It waits for a client that is away, and is not forgotten when the client fails."""
    name, body = "audit-of-orders", '<o:Orders xmlns:o="urn:o"/>'
    first = await BusClient(await _another(site), CONTEXT).open()
    seen: list[str] = []
    await first.subscribe(lambda event: seen.append(event.header.message_id), durable=name)
    sent = [site.sender.event("created", "Orders", body) for _ in range(6)]
    await site.client.send(sent[0])
    await eventually(lambda: seen == [sent[0].header.message_id])
    await eventually(lambda: not first._settling)
    await first._connection.close()
    temporary: list[str] = []
    other = await BusClient(await _another(site), CONTEXT).open()
    await other.subscribe(lambda event: temporary.append(event.header.message_id), noun="Orders")
    await other._connection.close()
    for event in sent[1:]:
        await site.client.send(event)
    assert await site.count(name) == 5
    await site.channel.publish(b"<no", Properties(), routing_key=name)
    # Once more when it fails, and what always fails is let go: the rest is not held up.
    failing, once = sent[2].header.message_id, [sent[3].header.message_id]
    second = await BusClient(await _another(site), CONTEXT).open()

    def take(event: EventMessage) -> None:
        number = event.header.message_id
        if number == failing or number in once:
            once[:] = [n for n in once if n != number]
            raise ValueError("not now")
        seen.append(number)

    await second.subscribe(take, durable=name)
    wanted = {event.header.message_id for event in sent} - {failing}
    await eventually(lambda: set(seen) == wanted and second.unexpected == 2)
    assert len(seen) == len(wanted)
    await eventually(lambda: not second._settling)
    await second._connection.close()
    assert await site.count(name) == 0
    assert temporary == []


async def _another(site: Site) -> RabbitConnection:
    return await site.rabbit.client(virtual_host=site.virtual_host).connect()


@pytest.mark.req("100-6.15-a")
async def test_every_request_is_in_the_journal_and_instances_are_listed(site: Site) -> None:
    request = site.sender.request("create", "Notes", NOTE.format("journal"))
    await call(site, request)
    envelopes = [r for r in journal(site.home) if isinstance(r, EnvelopeRow)]
    (row,) = [r for r in envelopes if r.message_id == request.header.message_id]
    # Its response and its event too, by their correlation.
    went = [r for r in envelopes if r.correlation_id == request.header.correlation_id]
    assert [(r.direction, r.message_kind, r.verb, r.result) for r in went] == [
        ("in", "request", "create", "OK"),
        ("out", "response", "reply", "OK"),
        ("out", "event", "created", ""),
    ]
    # And what was refused, or could not be read at all.
    unserved = site.sender.request("create", "Nothing", '<n:Nothing xmlns:n="urn:n"/>')
    await site.service.processor.request(encode(unserved), Arrival(CONTEXT, "here", "queue:x"))
    await site.service.processor.request(b"<no", Arrival(CONTEXT, "here", "queue:x"))
    rows = [r for r in journal(site.home) if isinstance(r, EnvelopeRow)][-4:]
    assert [(r.direction, r.message_kind, r.result, r.codes) for r in rows] == [
        ("in", "request", "FAILED", "NOT_HANDLED"),
        ("out", "response", "FAILED", "NOT_HANDLED"),
        ("in", "unreadable", "FAILED", "MALFORMED_XML"),
        ("out", "fault", "FAILED", "MALFORMED_XML"),
    ]
    assert (row.verb, row.noun, row.result, row.codes) == ("create", "Notes", "OK", "0.0")
    assert row.sla_milliseconds == 20_000
    assert 0 <= row.milliseconds <= row.sla_milliseconds
    health = await site.service.health()
    assert health["ready"]
    assert health["instances"] == [site.service.instance]
    interface = site.service.interface()
    assert {
        "verb": "create",
        "noun": "Notes",
        "destination": "TESTING.REQUESTS.Notes.create",
    } in interface


@pytest.mark.req("100-5.2.3-d")
async def test_a_client_is_told_when_nobody_takes_its_request(site: Site) -> None:
    with pytest.raises(Refusal) as refused:
        await site.client.send(site.sender.request("get", "Nothing"))
    assert refused.value.rule is Rule.AMQP091_UNROUTED


async def test_an_expired_request_is_never_executed(site: Site) -> None:
    request = site.sender.request("create", "Notes", NOTE.format("late"))
    name = "waiting-room"
    await site.channel.declare_queue(name, arguments={"x-dead-letter-exchange": f"{CONTEXT}.DEAD"})
    await site.channel.publish(
        encode(request), Properties(expiration=timedelta(milliseconds=1)), routing_key=name
    )
    assert (await site.dead()).body == encode(request)
    # One that is out of time when its turn comes.
    treated = await site.service.processor.request(
        encode(request), Arrival(CONTEXT, "x", deadline=0.0)
    )
    assert treated.dead is not None
    assert treated.dead.rule is Rule.REQUEST_EXPIRED
    assert request.header.message_id not in CALLS
