"""Payloads that are too large to be read as a whole: a handler takes them piece by piece."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from lxml import etree
from pydantic import ValidationError

from gridpost.assembly.bus_configuration import NounSection
from gridpost.assembly.bus_trial import trial_bus
from gridpost.core.bus import BusUnit
from gridpost.core.envelope_exchange import Guard
from gridpost.core.refusal import Refusal, Rule
from gridpost.envelope import (
    Payload,
    RequestMessage,
    Result,
    Sender,
    file_payload,
    parts,
    xml_payload,
)
from gridpost.services.bus.service import BusService
from gridpost.services.bus.settings import BusSettings, NounRules
from gridpost.wire.envelope import Reading
from gridpost.wire.xml import XmlLimits

CONTEXT = "TESTING"
CONTEXTS = frozenset({CONTEXT})
SMALL = 100_000
STREAMED = BusSettings(
    "MDM",
    CONTEXTS,
    Guard(CONTEXTS),
    nouns={"Orders": NounRules(streamed=True)},
    reading=Reading(XmlLimits(max_bytes=SMALL)),
    max_unpacked=2_000_000,
)


def orders(count: int, root: str = "Orders", tail: str = "") -> bytes:
    inner = "".join(f"<o:Order><o:id>{n}</o:id>{'x' * 900}</o:Order>" for n in range(count))
    return f'<?xml version="1.0"?><o:{root} xmlns:o="urn:o">{inner}{tail}</o:{root}>'.encode()


def register(service: BusService) -> None:
    @service.handles("create", "Orders")
    def create(request: RequestMessage, unit: BusUnit) -> list[str]:
        unit.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY)")
        last = ""
        for order in service.parts(request):
            last = order.findtext("{urn:o}id") or ""
            unit.execute("INSERT INTO orders VALUES (?)", [last])
        return [last]

    @service.handles("get", "Orders")
    def get(request: RequestMessage, unit: BusUnit) -> list[str]:
        unit.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY)")
        return [str(n) for (n,) in unit.execute("SELECT count(*) FROM orders")]

    @service.handles("change", "Orders")
    def change(request: RequestMessage, unit: BusUnit) -> list[str]:
        return [str(len(part.element)) for part in service.content(request)]


def request(verb: str, payload: Payload | None) -> RequestMessage:
    return Sender("EMS", CONTEXT).request(verb, "Orders", payload)


async def test_a_payload_far_above_the_limit_of_documents_is_taken_piece_by_piece() -> None:
    large = orders(2_000)
    assert len(large) > 15 * SMALL
    async with trial_bus(register, settings=STREAMED) as bus:
        done = (await bus.ask(request("create", file_payload(large, "XML")))).response
        assert done.reply.result is Result.OK, done
        assert [i.value for i in done.reply.ids] == ["1999"]
        # As a whole it is refused, and where it is not said to be streamed as well.
        whole = (await bus.ask(request("change", file_payload(large, "XML")))).response
        assert whole.reply.codes == {"LIMIT_EXCEEDED"}
    async with trial_bus(register, settings=replace(STREAMED, nouns={})) as bus:
        refused = (await bus.ask(request("create", file_payload(large, "XML")))).response
        assert refused.reply.codes == {"LIMIT_EXCEEDED"}


async def test_the_limit_of_documents_that_are_read_as_a_whole_is_configured() -> None:
    wide = replace(STREAMED, nouns={}, reading=Reading(XmlLimits(max_bytes=20_000_000)))
    large = file_payload(orders(10_000), "XML")  # above the 8 MiB of documents elsewhere
    async with trial_bus(register, settings=wide) as bus:
        done = (await bus.ask(request("change", large))).response
        assert [i.value for i in done.reply.ids] == ["10000"]


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (orders(300, tail="<o:Order>"), "MALFORMED_XML"),
        (orders(300, tail="<o:Order>" + "y" * 2 * SMALL + "</o:Order>"), "LIMIT_EXCEEDED"),
        (orders(300, tail="<o:Order>a<!-- split -->b</o:Order>"), "FORBIDDEN_XML"),
        (orders(300, root="Others"), "ENVELOPE_NOUN"),
        (orders(3_000), "LIMIT_EXCEEDED"),
        (
            b'<!DOCTYPE o [<!ENTITY e "x">]><o:Orders xmlns:o="urn:o">&e;</o:Orders>',
            "FORBIDDEN_XML",
        ),
    ],
)
async def test_what_is_wrong_in_the_middle_undoes_what_was_taken_before(
    payload: bytes, code: str
) -> None:
    async with trial_bus(register, settings=STREAMED) as bus:
        failed = (await bus.ask(request("create", file_payload(payload, "XML")))).response
        assert failed.reply.result is Result.FAILED
        assert failed.reply.codes == {code}
        count = (await bus.ask(request("get", None))).response
        assert [i.value for i in count.reply.ids] == ["0"]


def test_the_first_pieces_are_there_before_the_end_is_read() -> None:
    found = parts(file_payload(orders(300, tail="<o:Order>"), "XML"))
    assert next(found).findtext("{urn:o}id") == "0"
    with pytest.raises(Refusal) as caught:
        list(found)
    assert caught.value.rule is Rule.MALFORMED_XML


def test_the_pieces_are_the_same_whichever_way_a_payload_travels() -> None:
    text = orders(7)
    direct, packed = (
        [etree.tostring(e, method="c14n") for e in parts(p, noun="Orders")]
        for p in (xml_payload(text), file_payload(text, "XML"))
    )
    assert direct == packed
    assert len(direct) == 7
    with pytest.raises(Refusal) as caught:
        list(parts(file_payload(b"a,b", "CSV")))
    assert caught.value.rule is Rule.ENVELOPE_PAYLOAD


def test_a_noun_is_checked_by_a_schema_or_streamed() -> None:
    with pytest.raises(ValidationError, match="streamed"):
        NounSection(name="Orders", xsd=Path("Orders.xsd"), streamed=True)
