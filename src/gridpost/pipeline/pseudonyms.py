"""Names of people: from bronze on only their keyed hash, in columns and in rows that are kept as text."""

from __future__ import annotations

import hashlib
import hmac
import json
import re

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from gridpost.core.journal import AdministrationRow, AllocationRow, SessionRow

# By kind of journal row.
USERS: dict[str, tuple[str, ...]] = {
    AdministrationRow.KIND: ("actor",),
    AllocationRow.KIND: ("user",),
    SessionRow.KIND: ("user",),
}


def hidden(rows: pa.Table, key: bytes) -> pa.Table:
    """Rows of segments, naming nobody."""
    found = rows
    for kind, names in USERS.items():
        if kind in rows.column_names and rows[kind].null_count < rows.num_rows:
            found = _replaced(found, kind, _hidden_in_columns(rows[kind], names, key))
    texts = found["payload"]
    if texts.null_count < found.num_rows:
        told = [
            text if text is None else hidden_in_text(text, USERS.get(kind, ()), key)
            for kind, text in zip(found["kind"].to_pylist(), texts.to_pylist(), strict=True)
        ]
        found = _replaced(found, "payload", pa.chunked_array([pa.array(told, pa.string())]))
    return found


def _replaced(rows: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), name, column)


def _hidden_in_columns(
    column: pa.ChunkedArray, names: tuple[str, ...], key: bytes
) -> pa.ChunkedArray:
    chunks = []
    for chunk in column.chunks:
        fields = list(chunk.type)
        children = [chunk.field(at) for at in range(len(fields))]
        for name in names:
            at = chunk.type.get_field_index(name)
            told = [name_of(value, key) if value else value for value in children[at].to_pylist()]
            children[at] = pa.array(told, pa.string())
        chunks.append(pa.StructArray.from_arrays(children, fields=fields, mask=chunk.is_null()))
    return pa.chunked_array(chunks, column.type)


def hidden_in_text(text: str, names: tuple[str, ...], key: bytes) -> str:
    """A row of a newer version is text, and waits in quarantine: it names nobody there either."""
    for name in names:
        try:
            value = json.loads(text).get(name)
        except (ValueError, AttributeError):
            return text
        if isinstance(value, str) and value:
            told = f'"{name}":"{name_of(value, key)}"'
            # Not where it stands inside of another text.
            text = re.sub(rf'(?<!\\)"{name}"\s*:\s*"(?:[^"\\]|\\.)*"', told, text)
    return text


def hidden_later(kind: str, name: str, value: Column, key: bytes) -> Column:
    """Of a row that was text: nobody may have known, when it landed, that its kind names people."""
    if name not in USERS.get(kind, ()):
        return value
    raw = (value != "") & ~value.rlike("^[0-9a-f]{32}$")
    return F.when(raw, pseudonym(value, key)).otherwise(value)


def name_of(value: str, key: bytes) -> str:
    return hmac.digest(key, value.encode(), hashlib.sha256).hex()[:32]


def pseudonym(value: Column, key: bytes) -> Column:
    """`name_of` in the words of SQL (RFC 2104), so that it runs where the rows are."""
    block = key.ljust(64, b"\0")
    inner = F.lit(bytes(b ^ 0x36 for b in block))
    outer = F.lit(bytes(b ^ 0x5C for b in block))
    first = F.unhex(F.sha2(F.concat(inner, value.cast("binary")), 256))
    return F.substring(F.sha2(F.concat(outer, first), 256), 1, 32)
