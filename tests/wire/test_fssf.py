"""File names and log lines of the shared folders."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.fssf.log_line import LogLine, decode, encode
from gridpost.wire.fssf.names import (
    MAX_NAME_OCTETS,
    OutName,
    error_name,
    in_name,
    is_temporary,
    log_name,
    read_out_name,
    reason_name,
    temporary_name,
)
from support.builders import metadata

token = st.from_regex(r"[A-Za-z0-9-]{0,30}", fullmatch=True)
needed = st.from_regex(r"[A-Za-z0-9-]{1,30}", fullmatch=True)
code = st.from_regex(r"[A-Za-z0-9@-]{1,30}", fullmatch=True)


@given(st.builds(OutName, token, code, needed, token, token))
def test_a_name_is_read_as_it_was_made(name: OutName) -> None:
    assert read_out_name(str(name)) == name


@pytest.mark.parametrize(
    "name",
    [
        "hello.xml", "R_T", "APP_R_T.xml", "APP_R_T_ID_MORE.xml", "APP_R_T_ID.", "APP__T_ID.xml",
        "APP_R__ID.xml", "APP_R_T_ID.x.y", "APP_R_T_Ié.xml", "APP_R_T_I D.xml", "APP_R_T_I+D.xml",
        "A@P_R_T_ID.xml", "APP_R_T@_ID.xml", "APP_R_T_ID.xml\n", "", ".", "..", "APP_R_T_ID.x@l",
        "APP_R_T_" + "x" * 193,
    ],
)  # fmt: skip
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(Refusal) as refused:
        read_out_name(name)
    assert refused.value.rule is Rule.BAD_FILE_NAME


def test_200_characters_are_allowed() -> None:
    name = "APP_R_T_".ljust(200, "x")
    assert read_out_name(name).ba_message_id == "x" * 192


@pytest.mark.parametrize(
    ("name", "temporary"),
    [("a.tmp", True), ("a.TMP", True), ("a.Tmp", False), ("tmp", False), ("a.tmp.xml", False)],
)
def test_temporary_files_are_known_by_their_extension(name: str, temporary: bool) -> None:
    assert is_temporary(name) is temporary


@given(st.text(max_size=300), st.text(max_size=300), st.text(max_size=300))
def test_a_received_name_never_leads_out_of_its_folder(app: str, ba_id: str, ext: str) -> None:
    """Peers write metadata; file names are ours."""
    foreign = replace(metadata(), sender_application=app, ba_message_id=ba_id, extension=ext[:20])
    name = in_name(foreign, "dat")
    assert os.path.basename(name) == name
    assert len(os.fsencode(name)) <= MAX_NAME_OCTETS
    assert len(os.fsencode(temporary_name(name))) <= MAX_NAME_OCTETS
    assert not is_temporary(name)
    assert foreign.message_id in name
    assert name.count("_") == 4
    assert in_name(foreign, "dat") == name


def test_names_that_are_taken_get_a_counter_before_the_extension() -> None:
    assert error_name("A_R_T_I.xml", 2) == "A_R_T_I.2.xml"
    assert error_name("noext", 1) == "noext.1"
    assert log_name("A_R_T_I.xml") == "A_R_T_I.xml.log"
    assert log_name("A_R_T_I.xml", 3) == "A_R_T_I.xml.3.log"
    long = "é" * 127
    for made in (error_name(long, 7), reason_name(long), error_name(long + ".", 7)):
        assert len(os.fsencode(made)) <= MAX_NAME_OCTETS


@given(st.text(), st.text())
def test_a_log_line_is_one_line_with_five_parts(description: str, details: str) -> None:
    line = LogLine(datetime(2026, 1, 1, tzinfo=UTC), "ACCEPTED", "E1", description, details)
    written = encode(line)
    assert written.endswith(b"\n")
    assert written.count(b"\n") == 1
    assert decode(written).state == "ACCEPTED"
