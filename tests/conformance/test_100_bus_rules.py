"""61968-100 cl. 3.3.8, 6.2, 6.10, 7, 8.2, 10, Annexes B and C: rules of a bus, without a broker."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from lxml import etree

from gridpost.assembly.bus_configuration import NounSection, noun_schema
from gridpost.assembly.clock import SystemClock
from gridpost.core.bus import BusUnit
from gridpost.core.envelope_exchange import Guard
from gridpost.core.refusal import Refusal, Rule
from gridpost.envelope import (
    EventMessage,
    Fragment,
    RequestMessage,
    Result,
    Sender,
    Verb,
    decode,
    decode_unchecked,
    encode,
    encode_unchecked,
)
from gridpost.services.bus.answering import Arrival
from gridpost.services.bus.handlers import Handlers
from gridpost.services.bus.processing import Processor
from gridpost.services.bus.reference import CONTROLS, register_reference
from gridpost.services.bus.settings import BusSettings, NounRules
from gridpost.stores.sqlite.bus import SqliteBusLedger
from gridpost.wire.envelope import schema_change
from gridpost.wire.envelope.wsdl import BASE, PATTERNS, generic_wsdl, typed_files, typed_wsdl
from support.envelopes import OPERATION_SET

CONTEXT = "TESTING"
SENDER = Sender("EMS", CONTEXT)
WSDL = "{http://schemas.xmlsoap.org/wsdl/}"
SOAP = "{http://schemas.xmlsoap.org/wsdl/soap/}"
REQUESTS = ("get", "create", "change", "cancel", "close", "delete", "execute")
CREATED: list[str] = []


def bus(row: str) -> pytest.MarkDecorator:
    return pytest.mark.req(row, component="bus")


def env(row: str) -> pytest.MarkDecorator:
    return pytest.mark.req(row, component="envelope")


def wsdl(row: str) -> pytest.MarkDecorator:
    return pytest.mark.req(row, component="wsdl")


def xsd(
    name: str, version: str = "1.0", year: str = "2011", extra: str = "", note: str = ""
) -> str:
    return f"""<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"
  targetNamespace="http://iec.ch/TC57/{year}/{name}#" elementFormDefault="qualified"
  version="{version}">
  <xs:annotation><xs:documentation>1.0 2026-01-01</xs:documentation>{note}</xs:annotation>
  <xs:element name="{name}"><xs:complexType><xs:sequence>
    <xs:element name="mRID" type="xs:string" minOccurs="0" maxOccurs="unbounded"/>{extra}
  </xs:sequence></xs:complexType></xs:element></xs:schema>"""


@pytest_asyncio.fixture
async def processor(tmp_path: Path) -> AsyncIterator[Processor]:
    handlers, clock = Handlers(), SystemClock()
    register_reference(handlers, clock.now)
    for verb in REQUESTS:

        @handlers.handles(verb, "Things")
        def done(request: RequestMessage, unit: BusUnit) -> object:
            if request.header.verb == "get":
                return '<t:Things xmlns:t="urn:t"/>'
            return None

    for noun in ("MeterConfig", "UsagePointConfig", "MasterDataLinkageConfig"):

        @handlers.handles("create", noun)
        def made(request: RequestMessage, unit: BusUnit) -> object:
            CREATED.append(request.header.noun)
            return None

    (tmp_path / "Notes.xsd").write_text(xsd("Notes"))
    schema = noun_schema(NounSection(name="Notes", xsd=tmp_path / "Notes.xsd"))

    @handlers.handles("create", "Notes")
    def note(request: RequestMessage, unit: BusUnit) -> object:
        return None

    settings = BusSettings(
        "MDM", frozenset({CONTEXT}), Guard(frozenset({CONTEXT})),
        nouns={"Notes": NounRules(schema), "Things": NounRules()},
    )  # fmt: skip
    ledger = SqliteBusLedger.open(tmp_path / "store", "MDM")
    yield Processor(settings, handlers, ledger, clock)
    await ledger.close()


async def told(processor: Processor, message: object):
    body = message if isinstance(message, bytes) else encode(message)
    treated = await processor.request(body, Arrival(CONTEXT, "here", synchronous=True))
    return decode(treated.response), treated


THINGS = '<t:Things xmlns:t="urn:t"/>'


@env("100-Table1-b")
@env("100-6.2.4-d")
@env("100-6.2.4-h")
@bus("100-6.3.4-a")
async def test_every_request_is_replied_to_with_reply(processor: Processor) -> None:
    for verb in REQUESTS:
        content = THINGS if verb in ("create", "change", "execute") else None
        ids = () if content else ["x"]
        answer, _ = await told(processor, SENDER.request(verb, "Things", content, ids=ids))
        assert answer.header.verb is Verb.REPLY
        assert answer.reply.result is Result.OK
        assert (answer.payload is not None) == (verb == "get")


@env("100-6.2.4-g")
async def test_nothing_found_has_no_payload(processor: Processor) -> None:
    answer, _ = await told(processor, SENDER.request("get", "EndDeviceControls", ids=["none"]))
    assert (answer.reply.result, answer.payload) == (Result.FAILED, None)


@bus("100-6.2.2-d")
@bus("100-B-j")
@bus("100-6.3.2-a")
async def test_verbs_of_the_transport_are_refused_and_old_ones_understood(
    processor: Processor,
) -> None:
    good = encode(SENDER.request("change", "Things", THINGS)).decode()
    for verb in ("subscribe", "unsubscribe", "publish", "reply"):
        bad = good.replace("<Verb>change</Verb>", f"<Verb>{verb}</Verb>").encode()
        _, treated = await told(processor, bad)
        assert treated.dead is not None, verb
    old = good.replace("<Verb>change</Verb>", "<Verb>update</Verb>").encode()
    answer, treated = await told(processor, old)
    assert answer.reply.result is Result.OK
    (event,) = [p.outgoing.body for p in treated.posts if not p.outgoing.reply]
    assert decode(event).header.verb is Verb.CHANGED
    assert b"update" not in event + treated.response


@bus("100-6.10.4-a")
async def test_the_printed_set_of_operations_runs_in_order(processor: Processor) -> None:
    CREATED.clear()
    answer, _ = await told(processor, OPERATION_SET.encode())
    assert answer.reply.result is Result.OK, answer
    assert CREATED == ["MeterConfig", "UsagePointConfig", "MasterDataLinkageConfig"]


@bus("100-6.10.2-a")
@bus("100-6.10.3-b")
async def test_the_noun_of_an_operation_names_its_content(processor: Processor) -> None:
    wrong = OPERATION_SET.replace("<noun>MeterConfig</noun>", "<noun>UsagePointConfig</noun>")
    _, treated = await told(processor, wrong.encode())
    assert treated.dead is not None
    assert treated.dead.rule is Rule.OPERATION_SET
    CREATED.clear()
    without = OPERATION_SET.replace("<noun>MeterConfig</noun>", "").replace("D921", "D922")
    answer, _ = await told(processor, without.encode())
    assert answer.reply.result is Result.OK
    assert CREATED[0] == "MeterConfig"
    # A set that is published has operations of the past.
    event = (
        OPERATION_SET.replace("RequestMessage", "EventMessage")
        .replace("<Verb>execute</Verb>", "<Verb>executed</Verb>")
        .encode()
    )
    heard = await processor.event(event, Arrival(CONTEXT, "here"))
    assert heard.dead is not None
    assert heard.dead.rule is Rule.OPERATION_SET


@env("100-A-r")
async def test_ids_of_what_was_made_can_be_asked_for(processor: Processor) -> None:
    controls = "".join(
        f"<c:EndDeviceControl><c:mRID>{i}</c:mRID></c:EndDeviceControl>" for i in ("r1", "r2")
    )
    content = f'<c:EndDeviceControls xmlns:c="{CONTROLS}">{controls}</c:EndDeviceControls>'
    made, _ = await told(processor, SENDER.request("create", "EndDeviceControls", content))
    assert [i.value for i in made.reply.ids] == ["r1", "r2"]
    got, _ = await told(processor, SENDER.request("get", "EndDeviceControls", ids=made.reply.ids))
    assert got.reply.result is Result.OK
    assert got.payload.content[0].text.count("<c:EndDeviceControl ") == 2


@env("100-7-a")
async def test_a_payload_is_checked_where_its_noun_has_a_schema(processor: Processor) -> None:
    anything = '<t:Things xmlns:t="urn:t"><t:anything at="1"/></t:Things>'
    answer, _ = await told(processor, SENDER.request("create", "Things", anything))
    assert answer.reply.result is Result.OK
    namespace = f"{BASE}/Notes#"
    for content, result in (
        (f'<n:Notes xmlns:n="{namespace}"><n:mRID>1</n:mRID></n:Notes>', Result.OK),
        (f'<n:Notes xmlns:n="{namespace}"><n:wrong/></n:Notes>', Result.FAILED),
        ('<n:Notes xmlns:n="urn:other"/>', Result.FAILED),
    ):
        answer, _ = await told(processor, SENDER.request("create", "Notes", content))
        assert answer.reply.result is result, content
    answer, _ = await told(
        processor, SENDER.request("create", "Unknown", '<u:Unknown xmlns:u="urn:u"/>')
    )
    assert answer.reply.codes == {"NOT_HANDLED"}


@env("100-7-b")
@env("100-7-d")
def test_a_noun_is_no_class_and_its_schema_defines_it(tmp_path: Path) -> None:
    for name in ("Switch", "Meter"):
        with pytest.raises(ValueError, match="class of the CIM"):
            NounSection(name=name)
    assert NounSection(name="Switches").name == "Switches"
    (tmp_path / "Switches.xsd").write_text(xsd("Others"))
    with pytest.raises(Refusal, match="defines no element"):
        noun_schema(NounSection(name="Switches", xsd=tmp_path / "Switches.xsd"))


@bus("100-8.2-b")
def test_a_get_request_has_the_fields_of_annex_a_and_no_others() -> None:
    request = SENDER.request("get", "Things", ids=["1"])
    header = request.header
    assert (header.verb, header.noun, header.source) == (Verb.GET, "Things", "EMS")
    text = encode(request).decode()
    for bad in (
        text.replace("</Source>", "</Source><UserID>Bob</UserID>"),
        text.replace("<Source>EMS</Source>", "<source>EMS</source>"),
    ):
        with pytest.raises(Refusal) as refused:
            decode_unchecked(bad)
        assert refused.value.rule is Rule.SCHEMA_INVALID


@env("100-10-a")
@env("100-10-b")
@env("100-10-c")
def test_old_messages_are_valid_by_a_minor_version_and_a_major_one_has_a_new_namespace() -> None:
    optional = '<xs:element name="more" type="xs:string" minOccurs="0"/>'
    note = "<xs:documentation>1.1 2026-02-01: more</xs:documentation>"
    old, minor = xsd("Notes"), xsd("Notes", "1.1", extra=optional, note=note)
    verdict = schema_change.compare(old.encode(), minor.encode())
    assert (verdict.kind, verdict.errors) == ("minor", ())
    message = etree.fromstring(f'<n:Notes xmlns:n="{BASE}/Notes#"><n:mRID>1</n:mRID></n:Notes>')
    for schema in (old, minor):
        etree.XMLSchema(etree.fromstring(schema)).assertValid(message)
    retyped = xsd("Notes", "2.0", "2012").replace("xs:string", "xs:int")
    assert schema_change.compare(old.encode(), retyped.encode()).errors == ()
    for half in (
        xsd("Notes", "2.0").replace("xs:string", "xs:int"),
        xsd("Notes", "1.1", "2012").replace("xs:string", "xs:int"),
    ):
        assert schema_change.compare(old.encode(), half.encode()).errors


@wsdl("100-3.3.8-b")
def test_every_description_keeps_the_basic_profile() -> None:
    """WS-I Basic Profile 1.1: R2201-R2204, R2701-R2710, R2720, R2001-R2005 in short."""
    texts = [generic_wsdl(), *(typed_wsdl(pattern, "Notes") for pattern in PATTERNS)]
    for root in (etree.fromstring(text.encode()) for text in texts):
        (binding,) = root.iter(f"{SOAP}binding")
        assert binding.get("transport") == "http://schemas.xmlsoap.org/soap/http"
        styles = {binding.get("style")} | {o.get("style") for o in root.iter(f"{SOAP}operation")}
        assert styles == {"document"}
        assert {b.get("use") for b in root.iter(f"{SOAP}body", f"{SOAP}fault")} == {"literal"}
        parts: dict[str, str] = {}
        for message in root.iter(f"{WSDL}message"):
            (part,) = message
            assert part.get("element")
            assert part.get("type") is None
            parts[message.get("name")] = part.get("element")
        inputs = [
            parts[i.get("message").rpartition(":")[2]]
            for p in root.iter(f"{WSDL}portType")
            for i in p.iter(f"{WSDL}input")
        ]
        assert len(set(inputs)) == len(inputs), "two operations look the same on the wire"
        names = [o.get("name") for p in root.iter(f"{WSDL}portType") for o in p]
        assert len(set(names)) == len(names)
        for fault in root.iter(f"{SOAP}fault"):
            assert fault.get("name") == fault.getparent().get("name")
        (types,) = root.iter(f"{WSDL}types")
        assert all(e.tag.endswith("}schema") for e in types)
        order = [etree.QName(e).localname for e in root if isinstance(e.tag, str)]
        wanted = ["types", "message", "portType", "binding", "service"]
        assert [name for name, _ in itertools.groupby(order)] == wanted


@wsdl("100-C.3-n")
def test_generated_files_are_of_the_noun_in_plural() -> None:
    for name, data in typed_files("Notes", xsd("Notes").encode()).items():
        if name not in ("xsd/Message.xsd", "xsd/Notes.xsd"):
            assert b"{" not in data, name
            assert b"Information_Object" not in data
            assert b"Notes" in data
    with pytest.raises(Refusal, match="plural"):
        typed_files("Note", xsd("Note").encode())


@bus("100-B-i")
@bus("100-B-h")
async def test_a_change_of_status_is_a_changed_event(processor: Processor) -> None:
    content = '<t:Things xmlns:t="urn:t"><t:status>approved</t:status></t:Things>'
    _, treated = await told(processor, SENDER.request("change", "Things", content))
    (post,) = [p.outgoing for p in treated.posts if not p.outgoing.reply]
    event = decode(post.body)
    assert isinstance(event, EventMessage)
    assert event.header.verb is Verb.CHANGED
    assert "approved" in event.payload.content[0].text
    # What the master system did by itself is told in the same form.
    own = Sender("MDM", CONTEXT).event("changed", "Things", Fragment.parse(content))
    published = await processor.publish(encode_unchecked(own), Arrival(CONTEXT, "here"))
    (told_by_itself,) = [p.outgoing for p in published.posts]
    assert told_by_itself.address == post.address
    assert type(decode(told_by_itself.body)) is type(event)
