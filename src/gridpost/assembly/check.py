"""What `gridpost check-config` finds in a file: mistakes are refused, doubts are warnings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

from gridpost.assembly.broker_configuration import COMPONENT as BROKER
from gridpost.assembly.broker_configuration import read_broker_configuration
from gridpost.assembly.configuration import read_toml
from gridpost.assembly.directory_configuration import COMPONENT as COMPONENT_DIRECTORY
from gridpost.assembly.directory_configuration import read_directory_configuration
from gridpost.assembly.endpoint_configuration import COMPONENT as ENDPOINT
from gridpost.assembly.endpoint_configuration import (
    EndpointConfiguration,
    read_endpoint_configuration,
)
from gridpost.core.identifiers import matches
from gridpost.core.own_entry import change
from gridpost.core.refusal import Refusal, Rule


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


def _directory(file: Path) -> Checked:
    configuration = read_directory_configuration(file)
    settings = configuration.settings()
    configuration.trusted_roots()
    warnings = list(_addresses([*settings.urls, *(u for p in settings.peers for u in p.urls)]))
    if not configuration.administration.tokens:
        warnings.append("administration.tokens is empty: nobody can approve a registration")
    return Checked(COMPONENT_DIRECTORY, configuration.code, warnings)


def _broker(file: Path) -> Checked:
    configuration = read_broker_configuration(file)
    configuration.settings()
    configuration.trusted_roots()
    change(None, configuration.entry())
    warnings = list(_addresses(list(configuration.server.urls)))
    if configuration.server.port not in (0, 5671):
        warnings.append("server.port is not 5671, on which 503 Table 4 has brokers listen")
    return Checked(BROKER, configuration.code, warnings)


def _endpoint(file: Path) -> Checked:
    configuration = read_endpoint_configuration(file)
    configuration.settings()
    configuration.trusted_roots()
    change(None, configuration.entry())
    urls = [] if configuration.direct is None else list(configuration.direct.urls)
    warnings = [*_addresses(urls), *_unused(configuration)]
    if configuration.direct is not None and configuration.direct.port not in (0, 5671):
        warnings.append("direct.port is not 5671, on which 503 Table 4 has endpoints listen")
    return Checked(ENDPOINT, configuration.code, warnings)


def _unused(configuration: EndpointConfiguration) -> list[str]:
    """Settings that cannot mean what their author hoped for."""
    users = configuration.users_of()
    found = []
    if configuration.direct is None:
        found += [
            f"the message-path {path.message_type} is DIRECT, but there is no section direct"
            for path in configuration.paths
            if path.path == "DIRECT"
        ]
    if not configuration.paths:
        found.append("there are no message-paths: nobody can send to this endpoint")
    for path in configuration.paths:
        stem = path.message_type.removesuffix("*")
        if not any(
            matches(pattern, stem) or pattern.startswith(stem)
            for user in users
            for pattern in user.receive
        ):
            found.append(f"no user receives message-type {path.message_type}")
    return found


def _addresses(urls: list[str]) -> list[str]:
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
    {BROKER: _broker, COMPONENT_DIRECTORY: _directory, ENDPOINT: _endpoint}
)
