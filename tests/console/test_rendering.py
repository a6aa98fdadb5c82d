"""How values are written on the pages of every console."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from gridpost.console import rendering
from gridpost.console.rendering import environment, sentence


def test_a_sentence_begins_large_and_leaves_codes_as_they_are() -> None:
    assert (
        sentence("no way for A01 to E2 before 12:00 UTC") == "No way for A01 to E2 before 12:00 UTC"
    )
    assert sentence("") == ""


def test_no_page_lowers_the_letters_of_what_it_was_told() -> None:
    """Jinja's `capitalize` does: it is for words of our own that were lowered before."""
    folder = Path(rendering.__file__).parent / "templates"
    for page in folder.rglob("*.html"):
        for line in page.read_text(encoding="utf-8").split("{{")[1:]:
            written = line.split("}}")[0]
            assert "capitalize" not in written or "| lower" in written, f"{page.name}: {written}"


def test_times_are_in_utc() -> None:
    at = datetime.fromisoformat("2026-06-01T12:00:00+02:00")
    page = environment({}, lambda: datetime.now(UTC)).from_string("{{ at | utc }}").render(at=at)
    assert "2026-06-01 10:00:00 <abbr>UTC</abbr>" in page
    assert 'datetime="2026-06-01T10:00:00Z"' in page
