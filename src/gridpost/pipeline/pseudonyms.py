"""Names of people: from bronze on only their keyed hash, in columns and in rows that are kept as text."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from gridpost.core.journal import AdministrationRow, AllocationRow

# By kind of journal row.
USERS: dict[str, tuple[str, ...]] = {
    AdministrationRow.KIND: ("actor",),
    AllocationRow.KIND: ("user",),
}


def hidden(rows: DataFrame, key: bytes) -> DataFrame:
    """Rows of segments, naming nobody."""
    frame = rows
    for kind, names in USERS.items():
        for name in names:
            value = F.col(kind)[name]
            told = F.when(value != "", pseudonym(value, key)).otherwise(value)
            frame = frame.withColumns(
                {
                    kind: F.when(F.col(kind).isNotNull(), F.col(kind).withField(name, told)),
                    "payload": _hidden_in_text(kind, name, key),
                }
            )
    return frame


def _hidden_in_text(kind: str, name: str, key: bytes) -> Column:
    """A row of a newer version is text, and waits in quarantine: it names nobody there either."""
    text = F.col("payload")
    value = F.get_json_object(text, f"$.{name}")
    told = F.concat(F.lit(f'"{name}":"'), pseudonym(value, key), F.lit('"'))
    # Not where it stands inside of another text.
    pattern = rf'(?<!\\)"{name}"\s*:\s*"(?:[^"\\]|\\.)*"'
    concerned = (F.col("kind") == kind) & text.isNotNull() & (value != "")
    return F.when(concerned, F.regexp_replace(text, F.lit(pattern), told)).otherwise(text)


def hidden_later(kind: str, name: str, value: Column, key: bytes) -> Column:
    """Of a row that was text: nobody may have known, when it landed, that its kind names people."""
    if name not in USERS.get(kind, ()):
        return value
    raw = (value != "") & ~value.rlike("^[0-9a-f]{32}$")
    return F.when(raw, pseudonym(value, key)).otherwise(value)


def pseudonym(value: Column, key: bytes) -> Column:
    """HMAC-SHA-256 (RFC 2104) in the words of SQL, so that it runs where the rows are."""
    block = key.ljust(64, b"\0")
    inner = F.lit(bytes(b ^ 0x36 for b in block))
    outer = F.lit(bytes(b ^ 0x5C for b in block))
    first = F.unhex(F.sha2(F.concat(inner, value.cast("binary")), 256))
    return F.substring(F.sha2(F.concat(outer, first), 256), 1, 32)
