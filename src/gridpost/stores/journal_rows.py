"""Journal rows as text: how every kind of row is written into a store and read back, typed.

A payload is a JSON object of the row's fields, bytes as base64 and times as microseconds. A field
that the payload lacks takes its default; a row that this version does not know stays text.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime
from enum import StrEnum
from json.encoder import encode_basestring_ascii as _text
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from gridpost.core.journal import KINDS, JournalRow, UnknownRow
from gridpost.stores.values import from_microseconds, read_json, to_microseconds


class Stored(NamedTuple):
    """A row as the columns of any database: `at` stands apart, because retention asks for it."""

    at: int
    kind: str
    schema_version: int
    payload: str


class _Field(NamedTuple):
    name: str
    write: Callable[[Any], Any] | None
    read: Callable[[Any], Any] | None


def write(row: JournalRow) -> Stored:
    writer = _WRITERS.get(type(row))
    if writer is None:
        raise ValueError(f"{type(row).__name__} is not a kind of journal row")
    return Stored(to_microseconds(row.at), row.KIND, row.SCHEMA_VERSION, writer(row))


def read(stored: Stored) -> JournalRow:
    at = from_microseconds(stored.at)
    kind = KINDS.get(stored.kind)
    # A newer version may hold fields that would be lost here.
    if kind is None or stored.schema_version > kind.SCHEMA_VERSION:
        return UnknownRow(at, stored.kind, stored.schema_version, stored.payload)
    payload = read_json(stored.payload)
    values: dict[str, Any] = {"at": at}
    for name, _, convert in _FIELDS[kind]:
        if name in payload:
            value = payload[name]
            values[name] = value if convert is None or value is None else convert(value)
    return kind(**values)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _converters(annotation: Any) -> tuple[Callable[[Any], Any] | None, Callable[[Any], Any] | None]:
    """How values of a type are written and read; None: JSON has them already."""
    if get_origin(annotation) is UnionType:
        (annotation,) = (a for a in get_args(annotation) if a is not NoneType)
    if annotation is datetime:
        return to_microseconds, from_microseconds
    if annotation is bytes:
        return _base64, base64.b64decode
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return None, annotation
    if annotation in (str, int, bool):
        return None, None
    raise TypeError(f"journal rows hold no {annotation}")


def _fields_of(kind: type[JournalRow]) -> tuple[_Field, ...]:
    hints = get_type_hints(kind)
    return tuple(
        _Field(field.name, *_converters(hints[field.name]))
        for field in fields(kind)
        if field.name != "at"
    )


def _writer_of(kind: type[JournalRow]) -> Callable[[JournalRow], str]:
    """The text that `write_json` would give, put together field by field: a broker writes many."""
    known = _FIELDS[kind]
    hints = get_type_hints(kind)
    get = attrgetter(*(field.name for field in known))
    writers = [_text_writer(hints[field.name], field.write) for field in known]
    template = "{" + ",".join(f"{_text(field.name)}:%s" for field in known) + "}"

    def write_fields(row: JournalRow) -> str:
        return template % tuple([write(value) for write, value in zip(writers, get(row))])  # noqa: B905

    return write_fields


def _text_writer(annotation: Any, convert: Callable[[Any], Any] | None) -> Callable[[Any], str]:
    """How a value of a field's type stands in JSON; most are texts, or enumerations of texts."""
    if get_origin(annotation) is UnionType:
        (annotation,) = (a for a in get_args(annotation) if a is not NoneType)
        write = _text_writer(annotation, convert)
        return lambda value: "null" if value is None else write(value)
    if annotation is datetime:
        return lambda at: str(to_microseconds(at))
    if annotation is bytes:
        return lambda data: f'"{_base64(data)}"'
    if annotation is bool:
        return lambda value: "true" if value else "false"
    return str if annotation is int else _text


_FIELDS: Mapping[type[JournalRow], tuple[_Field, ...]] = {
    kind: _fields_of(kind) for kind in KINDS.values()
}
_WRITERS = {kind: _writer_of(kind) for kind in KINDS.values()}
