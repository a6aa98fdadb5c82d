"""The files of a new network: configuration with comments, a root CA, first secrets, units, containers.

Written once, into a folder that is new or empty. Secrets are made here and are readable by their
owner only; configuration holds their hashes.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import resources
from pathlib import Path
from types import MappingProxyType

from jinja2 import Environment, StrictUndefined

from gridpost import __version__
from gridpost.assembly.directory_configuration import (
    read_certificates,
    read_directory_configuration,
)
from gridpost.assembly.directory_keys import DirectoryKeys
from gridpost.assembly.network.plan import NetworkPlan, Party
from gridpost.assembly.root_ca import ROOT_FILE, create_root, sign_request
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.operations.administrators import hash_token, new_token
from gridpost.services.operations.passwords import hash_password

ADMINISTRATOR = "administrator"
APPLICATION = "app"
OPERATOR = "operator"
FOLDERS = ("OUT", "OUT_ERROR", "OUT_LOG", "IN")
MANIFEST = "network.json"
ROOT_YEARS, AUTHORITY_YEARS = 20, 10
_YEAR = timedelta(days=365)

UNITS = MappingProxyType(
    {"directory": "component-directory", "broker": "broker", "endpoint": "endpoint"}
)


@dataclass(frozen=True, slots=True)
class Placed:
    """One component of the network: the command that runs it, its code and its configuration."""

    command: str
    code: str
    configuration: Path
    ports: Mapping[str, int]

    @property
    def folder(self) -> Path:
        return self.configuration.parent


@dataclass(frozen=True, slots=True)
class NetworkFiles:
    folder: Path
    directory: Placed
    broker: Placed
    endpoints: tuple[Placed, ...]

    @property
    def root(self) -> Path:
        return self.folder / "root" / ROOT_FILE

    @property
    def token(self) -> Path:
        """The administrator's token for the directory."""
        return self.directory.folder / "administrator.token"

    @property
    def components(self) -> tuple[Placed, ...]:
        return (self.directory, self.broker, *self.endpoints)

    def console_password(self, component: Placed) -> Path:
        return component.folder / "console.password"

    def password(self, endpoint: Placed) -> Path:
        """The application's password at this endpoint."""
        return endpoint.folder / "app.password"

    def save(self) -> None:
        kept = [
            {
                "command": placed.command,
                "code": placed.code,
                "configuration": str(placed.configuration.relative_to(self.folder)),
                "ports": dict(placed.ports),
            }
            for placed in self.components
        ]
        text = json.dumps({"components": kept}, indent=2) + "\n"
        (self.folder / MANIFEST).write_text(text, encoding="utf-8")


def write_network(folder: Path, plan: NetworkPlan, at: datetime) -> NetworkFiles:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Refusal(
            Rule.USAGE,
            f"{folder} is not empty",
            "name a folder that is new or empty: nothing is overwritten",
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    create_root(folder / "root", "ROOT CA", "", ROOT_YEARS * _YEAR, at, None)
    token = new_token()
    _secret(folder / plan.directory / "administrator.token", token)
    directory = _place(folder, plan, "directory", plan.directory, {"token_hash": hash_token(token)})
    broker = _place(folder, plan, "broker", plan.broker, {})
    endpoints = tuple(_endpoint(folder, plan, party) for party in plan.parties)
    files = NetworkFiles(folder, directory, broker, endpoints)
    _authority(files, at)
    _surroundings(files, plan)
    files.save()
    return files


def read_network(folder: Path) -> NetworkFiles:
    """The network that `write_network` made in this folder."""
    try:
        kept = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        placed = [
            Placed(
                c["command"], c["code"], folder / c["configuration"], MappingProxyType(c["ports"])
            )
            for c in kept["components"]
        ]
        directory, broker, *endpoints = placed
    except (OSError, ValueError, KeyError, TypeError):
        raise Refusal(
            Rule.USAGE,
            f"{folder} holds no network",
            "name a folder that is new, empty, or made here",
        ) from None
    return NetworkFiles(folder, directory, broker, tuple(endpoints))


def _endpoint(folder: Path, plan: NetworkPlan, party: Party) -> Placed:
    password = secrets.token_urlsafe(24)
    _secret(folder / party.code / "app.password", password)
    for name in FOLDERS:
        (folder / party.code / "folders" / name).mkdir(mode=0o700, parents=True)
    more = {"party": party, "application": APPLICATION, "password_hash": hash_password(password)}
    return _place(folder, plan, "endpoint", party.code, more)


def _place(
    folder: Path, plan: NetworkPlan, command: str, code: str, more: Mapping[str, object]
) -> Placed:
    taken: dict[str, int] = {}

    def port(name: str) -> int:
        if name not in taken:
            taken[name] = plan.ports()
        return taken[name]

    file = folder / code / f"{command}.toml"
    password = secrets.token_urlsafe(18)
    _secret(file.parent / "console.password", password)
    text = _render(
        f"{command}.toml.j2",
        plan=plan,
        code=code,
        port=port,
        administrator=ADMINISTRATOR,
        operator=OPERATOR,
        console_hash=hash_password(password),
        **more,
    )
    file.write_text(text, encoding="utf-8")
    file.chmod(0o600)
    return Placed(command, code, file, MappingProxyType(taken))


def _authority(files: NetworkFiles, at: datetime) -> None:
    """The INTEGRATED CA of the directory, certified by the new root."""
    keys = DirectoryKeys(read_directory_configuration(files.directory.configuration))
    request = keys.request()
    _, certificate = sign_request(
        files.root.parent, request.read_bytes(), AUTHORITY_YEARS * _YEAR, at, None
    )
    file = files.directory.folder / "integrated-ca.pem"
    file.write_bytes(certificate)
    (der,) = read_certificates(file)
    keys.install_authority(der, at)


def _surroundings(files: NetworkFiles, plan: NetworkPlan) -> None:
    common = {"files": files, "plan": plan, "version": __version__, "units": UNITS}
    units = files.folder / "systemd"
    units.mkdir()
    for component in files.components:
        # An @ in the name of a unit would make it an instance of a template.
        name = f"gridpost-{component.code.replace('@', '-')}.service"
        text = _render(
            "unit.service.j2",
            component=component,
            gridpost=Path(sys.executable).with_name("gridpost"),
            **common,
        )
        (units / name).write_text(text, encoding="utf-8")
    for name in ("compose.yaml", "Dockerfile", "README.md"):
        (files.folder / name).write_text(_render(f"{name}.j2", **common), encoding="utf-8")
    script = files.folder / "enrol.sh"
    script.write_text(_render("enrol.sh.j2", **common), encoding="utf-8")
    script.chmod(0o700)


def _secret(file: Path, text: str) -> None:
    file.parent.mkdir(mode=0o700, exist_ok=True)
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as stream:
        stream.write(text + "\n")


def _render(name: str, **values: object) -> str:
    template = resources.files(__package__).joinpath("templates", name).read_text(encoding="utf-8")
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
        autoescape=False,
    )  # fmt: skip
    environment.filters["sh"] = lambda value: shlex.quote(str(value))
    return environment.from_string(template).render(**values)
