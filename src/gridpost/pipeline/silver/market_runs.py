"""Points that machines write, one like the other, taken out of a document before XML is read.

What is left is read with all the care of `wire.xml`. Only points that are plain to the octet are taken,
and only where nothing can hide them (no comment, no CDATA, no processing instruction): the outcome is what
reading all of it as XML gives. Any other document is read as a whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

MAX_DOCUMENT = 512 * 1024
"""No document of this size has more elements than `wire.xml` allows, which counts them without the points."""
_BLANK = rb"[ \t\r\n]*"
_NUMBER = rb"[+-]?\d{1,29}(?:\.\d{1,8})?"
# As the standard orders it: position, quantity, price. No group is repeated possessively: in the first
# releases of Python 3.11 the match then includes a repetition that began and did not end.
_RUN = re.compile(
    rb"(?:<Point>B<position>\d{1,7}</position>B"
    rb"(?:<quantity>N</quantity>B)?(?:<price\.amount>N</price\.amount>B)?</Point>B)+".replace(
        b"B", _BLANK
    ).replace(b"N", _NUMBER)
)
_POINT = re.compile(
    rb"<position>(\d+)</position>(?:<quantity>([^<]+)</quantity>)?"
    rb"(?:<price\.amount>([^<]+)</price\.amount>)?"
)
_NAMES = bytes(range(ord("a"), ord("z") + 1)) + b"P>"
_BLANKS = b" \t\r\n"
# What is left of the tags of a point without letters: between position, quantity and price, and behind them.
_MARKS = {
    (True, True): ((b"</.</", b"\n"), (b"</<.", b","), (b"</<", b",")),
    (True, False): ((b"</</", b",\n"), (b"</<", b",")),
    (False, True): ((b"</.</", b"\n"), (b"</<.", b",,")),
}
_POSITION = re.compile(rb"<<(\d+)")
_USUAL = 3000
"""Positions of a period: a month of quarters of an hour, and a day of minutes."""
Said = tuple[list[str], list[str | None], list[str | None]]
"""Positions, quantities and prices of points."""


@dataclass(slots=True)
class Run:
    """Points that follow each other."""

    octets: bytes

    def lines(self, count: int) -> bytes | None:
        """Position, quantity and price for each line; None unless these positions are all there, in order."""
        said = tuple(self.octets.count(name) for name in (b"<quantity>", b"<price.amount>"))
        marks = _MARKS.get((bool(said[0]), bool(said[1])))
        if count > _USUAL or marks is None or not {*said} <= {0, count}:
            return None
        text = self.octets.translate(None, _BLANKS + _NAMES)
        if _POSITION.findall(text) != _sequence(count):
            return None
        for mark, by in marks:
            text = text.replace(mark, by)
        return text.replace(b"<<", b"")

    def said(self) -> Said:
        found = _POINT.findall(self.octets.translate(None, _BLANKS))
        return (
            [position.decode() for position, _, _ in found],
            [quantity.decode() or None for _, quantity, _ in found],
            [price.decode() or None for _, _, price in found],
        )


def cut(content: bytes) -> tuple[bytes, list[Run]] | None:
    """The document with one point for each run, whose position is its number; None: read it as a whole."""
    if len(content) > MAX_DOCUMENT or b"<!" in content:
        return None
    if content.count(b"<?") > content.startswith(b"<?xml"):
        return None
    rest: list[bytes] = []
    runs: list[Run] = []
    at = 0
    for found in _RUN.finditer(content):
        rest.append(content[at : found.start()])
        rest.append(b"<Point><position>%d</position></Point>" % len(runs))
        runs.append(Run(found[0]))
        at = found.end()
    rest.append(content[at:])
    # Every point that is left must be a mark of ours.
    if not runs or any(b"<Point" in piece or b":Point" in piece for piece in rest[::2]):
        return None
    return b"".join(rest), runs


@lru_cache(maxsize=64)
def _sequence(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(1, count + 1)]
