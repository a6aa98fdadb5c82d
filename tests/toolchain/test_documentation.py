"""Pages agree with the code: generated ones are drawn right, the others name what exists."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from enum import StrEnum
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import typer
from lxml import etree

from gridpost import bench, cli

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = spec_from_file_location("generate_docs", ROOT / "scripts/generate_docs.py")
    module = module_from_spec(spec)
    sys.modules["generate_docs"] = module
    spec.loader.exec_module(module)
    return module


class Light(StrEnum):
    RED = "RED"
    GREEN = "GREEN"
    DARK = "DARK"


class Push(StrEnum):
    GO = "GO"
    BREAK = "BREAK"


def to(state: Light, *effects: str, breach: str | None = None) -> SimpleNamespace:
    rule = None if breach is None else SimpleNamespace(name=breach)
    return SimpleNamespace(state=state, effects=effects, breach=rule)


TABLE = {
    (Light.GREEN, Push.GO): to(Light.GREEN, breach="ALREADY_GREEN"),
    (Light.RED, Push.BREAK): to(Light.DARK),
    (Light.RED, Push.GO): to(Light.GREEN, "start engines"),
    (Light.GREEN, Push.BREAK): to(Light.DARK),
    (Light.DARK, Push.GO): to(Light.DARK),
}


def test_a_state_page_draws_what_moves_and_lists_every_pair(generator):
    chapter = generator.Chapter("Lights", frozenset(Light), Light.RED, {Light.DARK})
    found = generator.state_page(
        Path("docs/traffic.md"), "Traffic", "How it goes.", "x.TABLE", TABLE, [chapter]
    )
    page, picture = found[Path("docs/traffic.md")], found[Path("docs/traffic-lights.svg")]
    assert "![Traffic: Lights](traffic-lights.svg)" in page
    drawn = etree.fromstring(picture)
    told = drawn.findtext("{*}desc")
    assert told == "RED to GREEN: GO; RED to DARK: BREAK; GREEN to DARK: BREAK"
    assert len(drawn.findall("{*}rect[@class='box']")) == 3
    assert len(drawn.findall("{*}rect[@class='final']")) == 1
    # From the circle above its first state into it, then one arrow for each way.
    assert len(drawn.findall("{*}line[@class='way']")) == 1 + 3
    assert drawn.findall("{*}circle")[0].get("cx") == drawn.findall("{*}text")[0].get("x")
    labels = [text.text for text in drawn.findall("{*}text[@class='halo']")]
    assert labels == ["GO", "BREAK", "BREAK"]
    assert "| RED | GO | GREEN | start engines |" in page
    assert "| GREEN | GO |  | refused: ALREADY_GREEN |" in page
    assert "| DARK | GO |  |  |" in page


def test_a_table_that_gives_only_the_next_state_is_drawn_too(generator):
    table = {(Light.RED, Push.GO): Light.GREEN}
    chapter = generator.Chapter("Lights", {Light.RED, Light.GREEN}, Light.RED, {Light.GREEN})
    found = generator.state_page(
        Path("traffic.md"), "Traffic", "How it goes.", "x.TABLE", table, [chapter]
    )
    assert "RED to GREEN: GO" in found[Path("traffic-lights.svg")]
    page = found[Path("traffic.md")]
    assert "| RED | GO | GREEN |  |" in page


def test_a_page_that_differs_or_is_missing_is_stale(generator, tmp_path):
    (tmp_path / "same.md").write_text("text")
    (tmp_path / "other.md").write_text("old text")
    wanted = {Path("same.md"): "text", Path("other.md"): "text", Path("missing.md"): "text"}
    assert generator.stale(tmp_path, wanted) == [Path("other.md"), Path("missing.md")]


def test_check_fails_and_names_the_page_that_is_stale(generator, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(generator, "ROOT", tmp_path)
    assert generator.main(["--check"]) == 1
    assert "delivery-states.md is stale" in capsys.readouterr().err
    assert not (tmp_path / "docs").exists()
    assert generator.main([]) == 0
    assert generator.main(["--check"]) == 0


def commands() -> list[tuple[str, typer.core.TyperCommand]]:
    group = typer.main.get_command(cli.app)
    return [(name, group.get_command(None, name)) for name in cli.COMMANDS]


@pytest.mark.parametrize(("name", "command"), commands(), ids=lambda value: str(value)[:12])
def test_every_command_has_a_page_with_all_its_options(name, command):
    page = (DOCS / f"commands/{name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# gridpost {name}\n")
    assert f"({name}.md)" in (DOCS / "commands/index.md").read_text(encoding="utf-8")
    for option in command.params:
        for spelling in option.opts:
            if spelling.startswith("--") and spelling != "--help":
                assert f"`{spelling}" in page, f"{name}.md does not explain {spelling}"


def test_every_bench_is_explained():
    page = (DOCS / "commands/bench.md").read_text(encoding="utf-8")
    assert [name for name in bench.available() if f"| `{name}` |" not in page] == []


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def test_every_divergence_has_its_own_anchor_and_says_where_it_is_implemented():
    text = (DOCS / "divergences.md").read_text(encoding="utf-8")
    entries = re.split(r"^### ", text, flags=re.MULTILINE)[1:]
    anchors = [re.search(r"\{#([a-z0-9-]+)\}", entry)[1] for entry in entries]
    assert len(set(anchors)) == len(anchors)
    for entry in entries:
        for part in ("Where", "Problem", "Gridpost", "Implemented in"):
            assert f"- **{part}:**" in entry, entry


def test_every_divergence_that_the_code_cites_exists():
    """Cited by anchor or title ("see divergences, path forms"), or by the place an entry is about."""
    text = (DOCS / "divergences.md").read_text(encoding="utf-8")
    anchors = set(re.findall(r"\{#([a-z0-9-]+)\}", text))
    anchors |= {slug(title) for title in re.findall(r"^### (.*) \{#", text, re.MULTILINE)}
    places = " ".join(re.findall(r"- \*\*Where:\*\* (.*)", text))
    citation = re.compile(r"divergences(?:\.md#|, )((?:[^.;:)\"]|\.(?=\d))+)")
    cited = {
        (file.name, name.strip())
        for file in (ROOT / "src").rglob("*.py")
        for name in citation.findall(re.sub(r"\n\s*#?\s*", " ", file.read_text(encoding="utf-8")))
    }
    assert cited
    assert [c for c in cited if slug(c[1]) not in anchors and c[1] not in places] == []


def top_level_names(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def test_the_architecture_page_finds_every_rule_of_clause_5_where_it_says():
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (5[^|]*) \| [^|]* \| `([^`]+)` \| ([^|]+) \|$", text, re.MULTILINE)
    clauses = {clause for cell, _, _ in rows for clause in cell.split(", ")}
    assert {f"5.{n}" for n in range(1, 13)} - {"5.6"} <= clauses
    for _, file, names in rows:
        assert set(re.findall(r"`(\w+)`", names)) <= top_level_names(ROOT / "src/gridpost" / file)


def test_links_of_the_pages_beside_the_documentation_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert "://" in target or (ROOT / target).exists(), f"{page.name}: {target}"


def test_the_site_loads_nothing_from_elsewhere(tmp_path):
    subprocess.run(
        [Path(sys.executable).parent / "mkdocs", "build", "--strict", "--quiet", "-d", tmp_path],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=True,
        capture_output=True,
    )
    loaded = re.compile(
        r"""<(?:script|img|iframe)[^>]+src=["']?(?:https?:)?//|<link[^>]+href=["']?(?:https?:)?//"""
    )
    pages = list(tmp_path.rglob("*.html"))
    assert pages
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not loaded.search(text), page
        # The theme fetches a drawing library for such blocks at view time, or shows their source.
        assert "mermaid" not in text, page
    states = (tmp_path / "reference/delivery-states.html").read_text(encoding="utf-8")
    for picture in re.findall(r'<img[^>]+src="([^"]+[.]svg)"', states):
        assert (tmp_path / "reference" / picture).is_file()
    assert states.count("<img") == 2
