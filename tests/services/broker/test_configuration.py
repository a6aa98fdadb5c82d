"""What the configuration file of a broker says of its store."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from gridpost.assembly.broker_configuration import read_broker_configuration
from gridpost.assembly.check import check
from gridpost.core.refusal import Refusal
from support.rabbitmq import write_certificate

BASE = """
component = "broker"
code = "B1"
home = "b1"
{top}
[contact]
organization = "Grid"
person = "A"
email = "a@grid.example"
phone = "1"
[server]
urls = ["amqps://b1.grid.example:5671", "amqps://b2.grid.example:5671"]
{sections}
"""
RABBITMQ = """
[rabbitmq]
urls = ["amqps://rabbit.grid.example:5671"]
roots = "tls/root.pem"
certificate = "tls/chain.pem"
key = "tls/key.pem"
"""

POSTGRES = """
[postgres]
dsn = "postgresql://gridpost@db.grid.example/grid"
password_file = "secret"
prefetch = 7
"""


def written(folder: Path, top: str = "", sections: str = "") -> Path:
    file = folder / "broker.toml"
    file.write_text(BASE.format(top=top, sections=sections), encoding="utf-8")
    return file


def test_the_store_can_be_named_in_one_word(tmp_path: Path) -> None:
    write_certificate(tmp_path / "tls", "edge")
    file = written(tmp_path, 'store = "rabbitmq"', RABBITMQ)
    configuration = read_broker_configuration(file)
    assert configuration.store.kind == "rabbitmq"
    assert configuration.rabbitmq is not None
    assert configuration.rabbitmq.key == tmp_path / "tls/key.pem"
    assert check(file).warnings == []


def test_the_queues_can_be_in_postgresql(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("told by nobody\n")
    file = written(tmp_path, 'store = "postgres"', POSTGRES)
    configuration = read_broker_configuration(file)
    assert configuration.postgres is not None
    assert configuration.postgres.settings().password == "told by nobody"
    assert configuration.postgres.prefetch == 7
    assert "told by nobody" not in repr(configuration)
    assert check(file).warnings == []


def test_the_store_can_be_a_section_with_marks(tmp_path: Path) -> None:
    sections = '[store]\nkind = "rabbitmq"\nmin_free = 5\n' + RABBITMQ
    configuration = read_broker_configuration(written(tmp_path, "", sections))
    assert (configuration.store.kind, configuration.store.min_free) == ("rabbitmq", 5)


def test_how_long_large_bodies_wait_for_each_other_is_configured(tmp_path: Path) -> None:
    for company, expected in (("0s", 0), ("20ms", 20)):
        sections = f'[store]\ncompany = "{company}"\n'
        configuration = read_broker_configuration(written(tmp_path, "", sections))
        assert configuration.queue_settings().company == timedelta(milliseconds=expected)


@pytest.mark.parametrize(
    ("top", "sections", "told"),
    [
        ('store = "rabbitmq"', "", "rabbitmq"),
        ('store = "redis"', "", "store.kind"),
        ("", '[store]\ncompany = "2s"', "store.company"),
        ('store = "rabbitmq"', RABBITMQ.replace("amqps://", "amqp://"), "amqps://"),
        ('store = "rabbitmq"', RABBITMQ, "cannot be used"),
        ('store = "postgres"', "", "postgres"),
        ("", POSTGRES, "belong together"),
        ('store = "postgres"', POSTGRES, "cannot be read"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, top: str, sections: str, told: str) -> None:
    """Where a file cannot be used there is none."""
    with pytest.raises(Refusal, match=told):
        check(written(tmp_path, top, sections))


def test_doubts_are_warnings(tmp_path: Path) -> None:
    write_certificate(tmp_path / "tls", "edge")
    lonely = written(tmp_path, 'store = "rabbitmq"', RABBITMQ + 'virtual_host = "/"\n')
    text = lonely.read_text(encoding="utf-8")
    lonely.write_text(text.replace(', "amqps://b2.grid.example:5671"', ""), encoding="utf-8")
    warnings = check(lonely).warnings
    assert any("virtual_host" in warning for warning in warnings)
    assert any("server.urls" in warning for warning in warnings)
    assert any("section rabbitmq" in w for w in check(written(tmp_path, "", RABBITMQ)).warnings)


def test_frame_size_and_session_window_are_configured(tmp_path: Path) -> None:
    sections = "[limits]\nmax_frame_size = 4096\nsession_window = 65536"
    limits = read_broker_configuration(written(tmp_path, sections=sections)).limits.amqp()
    assert (limits.max_frame_size, limits.session_window) == (4_096, 65_536)
    with pytest.raises(Refusal, match="session_window"):
        read_broker_configuration(written(tmp_path, sections="[limits]\nsession_window = 1000"))


def test_how_many_transactions_may_be_open_is_configured(tmp_path: Path) -> None:
    usual = read_broker_configuration(written(tmp_path))
    assert usual.settings().open_transactions == 16
    few = read_broker_configuration(written(tmp_path, sections="[queues]\nopen_transactions = 2"))
    assert few.settings().open_transactions == 2
