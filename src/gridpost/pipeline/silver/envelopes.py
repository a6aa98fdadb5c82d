"""Envelopes of a bus (61968-100), and what they carried where its owner has that journalled.

Payloads of all nouns have one form here: an element for each row, and a row for each value in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from lxml import etree
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from gridpost.core.envelope import FaultMessage
from gridpost.core.journal import EnvelopeRow
from gridpost.core.refusal import Refusal
from gridpost.pipeline.silver.facts import LINEAGE
from gridpost.wire.envelope import Fragment, content, decode_unchecked
from gridpost.wire.xml_shape import in_own_thread

MAX_VALUES = 100_000
"""Of one envelope: more are a problem of the envelope, not of the lake."""
_VALUE = pa.struct([("path", pa.string()), ("number", pa.int64()), ("value", pa.string())])
_PAYLOAD = pa.struct(
    [
        ("element", pa.string()),
        ("namespace", pa.string()),
        ("mrid", pa.string()),
        ("xml", pa.string()),
        ("values", pa.list_(_VALUE)),
    ]
)
_READ = pa.schema(
    [
        ("day", pa.date32()),
        ("component", pa.string()),
        ("instance", pa.string()),
        ("sequence", pa.int64()),
        ("segment", pa.string()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("message_id", pa.string()),
        ("verb", pa.string()),
        ("noun", pa.string()),
        ("format", pa.string()),
        ("problem", pa.string()),
        ("payloads", pa.list_(_PAYLOAD)),
    ]
)
_KEPT = _READ.names[:9]
# The same for Spark.
SPARK_READ = (
    "day date, component string, instance string, sequence bigint, segment string, "
    "time timestamp, message_id string, verb string, noun string, format string, problem string, "
    "payloads array<struct<element string, namespace string, mrid string, xml string, "
    "values array<struct<path string, number bigint, value string>>>>"
)


def envelopes(bronze: DataFrame) -> DataFrame:
    """One row for each envelope that came or went; what was not measured is null."""
    e = EnvelopeRow.KIND
    return bronze.where(F.col("kind") == e).select(
        *LINEAGE,
        "time",
        f"{e}.direction",
        f"{e}.message_kind",
        f"{e}.verb",
        f"{e}.noun",
        f"{e}.context",
        f"{e}.source",
        f"{e}.destination",
        f"{e}.message_id",
        f"{e}.correlation_id",
        f"{e}.size",
        F.nullif(f"{e}.result", F.lit("")).alias("result"),
        F.when(F.col(f"{e}.codes") != "", F.split(f"{e}.codes", " ")).alias("codes"),
        F.when(F.col(f"{e}.milliseconds") >= 0, F.col(f"{e}.milliseconds")).alias("milliseconds"),
        F.when(F.col(f"{e}.sla_milliseconds") >= 0, F.col(f"{e}.sla_milliseconds")).alias(
            "sla_milliseconds"
        ),
        F.col(f"{e}.content").isNotNull().alias("has_content"),
        F.to_date("time").alias("day"),
    )


def documents(bronze: DataFrame) -> DataFrame:
    """Envelopes as they were, where the owner of a bus has them journalled."""
    e = EnvelopeRow.KIND
    found = bronze.where((F.col("kind") == e) & F.col(f"{e}.content").isNotNull())
    return found.select(
        *LINEAGE,
        "time",
        f"{e}.message_id",
        f"{e}.verb",
        f"{e}.noun",
        f"{e}.content",
        F.to_date("time").alias("day"),
    )


def read_payloads(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For mapInArrow: rows of `documents` in, `SPARK_READ` out."""
    for batch in batches:
        yield in_own_thread(partial(_read_batch, batch))


def _read_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    rows = [
        {**{name: row[name] for name in _KEPT}, **read_payload(row["content"])}
        for row in batch.to_pylist()
    ]
    return pa.RecordBatch.from_pylist(rows, schema=_READ)


def read_payload(envelope: bytes) -> dict[str, Any]:
    """Elements of the payload with their values, or the problem with it."""
    try:
        message = decode_unchecked(envelope)
        payload = None if isinstance(message, FaultMessage) else message.payload
        if payload is None:
            return {"format": None, "problem": None, "payloads": []}
        # Other formats are files: what is in them is not for this table.
        if payload.compressed is not None and (payload.format or "XML") not in ("XML", "RDF"):
            return {"format": payload.format, "problem": None, "payloads": []}
        found = [_element(part) for part in content(payload)]
        if sum(len(one["values"]) for one in found) > MAX_VALUES:
            raise ValueError(f"more than {MAX_VALUES:,} values")
        return {"format": payload.format, "problem": None, "payloads": found}
    except (Refusal, ValueError) as error:
        reason = error.message if isinstance(error, Refusal) else str(error)
        return {"format": None, "problem": reason, "payloads": []}


def _element(part: Fragment) -> dict[str, Any]:
    values: list[dict[str, Any]] = []
    _values(part.element, part.local_name, values)
    mrid = next((v["value"] for v in values if v["path"].endswith("/mRID")), None)
    return {
        "element": part.local_name,
        "namespace": part.namespace,
        "mrid": mrid,
        "xml": part.text,
        "values": values,
    }


def _values(element: Any, path: str, found: list[dict[str, Any]]) -> None:
    """In the order of the document, attributes first; repeated elements differ by their number."""

    def told(where: str, value: str) -> None:
        found.append({"path": where, "number": len(found) + 1, "value": value})

    for name, value in element.attrib.items():
        told(f"{path}/@{etree.QName(name).localname}", value)
    children = [child for child in element if isinstance(child.tag, str)]
    if not children and element.text and element.text.strip():
        told(path, element.text.strip())
    for child in children:
        _values(child, f"{path}/{etree.QName(child).localname}", found)


def payloads(read: DataFrame) -> DataFrame:
    return (
        read.where(F.col("problem").isNull())
        .select("*", F.posexplode("payloads").alias("place", "payload"))
        .select(
            *_KEPT,
            "format",
            F.col("place").cast("long").alias("place"),
            "payload.element",
            "payload.namespace",
            "payload.mrid",
            "payload.xml",
        )
    )


def values(read: DataFrame) -> DataFrame:
    return (
        read.where(F.col("problem").isNull())
        .select(*_KEPT, F.posexplode("payloads").alias("place", "payload"))
        .select(
            *_KEPT,
            F.col("place").cast("long").alias("place"),
            "payload.element",
            F.explode("payload.values").alias("one"),
        )
        .select(*_KEPT, "place", "element", "one.path", "one.number", "one.value")
    )


def quarantine(read: DataFrame) -> DataFrame:
    return read.where(F.col("problem").isNotNull()).select(*_KEPT, "problem")
