"""The people of a console in its component's configuration file: added, changed, taken away."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gridpost.assembly.broker_configuration import COMPONENT as BROKER
from gridpost.assembly.broker_configuration import read_broker_configuration
from gridpost.assembly.configuration import read_toml
from gridpost.assembly.configuration_file import ConfigurationFile, remove_table, set_value
from gridpost.assembly.console_configuration import ConsoleSection
from gridpost.assembly.directory_configuration import COMPONENT as COMPONENT_DIRECTORY
from gridpost.assembly.directory_configuration import read_directory_configuration
from gridpost.assembly.endpoint_configuration import COMPONENT as ENDPOINT
from gridpost.assembly.endpoint_configuration import read_endpoint_configuration
from gridpost.assembly.node_configuration import COMPONENT as NODE
from gridpost.assembly.node_configuration import read_node_configuration
from gridpost.console.roles import Role
from gridpost.core.identifiers import clip
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.operations.passwords import MAX_SECRET, hash_password

SHORTEST = 12
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)


def _read_capacity(file: Path) -> Any:
    # The library for RabbitMQ is an extra: only who runs this component needs it.
    from gridpost.assembly.capacity_configuration import read_capacity_configuration

    return read_capacity_configuration(file)


def _read_bus(file: Path) -> Any:
    # As above.
    from gridpost.assembly.bus_configuration import read_bus_configuration

    return read_bus_configuration(file)


_READERS: MappingProxyType[str, Callable[[Path], Any]] = MappingProxyType(
    {
        BROKER: read_broker_configuration,
        "bus": _read_bus,
        "capacity": _read_capacity,
        COMPONENT_DIRECTORY: read_directory_configuration,
        ENDPOINT: read_endpoint_configuration,
        NODE: read_node_configuration,
    }
)


def users_of(file: Path) -> list[dict[str, str]]:
    section = _section(file)
    people = {} if section is None else section.users
    return [{"user": name, "role": person.role.value} for name, person in sorted(people.items())]


def add_user(file: Path, name: str, role: str, password: str) -> dict[str, str]:
    if not _NAME.fullmatch(name):
        raise Refusal(
            Rule.USAGE, f"'{clip(name)}' is no name: use letters, digits, '.', '_', '-' and '@'"
        )
    if role not in list(Role):
        raise Refusal(Rule.USAGE, f"'{clip(role)}' is no role: {', '.join(Role)}")
    if name in _names(file):
        raise Refusal(Rule.USAGE, f"{name} is known already: 'gridpost console user password'")
    told, hashed = _password(password)

    def edit(text: str) -> str:
        text = set_value(text, ("console", "users", name, "role"), role)
        return set_value(text, ("console", "users", name, "password"), hashed)

    _file(file).change(edit)
    return {"user": name, "role": role} | told


def change_password(file: Path, name: str, password: str) -> dict[str, str]:
    _check_known(file, name)
    told, hashed = _password(password)
    where = ("console", "users", name, "password")
    _file(file).change(lambda text: set_value(text, where, hashed))
    return {"user": name} | told


def remove_user(file: Path, name: str) -> None:
    _check_known(file, name)
    _file(file).change(lambda text: remove_table(text, ("console", "users", name)))


def _password(given: str) -> tuple[dict[str, str], str]:
    if given and not SHORTEST <= len(given) <= MAX_SECRET:
        raise Refusal(Rule.USAGE, f"a password has at least {SHORTEST} characters")
    chosen = given or secrets.token_urlsafe(18)
    return ({} if given else {"password": chosen}), hash_password(chosen)


def _check_known(file: Path, name: str) -> None:
    if name not in _names(file):
        raise Refusal(Rule.USAGE, f"nobody called '{clip(name)}' may use this console")


def _names(file: Path) -> list[str]:
    return [one["user"] for one in users_of(file)]


def _reader(file: Path) -> Callable[[Path], Any]:
    component = read_toml(file).get("component")
    reader = _READERS.get(component) if isinstance(component, str) else None
    if reader is None:
        raise Refusal(Rule.USAGE, f"{file}: component must be one of {', '.join(sorted(_READERS))}")
    return reader


def _section(file: Path) -> ConsoleSection | None:
    section: ConsoleSection | None = _reader(file)(file).console
    return section


def _file(file: Path) -> ConfigurationFile[Any]:
    return ConfigurationFile(file, _reader(file))
