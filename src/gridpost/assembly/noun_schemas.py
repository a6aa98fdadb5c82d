"""The schemas of a noun as they lie in a folder: its own, its Get profile, and what they include."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.envelope.wsdl import beside


@dataclass(frozen=True, slots=True)
class NounSchemas:
    schema: bytes
    profile: bytes | None = None
    more: dict[str, bytes] = field(default_factory=dict)
    """By the name of the file."""


def read_noun_schemas(file: Path) -> NounSchemas:
    """`file` is NOUN.xsd; GetNOUN.xsd beside it is the profile of its queries, if it is there."""
    schema, profile = _read(file), None
    other = file.with_name(f"Get{file.name}")
    if other.exists():
        profile = _read(other)
    more: dict[str, bytes] = {}
    waiting = beside(schema) | (beside(profile) if profile is not None else set())
    while waiting:
        name = waiting.pop()
        if name not in more and name not in (file.name, other.name):
            more[name] = _read(file.with_name(name))
            waiting |= beside(more[name])
    return NounSchemas(schema, profile, more)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise Refusal(Rule.USAGE, f"{file} cannot be read: {error.strerror}") from None
