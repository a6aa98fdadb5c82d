"""Users of the capacity interface at RabbitMQ: accounts, permissions, and the package that each gets.

The only part that holds the administrator's credential of RabbitMQ; the service never does.
"""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from gridpost.assembly.broker import pem_key
from gridpost.assembly.capacity_configuration import CapacityConfiguration
from gridpost.assembly.root_ca import ROOT_FILE
from gridpost.core.allocation import Role
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.keys.files import FileKeyring
from gridpost.stores.keys.rsa_operations import generate, to_pkcs8
from gridpost.wire.cmm import SCHEMA_NAME
from gridpost.wire.cmm.names import Permissions
from gridpost.wire.x509 import (
    Issuer,
    KeyBundle,
    Validity,
    from_pem,
    issue_tls,
    public_key,
    public_key_bytes,
    to_pem,
    write_pkcs12,
)

# Without a password: such a user can log in by its certificate only (EXTERNAL).
_NO_PASSWORD = {"password_hash": "", "tags": ""}


def accounts(configuration: CapacityConfiguration) -> dict[str, Permissions]:
    """Every user that RabbitMQ has to know, the service's own first."""
    names = configuration.names()
    return {
        configuration.rabbitmq.user: names.service_permissions(),
        **{user.name: names.client_permissions(user.name) for user in configuration.users},
    }


def definitions(configuration: CapacityConfiguration) -> dict[str, Any]:
    """For `rabbitmqctl import_definitions`, where there is no HTTP API."""
    host = configuration.rabbitmq.virtual_host
    wanted = accounts(configuration)
    return {
        "vhosts": [{"name": host}],
        "users": [{"name": user, **_NO_PASSWORD} for user in wanted],
        "permissions": [
            {"user": user, "vhost": host, **_rights(rights)} for user, rights in wanted.items()
        ],
    }


def apply(configuration: CapacityConfiguration) -> dict[str, list[str]]:
    """Bring accounts and permissions to what the configuration says; users that left are removed.

    Only users with permissions on our virtual host and without tags are ours to remove.
    """
    host = quote(configuration.rabbitmq.virtual_host, safe="")
    wanted = accounts(configuration)
    with _Api(configuration) as api:
        api.call("PUT", f"vhosts/{host}")
        present = {row["user"] for row in api.call("GET", f"vhosts/{host}/permissions")}
        known = {row["name"]: row for row in api.call("GET", "users")}
        for user, rights in wanted.items():
            if user not in known:
                api.call("PUT", f"users/{quote(user, safe='')}", _NO_PASSWORD)
            api.call("PUT", f"permissions/{host}/{quote(user, safe='')}", _rights(rights))
        gone = [
            user
            for user in sorted(present - set(wanted))
            if user in known and not known[user].get("tags")
        ]
        for user in gone:
            api.call("DELETE", f"users/{quote(user, safe='')}")
    return {"users": list(wanted), "added": sorted(set(wanted) - set(known)), "removed": gone}


def disable(configuration: CapacityConfiguration, user: str) -> None:
    """CMM 3.1.4: a client that causes trouble is shut out; `apply` lets it in again."""
    with _Api(configuration) as api:
        api.call("DELETE", f"users/{quote(user, safe='')}")


@dataclass(frozen=True, slots=True)
class Package:
    folder: Path
    files: list[str]


def make_package(
    configuration: CapacityConfiguration, user: str, folder: Path, passphrase: str, at: datetime
) -> Package:
    """CMM 4.2: certificate and key (.p12), CA root, schema, and a configuration for the client."""
    if user not in accounts(configuration):
        raise Refusal(Rule.USAGE, f"there is no user {user} in the configuration")
    root, issuer, validity = _authority(configuration, at)
    key = generate(2048)
    spki = public_key_bytes(key.public_key())
    certificate = issue_tls(user, spki, issuer, validity)
    bundle = KeyBundle(to_pkcs8(key), certificate, (root,), user)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    rabbitmq = configuration.rabbitmq
    urls = ", ".join(f'"{url}"' for url in rabbitmq.urls)
    written = {
        f"{user}.p12": write_pkcs12(bundle, passphrase),
        "cacert.pem": to_pem(root),
        SCHEMA_NAME: files("gridpost.wire.schemas").joinpath(SCHEMA_NAME).read_bytes(),
        "client.toml": (
            f'user = "{user}"\nurls = [{urls}]\nvirtual_host = "{rabbitmq.virtual_host}"\n'
            f'package = "{user}.p12"\nroots = "cacert.pem"\n'
            f"{_recovery(configuration, user)}"
        ).encode(),
    }
    for name, data in written.items():
        file = folder / name
        file.touch(mode=0o600)
        file.chmod(0o600)
        file.write_bytes(data)
    return Package(folder, sorted(written))


def _recovery(configuration: CapacityConfiguration, name: str) -> str:
    """What the client of a reporting user needs to ask for everything that it may have missed."""
    for user in configuration.users:
        if user.name == name and Role.ALLOCATION_REPORTING in user.roles:
            # Of all borders: others of its groups may have access to more than this user.
            pairs = [pair for border in configuration.borders for pair in border.interconnectors]
            # Arrays of strings are written alike in JSON and TOML.
            groups = json.dumps(list(user.balancing_groups))
            return (
                f'zone = "{configuration.zone}"\nbalancing_groups = {groups}\n'
                f"interconnectors = {json.dumps(pairs)}\n"
            )
    return ""


def make_server_certificate(
    configuration: CapacityConfiguration, names: tuple[str, ...], folder: Path, at: datetime
) -> Package:
    """For RabbitMQ itself: chain.pem, key.pem and root.pem."""
    root, issuer, validity = _authority(configuration, at)
    key = generate(2048)
    certificate = issue_tls(
        names[0], public_key_bytes(key.public_key()), issuer, validity, server_names=names
    )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    written = {
        "chain.pem": to_pem(certificate),
        "key.pem": pem_key(to_pkcs8(key)),
        "root.pem": to_pem(root),
    }
    for name, data in written.items():
        file = folder / name
        file.touch(mode=0o600)
        file.chmod(0o600)
        file.write_bytes(data)
    return Package(folder, sorted(written))


def _authority(
    configuration: CapacityConfiguration, at: datetime
) -> tuple[bytes, Issuer, Validity]:
    section = configuration.authority
    if section is None:
        raise Refusal(
            Rule.USAGE, "the configuration has no [authority]: make one with 'gridpost ca init'"
        )
    secret = section.passphrase
    ring = FileKeyring(
        section.folder / "keys", None if secret is None else secret.get_secret_value().encode()
    )
    try:
        (root,) = from_pem((section.folder / ROOT_FILE).read_bytes())
    except (OSError, ValueError):
        raise Refusal(
            Rule.USAGE, f"{section.folder} holds no CA: run 'gridpost ca init' first"
        ) from None
    issuer = Issuer(root, ring.sign_function(public_key_bytes(public_key(root))))
    return root, issuer, Validity.starting(at, section.validity)


def _rights(permissions: Permissions) -> dict[str, str]:
    return {
        "configure": permissions.configure,
        "write": permissions.write,
        "read": permissions.read,
    }


class _Api:
    """RabbitMQ's management API, as its administrator."""

    def __init__(self, configuration: CapacityConfiguration) -> None:
        section = configuration.management
        if section is None:
            raise Refusal(
                Rule.USAGE,
                "the configuration has no [management]",
                "without the HTTP API use 'gridpost capacity users --export FILE'",
            )
        self._url = f"{section.url.rstrip('/')}/api/"
        context: ssl.SSLContext | bool = True
        if section.url.startswith("https"):
            roots = None if section.roots is None else str(section.roots)
            context = ssl.create_default_context(cafile=roots)
        self._client = httpx.Client(
            verify=context,
            trust_env=False,
            timeout=30,
            auth=(section.user, section.password.get_secret_value()),
        )

    def __enter__(self) -> _Api:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def call(self, method: str, path: str, body: object = None) -> Any:
        try:
            response = self._client.request(method, self._url + path, json=body)
        except httpx.HTTPError as error:
            raise Refusal(
                Rule.UNREACHABLE, f"RabbitMQ's management API does not answer at {self._url}",
                str(error),
            ) from None  # fmt: skip
        if response.is_error:
            raise Refusal(
                Rule.AMQP091_DENIED if response.status_code == 401 else Rule.AMQP091_FAILED,
                f"RabbitMQ's management API answered {response.status_code} to {method} {path}",
                response.text[:500],
            )
        return response.json() if response.content else None
