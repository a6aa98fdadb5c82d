"""What `gridpost check-config` finds before a start does."""

from __future__ import annotations

import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from gridpost.assembly.broker import pem_key
from gridpost.assembly.broker_configuration import BrokerConfiguration
from gridpost.assembly.bus_configuration import BusConfiguration
from gridpost.assembly.capacity_configuration import CapacityConfiguration
from gridpost.assembly.check import check
from gridpost.assembly.clock import SystemClock
from gridpost.assembly.directory_configuration import DirectoryConfiguration
from gridpost.assembly.endpoint_configuration import EndpointConfiguration
from gridpost.assembly.network import NetworkPlan, Party, ports_from, write_network
from gridpost.assembly.node_configuration import NodeConfiguration
from gridpost.assembly.root_ca import ROOT_FILE, create_root
from gridpost.assembly.surroundings import own_certificates, own_doubts
from gridpost.core.certificate import CertificateKind
from gridpost.core.refusal import Refusal
from gridpost.stores.keys import owner_only
from gridpost.stores.keys.files import FileKeyring, write_record
from gridpost.stores.keys.rsa_operations import to_pkcs8
from gridpost.wire.x509 import read_certificate, to_pem
from support.odd_certificates import self_signed
from support.pki import rsa_key, shared_pki


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An endpoint's configuration that is good."""
    plan = NetworkPlan((Party("E1", "One"),), host="localhost", ports=ports_from(_room()))
    files = write_network(tmp_path / "network", plan, SystemClock().now())
    return files.endpoints[0].configuration


def _room() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return min(int(probe.getsockname()[1]), 60_000)


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def test_a_new_network_raises_no_doubts(file):
    assert check(file).warnings == []


def test_an_unknown_key_is_named_with_its_place(file):
    change(file, "[api]\n", "[api]\nprot = 1\n")
    with pytest.raises(Refusal, match=r"api\.prot"):
        check(file)


def test_a_port_that_is_taken_is_a_warning_and_one_port_for_two_a_mistake(file):
    text = file.read_text()
    api = int(text.split("[api]")[1].split("port = ")[1].split()[0])
    operations = int(text.split("[operations]")[1].split("port = ")[1].split()[0])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", api))
        taken.listen()
        assert any(f"api.port {api}" in warning for warning in check(file).warnings)
    change(file, f"port = {operations}", f"port = {api}")
    with pytest.raises(Refusal, match=r"both \d+ on 127.0.0.1"):
        check(file)


@pytest.mark.req("503-10-i", component="endpoint")
@pytest.mark.req("503-10-i", component="broker")
def test_an_address_in_numbers_is_doubted_and_a_name_is_not(tmp_path):
    plan = NetworkPlan(
        (Party("E1", "One", direct=True),), host="grid.example", ports=ports_from(_room())
    )
    files = write_network(tmp_path / "network", plan, SystemClock().now())
    for placed in (files.broker, files.endpoints[0]):
        good = placed.configuration.read_text()
        assert not [w for w in check(placed.configuration).warnings if "IP address" in w]
        assert "amqps://grid.example" in good
        placed.configuration.write_text(good.replace("amqps://grid.example", "amqps://192.0.2.1"))
        (warning,) = [w for w in check(placed.configuration).warnings if "IP address" in w]
        assert "192.0.2.1" in warning


def test_a_root_that_has_expired_is_refused_and_one_that_ends_is_doubted(file, tmp_path):
    now = datetime.now(UTC)
    for name, age in (("old", 400), ("ending", 360)):
        create_root(tmp_path / name, name, "", timedelta(days=365), now - timedelta(days=age), None)
    change(file, 'home = "data"', f'home = "data"\nroots = ["{tmp_path}/ending/root.pem"]')
    assert any("the certificate ends at" in warning for warning in check(file).warnings)
    change(file, "ending/root.pem", "old/root.pem")
    with pytest.raises(Refusal, match="expired"):
        check(file)


def _shown(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate and its key, as a port shows them."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    certificate.write_bytes(to_pem(self_signed(name, rsa_key(name))))
    key.write_bytes(pem_key(to_pkcs8(rsa_key(name))))
    return certificate, key


@pytest.mark.parametrize("section", ["api", "console"])
def test_a_key_of_another_certificate_is_refused_with_its_name(file, tmp_path, section):
    certificate, key = _shown(tmp_path, "one")
    other = _shown(tmp_path, "other")[1]
    if "[console]" not in file.read_text():
        file.write_text(file.read_text() + "[console]\nport = 0\n")
    change(file, f"[{section}]\n", f'[{section}]\ncertificate = "{certificate}"\nkey = "{key}"\n')
    check(file)
    change(file, f'key = "{key}"', f'key = "{other}"')
    with pytest.raises(Refusal, match=r"other\.key is not the private key of .*one\.pem"):
        check(file)


def test_enrolled_keys_are_those_of_their_certificates(file, tmp_path):
    folder = tmp_path / "network" / "E1" / "data" / "keys"
    folder.mkdir(mode=0o700, parents=True)
    ring = FileKeyring(folder)
    ring.import_key(to_pkcs8(rsa_key("one")))
    ring.install(read_certificate(self_signed("one", rsa_key("one")), CertificateKind.SIGNING))
    # It ends within a day, and that is all that is wrong with it.
    (warning,) = check(file).warnings
    assert "its own SIGNING certificate" in warning
    (kept,) = folder.glob("*.key")
    kept.unlink()
    with pytest.raises(Refusal, match="no private key for the certificate"):
        check(file)


def test_a_message_path_that_is_over_is_doubted(file):
    change(
        file,
        "[[paths]]\n",
        '[[paths]]\nmessage_type = "A99"\npath = "INDIRECT:BROKER"\n'
        "valid_until = 2020-01-01T00:00:00Z\n[[paths]]\n",
    )
    assert any("can never be used again" in warning for warning in check(file).warnings)


def test_a_home_below_a_file_is_refused(file, tmp_path):
    (tmp_path / "a-file").write_text("")
    change(file, 'home = "data"', f'home = "{tmp_path}/a-file/data"')
    with pytest.raises(Refusal, match="is not a folder"):
        check(file)


def test_a_node_is_looked_at_like_every_other_component(file, tmp_path):
    node = tmp_path / "node.toml"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        node.write_text(
            'component = "node"\ncode = "N1"\nhome = "n1"\n'
            f'roots = ["{file.parent.parent / "root" / ROOT_FILE}"]\n'
            '[contact]\norganization = "o"\nperson = "p"\nemail = "e@x.example"\nphone = "1"\n'
            f'[server]\nhost = "127.0.0.1"\nport = {port}\nurls = ["https://n1.example:{port}/x"]\n'
            "[operations]\nport = 0\n"
        )
        warnings = check(node).warnings
    assert any(f"server.port {port} on 127.0.0.1" in warning for warning in warnings)
    node.write_text(
        node.read_text().replace("[operations]\nport = 0", f"[operations]\nport = {port}")
    )
    with pytest.raises(Refusal, match="are both"):
        check(node)


def test_a_port_for_all_addresses_leaves_none_for_one_of_them(file):
    text = file.read_text()
    api = int(text.split("[api]")[1].split("port = ")[1].split()[0])
    change(file, "[operations]\n", '[direct]\nurls = ["amqps://e1.example"]\n[operations]\n')
    change(file, "[direct]\n", f"[direct]\nport = {api}\n")
    with pytest.raises(Refusal, match=f"both {api}"):
        check(file)


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ('[alerts.webhook]\nurl = "https://x.example"\nca = "no.pem"\n', "alerts.webhook.ca"),
        ('[[checks]]\nname = "a"\nicap = "icaps://x.example/s"\nca = "no.pem"\n', "checks.0.ca"),
    ],
)
def test_a_file_that_is_named_and_not_there_is_a_mistake(file, more, place):
    file.write_text(file.read_text() + more)
    with pytest.raises(Refusal, match=rf"{place}: .*no.pem is not there"):
        check(file)


def test_a_message_path_that_no_message_can_match_is_doubted(file):
    change(
        file,
        "[[paths]]\n",
        '[[paths]]\nmessage_type = "A-99"\npath = "INDIRECT:BROKER"\n'
        '[[paths]]\nmessage_type = "A98"\nsenders = []\npath = "INDIRECT:BROKER"\n[[paths]]\n',
    )
    never = [w for w in check(file).warnings if "ever" in w]
    assert len(never) == 1
    assert "A98" in never[0]
    file.write_text("strict_patterns = true\n" + file.read_text())
    never = [w for w in check(file).warnings if "ever" in w]
    assert any("A-99" in w and "can never match" in w for w in never)


def test_own_certificates_that_have_expired_are_doubted(tmp_path):
    signing = shared_pki().component("E1").signing
    assert own_certificates(tmp_path / "keys") == []
    owner_only.make_directory(tmp_path / "keys")
    write_record(tmp_path / "keys" / "one.json", signing)
    found = own_certificates(tmp_path / "keys")
    assert own_doubts(found, signing.not_after - timedelta(days=30)) == []
    (warning,) = own_doubts(found, signing.not_after + timedelta(days=1))
    assert f"SIGNING certificate {signing.certificate_id} expired at" in warning


def test_no_section_of_any_component_takes_a_key_that_it_does_not_know():
    seen = set()

    def walk(model):
        if model in seen:
            return
        seen.add(model)
        assert model.model_config.get("extra") == "forbid", model
        for field in model.model_fields.values():
            for inner in models(field.annotation):
                walk(inner)

    def models(kind):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield kind
        for inner in get_args(kind):
            yield from models(inner)

    for top in (
        BrokerConfiguration,
        BusConfiguration,
        CapacityConfiguration,
        DirectoryConfiguration,
        EndpointConfiguration,
        NodeConfiguration,
    ):
        walk(top)
    assert len(seen) > 50
