"""A point in time together with the text it was written in.

503 cl. 6.5.4 signs the text of `generated`, so a value that was read must remember its lexical
form: formatting it again could change bytes that a signature covers.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone

from gridpost.core.identifiers import clip
from gridpost.core.refusal import Refusal, Rule

_DATE_TIME = re.compile(
    r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)"
    r"T(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:\.(?P<fraction>\d{1,30}))?"
    r"(?P<zone>Z|[+-]\d\d:\d\d)?",
    re.ASCII,
)

# What `of` writes; read in a tenth of the time.
_OWN_FORM = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, order=True)
class Instant:
    """Ordered and compared by time; `text` is what goes on the wire and into the manifest."""

    at: datetime
    text: str = field(compare=False)

    @classmethod
    def of(cls, at: datetime) -> Instant:
        """Our own form: UTC, milliseconds, `Z` (the instant is cut to what the text can say)."""
        utc = at.astimezone(UTC)
        utc = utc.replace(microsecond=utc.microsecond // 1000 * 1000)
        return cls(utc, _text(utc))

    @classmethod
    def parse(cls, text: str) -> Instant:
        """An xsd:dateTime. Without an offset it is UTC, in which the standard has all times."""
        if _OWN_FORM.fullmatch(text):
            # ValueError: no such day or hour, or the end of a day.
            with suppress(ValueError):
                return cls(datetime.fromisoformat(text), text)
        return cls.parse_any_form(text)

    @classmethod
    def parse_any_form(cls, text: str) -> Instant:
        match = _DATE_TIME.fullmatch(text)
        if match is None:
            raise _not_a_date_time(text)
        part = match.groupdict()
        hour = int(part["hour"])
        # xsd:dateTime writes the end of a day as 24:00:00.
        end_of_day = hour == 24
        fraction = (part["fraction"] or "").ljust(6, "0")[:6]
        try:
            at = datetime(
                int(part["year"]),
                int(part["month"]),
                int(part["day"]),
                0 if end_of_day else hour,
                int(part["minute"]),
                int(part["second"]),
                int(fraction),
                tzinfo=_zone(part["zone"]),
            )
            if end_of_day:
                if at.minute or at.second or int(part["fraction"] or 0):
                    raise ValueError
                at += timedelta(days=1)
            return cls(at.astimezone(UTC), text)
        except (ValueError, OverflowError):
            raise _not_a_date_time(text) from None

    @classmethod
    def of_milliseconds(cls, milliseconds: int) -> Instant:
        """An AMQP timestamp: milliseconds since 1970-01-01T00:00Z."""
        try:
            at = _EPOCH + timedelta(milliseconds=milliseconds)
        except OverflowError:
            raise _not_a_date_time(str(milliseconds)) from None
        return cls(at, _text(at))

    @property
    def milliseconds(self) -> int:
        return (self.at - _EPOCH) // _MILLISECOND

    def __str__(self) -> str:
        return self.text


def _text(utc: datetime) -> str:
    return utc.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _zone(text: str | None) -> timezone:
    if text is None or text == "Z":
        return UTC
    hours, minutes = int(text[1:3]), int(text[4:6])
    if minutes > 59 or hours * 60 + minutes > 14 * 60:
        raise ValueError
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if text[0] == "-" else offset)


def _not_a_date_time(text: str) -> Refusal:
    return Refusal(
        Rule.BAD_DATE_TIME,
        f"'{clip(text)}' is not a date and time; write it like 2026-01-31T12:00:00.000Z",
    )
