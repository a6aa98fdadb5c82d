"""Requests that are served elsewhere: smart proxy, router, adapters, claims, transformation."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from gridpost.assembly.bus_claims import FolderClaims
from gridpost.assembly.bus_links import ClaimsSection
from gridpost.core.amqp091 import Properties
from gridpost.core.refusal import Refusal
from gridpost.envelope import (
    FaultMessage,
    Identifier,
    Pair,
    Payload,
    RequestMessage,
    ResponseMessage,
    Result,
    complete,
    decode,
    encode,
    fault,
    in_series,
)
from gridpost.services.bus.calling import SoapCaller
from gridpost.services.bus.sources import Source, SourceReader
from gridpost.services.bus.tables import TableBox
from gridpost.transports.mailboxes import FolderBox
from gridpost.transports.web_post import WebPost, web_context
from support import bus_handlers
from support.bus_site import CONTEXT
from support.bus_web import NOTE, WebBus, WebService, web_bus, web_service
from support.queues import SetClock
from support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHEET = """<x:stylesheet version="1.0" xmlns:x="http://www.w3.org/1999/XSL/Transform"
  xmlns:o="urn:o"><x:template match="@*|node()"><x:copy><x:apply-templates select="@*|node()"/>
  </x:copy></x:template><x:template match="o:old"><o:new><x:apply-templates/></o:new></x:template>
</x:stylesheet>"""


def bus(row: str) -> pytest.MarkDecorator:
    return pytest.mark.req(row, component="bus")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def partner():
    async with web_service() as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(rabbitmq, tmp_path_factory, partner: WebService):
    home = tmp_path_factory.mktemp("bus")
    (home / "sheet.xslt").write_text(SHEET)
    for name in ("drop", "in"):
        (home / name).mkdir()
    queue = f"queue:{CONTEXT}.SERVERS.One"
    routes = [
        {
            "verb": "get",
            "noun": "Routed",
            "when": "m:Source = 'WEB'",
            "targets": [{"to": partner.url}],
        },
        {
            "verb": "get",
            "noun": "Routed",
            "when": "m:User/m:UserID = 'Bob'",
            "targets": [{"to": queue}],
        },
        {
            "verb": "create",
            "noun": "Changed",
            "targets": [{"to": partner.url}],
            "xslt": home / "sheet.xslt",
            "unpack": True,
        },
        {
            "when": "m:Property[m:Name = 'to']/m:Value = 'partner'",
            "targets": [{"to": partner.url}],
            "xslt": home / "sheet.xslt",
        },
        {
            "verb": "get",
            "noun": "Balanced",
            "targets": [
                {"to": f"queue:{CONTEXT}.A", "instance": "A"},
                {"to": f"queue:{CONTEXT}.B", "instance": "B"},
            ],
        },
    ]
    subscribers = [
        {"name": "drop", "noun": "Others", "to": f"folder:{home / 'drop'}"},
        {"name": "rows", "noun": "Others", "to": "sql:events"},
    ]
    async with web_bus(
        rabbitmq,
        home,
        routes=routes,
        subscribers=subscribers,
        claims={"folder": home / "claims", "above": 20_000},
        slas=(
            {"noun": "Endless1", "within": "2s"},
            {"noun": "Endless3", "within": "2s"},
            {"within": "20s"},
        ),
    ) as found:
        yield found


async def serve(
    site: WebBus, queue: str, parts: int = 1, *, open_end: bool = False
) -> list[RequestMessage]:
    """A server that knows nothing of a bus: it takes from a queue and answers to reply-to."""
    await site.channel.declare_queue(queue)
    taken: list[RequestMessage] = []

    def take(incoming) -> None:
        request = decode(incoming.body)
        taken.append(request)
        replies = [complete([Identifier(f"part-{n}")]) for n in range(parts)]
        if open_end:
            replies = [in_series(reply, last=None) for reply in replies]
        elif parts > 1:
            replies = [in_series(r, last=n == parts - 1) for n, r in enumerate(replies)]

        async def answer() -> None:
            for reply in replies:
                body = encode(site.sender.response(request, reply))
                found = incoming.properties
                await site.channel.publish(
                    body,
                    Properties(correlation_id=found.correlation_id or found.message_id),
                    routing_key=found.reply_to,
                )

        tasks.append(asyncio.ensure_future(answer()))

    tasks: list[asyncio.Future] = []
    await site.channel.consume(queue, take, no_ack=True)
    return taken


@bus("100-5.3.1-a")
@bus("100-5.3.1-b")
@pytest.mark.req("100-5.3.1-c", component="transport")
async def test_a_web_client_reaches_a_server_on_a_queue_that_knows_no_bus(site: WebBus) -> None:
    taken = await serve(site, f"{CONTEXT}.REQUESTS.Remote.get")
    request = site.sender.request("get", "Remote", ids=["a"])
    over_web = await site.ask(request)
    assert over_web.reply.ids == (Identifier("part-0"),)
    # The server got the envelope as it was; a client on the queue itself gets the same reply.
    assert [encode(one) for one in taken] == [encode(request)]
    properties = Properties(reply_to="answers", correlation_id="x", message_id="y")
    await site.channel.declare_queue("answers")
    await site.channel.publish(
        encode(request), properties, routing_key=f"{CONTEXT}.REQUESTS.Remote.get"
    )
    found = None
    while found is None:
        found = await site.channel.get("answers")
    direct = decode(found.body)
    assert (direct.reply, direct.header.correlation_id) == (
        over_web.reply,
        over_web.header.correlation_id,
    )


async def test_several_replies_become_one_answer_and_nobody_is_a_failure(site: WebBus) -> None:
    await serve(site, f"{CONTEXT}.REQUESTS.Many.get", parts=3)
    answer = await site.ask(site.sender.request("get", "Many"))
    assert [i.value for i in answer.reply.ids] == ["part-0", "part-1", "part-2"]
    assert answer.reply.result is Result.OK
    nobody = await site.ask(site.sender.request("get", "Nobody"))
    assert nobody.reply.codes == {"NOT_HANDLED"}
    foreign = site.sender.__class__("EMS", "PRODUCTION").request("get", "Remote")
    assert (await site.ask(foreign)).reply.codes == {"ENVELOPE_CONTEXT"}


@pytest.mark.parametrize("parts", [1, 3])
async def test_of_a_series_without_an_end_a_web_client_gets_what_has_come(
    site: WebBus, parts: int
) -> None:
    """61968-100 cl. 6.3.4: a server that cannot tell the last one gives 0.1 to all of them."""
    noun = f"Endless{parts}"
    await serve(site, f"{CONTEXT}.REQUESTS.{noun}.get", parts, open_end=True)
    request = site.sender.request("get", noun)
    answer = await site.ask(request)
    assert [i.value for i in answer.reply.ids] == [f"part-{n}" for n in range(parts)]
    assert answer.reply.result is Result.PARTIAL
    assert answer.reply.codes == {"0.1"}
    assert answer.header.correlation_id == request.header.correlation_id


@bus("100-5.3.2-a")
@bus("100-5.3.2-b")
async def test_a_router_chooses_by_the_header_alone(site: WebBus, partner: WebService) -> None:
    taken = await serve(site, f"{CONTEXT}.SERVERS.One")
    partner.taken.clear()
    by_source = site.sender.__class__("WEB", CONTEXT).request("get", "Routed")
    assert (await site.client.call(by_source)).reply.result is Result.OK
    assert [encode(one) for one in partner.taken] == [encode(by_source)]
    from gridpost.envelope import Sender, User

    # Its payload is not looked into: this one is not even gzip.
    header = Sender("EMS", CONTEXT, user=User("Bob")).request("get", "Routed").header
    by_user = RequestMessage(header, None, Payload(compressed="AAAA", format="XML"))
    for ask in (site.client.call, site.ask):
        answer = await ask(by_user)
        assert answer.reply.ids == (Identifier("part-0"),)
    assert [encode(one) for one in taken] == [encode(by_user)] * 2
    # No rule meets, and nobody serves it here.
    nobody = await site.client.call(site.sender.request("get", "Routed"))
    assert nobody.reply.codes == {"NOT_HANDLED"}


@bus("100-5.3.2-c")
async def test_a_router_chooses_the_living_instance_with_the_least_load(site: WebBus) -> None:
    a, b = await serve(site, f"{CONTEXT}.A"), await serve(site, f"{CONTEXT}.B")
    ledger, clock = site.running.ledger, site.running.service.clock
    none = await site.ask(site.sender.request("get", "Balanced"))
    assert none.reply.codes == {"NOT_HANDLED"}
    await ledger.alive("A@host:1", clock.now(), 5)
    await site.ask(site.sender.request("get", "Balanced"))
    assert (len(a), len(b)) == (1, 0)
    await ledger.alive("B@host:2", clock.now(), 2)
    await site.ask(site.sender.request("get", "Balanced"))
    assert (len(a), len(b)) == (1, 1)
    # A comes back with less to do; B was not seen for long.
    await ledger.alive("B@host:2", clock.now() - timedelta(minutes=5), 0)
    await site.ask(site.sender.request("get", "Balanced"))
    assert (len(a), len(b)) == (2, 1)
    names = [one["name"] for one in await site.running.service.living()]
    assert "A@host:1" in names
    assert "B@host:2" not in names


@bus("100-F-c")
async def test_an_envelope_is_unpacked_and_transformed_on_its_way(
    site: WebBus, partner: WebService
) -> None:
    from gridpost.envelope import file_payload

    partner.taken.clear()
    inner = b'<o:Changed xmlns:o="urn:o"><o:old>7</o:old></o:Changed>'
    packed = file_payload(inner, "XML")
    assert packed.compressed
    request = site.sender.request("create", "Changed", packed)
    answer = await site.client.call(request)
    assert answer.reply.result is Result.OK, answer
    (seen,) = partner.taken
    assert seen.payload.compressed is None
    assert "<o:new>7</o:new>" in seen.payload.content[0].text
    assert seen.header.message_id == request.header.message_id


@bus("100-5.3.6-d")
@pytest.mark.parametrize("noun", ["Apples", "Bridges"])
async def test_one_rule_routes_and_transforms_any_noun(
    site: WebBus, partner: WebService, noun: str
) -> None:
    """Neither is known to the bus: there is nothing about them but the envelope."""
    taken = await serve(site, f"{CONTEXT}.REQUESTS.{noun}.create")
    partner.taken.clear()
    content = f'<o:{noun} xmlns:o="urn:o"><o:old>{noun}</o:old></o:{noun}>'
    proxied = site.sender.request("create", noun, content)
    assert (await site.ask(proxied)).reply.ids == (Identifier("part-0"),)
    assert taken == [decode(encode(proxied))]
    routed = site.sender.request("create", noun, content, properties=[Pair("to", "partner")])
    assert (await site.ask(routed)).reply.result is Result.OK
    (found,) = partner.taken
    assert found.header == decode(encode(routed)).header
    assert f"<o:new>{noun}</o:new>" in found.payload.content[0].text
    assert len(taken) == 1


async def test_events_land_in_folders_and_tables_once(site: WebBus) -> None:
    event = site.sender.event("changed", "Others", '<o:Others xmlns:o="urn:o"/>')
    await site.ask(event)
    drop = site.home / "drop"
    await eventually(lambda: [f for f in drop.iterdir() if not f.name.startswith(".")])
    (file,) = drop.iterdir()
    # As it was sent: read with its default namespace, both say the same.
    assert decode(file.read_bytes()) == decode(encode(event))
    table = TableBox(site.running.ledger, "events")
    for _ in range(300):
        names = await table.names()
        if names:
            break
        await asyncio.sleep(0.1)
    assert decode(await table.get(names[0])) == decode(encode(event))


async def test_files_and_rows_become_requests_and_events(site: WebBus) -> None:
    from gridpost.services.bus.door import WebDoor

    folder = site.home / "in"
    door = WebDoor(site.running.service)
    payloads = Source("files", FolderBox(folder, 10**6), CONTEXT, verb="create", noun="Notes")
    envelopes = Source("rows", TableBox(site.running.ledger, "incoming"), CONTEXT)
    (folder / "good.xml").write_text(NOTE.format("from a file"))
    (folder / "wrong.xml").write_text("<no")
    (folder / "refused.xml").write_text(NOTE.format("refuse"))
    (folder / ".half.part").write_text("not yet")
    before = len(bus_handlers.CALLS)
    assert await SourceReader(payloads, door).look() == 1
    assert sorted(f.name for f in folder.iterdir()) == [
        ".half.part", "refused.xml.error", "wrong.xml.error",
    ]  # fmt: skip
    assert len(bus_handlers.CALLS) == before + 2
    # The same file once more, as after a crash before it was removed: no second effect.
    (folder / "good.xml").write_text(NOTE.format("from a file"))
    assert await SourceReader(payloads, door).look() == 1
    assert len(bus_handlers.CALLS) == before + 2
    event = site.sender.event("changed", "Others", '<o:Others xmlns:o="urn:o"/>')
    await envelopes.box.put("one", encode(event))
    assert await SourceReader(envelopes, door).look() == 1
    await eventually(lambda: ("changed", event.header.message_id) in bus_handlers.CALLS)


async def test_ftp_and_sftp_servers_hold_files_like_folders(tmp_path: Path) -> None:
    from support.file_servers import ftp_server, sftp_server

    async with ftp_server(tmp_path / "ftp") as ftp, sftp_server(tmp_path / "sftp") as sftp:
        for box in (ftp, sftp):
            await box.put("b.xml", b"second")
            await box.put("a.xml", b"first")
            assert await box.names() == ["a.xml", "b.xml"]
            assert await box.get("a.xml") == b"first"
            await box.set_aside("a.xml")
            await box.remove("b.xml")
            assert await box.names() == []
            with pytest.raises(Refusal):
                await box.get("b.xml")


async def test_a_large_request_is_left_with_the_claims_and_redeemed(site: WebBus) -> None:
    large = NOTE.format("x" * 50_000)
    request = site.sender.request("create", "Notes", large, one_way=True)
    assert (await site.soap(request)).status_code == 202
    await eventually(lambda: ("create", request.header.message_id) in bus_handlers.CALLS)
    assert len(list((site.home / "claims").iterdir())) == 1


async def test_a_claim_that_nobody_redeems_is_removed_after_its_time(tmp_path: Path) -> None:
    clock = SetClock(datetime.now(UTC))
    claims = FolderClaims(ClaimsSection(folder=tmp_path / "claims"), 1000, clock)
    claim = await claims.keep(b"large")
    assert await claims.tidy() == 0
    assert await claims.redeem(claim) == b"large"
    clock.at += timedelta(days=1, hours=1)
    assert await claims.tidy() == 1
    with pytest.raises(Refusal):
        await claims.redeem(claim)


@pytest.mark.req("100-5.3.1-c", component="transport")
@bus("100-5.2.2-a")
@bus("100-5.2.2-b")
@bus("100-6.7-g")
async def test_a_caller_tells_replies_from_faults_from_silence(partner: WebService) -> None:
    from gridpost.core.envelope import Error, Reply
    from gridpost.core.refusal import Rule
    from gridpost.envelope import Sender, failed

    sender = Sender("EMS", CONTEXT)
    request = encode(sender.request("get", "Notes"))
    post = WebPost(web_context(), seconds=5)
    caller = SoapCaller(post)
    replies = (complete(), failed(Error("2.15")), in_series(Reply(Result.PARTIAL), last=None))
    try:
        for reply in replies:
            partner.answer = lambda m, r=reply: encode(sender.response(m, r))
            answer = decode(await caller.call(partner.url, request))
            assert isinstance(answer, ResponseMessage)
            assert answer.reply.result is reply.result
        told = encode(fault(Refusal(Rule.ENVELOPE_FORM, "not this")))
        partner.answer = lambda m: told
        assert isinstance(decode(await caller.call(partner.url, request)), FaultMessage)
        partner.answer = lambda m: None
        assert await caller.call(partner.url, request) is None
        partner.statuses = [503]
        with pytest.raises(Refusal) as silent:
            await caller.call(partner.url, request)
        assert silent.value.retryable
        partner.statuses = [404]
        with pytest.raises(Refusal) as refused:
            await caller.call(partner.url, request)
        assert not refused.value.retryable
    finally:
        partner.answer = None
        await post.close()


@pytest.mark.req("100-8.4.1-c", component="transport")
async def test_a_request_waits_in_its_queue_until_somebody_takes_it(site: WebBus) -> None:
    queue = f"{CONTEXT}.REQUESTS.Waiting.get"
    await site.channel.declare_queue(queue)
    await site.channel.bind(queue, CONTEXT, queue)
    request = site.sender.request("get", "Waiting")
    asked = asyncio.create_task(site.client.call(request))
    counted = 0
    while not counted:
        _, counts = await site.channel.declare_queue(queue, passive=True)
        counted = counts.messages
    taken = await serve(site, queue)
    assert (await asked).reply.result is Result.OK
    assert [m.header.message_id for m in taken] == [request.header.message_id]
    _, counts = await site.channel.declare_queue(queue, passive=True)
    assert counts.messages == 0
