"""61968-100: what interfaces should be like, beyond what they must be."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import pytest
import pytest_asyncio
from lxml import etree
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner

from gridpost.assembly.bus_configuration import NounSection, noun_schema
from gridpost.assembly.bus_parts import typed_services
from gridpost.assembly.clock import SystemClock
from gridpost.assembly.noun_schemas import read_noun_schemas
from gridpost.cli.bus import app
from gridpost.core.bus import BusUnit
from gridpost.envelope import (
    Guard,
    Refusal,
    RequestMessage,
    ResponseMessage,
    Sender,
    User,
    decode,
    encode,
)
from gridpost.services.bus.answering import Arrival
from gridpost.services.bus.metrics import BusMetrics
from gridpost.services.bus.reference import (
    CONTROL_PARTS,
    CONTROLS,
    READINGS,
    register_reference,
)
from gridpost.services.bus.service import BusService
from gridpost.services.bus.settings import BusSettings, NounRules
from gridpost.stores.sqlite.bus import SqliteBusLedger
from gridpost.wire.envelope.payload import COMPRESS_ABOVE, content
from gridpost.wire.envelope.wsdl import BASE, message_xsd, shipped_xsd, typed_files

CONTEXT = "TESTING"
SENDER = Sender("EMS", CONTEXT)
XSD = "{http://www.w3.org/2001/XMLSchema}"
NOUNS = ("MeterReadings", "EndDeviceControls")
SCHEMAS = [name for noun in NOUNS for name in (noun, f"Get{noun}")]
EMPTY = '<t:Texts xmlns:t="urn:t"></t:Texts>'
ASKED = {"MeterReadings": READINGS, "EndDeviceControls": CONTROLS}


def bus(row: str) -> pytest.MarkDecorator:
    return pytest.mark.req(row, component="bus")


def env(row: str) -> pytest.MarkDecorator:
    return pytest.mark.req(row, component="envelope")


def shipped(name: str) -> etree._Element:
    found = shipped_xsd(name)
    assert found is not None, name
    return etree.fromstring(found)


def readings(*values: str, kind: str = '<m:ReadingType ref="kWh"/>', namespace: str = READINGS):
    inner = "".join(
        f"<m:Readings><m:timeStamp>2026-01-01T0{hour}:00:00Z</m:timeStamp><m:value>{value}</m:value>"
        f"{kind}</m:Readings>"
        for hour, value in enumerate(values)
    )
    return (
        f'<m:MeterReadings xmlns:m="{namespace}"><m:MeterReading><m:Meter><m:mRID>M1</m:mRID>'
        f"</m:Meter>{inner}</m:MeterReading></m:MeterReadings>"
    )


def control(inner: str) -> str:
    return (
        f'<c:EndDeviceControls xmlns:c="{CONTROLS}"><c:EndDeviceControl><c:mRID>C1</c:mRID>'
        f"{inner}</c:EndDeviceControl></c:EndDeviceControls>"
    )


@pytest_asyncio.fixture
async def service(tmp_path: Path) -> AsyncIterator[BusService]:
    """With the schemas of the reference handlers' nouns, and a user wanted."""
    clock = SystemClock()
    contexts = frozenset({CONTEXT})
    nouns = {noun: NounRules(noun_schema(NounSection(name=noun, typed=True))) for noun in NOUNS}
    ledger = SqliteBusLedger.open(tmp_path / "store", "MDM")
    found = BusService(
        BusSettings("MDM", contexts, Guard(contexts, user_required=True), nouns=nouns),
        ledger,
        clock,
        BusMetrics(CollectorRegistry()),
    )
    register_reference(found.handlers, clock.now)

    @found.handles("get", "Texts")
    def text(request: RequestMessage, unit: BusUnit) -> object:
        size = int(request.request.ids[0].value)
        start, end = EMPTY[:-10], EMPTY[-10:]
        return start + "x" * (size - len(start) - len(end)) + end

    yield found
    await ledger.close()


async def told(service: BusService, message: RequestMessage) -> ResponseMessage:
    treated = await service.processor.request(
        encode(message), Arrival(CONTEXT, "here", synchronous=True)
    )
    answer = decode(treated.response)
    assert isinstance(answer, ResponseMessage)
    return answer


KNOWN = Sender("EMS", CONTEXT, user=User("Bob"))


@env("100-6.2.3-a")
@env("100-7-e")
@env("100-10-d")
@pytest.mark.req("100-10-d", component="wsdl")
@pytest.mark.parametrize("name", SCHEMAS)
def test_every_noun_of_ours_has_a_schema_in_a_namespace_of_its_own(name: str) -> None:
    root = shipped(name)
    etree.XMLSchema(root)
    assert root.get("targetNamespace") == f"{BASE}/{name}#"
    assert re.fullmatch(r"http://iec\.ch/TC57/\d{4}/\w+#", root.get("targetNamespace") or "")
    assert [e.get("name") for e in root.iterchildren(f"{XSD}element")] == [name]
    version = root.get("version") or ""
    assert re.fullmatch(r"\d+\.\d+", version)
    notes = [note.text or "" for note in root.iterfind(f"{XSD}annotation/{XSD}documentation")]
    (current,) = [note for note in notes if note.startswith(f"Version {version}, ")]
    date.fromisoformat(current.removeprefix(f"Version {version}, ")[:10])
    spaces = {shipped(other).get("targetNamespace") for other in SCHEMAS}
    assert len(spaces) == len(SCHEMAS)
    assert etree.fromstring(message_xsd()).get("targetNamespace") not in spaces


@env("100-6.2.3-a")
async def test_a_payload_in_the_namespace_of_another_noun_is_refused(service: BusService) -> None:
    for namespace, codes in ((READINGS, {"0.0"}), (CONTROLS, {"SCHEMA_INVALID"})):
        request = KNOWN.request("create", "MeterReadings", readings("1", namespace=namespace))
        assert (await told(service, request)).reply.codes == codes


@env("100-6.12-b")
async def test_a_quantity_never_stands_without_its_unit(service: BusService) -> None:
    """Values of our profiles have no unit of their own: what they count stands beside them."""
    root = shipped("MeterReadings")
    for kind in root.iterchildren(f"{XSD}complexType"):
        inside = {e.get("name"): e for e in kind.iter(f"{XSD}element")}
        if "value" in inside:
            assert inside["ReadingType"].get("minOccurs", "1") == "1"
    without = KNOWN.request("create", "MeterReadings", readings("1", kind=""))
    assert (await told(service, without)).reply.codes == {"SCHEMA_INVALID"}
    # Nothing else of ours is a number with a dimension.
    numbers = {"xs:decimal", "xs:float", "xs:double"}
    for name in SCHEMAS:
        assert not {e.get("type") for e in shipped(name).iter(f"{XSD}element")} & numbers


async def test_what_the_reference_handlers_answer_is_what_their_schemas_say(
    service: BusService,
) -> None:
    created = (
        "<c:Names><c:name>n</c:name></c:Names><c:scheduledInterval><c:start>2026-01-01T00:00:00Z"
        "</c:start></c:scheduledInterval>"
    )
    changed = "<c:reason>other</c:reason><c:EndDevices><c:mRID>D</c:mRID></c:EndDevices>"
    for request in (
        KNOWN.request("create", "MeterReadings", readings("1", "2")),
        KNOWN.request("create", "EndDeviceControls", control(created)),
        KNOWN.request("change", "EndDeviceControls", control(changed)),
    ):
        assert (await told(service, request)).reply.codes == {"0.0"}
    for noun, which in (("MeterReadings", "M1"), ("EndDeviceControls", "C1")):
        answer = await told(service, KNOWN.request("get", noun, ids=[which]))
        (found,) = content(answer.payload)
        etree.XMLSchema(shipped(noun)).assertValid(found.element)
    (object_type,) = [
        t
        for t in shipped("EndDeviceControls").iterchildren(f"{XSD}complexType")
        if t.get("name") == "EndDeviceControl"
    ]
    assert tuple(e.get("name") for e in object_type.iter(f"{XSD}element")) == CONTROL_PARTS


@bus("100-6.3.2-n")
async def test_an_interface_may_ask_who_the_user_is(service: BusService) -> None:
    nameless = await told(service, SENDER.request("get", "Texts", ids=["100"]))
    assert nameless.reply.codes == {"ENVELOPE_USER"}
    named = await told(service, KNOWN.request("get", "Texts", ids=["100"]))
    assert named.reply.codes == {"0.0"}


@bus("100-6.4-c")
async def test_a_large_answer_travels_compressed(service: BusService) -> None:
    for size, packed in ((COMPRESS_ABOVE, False), (COMPRESS_ABOVE + 1, True)):
        answer = await told(service, KNOWN.request("get", "Texts", ids=[str(size)]))
        payload = answer.payload
        assert (payload.compressed is not None, payload.format) == (
            packed,
            "XML" if packed else None,
        )
        (found,) = content(payload)
        assert len(found.element.text) == size - len(EMPTY)


@bus("100-8.2-c")
async def test_the_catalogue_lists_what_is_served_and_nothing_else_is(service: BusService) -> None:
    catalogue = {(row["verb"], row["noun"]): row["destination"] for row in service.interface()}
    assert catalogue["get", "Texts"] == f"{CONTEXT}.REQUESTS.Texts.get"
    for noun, namespace in ASKED.items():
        for verb in ("get", "create", "change", "cancel", "close", "delete", "execute"):
            payload = f'<x:{noun} xmlns:x="{namespace}"/>'
            body = None if verb in ("get", "cancel", "close", "delete") else payload
            answer = await told(service, KNOWN.request(verb, noun, body, ids=["nothing"]))
            listed = (verb, noun) in catalogue
            assert ("NOT_HANDLED" in answer.reply.codes) is not listed, (verb, noun)


def test_a_schema_brings_along_what_it_includes(tmp_path: Path) -> None:
    """So that a client that reads a description finds every file of it."""
    zeep = pytest.importorskip("zeep")
    start = (
        f'<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns:t="{BASE}/Notes#" '
        f'targetNamespace="{BASE}/Notes#" elementFormDefault="qualified" version="1.0">'
    )
    parts = {
        "Notes": '<xs:include schemaLocation="Parts.xsd"/><xs:element name="Notes" type="t:Notes"/>',
        "Parts": '<xs:include schemaLocation="Words-1.xsd"/><xs:complexType name="Notes">'
        '<xs:sequence><xs:element name="text" type="t:Word"/></xs:sequence></xs:complexType>',
        "Words-1": '<xs:simpleType name="Word"><xs:restriction base="xs:string"/></xs:simpleType>',
    }
    for name, text in parts.items():
        (tmp_path / f"{name}.xsd").write_text(f"{start}{text}</xs:schema>")
    out = tmp_path / "out"
    asked = ["wsdl", str(tmp_path / "Notes.xsd"), "--out", str(out)]
    assert CliRunner().invoke(app, asked).exit_code == 0
    client = zeep.Client(str(out / "RequestNotes.wsdl"))
    made = client.get_element(f"{{{BASE}/Notes#}}Notes")(text="word")
    assert made.text == "word"
    # The served service has them too, and a missing one is told by its name.
    section = NounSection(name="Notes", xsd=tmp_path / "Notes.xsd", typed=True)
    (service,) = typed_services(SimpleNamespace(nouns=[section]))
    assert {f"xsd/{name}.xsd" for name in parts} <= set(service.files)
    (tmp_path / "Words-1.xsd").unlink()
    with pytest.raises(Refusal, match=r"Words-1\.xsd"):
        read_noun_schemas(tmp_path / "Notes.xsd")


def test_typed_services_of_our_own_nouns_need_no_schema_of_yours(tmp_path: Path) -> None:
    for noun in NOUNS:
        done = CliRunner().invoke(app, ["wsdl", noun, "--out", str(tmp_path / noun)])
        assert done.exit_code == 0, done.output
        wanted = typed_files(noun, shipped_xsd(noun) or b"", shipped_xsd(f"Get{noun}"))
        for name, data in wanted.items():
            assert (tmp_path / noun / name).read_bytes() == data
        assert f"xsd/Get{noun}.xsd" in wanted
    with pytest.raises(ValueError, match="typed services need"):
        NounSection(name="Unknowns", typed=True)
