"""The files for Prometheus and Grafana name figures that components really have."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIGURE = re.compile(r"gridpost_[a-z_]+")
SUFFIXES = ("_total", "_bucket", "_sum", "_count")


def figures_of_the_source() -> set[str]:
    """Whole names, and names that are put together from a prefix and a word."""
    names: set[str] = set()
    for file in (ROOT / "src" / "gridpost" / "services").rglob("metrics.py"):
        text = file.read_text(encoding="utf-8")
        names |= set(FIGURE.findall(text))
        words = re.findall(r'"([a-z_]+)"', text)
        for prefix in [name for name in names if name.endswith("_")]:
            names |= {prefix + word for word in words}
    return names


def used(text: str) -> set[str]:
    found = set()
    for name in FIGURE.findall(text):
        for suffix in SUFFIXES:
            name = name.removesuffix(suffix)
        found.add(name)
    return found


def test_every_figure_in_rules_and_dashboard_exists():
    known = figures_of_the_source()
    rules = (ROOT / "deploy/prometheus/gridpost.rules.yaml").read_text(encoding="utf-8")
    dashboard = (ROOT / "deploy/grafana/gridpost.json").read_text(encoding="utf-8")
    wanted = (used(rules) | used(dashboard)) - {"gridpost_"}
    assert len(wanted) > 15
    assert wanted - known == set()


def test_the_dashboard_is_json_with_panels_that_do_not_overlap():
    panels = json.loads((ROOT / "deploy/grafana/gridpost.json").read_text())["panels"]
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
