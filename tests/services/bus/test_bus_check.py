"""`gridpost check-config` for a bus: mistakes are refused, doubts are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from gridpost.assembly.check import check
from gridpost.core.refusal import Refusal
from support.bus_web import NOTES_XSD

GOOD = """component = "bus"
code = "MDM"
home = "bus"
contexts = ["TESTING"]
[rabbitmq]
urls = ["amqps://localhost:5671"]
[guard]
replay_required = true
[operations]
port = 0
[[nouns]]
name = "Notes"
xsd = "Notes.xsd"
typed = true
[web]
port = 0
[[routes]]
noun = "Notes"
when = "m:Source = 'EMS'"
targets = [{ to = "queue:OTHER" }]
[[subscribers]]
name = "drop"
to = "folder:drop"
"""


def checked(folder: Path, text: str) -> list[str]:
    (folder / "Notes.xsd").write_text(NOTES_XSD)
    (folder / "bus.toml").write_text(text)
    return check(folder / "bus.toml").warnings


def test_a_good_configuration_has_no_doubts(tmp_path: Path) -> None:
    assert checked(tmp_path, GOOD) == []


@pytest.mark.req("100-8.4.2-b", component="transport")
def test_contexts_that_share_a_broker_are_a_doubt(tmp_path: Path) -> None:
    both = GOOD.replace('["TESTING"]', '["TESTING", "PRODUCTION"]').replace("amqps", "amqp")
    found = checked(tmp_path, both)
    assert any("several contexts" in doubt for doubt in found)
    assert any("amqp://" in doubt for doubt in found)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("m:Source = 'EMS'", "m:Source = ", "XPath"),
        ("m:Source = 'EMS'", "m:Source = lower('EMS')", "evaluated"),
        ("m:Source = 'EMS'", "x:Source = 'EMS'", "evaluated"),
        ("queue:OTHER", "smtp:OTHER", "leads to"),
        ("queue:OTHER", "mades:E2", "mades"),
        ("folder:drop", "sftp://x/y", "known_hosts"),
        ("port = 0", 'host = "0.0.0.0"', "loopback"),
        ('xsd = "Notes.xsd"\n', "", "typed"),
        ('component = "bus"', 'component = "bus"\nstore = "postgres"', "postgres"),
    ],
)
def test_a_mistake_is_refused(tmp_path: Path, old: str, new: str, reason: str) -> None:
    assert old in GOOD
    with pytest.raises(Refusal) as refused:
        checked(tmp_path, GOOD.replace(old, new))
    assert reason in refused.value.message + refused.value.details


def test_a_port_that_is_used_twice_is_a_mistake(tmp_path: Path) -> None:
    twice = GOOD.replace("[web]\nport = 0", "[web]\nport = 18491")
    with pytest.raises(Refusal, match=r"web\.port and operations\.port are both 18491"):
        checked(tmp_path, twice.replace("[operations]\nport = 0", "[operations]\nport = 18491"))
