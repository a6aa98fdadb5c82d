"""Journal rows of a made-up bus: requests of known length, their replies, events, and one that is broken."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from gridpost.core.envelope import Header, Payload, RequestMessage, Verb
from gridpost.core.journal import EnvelopeRow, Identity, JournalRow
from gridpost.pipeline.gold.sla import ResponseAgreement
from gridpost.wire.envelope import Fragment, encode

BUS = Identity("BUS1", "9f6f0d3e-6a0c-4a7e-8a55-0f2d4e6b1c77")
NINE = datetime(2026, 3, 28, 9, tzinfo=UTC)
AGREED = (
    ResponseAgreement("queries", 90.0, 0.2, verb="get"),
    ResponseAgreement("all", 100.0, 60.0),
    ResponseAgreement("hardly any in an hour", 1.0, 3_600.0),
)
METER = "urn:example:meter"


def readings(number: int) -> bytes:
    """An envelope with a payload, as an application would send it."""
    payload = Fragment.parse(
        f'<m:MeterReadings xmlns:m="{METER}"><m:MeterReading unit="kWh">'
        f"<m:Meter><m:mRID>M{number}</m:mRID></m:Meter>"
        f"<m:Readings><m:value>{number}.5</m:value></m:Readings>"
        f"<m:Readings><m:value>{number}.75</m:value></m:Readings>"
        "</m:MeterReading></m:MeterReadings>"
    )
    header = Header(Verb.CREATE, "MeterReadings", message_id=f"q{number}", source="MDM")
    return encode(RequestMessage(header, payload=Payload((payload,))))


def envelope_rows(seed: int = 3) -> list[JournalRow]:
    draw = random.Random(seed)
    rows: list[JournalRow] = []
    for number in range(60):
        verb, noun = ("get", "Meters") if number % 3 else ("create", "MeterReadings")
        at = NINE + timedelta(minutes=2 * number)
        took = draw.choice([20, 80, 150, 199, 200, 201, 450])
        # One of each verb is never answered.
        silent = number in (6, 7)
        body = readings(number) if verb == "create" else b""
        if number == 9:
            body = b"<broken"
        rows.append(
            EnvelopeRow(at, "in", "request", verb, noun, "TEST", "MDM", f"q{number}", f"q{number}",
                        900 + number, "test.requests", "" if silent else "OK", "",
                        -1 if silent else took, 200, body or None)
        )  # fmt: skip
        if not silent:
            rows.append(
                EnvelopeRow(at, "out", "response", "reply", noun, "TEST", "BUS1", f"r{number}",
                            f"q{number}", 500, "test.replies", "OK", "0.0 2.4")
            )  # fmt: skip
    rows.append(
        EnvelopeRow(NINE, "out", "event", "created", "MeterReadings", "TEST", "BUS1", "e1", "",
                    300, "test.events")
    )  # fmt: skip
    return rows
