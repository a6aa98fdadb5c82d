"""Segments of which erased messages are taken out: the same rows and numbers, emptied. No Spark here.

Landing, admitted and archived segments and those in quarantine are written anew under their names.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa
from pyarrow import compute, parquet

from gridpost.core.journal import (
    EnvelopeRow,
    MessageRow,
    RefusalRow,
    TrackingRow,
    TransferRow,
)
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.segment import Manifest
from gridpost.pipeline.files import Place, arguments
from gridpost.pipeline.lake import GRACE_SECONDS, Lake

LAYER, TABLE = "silver", "tombstones"
CONTENT = "content"
# What goes, by kind of journal row.
ERASED = {
    MessageRow.KIND: (
        CONTENT,
        "ba_message_id",
        "sender_application",
        "conversation_id",
        "sender_description",
    ),
    TrackingRow.KIND: ("detail",),
    TransferRow.KIND: ("detail",),
    RefusalRow.KIND: ("details",),
    EnvelopeRow.KIND: (CONTENT,),
}
GONE = '{"erased":true}'
"""In place of a row that was kept as text."""
_SEGMENTS = "segment.*.parquet"


def erased_ids(lake: Lake) -> list[str]:
    rows = lake.table(LAYER, TABLE).read(["message_id"])
    return [] if rows is None else sorted(set(rows["message_id"].to_pylist()))


def quoted(message_id: str) -> str:
    """As it stands in a row that is text: another id may begin like it."""
    return json.dumps(message_id)


@dataclass(slots=True)
class Emptied:
    segments: int = 0
    removed: int = 0
    """Files that nobody could read, so that nobody can say what was in them."""


def empty_arrived(lake: Lake) -> int:
    """What came since an erasure, before the stream reads it: it must not come back."""
    ids = erased_ids(lake)
    if not ids:
        return 0
    done = sum(_empty(file, ids) for file in lake.admitted.rglob(_SEGMENTS))
    for file in lake.quarantine.rglob(_SEGMENTS):
        # What cannot be read goes with the next erasure.
        with suppress(Refusal):
            done += _empty(file, ids, manifest=False)
    return done


def empty_segments(lake: Lake, landings: Iterable[Place], at: datetime) -> Emptied:
    """In every folder of segments; who calls has admitted what landed, and nobody else writes."""
    ids = erased_ids(lake)
    done = Emptied()
    for folder in (lake.admitted, lake.archive):
        done.segments += sum(_empty(file, ids) for file in folder.rglob(_SEGMENTS))
    for file in lake.quarantine.rglob(_SEGMENTS):
        try:
            done.segments += _empty(file, ids, manifest=False)
        except Refusal:
            _remove(lake, file, at)
            done.removed += 1
    for folder in (lake.admitted, lake.archive, lake.quarantine):
        done.removed += _tidy(folder, 0)
    for folder in (lake.landing, *landings):
        # A younger one is on its way; when it is admitted, it is emptied.
        old = [file for file in folder.glob(_SEGMENTS) if _age(file) > GRACE_SECONDS]
        done.segments += sum(_empty(file, ids) for file in old)
        done.removed += _tidy(folder, GRACE_SECONDS)
    return done


def _tidy(folder: Place, older: float) -> int:
    """Copies that a process left unfinished when it died."""
    left = [file for file in folder.rglob(".*") if older <= 0 or _age(file) > older]
    for file in left:
        file.unlink()
    return len(left)


def _age(file: Place) -> float:
    return time.time() - file.modified()


def _remove(lake: Lake, file: Place, at: datetime) -> None:
    note = lake.quarantine / f"{file.name}.reason"
    told = json.loads(note.read_bytes()) if note.is_file() else {"file": file.name}
    note.write(json.dumps({**told, "removed_by_erasure_at": at.isoformat()}).encode())
    file.unlink()


def _empty(file: Place, ids: list[str], *, manifest: bool = True) -> int:
    """The manifest becomes that of the new file, but for one that was wrong before."""
    try:
        table = parquet.read_table(file.path, **arguments(file))
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise Refusal(Rule.USAGE, f"{file} cannot be read: {reason}") from None
    if not _names_one(table, ids):
        return 0
    gone, texts = set(ids), [quoted(one) for one in ids]
    rows = table.to_pylist()
    for row in rows:
        for kind, names in ERASED.items():
            told = row.get(kind)
            if told is not None and told.get("message_id") in gone:
                told.update({n: None if n == CONTENT else "" for n in names if n in told})
        if any(text in (row.get("payload") or "") for text in texts):
            row["payload"] = GONE
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.Table.from_pylist(rows, schema=table.schema), sink, compression="zstd")
    data = sink.getvalue().to_pybytes()
    file.write(data)
    written = file.with_suffix(".json")
    if manifest and written.is_file():
        digest = hashlib.sha256(data).hexdigest()
        known = Manifest.decode(written.read_bytes())
        written.write(replace(known, octets=len(data), sha256=digest).encode())
    return 1


def _names_one(table: pa.Table, ids: list[str]) -> bool:
    """Without building an object for each row: most segments name none."""
    wanted = pa.array(ids, pa.string())
    for kind in ERASED:
        if kind in table.column_names and "message_id" in _fields(table.schema.field(kind).type):
            found = compute.is_in(compute.struct_field(table[kind], "message_id"), wanted)
            if compute.any(found).as_py():
                return True
    if "payload" not in table.column_names:
        return False
    texts = [text for text in table["payload"].drop_null().to_pylist() if text != GONE]
    return any(quoted(one) in text for text in texts for one in ids)


def _fields(type_: pa.DataType) -> set[str]:
    return {field.name for field in type_} if pa.types.is_struct(type_) else set()
