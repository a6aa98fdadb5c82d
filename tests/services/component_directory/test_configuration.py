"""The configuration file of a component-directory: what it may say, and how mistakes are told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gridpost.assembly.backup import back_up
from gridpost.assembly.check import check
from gridpost.assembly.directory_configuration import read_directory_configuration
from gridpost.core.refusal import Refusal
from gridpost.services.component_directory.settings import Extensions
from gridpost.services.operations.administrators import hash_token
from gridpost.wire.x509 import to_pem
from support.pki import TestPki

ROOT = TestPki().root
GOOD = """
component = "component-directory"
code = "CD-1"
home = "data"
roots = ["root.pem"]
[contact]
organization = "O"
person = "P"
email = "e@x.example"
phone = "1"
[server]
urls = ["https://cd1.grid.example:8443"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "root.pem").write_bytes(to_pem(ROOT))
    file = tmp_path / "directory.toml"
    file.write_text(GOOD)
    return file


def test_defaults_and_paths_beside_the_file(file: Path) -> None:
    configuration = read_directory_configuration(file)
    assert configuration.home == file.parent / "data"
    settings = configuration.settings()
    assert settings.ttl == timedelta(hours=24)
    assert settings.extensions is Extensions.ISSUED_HERE
    assert configuration.trusted_roots() == (ROOT,)


def test_peers_cycle_and_ttl_are_configured(file: Path) -> None:
    file.write_text(
        GOOD
        + """
[synchronisation]
cycle = "60s"
ttl = "12h"
[[synchronisation.peers]]
code = "CD-2"
urls = ["https://one.grid.example", "https://two.grid.example"]
"""
    )
    settings = read_directory_configuration(file).settings()
    assert (settings.cycle, settings.ttl) == (timedelta(minutes=1), timedelta(hours=12))
    (peer,) = settings.peers
    assert peer.urls == ("https://one.grid.example", "https://two.grid.example")


def test_the_environment_overrides_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRIDPOST_DIRECTORY_SYNCHRONISATION__TTL", "5h")
    monkeypatch.setenv("GRIDPOST_DIRECTORY_KEYS__PASSPHRASE", "secret")
    configuration = read_directory_configuration(file)
    assert configuration.settings().ttl == timedelta(hours=5)
    assert configuration.passphrase() == b"secret"
    assert "secret" not in repr(configuration)


def with_store(text: str) -> str:
    return GOOD.replace('home = "data"', 'home = "data"\nstore = "postgres"') + text


def test_a_database_is_named_and_its_password_comes_from_elsewhere(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = '[postgres]\ndsn = "postgresql://cd@db.example/grid"\nschema = "cd_1"\n'
    file.write_text(with_store(section + 'password_file = "secret"\n'))
    with pytest.raises(Refusal, match="secret cannot be read"):
        check(file)
    (file.parent / "secret").write_text("s3cret\nsecond line\n")
    check(file)
    configuration = read_directory_configuration(file)
    assert configuration.postgres is not None
    settings = configuration.postgres.settings()
    assert (settings.schema, settings.password) == ("cd_1", "s3cret")
    assert settings.place() == "db.example/grid, schema cd_1"
    with pytest.raises(Refusal, match="PostgreSQL"):
        back_up(file, file.parent / "backup", datetime.now(UTC), lambda *_: None)
    file.write_text(with_store(section))
    monkeypatch.setenv("GRIDPOST_DIRECTORY_POSTGRES__PASSWORD", "fr0m outside")
    configuration = read_directory_configuration(file)
    assert configuration.postgres is not None
    assert configuration.postgres.settings().password == "fr0m outside"
    for shown in (repr(configuration), repr(settings), str(configuration.model_dump())):
        assert "s3cret" not in shown
        assert "fr0m outside" not in shown


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "belong together"),
        ('[postgres]\ndsn = "postgresql://u:hidden@[x/y"\n', "DSN"),
        ('[postgres]\ndsn = "host=x"\nschema = "drop table;"\n', "name of a schema"),
        ('[postgres]\ndsn = "host=x"\nreaders = 0\n', "postgres.readers"),
        ('[postgres]\ndsn = "host=x"\nlock_timeout = "0s"\n', "postgres.lock_timeout"),
        ('[postgres]\ndsn = "host=x"\npassword = "a"\npassword_file = "b"\n', "not both"),
    ],
)
def test_mistakes_about_the_database_are_told_and_hide_the_password(
    file: Path, text: str, place: str
) -> None:
    file.write_text(with_store(text))
    with pytest.raises(Refusal) as refused:
        check(file)
    told = refused.value.message + refused.value.details
    assert place in told
    assert "hidden" not in told


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ('colour = "green"', "server.colour"),
        ("[synchronisation]\nttl = 5", "synchronisation.ttl"),
        ('[synchronisation]\nttl = "1m"\ncycle = "5m"', "shorter"),
        ('[registration]\nextensions = "sometimes"', "registration.extensions"),
        ('[administration]\nhost = "0.0.0.0"', "loopback"),
        ('[administration.tokens]\nalice = "plain"', "administration.tokens.alice"),
        (
            '[[synchronisation.peers]]\ncode = "CD-1"\nurls = ["https://x.example"]',
            "another component-directory",
        ),
        (
            '[[synchronisation.peers]]\ncode = "CD-2"\nurls = ["http://x.example"]',
            "https://",
        ),
        ("[[", "not TOML"),
        ("[journal]\nrefused_connections = 0", "journal.refused_connections"),
    ],
)
def test_mistakes_are_told_with_their_place(file: Path, line: str, place: str) -> None:
    file.write_text(GOOD + line + "\n")
    with pytest.raises(Refusal) as refused:
        check(file)
    assert place in refused.value.message + refused.value.details


def test_missing_files_and_components_are_refused(file: Path) -> None:
    with pytest.raises(Refusal, match="cannot be read"):
        check(file.parent / "nothing.toml")
    (file.parent / "root.pem").unlink()
    with pytest.raises(Refusal, match="cannot be read"):
        check(file)
    file.write_text('component = "toaster"')
    with pytest.raises(Refusal, match="component must be one of"):
        check(file)


@pytest.mark.req("503-10-i", component="component-directory")
def test_an_ip_address_in_a_url_is_warned_of(file: Path) -> None:
    file.write_text(GOOD + f'[administration.tokens]\nalice = "{hash_token("t")}"\n')
    assert check(file).warnings == []
    file.write_text(file.read_text().replace("cd1.grid.example", "192.0.2.1"))
    (warning,) = check(file).warnings
    assert "192.0.2.1" in warning
