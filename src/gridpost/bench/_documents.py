"""Market documents to measure and test with: the structure of IEC 62325-451, the numbers made up."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

NAMESPACE = "urn:iec62325.351:tc57wg16:451-3:publicationdocument:7:3"
_STEPS = {"PT60M": timedelta(hours=1), "PT15M": timedelta(minutes=15), "P1D": timedelta(hours=23)}


def document(
    start: datetime,
    hours: int,
    *,
    mrid: str = "DOC",
    revision: str = "1",
    curve: str = "A01",
    resolution: str = "PT60M",
    positions: Sequence[int] | None = None,
    quantity: str | None = None,
    unit: str = "MAW",
    status: str | None = None,
    series: int = 1,
    cancelled: Collection[int] = (),
    withdrawn: Collection[int] = (),
    seed: int = 0,
) -> bytes:
    """A Publication_MarketDocument of `series` equal series; some end what was said of them before."""
    draw = random.Random(seed)
    end = start + timedelta(hours=hours)
    count = max(1, round((end - start) / _STEPS.get(resolution, timedelta(hours=1))))
    chosen = range(1, count + 1) if positions is None else positions
    interval = f"<start>{start:%Y-%m-%dT%H:%MZ}</start><end>{end:%Y-%m-%dT%H:%MZ}</end>"
    doc_status = "" if status is None else f"<docStatus><value>{status}</value></docStatus>"
    parts = [
        f'<Publication_MarketDocument xmlns="{NAMESPACE}"><mRID>{mrid}</mRID>'
        f"<revisionNumber>{revision}</revisionNumber><type>A44</type>{doc_status}"
        '<sender_MarketParticipant.mRID codingScheme="A01">10X1001A1001A450'
        "</sender_MarketParticipant.mRID>"
        '<receiver_MarketParticipant.mRID codingScheme="A01">10X1001A1001A39W'
        "</receiver_MarketParticipant.mRID>"
        f"<createdDateTime>{start:%Y-%m-%dT%H:%M:%SZ}</createdDateTime>"
        f"<period.timeInterval>{interval}</period.timeInterval>"
    ]
    for number in range(1, series + 1):
        mark = "<cancelledTS>A01</cancelledTS>" if number in cancelled else ""
        if number in withdrawn:
            mark += "<status><value>A13</value></status>"
        parts.append(
            f"<TimeSeries><mRID>{number}</mRID><businessType>A62</businessType>"
            '<in_Domain.mRID codingScheme="A01">10YBE----------2</in_Domain.mRID>'
            '<out_Domain.mRID codingScheme="A01">10YFR-RTE------C</out_Domain.mRID>'
            f"<currency_Unit.name>EUR</currency_Unit.name>"
            f"<quantity_Measure_Unit.name>{unit}</quantity_Measure_Unit.name>"
            f"{mark}<curveType>{curve}</curveType><Period><timeInterval>{interval}</timeInterval>"
            f"<resolution>{resolution}</resolution>"
        )
        for position in chosen:
            amount = quantity or f"{draw.randrange(100_000) / 100:.2f}"
            parts.append(
                f"<Point><position>{position}</position><quantity>{amount}</quantity>"
                f"<price.amount>{draw.randrange(20_000) / 100:.2f}</price.amount></Point>"
            )
        parts.append("</Period></TimeSeries>")
    parts.append("</Publication_MarketDocument>")
    return "".join(parts).encode()


class SeriesOfMany:
    """Revisions of some documents about the same series, some of which they cancel or withdraw.

    Every other message has none. Two documents are about one day, one about the next.
    """

    def __init__(self, start: datetime, series: int = 3) -> None:
        self._start = start
        self._series = series
        self._number = 0

    def __call__(self, draw: random.Random, message_type: str, at: datetime) -> bytes | None:
        self._number += 1
        if self._number % 2:
            return None
        which = draw.randrange(3)
        marks = [draw.random() for _ in range(self._series)]
        return document(
            self._start + timedelta(days=which // 2),
            1,
            mrid=f"S{which}",
            revision=str(draw.randrange(1, 6)),
            status="A09" if draw.random() < 0.1 else None,
            series=self._series,
            cancelled=[n for n, mark in enumerate(marks, 1) if mark < 0.15],
            withdrawn=[n for n, mark in enumerate(marks, 1) if mark > 0.9],
            seed=self._number,
        )
