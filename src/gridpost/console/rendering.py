"""How values look on pages: times in UTC, sizes, durations, and the assets every page refers to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

NOTHING = "\u2013"
_HERE = Path(__file__).parent
_MEDIA = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class Asset:
    body: bytes
    media_type: str
    version: str


def assets() -> dict[str, Asset]:
    found = {}
    for file in sorted((_HERE / "static").iterdir()):
        body = file.read_bytes()
        version = hashlib.sha256(body).hexdigest()[:12]
        found[file.name] = Asset(body, _MEDIA[file.suffix], version)
    return found


def environment(known: dict[str, Asset], now: Callable[[], datetime]) -> Environment:
    made = Environment(
        loader=PackageLoader("gridpost.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        utc=utc,
        size=size,
        age=lambda at: age(at, now()),
        lasting=lasting,
        count=count,
        sentence=sentence,
        chart=_chart,
    )
    made.globals["asset"] = lambda name: f"/static/{name}?v={known[name].version}"
    made.tests["past"] = lambda at: at is not None and at <= now()
    made.globals["soon"] = lambda at, days=30: now() <= at <= now() + timedelta(days=days)
    return made


def utc(at: datetime | None, none: str = "never") -> Markup:
    """The script adds the local time as a title."""
    if at is None:
        return Markup("<span class=faint>{}</span>").format(none)
    at = at.astimezone(UTC)
    text, seconds = at.isoformat(timespec="seconds").removesuffix("+00:00"), at.strftime("%H:%M:%S")
    return Markup('<time datetime="{}Z">{} {} <abbr>UTC</abbr></time>').format(
        text, at.strftime("%Y-%m-%d"), seconds
    )


def size(octets: int) -> str:
    value = float(octets)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{octets} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError


def lasting(seconds: float | timedelta | None) -> str:
    if seconds is None:
        return NOTHING
    value = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 60:
        return f"{value:.1f} s"
    if value < 3600:
        return f"{value // 60:.0f} min {value % 60:.0f} s"
    if value < 86400:
        return f"{value // 3600:.0f} h {value % 3600 // 60:.0f} min"
    return f"{value // 86400:.0f} d {value % 86400 // 3600:.0f} h"


def age(at: datetime | None, now: datetime) -> str:
    return NOTHING if at is None else lasting(max(timedelta(0), now - at))


def count(number: int) -> str:
    return f"{number:,}".replace(",", "\u202f")


def sentence(text: str) -> str:
    """Unlike Jinja's `capitalize` it leaves codes and message-types as they are."""
    return text[:1].upper() + text[1:]


def _chart(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
