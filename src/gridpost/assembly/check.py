"""What `gridpost check-config` finds in a file: mistakes are refused, doubts are warnings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

from gridpost.assembly.broker_configuration import COMPONENT as BROKER
from gridpost.assembly.broker_configuration import (
    BrokerConfiguration,
    read_broker_configuration,
)
from gridpost.assembly.channels import folder_doubts
from gridpost.assembly.clock import SystemClock
from gridpost.assembly.configuration import read_toml
from gridpost.assembly.console import FileCredentials
from gridpost.assembly.console_configuration import ConsoleSection
from gridpost.assembly.directory_configuration import COMPONENT as COMPONENT_DIRECTORY
from gridpost.assembly.directory_configuration import (
    DirectoryConfiguration,
    is_loopback,
    read_directory_configuration,
)
from gridpost.assembly.endpoint_configuration import COMPONENT as ENDPOINT
from gridpost.assembly.endpoint_configuration import (
    EndpointConfiguration,
    read_endpoint_configuration,
)
from gridpost.assembly.key_pairs import check_endpoint_pairs, check_pair
from gridpost.assembly.node_configuration import COMPONENT as NODE
from gridpost.assembly.node_configuration import NodeConfiguration, read_node_configuration
from gridpost.assembly.seal_configuration import seal_doubts
from gridpost.assembly.surroundings import doubts, never_used, own_certificates, own_doubts
from gridpost.core.certificate import CertificateKind, of_kind
from gridpost.core.channels import Receiving, meet
from gridpost.core.own_entry import change
from gridpost.core.refusal import Refusal, Rule

BUS = "bus"
CAPACITY = "capacity"
_Component = (
    BrokerConfiguration | DirectoryConfiguration | EndpointConfiguration | NodeConfiguration
)


@dataclass(frozen=True, slots=True)
class Checked:
    component: str
    code: str
    warnings: list[str]


def check(file: Path) -> Checked:
    """The file says by its key `component` whose configuration it is."""
    component = read_toml(file).get("component")
    checker = CHECKS.get(component) if isinstance(component, str) else None
    if checker is None:
        raise Refusal(Rule.USAGE, f"{file}: component must be one of {', '.join(sorted(CHECKS))}")
    return checker(file)


def _around(configuration: _Component, keys: Path | None = None) -> list[str]:
    now = SystemClock().now()
    return [
        *doubts(configuration, configuration.home, configuration.roots, now),
        *own_doubts(own_certificates(keys or configuration.home / "keys"), now),
    ]


def _node(file: Path) -> Checked:
    configuration = read_node_configuration(file)
    configuration.trusted_roots()
    warnings = list(_addresses([*configuration.server.urls]))
    warnings += _around(configuration)
    warnings += _console(configuration.console)
    made = own_certificates(configuration.home / "keys")
    if not of_kind(made, CertificateKind.INTEGRATED_CA):
        warnings.append("there is no INTEGRATED CA yet: run 'gridpost node init'")
    return Checked(NODE, configuration.code, warnings)


def _directory(file: Path) -> Checked:
    configuration = read_directory_configuration(file)
    settings = configuration.settings()
    configuration.trusted_roots()
    if configuration.postgres is not None:
        configuration.postgres.settings()
    warnings = list(_addresses([*settings.urls, *(u for p in settings.peers for u in p.urls)]))
    warnings += _around(configuration)
    if not configuration.administration.tokens:
        warnings.append("administration.tokens is empty: nobody can approve a registration")
    warnings += _console(configuration.console)
    return Checked(COMPONENT_DIRECTORY, configuration.code, warnings)


def _broker(file: Path) -> Checked:
    configuration = read_broker_configuration(file)
    configuration.settings()
    configuration.trusted_roots()
    change(None, configuration.entry())
    warnings = list(_addresses(list(configuration.server.urls)))
    if configuration.server.port not in (0, 5671):
        warnings.append("server.port is not 5671, on which 503 Table 4 has brokers listen")
    warnings += [*_rabbitmq(configuration), *_postgres(configuration), *_around(configuration)]
    warnings += _console(configuration.console)
    return Checked(BROKER, configuration.code, warnings)


def _console(section: ConsoleSection | None) -> list[str]:
    """Certificate and key are read as the console would read them."""
    if section is None:
        return []
    if section.certificate is not None and section.key is not None:
        FileCredentials(section.certificate, section.key)()
        check_pair(section.certificate, section.key)
    found = []
    if not section.users and section.oidc is None:
        found.append("console has no users: nobody can sign in ('gridpost console user add')")
    if section.certificate is None and not is_loopback(section.host):
        found.append("console has no certificate of its own: browsers will not trust it")
    return found


def _rabbitmq(configuration: BrokerConfiguration) -> list[str]:
    section = configuration.rabbitmq
    if section is None:
        return []
    if configuration.store.kind != "rabbitmq":
        return ['there is a section rabbitmq, but store is not "rabbitmq"']
    try:
        configuration.rabbit_tls().context()
    except OSError as error:
        raise Refusal(
            Rule.USAGE, "rabbitmq: roots, certificate and key cannot be used", str(error)
        ) from None
    found = []
    if section.virtual_host == "/":
        found.append("rabbitmq.virtual_host is '/': give edges one that nobody else may use")
    if len(configuration.server.urls) < 2:
        found.append("server.urls names one address: list those of all edges, primary first")
    return found


def _postgres(configuration: BrokerConfiguration) -> list[str]:
    if configuration.postgres is None:
        return []
    configuration.postgres.settings()
    found = []
    if len(configuration.server.urls) < 2:
        found.append("server.urls names one address: list those of all edges, primary first")
    return found


def _endpoint(file: Path) -> Checked:
    configuration = read_endpoint_configuration(file)
    configuration.settings()
    configuration.trusted_roots()
    if configuration.postgres is not None:
        configuration.postgres.settings()
    change(None, configuration.entry())
    check_endpoint_pairs(configuration)
    urls = [] if configuration.direct is None else list(configuration.direct.urls)
    warnings = [*_addresses(urls), *_unused(configuration)]
    warnings += never_used(
        configuration.paths_of(), SystemClock().now(), configuration.strict_patterns
    )
    warnings += seal_doubts(configuration.seals)
    warnings += _around(configuration, configuration.keys_folder())
    if configuration.folders is not None:
        warnings += folder_doubts(configuration.folders)
    if configuration.direct is not None and configuration.direct.port not in (0, 5671):
        warnings.append("direct.port is not 5671, on which 503 Table 4 has endpoints listen")
    warnings += _console(configuration.console)
    return Checked(ENDPOINT, configuration.code, warnings)


def _unused(configuration: EndpointConfiguration) -> list[str]:
    """Settings that cannot mean what their author hoped for."""
    found = []
    if configuration.direct is None:
        found += [
            f"the message-path {path.message_type} is DIRECT, but there is no section direct"
            for path in configuration.paths
            if path.path == "DIRECT"
        ]
    if not configuration.paths:
        found.append("there are no message-paths: nobody can send to this endpoint")
    return found + _not_received(configuration)


def _not_received(configuration: EndpointConfiguration) -> list[str]:
    """Message-types that can arrive, or are bound, and that nobody is given."""
    users, bindings = configuration.users_of(), configuration.bindings_of()
    open_channels = configuration.receiving()
    found = []
    asked = [path.message_type for path in configuration.paths]
    asked += [section.message_type for section in configuration.bindings]
    for part, binding in dict(
        cell for pattern in asked for cell in bindings.within(pattern)
    ).items():
        if binding.channel not in open_channels:
            found.append(
                f"message-type {part} is bound to the channel {binding.channel}, "
                "which this configuration does not open"
            )
        # What lies in a folder is for everybody who can read the folder.
        elif binding.channel is not Receiving.FOLDER and not any(
            binding.admits(user.name)
            and any(channel.receiving is binding.channel for channel in user.channels)
            and any(meet(pattern, part) for pattern in user.receive)
            for user in users
        ):
            found.append(f"no user receives message-type {part}")
    return found


def _capacity(file: Path) -> Checked:
    # The library for RabbitMQ is an extra: only who runs this component needs it.
    from gridpost.assembly.capacity_configuration import read_capacity_configuration

    configuration = read_capacity_configuration(file)
    configuration.settings()
    warnings = []
    if any(url.startswith("amqp://") for url in configuration.rabbitmq.urls):
        warnings.append("rabbitmq.urls has amqp://: without TLS there is no EXTERNAL login")
    if not configuration.users:
        warnings.append("there are no users: nobody can ask for capacity")
    if configuration.postgres is not None:
        configuration.postgres.settings()
    try:
        configuration.rabbitmq.context()()
    except OSError as error:
        raise Refusal(
            Rule.USAGE, "rabbitmq: roots, package, certificate or key cannot be used", str(error)
        ) from None
    section = configuration.administration
    if section is not None and not section.tokens:
        warnings.append("administration.tokens is empty: nobody can use the API")
    if section is not None and section.certificate is not None and section.key is not None:
        FileCredentials(section.certificate, section.key)()
    warnings += doubts(
        configuration, configuration.home, [configuration.rabbitmq.roots], SystemClock().now()
    )
    warnings += _console(configuration.console)
    return Checked(CAPACITY, configuration.code, warnings)


def _bus(file: Path) -> Checked:
    from gridpost.assembly.bus_check import bus_doubts
    from gridpost.assembly.bus_configuration import read_bus_configuration

    configuration = read_bus_configuration(file)
    warnings = [*bus_doubts(configuration), *_console(configuration.console)]
    return Checked(BUS, configuration.code, warnings)


def _addresses(urls: Iterable[str]) -> list[str]:
    """503 cl. 10: a fully qualified domain name rather than an IP address."""
    found = []
    for url in urls:
        try:
            ip_address(urlsplit(url).hostname or "")
        except ValueError:
            continue
        found.append(f"'{url}' names an IP address: a fully qualified domain name is better")
    return found


CHECKS: MappingProxyType[str, Callable[[Path], Checked]] = MappingProxyType(
    {
        BROKER: _broker,
        BUS: _bus,
        CAPACITY: _capacity,
        COMPONENT_DIRECTORY: _directory,
        ENDPOINT: _endpoint,
        NODE: _node,
    }
)
