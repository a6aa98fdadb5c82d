"""What commands print: ids can be copied, and a rejection is not a success."""

from __future__ import annotations

import json
import re

import pytest
import typer

from gridpost.cli.component import say_enrolled
from gridpost.cli.output import show

ROWS = [{"id": "b89de326-ceb1-4ca4-badc-fe5a2a3bb784", "organization": "Grid of Examplia " * 20}]


def test_a_table_shows_every_value_whole(capsys: pytest.CaptureFixture[str]) -> None:
    show({"rows": ROWS}, ["id", "organization", "reason"], ROWS, as_json=False)
    told = capsys.readouterr().out
    assert ROWS[0]["id"] in told
    assert ROWS[0]["organization"].strip() in told
    assert "…" not in told


def test_on_a_narrow_screen_other_columns_give_way_to_the_id(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    show({"rows": ROWS}, ["id", "organization", "reason"], ROWS, as_json=False)
    lines = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= 80
    assert any(ROWS[0]["id"] in line for line in lines)
    assert not any("…" in line for line in lines)


@pytest.mark.parametrize("as_json", [True, False])
def test_a_rejected_registration_is_told_by_the_exit_code_too(
    as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    result = {"registration": "r-1", "state": "INSTALLED", "reason": ""}
    say_enrolled(result, as_json)
    rejected = {"registration": "", "state": "REJECTED", "reason": "the code is taken"}
    with pytest.raises(typer.Exit) as ended:
        say_enrolled(rejected, as_json)
    assert ended.value.exit_code == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert json.loads(last) == rejected if as_json else "the code is taken" in last
