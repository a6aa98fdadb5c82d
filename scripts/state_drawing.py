"""Draws a state diagram as SVG: a column for each state, an arrow for each way from one to another.

Nothing has to be fetched to see it, arrows never cross a label, and the same table always gives the
same picture, so that a stale one is found by comparing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_LETTER = 7.0
"""Width of a letter of the labels; a little more than any font needs."""
_MARGIN = 24
_BOX, _ROW = 30, 34
_TOP = 40
_STYLE = (
    "text{font:12px ui-monospace,Consolas,'DejaVu Sans Mono',monospace;fill:#1b1f23}"
    ".halo{paint-order:stroke;stroke:#fff;stroke-width:4px}"
    ".box{fill:#e0f2f1;stroke:#00695c}.final{fill:none;stroke:#00695c}"
    ".life{stroke:#b0bec5;stroke-dasharray:3 3}.way{stroke:#00695c;stroke-width:1.5}"
    ".tip,.start{fill:#00695c}"
)


@dataclass(frozen=True)
class Way:
    """From one state to another by any of these events."""

    source: str
    target: str
    events: tuple[str, ...]

    @property
    def label(self) -> str:
        return ", ".join(self.events)

    def __str__(self) -> str:
        return f"{self.source} to {self.target}: {self.label}"


def draw(
    title: str, states: Sequence[str], first: str, final: Collection[str], ways: Sequence[Way]
) -> str:
    column = max(len(state) for state in states) * _LETTER + 2 * _MARGIN
    places = {state: _MARGIN + column * (number + 0.5) for number, state in enumerate(states)}
    width = max(
        2 * _MARGIN + column * len(states),
        2 * _MARGIN + max((len(way.label) * _LETTER for way in ways), default=0),
    )
    bottom = _TOP + _BOX + _ROW * (len(ways) + 1)
    height = bottom + _MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}"'
        f' width="{width:.0f}" height="{height:.0f}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape('; '.join(map(str, ways)))}</desc>",
        f"<style>{_STYLE}</style>",
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fff"/>',
    ]
    lines += [
        f'<line class="life" x1="{x:.1f}" y1="{_TOP + _BOX}" x2="{x:.1f}" y2="{bottom}"/>'
        for x in places.values()
    ]
    for state, x in places.items():
        lines += _box(state, x, column - _MARGIN, state in final)
    x = places[first]
    lines.append(f'<circle class="start" cx="{x:.1f}" cy="10" r="6"/>')
    lines.append(f'<line class="way" x1="{x:.1f}" y1="10" x2="{x:.1f}" y2="{_TOP - 6}"/>')
    lines.append(_tip(x, _TOP, 0, -8))
    for number, way in enumerate(ways):
        y = _TOP + _BOX + _ROW * (number + 1)
        lines += _arrow(way, places[way.source], places[way.target], y, width)
    return "\n".join([*lines, "</svg>", ""])


def _box(state: str, x: float, width: float, final: bool) -> Iterator[str]:
    left = x - width / 2
    yield (
        f'<rect class="box" x="{left:.1f}" y="{_TOP}" width="{width:.1f}" height="{_BOX}" rx="6"/>'
    )
    if final:
        # As a final state has it in every notation: a second frame.
        yield (
            f'<rect class="final" x="{left + 3:.1f}" y="{_TOP + 3}" width="{width - 6:.1f}"'
            f' height="{_BOX - 6}" rx="4"/>'
        )
    yield f'<text x="{x:.1f}" y="{_TOP + 19}" text-anchor="middle">{escape(state)}</text>'


def _arrow(way: Way, start: float, end: float, y: float, width: float) -> Iterator[str]:
    back = 8 if end > start else -8
    yield (
        f'<line class="way" x1="{start:.1f}" y1="{y}" x2="{end - back / 2:.1f}" y2="{y}"/>'
        f'<circle class="start" cx="{start:.1f}" cy="{y}" r="3"/>'
    )
    yield _tip(end, y, -back, 0)
    half = len(way.label) * _LETTER / 2
    # In the middle of its arrow, as far as the picture has room.
    x = min(max((start + end) / 2, _MARGIN + half), width - _MARGIN - half)
    yield (
        f'<text class="halo" x="{x:.1f}" y="{y - 6}" text-anchor="middle">'
        f"{escape(way.label)}</text>"
    )


def _tip(x: float, y: float, dx: float, dy: float) -> str:
    """A point at x, y that comes from there."""
    across, down = (0, 4) if dx else (4, 0)
    return (
        f'<path class="tip" d="M{x:.1f} {y} L{x + dx - across:.1f} {y + dy - down}'
        f' L{x + dx + across:.1f} {y + dy + down} Z"/>'
    )
