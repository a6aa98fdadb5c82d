"""Segments of a journal: what one is called, what its manifest says, and when the two agree.

A segment holds every row of one component instance from `first` to `last`, and no other.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from gridpost.core.journal import Identity

FORM = 1
SUFFIX = ".parquet"
MANIFEST_SUFFIX = ".json"
_NAME = re.compile(
    r"segment\.(?P<component>[A-Za-z0-9@-]{1,255})\.(?P<instance>[0-9a-f-]{36})"
    r"\.(?P<first>\d{16})-(?P<last>\d{16})",
    re.ASCII,
)


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """Whose rows, and which: the order of names is the order of rows."""

    component: str
    instance: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"segment.{self.component}.{self.instance}.{self.first:016d}-{self.last:016d}"

    @property
    def identity(self) -> Identity:
        return Identity(self.component, self.instance)

    @property
    def rows(self) -> int:
        return self.last - self.first + 1

    @property
    def file(self) -> str:
        return f"{self}{SUFFIX}"

    @property
    def manifest(self) -> str:
        return f"{self}{MANIFEST_SUFFIX}"

    @classmethod
    def parse(cls, name: str) -> SegmentName | None:
        """From a file name with or without its suffix; None: this is no segment."""
        match = _NAME.fullmatch(name.removesuffix(SUFFIX).removesuffix(MANIFEST_SUFFIX))
        if match is None:
            return None
        found = cls(match["component"], match["instance"], int(match["first"]), int(match["last"]))
        return found if 1 <= found.first <= found.last else None


class SegmentFolder(Protocol):
    """Where segments land, in whichever file system."""

    def mkdir(self) -> object: ...

    def names(self, pattern: str) -> list[str]: ...

    def put(self, name: str, data: memoryview) -> None:
        """All of it safe under its name, or nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Manifest:
    """Written after its segment: what is not as it says was torn or changed on the way."""

    name: SegmentName
    rows: int
    octets: int
    sha256: str
    exported_at: int
    """Microseconds since 1970."""

    def encode(self) -> bytes:
        return json.dumps({"form": FORM, **asdict(self)}, indent=1).encode()

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """Raises ValueError with a reason for a person."""
        try:
            fields: dict[str, Any] = json.loads(data)
            if fields.pop("form") != FORM:
                raise ValueError("the manifest has a form that this version does not know")
            name = SegmentName(**fields.pop("name"))
            return cls(name, **fields)
        except (TypeError, KeyError, AttributeError, UnicodeDecodeError) as error:
            raise ValueError(f"the manifest cannot be read: {error}") from None
