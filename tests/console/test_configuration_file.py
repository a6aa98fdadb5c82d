"""A program changes single lines of a file that people wrote; everything else stays as it was."""

from __future__ import annotations

import json
import os
import stat
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridpost import cli
from gridpost.assembly.configuration_file import (
    ConfigurationFile,
    remove_table,
    replace_tables,
    set_value,
)
from gridpost.assembly.endpoint_configuration import read_endpoint_configuration
from gridpost.core.refusal import Refusal

TEXT = """\
# The endpoint of the control room.
component = "endpoint"
code = "E1"      # as registered
home = "e1"
ordered = [
    "A*",  # acknowledgements
    "B",
]

[contact]
organization = "O"
person = "P"
email = "e@x.example"
phone = "1"

# How others reach us.
[[paths]]
path = "INDIRECT:B1"

[[paths]]
message_type = "A"
path = "INDIRECT:B2"

# Kept short.
[retention]
sent_content = "1d"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "endpoint.toml"
    made.write_text(TEXT, encoding="utf-8")
    made.chmod(0o640)
    return made


def test_a_value_is_changed_in_its_line() -> None:
    assert set_value(TEXT, ("retention", "sent_content"), "2d") == TEXT.replace('"1d"', '"2d"')


def test_a_value_over_several_lines_is_changed_as_a_whole() -> None:
    text = set_value(TEXT, ("ordered",), ["C"])
    assert 'ordered = ["C"]\n\n[contact]' in text
    assert tomllib.loads(text)["ordered"] == ["C"]


def test_a_new_value_goes_to_its_table_or_makes_one() -> None:
    assert 'sent_content = "1d"\nreceived_ids = "90d"' in set_value(
        TEXT, ("retention", "received_ids"), "90d"
    )
    assert set_value(TEXT, ("api", "port"), 1).endswith("[api]\nport = 1\n")
    assert tomllib.loads(set_value(TEXT, ("max_content",), 7))["max_content"] == 7


def test_rows_of_tables_are_replaced_where_they_stood() -> None:
    text = replace_tables(TEXT, "paths", [{"path": "DIRECT", "senders": ["E2", "E3"]}])
    assert tomllib.loads(text)["paths"] == [{"path": "DIRECT", "senders": ["E2", "E3"]}]
    assert text.index("# How others") < text.index("[[paths]]") < text.index("# Kept short.")
    assert "paths" not in tomllib.loads(replace_tables(TEXT, "paths", []))
    assert tomllib.loads(replace_tables("a = 1\n", "paths", [{"b": 2}])) == {
        "a": 1,
        "paths": [{"b": 2}],
    }


def test_what_cannot_be_changed_line_by_line_is_left_to_people() -> None:
    for text in ('retention = {sent_content = "1d"}\n', 'retention.sent_content = "1d"\n'):
        with pytest.raises(Refusal, match="cannot be changed from here"):
            set_value(text, ("retention", "sent_content"), "2d")


@given(st.text(), st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_text_comes_out_as_it_went_in(value: str, key: str) -> None:
    if any("\ud800" <= c <= "\udfff" for c in value):
        return
    text = set_value(TEXT, ("retention", key), value)
    assert tomllib.loads(text)["retention"][key] == value
    assert remove_table(text, ("retention",)).startswith(TEXT.partition("[retention]")[0].rstrip())


def test_a_good_change_is_written_with_the_rights_of_the_file(file: Path) -> None:
    kept = ConfigurationFile(file, read_endpoint_configuration)
    changed = kept.change(lambda text: set_value(text, ("max_content",), 5), kept.mark())
    assert changed.max_content == 5
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert os.listdir(file.parent) == [file.name]


def test_a_bad_change_changes_nothing_and_names_the_place(file: Path) -> None:
    kept = ConfigurationFile(file, read_endpoint_configuration)
    with pytest.raises(Refusal) as refused:
        kept.change(lambda text: set_value(text, ("max_content",), -1))
    assert refused.value.message.startswith("max_content: ")
    assert file.read_text(encoding="utf-8") == TEXT
    assert os.listdir(file.parent) == [file.name]


def test_a_file_that_somebody_else_changed_is_left_alone(file: Path) -> None:
    kept = ConfigurationFile(file, read_endpoint_configuration)
    mark = kept.mark()
    file.write_text(TEXT + "# by hand\n", encoding="utf-8")
    with pytest.raises(Refusal, match="in the meantime"):
        kept.change(lambda text: set_value(text, ("max_content",), 5), mark)
    assert file.read_text(encoding="utf-8").endswith("# by hand\n")


def test_without_a_file_nothing_can_be_changed() -> None:
    with pytest.raises(Refusal, match="without a configuration file"):
        ConfigurationFile(None, read_endpoint_configuration).change(lambda text: text)


# ---------------------------------------------------------------- gridpost console user

Command = Callable[..., tuple[int, str]]


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], file: Path
) -> Command:
    def run(*words: str) -> tuple[int, str]:
        line = ["gridpost", "console", "user", *words, "--config", str(file), "--json"]
        monkeypatch.setattr(sys, "argv", line)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(ended.value.code or 0), capsys.readouterr().out

    return run


def test_people_are_added_listed_changed_and_removed(command: Command, file: Path) -> None:
    code, out = command("add", "a.person@grid", "--role", "operator")
    made = json.loads(out)
    assert (code, made["role"], len(made["password"]) > 20) == (0, "operator", True)
    assert made["password"] not in file.read_text(encoding="utf-8")
    assert json.loads(command("list")[1]) == {
        "users": [{"user": "a.person@grid", "role": "operator"}]
    }
    before = file.read_text(encoding="utf-8")
    assert command("password", "a.person@grid")[0] == 0
    assert file.read_text(encoding="utf-8") != before
    assert command("remove", "a.person@grid")[0] == 0
    assert json.loads(command("list")[1]) == {"users": []}
    assert TEXT.rstrip() in file.read_text(encoding="utf-8")


def test_wrong_names_roles_and_passwords_are_refused(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command("add", "a b")[0] == 1
    assert command("add", "ada", "--role", "king")[0] == 1
    assert command("remove", "ada")[0] == 1
    assert command("password", "ada")[0] == 1
    monkeypatch.setenv("GRIDPOST_NEW_PASSWORD", "short")
    assert command("add", "ada")[0] == 1
    monkeypatch.setenv("GRIDPOST_NEW_PASSWORD", "long enough for this")
    assert "password" not in json.loads(command("add", "ada")[1])
    assert command("add", "ada")[0] == 1
