"""After an erasure no octet of the document is left: every file of the lake is searched for it."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import pyarrow as pa
import pytest
from pyarrow import parquet

from gridpost.bench._documents import document
from gridpost.bench._journals import Journals, generate
from gridpost.core.journal import EnvelopeRow, Identity, MessageRow
from gridpost.core.segment import SegmentName
from gridpost.pipeline.build import BuildSettings
from gridpost.pipeline.files import Place, arguments
from gridpost.pipeline.lake import DELTA, PARQUET, Lake
from gridpost.stores import journal_rows
from gridpost.stores.segments.columns import to_table
from gridpost.stores.segments.landing import Landing

from .bus_journal import BUS, envelope_rows, readings
from .conftest import SPRING, pipeline_at
from .places import full_run
from .test_faults import everything, keys

pytestmark = pytest.mark.timeout(900)
NEWER = Identity("E9", "00000000-0000-4000-8000-000000000009")
METER = 987654321
ENVELOPE = f"q{METER}"
OTHER = f"{ENVELOPE}0"
"""An id that begins like one that goes."""


class Documents:
    """Each message holds a market document that says its number."""

    def __init__(self) -> None:
        self.number = 0

    def __call__(self, *_: object) -> bytes:
        self.number += 1
        return document(start=SPRING, hours=23, mrid=f"SECRET-DOCUMENT-{self.number:03d}")


def described(message: MessageRow) -> str:
    return f"written by the author of {message.message_id}"


@pytest.fixture(scope="module")
def journals() -> Journals:
    found = generate(21, 12, days=1, documents=Documents())
    for rows in found.rows.values():
        rows[:] = [
            replace(row, sender_description=described(row)) if isinstance(row, MessageRow) else row
            for row in rows
        ]
    like = next(r for r in envelope_rows() if isinstance(r, EnvelopeRow) and r.content)
    found.rows[BUS] = [
        replace(like, message_id=ENVELOPE, content=readings(METER)),
        *envelope_rows()[:6],
    ]
    return found


def searched(lake: Lake, needles: list[bytes]) -> set[str]:
    """Folders with a file that holds one of them, also under the compression of Parquet."""
    found = set()
    for file in lake.root.rglob("*"):
        data = file.read_bytes()
        if data[-4:] == b"PAR1":
            data = uncompressed(file)
        if any(needle in data for needle in needles):
            parts = file.below(lake.root).split("/")
            found.add("/".join(parts[:3]) if parts[0] in ("tables", "restricted") else parts[0])
    return found


def uncompressed(file: Place) -> bytes:
    table = parquet.read_table(file.path, **arguments(file))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    return sink.getvalue().to_pybytes()


def land_rows_of_a_newer_version(lake: Lake, rows: list[MessageRow | EnvelopeRow]) -> None:
    """They are text here, and wait in quarantine."""
    stored = [journal_rows.write(row) for row in rows]
    newer = [(number, one.at, one.kind, 9, one.payload) for number, one in enumerate(stored, 1)]
    name = SegmentName(*NEWER_NAME, 1, len(newer))
    Landing(lake.landing).put(name, to_table(NEWER, newer), 0)


NEWER_NAME = (NEWER.component, NEWER.instance)


def spoil(lake: Lake, journals: Journals, sender: str) -> None:
    """Copies of the journal that admission puts aside: one as it should be but for its manifest, one torn."""
    for rows, octets in ((7, None), (9, -200)):
        for manifest in journals.land(
            lake.landing, segment_rows=rows, wanted=lambda n: n.component == sender
        ):
            file = lake.landing / manifest.name.file
            if octets is None:
                wrong = replace(manifest, sha256="0" * 64)
                (lake.landing / manifest.name.manifest).write(wrong.encode())
            else:
                file.write(file.read_bytes()[:octets])


FORMATS = [DELTA, *([PARQUET] if full_run() else [])]


@pytest.mark.parametrize("format", FORMATS)
def test_after_an_erasure_no_file_of_the_lake_holds_the_document(tmp_path, spark, journals, format):
    pipeline = pipeline_at(tmp_path / "lake", spark, format)
    lake = pipeline.lake
    message = next(
        row
        for rows in journals.rows.values()
        for row in rows
        if isinstance(row, MessageRow)
        and row.content
        and journals.answers[row.message_id].story == "normal"
    )
    envelope = next(r for r in journals.rows[BUS] if getattr(r, "message_id", "") == ENVELOPE)
    assert message.content is not None
    assert isinstance(envelope, EnvelopeRow)
    secret = message.content.partition(b"<mRID>")[2].partition(b"<")[0]
    needles = [
        secret,
        described(message).encode(),
        f"M{METER}".encode(),
        base64.b64encode(message.content),
        base64.b64encode(readings(METER)),
    ]
    journals.land(lake.landing, segment_rows=60)
    spoil(lake, journals, message.sender_code)
    land_rows_of_a_newer_version(
        lake, [message, envelope, replace(envelope, message_id=OTHER, content=readings(1))]
    )
    pipeline.ingest()
    pipeline.build(BuildSettings(roots=journals.roots))
    # What processes that died leave behind, and what landed and was not read yet.
    file = next(f for f in lake.archive.rglob(f"segment.{message.sender_code}.*.parquet"))
    (lake.archive / f".{file.name}.1.dead").write(file.read_bytes())
    (lake.root / "restricted/content/begun/data/0/part-0.parquet").write(file.read_bytes())
    journals.land(
        lake.landing, segment_rows=11, wanted=lambda n: n.component == message.sender_code
    )
    content = {"documents", "market_parsed", "market_documents", "market_points", "begun"}
    content.add("market_series")
    content |= {"envelope_documents", "envelopes_read", "envelope_payloads", "envelope_values"}
    assert searched(lake, needles) == {
        "landing",
        "archive",
        "quarantine",
        "restricted/bronze/journal",
        "restricted/bronze/quarantine",
        "tables/silver/message_views",
        "tables/silver/proofs",
        *(f"restricted/content/{name}" for name in content),
    }
    before = keys(lake)

    done = pipeline.erase([message.message_id, ENVELOPE])
    assert done["erased"] == 2
    assert done["removed_files"] >= 2
    assert searched(lake, needles) == set()
    assert keys(lake) == before

    # A segment that comes later brings nothing back, and nothing of other messages went.
    journals.land(lake.landing, segment_rows=13)
    journals.land(lake.landing, segment_rows=60)
    aside = {line["reason"] for line in pipeline.ingest()["quarantined_segments"]}
    assert aside == {"a segment of this name was admitted already"}
    assert searched(lake, needles) == set()
    assert keys(lake) == everything(journals)
    texts = lake.table("bronze", "quarantine").read().to_pylist()
    assert [
        json.loads(r["payload"]).get("message_id")
        for r in sorted(texts, key=lambda r: r["sequence"])
    ] == [None, None, OTHER]
    kept = {r["message_id"] for r in lake.table("content", "market_documents").read().to_pylist()}
    assert kept
    assert message.message_id not in kept
    # The proof stays what it was.
    pipeline.verify(BuildSettings(roots=journals.roots))
    verdicts = {
        r["message_id"]: r["verdict"] for r in lake.table("gold", "proof_audit").read().to_pylist()
    }
    assert verdicts[message.message_id] == "proven"
