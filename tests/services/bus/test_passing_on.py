"""What passes a bus on its way elsewhere: all of it is in the journal, and none of it is lost."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from gridpost.core.amqp091 import Incoming, Properties
from gridpost.core.envelope import AnyMessage, RequestMessage
from gridpost.core.journal import EnvelopeRow, RefusalRow
from gridpost.envelope import ResponseMessage, Result, Sender, complete, decode, encode
from support.bus_site import CONTEXT, journal
from support.bus_web import NOTE, WebBus, WebService, web_bus, web_service
from support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")
SOAP = f"/bus/{CONTEXT}/soap"
ATTEMPTS = 3
THING = '<t:Things xmlns:t="urn:t"/>'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def partner():
    async with web_service() as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(rabbitmq, tmp_path_factory, partner: WebService):
    routes = [{"verb": "create", "noun": "Things", "targets": [{"to": partner.url}]}]
    subscribers = [
        {"name": "web", "noun": "Others", "to": partner.url, "retries": ["50ms", "50ms"]},
        {"name": "rows", "noun": "Others", "to": "sql:events"},
    ]
    home = tmp_path_factory.mktemp("bus")
    async with web_bus(rabbitmq, home, routes=routes, subscribers=subscribers) as found:
        await found.channel.declare_queue("answers")
        yield found


@pytest.fixture(autouse=True)
def fresh(partner: WebService):
    partner.taken.clear()
    partner.statuses.clear()
    partner.answer = None
    yield
    partner.answer = None


def passed(site: WebBus, message: AnyMessage) -> list[tuple[str, str, str, str]]:
    """Direction, kind, place and result of everything that belongs to a message."""
    wanted = {message.header.correlation_id, message.header.message_id} - {None}
    found = [r for r in journal(site.home) if isinstance(r, EnvelopeRow)]
    return [
        (r.direction, r.message_kind, r.destination, r.result)
        for r in found
        if {r.correlation_id, r.message_id} & wanted
    ]


def refused(site: WebBus, message: AnyMessage) -> list[str]:
    number = message.header.message_id
    found = [r for r in journal(site.home) if isinstance(r, RefusalRow)]
    return [r.rule for r in found if r.message_id == number]


def thing(site: WebBus, **fields: object) -> RequestMessage:
    return site.sender.request("create", "Things", THING, **fields)


async def taken_from(site: WebBus, queue: str) -> Incoming:
    async with asyncio.timeout(60):
        while (found := await site.channel.get(queue)) is None:
            await asyncio.sleep(0.02)
    await site.channel.ack(found.tag)
    return found


async def put(site: WebBus, request: RequestMessage, **fields: str) -> None:
    name = f"{CONTEXT}.REQUESTS.{request.header.noun}.{request.header.verb}"
    await site.channel.publish(encode(request), Properties(**fields), routing_key=name)


async def test_a_routed_request_and_its_reply_are_journalled_each_time_they_pass(
    site: WebBus, partner: WebService
) -> None:
    by_web = thing(site)
    assert (await site.ask(by_web)).reply.result is Result.OK
    assert passed(site, by_web) == [
        ("out", "request", partner.url, ""),
        ("in", "response", partner.url, "OK"),
        ("in", "request", SOAP, "OK"),
        ("out", "response", SOAP, "OK"),
    ]
    by_queue = thing(site)
    await put(site, by_queue, reply_to="answers")
    assert decode((await taken_from(site, "answers")).body).reply.result is Result.OK
    assert passed(site, by_queue) == [
        ("out", "request", partner.url, ""),
        ("in", "response", partner.url, "OK"),
        ("in", "request", f"{CONTEXT}.REQUESTS.Things.create", "OK"),
        ("out", "response", "queue:answers", "OK"),
    ]
    rows = [r for r in journal(site.home) if isinstance(r, EnvelopeRow)]
    (came,) = [r for r in rows if r.direction == "in" and r.message_id == by_web.header.message_id]
    assert 0 <= came.milliseconds <= came.sla_milliseconds == 20_000


async def test_a_proxied_request_and_its_reply_are_journalled(site: WebBus) -> None:
    queue = f"{CONTEXT}.REQUESTS.Far.get"
    await site.channel.declare_queue(queue)
    request = site.sender.request("get", "Far")
    asked = asyncio.create_task(site.ask(request))
    found = await taken_from(site, queue)
    body = encode(site.sender.response(decode(found.body), complete()))
    properties = Properties(correlation_id=found.properties.correlation_id)
    await site.channel.publish(body, properties, routing_key=found.properties.reply_to)
    assert (await asked).reply.result is Result.OK
    assert passed(site, request) == [
        ("out", "request", f"queue:{queue}", ""),
        ("in", "response", f"queue:{queue}", "OK"),
        ("in", "request", SOAP, "OK"),
        ("out", "response", SOAP, "OK"),
    ]
    nobody = site.sender.request("get", "Nowhere")
    assert (await site.ask(nobody)).reply.codes == {"NOT_HANDLED"}
    assert passed(site, nobody)[1:] == [
        ("in", "request", SOAP, "FAILED"),
        ("out", "response", SOAP, "FAILED"),
    ]


async def test_every_delivery_of_an_event_is_journalled(site: WebBus, partner: WebService) -> None:
    event = site.sender.event("changed", "Others", '<o:Others xmlns:o="urn:o"/>')
    partner.statuses = [503]
    await site.ask(event)
    await eventually(lambda: len(passed(site, event)) == 7)
    assert sorted(passed(site, event)) == sorted(
        [
            ("in", "event", SOAP, ""),
            ("out", "event", f"topic:{CONTEXT}.EVENTS.Others.changed", ""),
            ("out", "response", SOAP, "OK"),
            # A listener in the bus itself, and those outside.
            ("in", "event", f"{CONTEXT}.EVENTS.Others.changed", ""),
            ("out", "event", "subscriber:rows", ""),
            ("in", "response", partner.url, "OK"),
            ("out", "event", "subscriber:web", ""),
        ]
    )
    lost = site.sender.event("changed", "Others", '<o:Others xmlns:o="urn:o"/>')
    partner.statuses = [503] * ATTEMPTS
    await site.ask(lost)
    dead = await taken_from(site, f"{CONTEXT}.DEAD")
    assert decode(dead.body).header.message_id == lost.header.message_id
    assert ("out", "event", "subscriber:web", "FAILED") in passed(site, lost)
    assert refused(site, lost) == ["UNREACHABLE"]


async def test_what_is_done_later_is_journalled_when_it_is_taken(
    site: WebBus, partner: WebService
) -> None:
    request = site.sender.request(
        "create", "Notes", NOTE.format("later"), reply_address=partner.url
    )
    queue = f"{CONTEXT}.REQUESTS.Notes.create"
    assert (await site.ask(request)).reply.result is Result.PARTIAL
    await eventually(lambda: len(passed(site, request)) == 6)
    assert sorted(passed(site, request)) == sorted(
        [
            ("out", "request", f"queue:{queue}", ""),
            ("out", "response", SOAP, "PARTIAL"),
            ("in", "request", queue, "OK"),
            ("out", "response", partner.url, "OK"),
            ("out", "event", f"topic:{CONTEXT}.EVENTS.Notes.created", ""),
            # The client says that it has the callback.
            ("in", "response", partner.url, "OK"),
        ]
    )
    stray = Sender("OTHER", CONTEXT).response(request, complete())
    assert (await site.ask(stray)).reply.codes == {"NOT_EXPECTED"}
    assert passed(site, request)[-2:] == [
        ("in", "response", SOAP, "FAILED"),
        ("out", "response", SOAP, "FAILED"),
    ]


async def test_a_request_that_comes_again_is_journalled_again(site: WebBus) -> None:
    request = site.sender.request("create", "Notes", NOTE.format("again"))
    for _ in range(2):
        await site.ask(request)
    rows = [r for r in journal(site.home) if isinstance(r, EnvelopeRow)]
    mine = [r for r in rows if r.correlation_id == request.header.correlation_id]
    assert [(r.direction, r.message_kind, r.codes) for r in mine if r.message_kind != "event"] == [
        ("in", "request", "0.0"),
        ("out", "response", "0.0"),
        ("in", "request", "REPEATED"),
        ("out", "response", "0.0"),
    ]


async def test_a_one_way_request_is_passed_on_and_nothing_is_answered(
    site: WebBus, partner: WebService
) -> None:
    routed = thing(site, one_way=True)
    for _ in range(2):
        answer = await site.soap(routed)
        assert (answer.status_code, answer.content) == (202, b"")
    await eventually(lambda: partner.taken)
    queue = f"{CONTEXT}.REQUESTS.Far.create"
    await site.channel.declare_queue(queue)
    proxied = site.sender.request("create", "Far", '<f:Far xmlns:f="urn:f"/>', one_way=True)
    answer = await site.soap(proxied)
    assert (answer.status_code, answer.content) == (202, b"")
    assert decode((await taken_from(site, queue)).body) == decode(encode(proxied))
    # Nobody is there: nobody is told, and the request is kept.
    lost = site.sender.request("create", "Nowhere", '<f:Nowhere xmlns:f="urn:f"/>', one_way=True)
    answer = await site.soap(lost)
    assert (answer.status_code, answer.content) == (202, b"")
    dead = await taken_from(site, f"{CONTEXT}.DEAD")
    assert decode(dead.body).header.message_id == lost.header.message_id
    assert refused(site, lost) == ["NOT_HANDLED"]
    assert [m.header.message_id for m in partner.taken] == [routed.header.message_id]


async def test_a_target_that_is_away_is_tried_again_and_then_it_is_a_dead_letter(
    site: WebBus, partner: WebService
) -> None:
    for ask in (site.ask, site.client.call):
        partner.statuses = [503] * (ATTEMPTS - 1)
        assert (await ask(thing(site))).reply.result is Result.OK
    assert len(partner.taken) == 2
    for ask in (site.ask, site.client.call):
        lost = thing(site)
        partner.statuses = [503] * ATTEMPTS
        assert (await ask(lost)).reply.codes == {"UNREACHABLE"}
        dead = await taken_from(site, f"{CONTEXT}.DEAD")
        assert decode(dead.body).header.message_id == lost.header.message_id
        assert refused(site, lost) == ["UNREACHABLE"]
    assert len(partner.taken) == 2


@pytest.mark.parametrize("by_web", [True, False])
async def test_an_asynchronous_request_through_a_route_always_ends_with_a_reply(
    site: WebBus, partner: WebService, by_web: bool
) -> None:
    """Whoever serves it may answer at once, or never be reached."""

    async def ask() -> RequestMessage:
        request = thing(site, reply_address="queue:answers")
        if by_web:
            assert (await site.ask(request)).reply.result is Result.PARTIAL
        else:
            await put(site, request, reply_to="answers")
            first = decode((await taken_from(site, "answers")).body)
            assert first.reply.result is Result.PARTIAL
        return request

    async def final(request: RequestMessage) -> ResponseMessage:
        found = decode((await taken_from(site, "answers")).body)
        assert isinstance(found, ResponseMessage)
        assert found.header.correlation_id == request.header.correlation_id
        return found

    partner.statuses = [503]
    at_once = await ask()
    answer = await final(at_once)
    assert (answer.reply.result, answer.header.source) == (Result.OK, "PARTNER")
    assert passed(site, at_once)[-1] == ("out", "response", "queue:answers", "OK")
    partner.statuses = [503] * ATTEMPTS
    never = await ask()
    answer = await final(never)
    assert (answer.reply.result, answer.reply.codes) == (Result.FAILED, {"UNREACHABLE"})
    dead = await taken_from(site, f"{CONTEXT}.DEAD")
    assert dead.properties.headers["x-undeliverable-to"] == partner.url
