"""The table `[console]` in the configuration of every component: its keys and their defaults."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from gridpost.assembly.configuration import Duration
from gridpost.console.oidc import OidcSettings
from gridpost.console.roles import Person, Role
from gridpost.console.settings import ConsoleSettings
from gridpost.core.refusal import Refusal
from gridpost.services.operations.passwords import check_hash


def _hash(text: str) -> str:
    try:
        check_hash(text)
    except Refusal as refusal:
        raise ValueError(refusal.message) from None
    return text


def _https(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise ValueError(f"'{url}' must begin with https://")
    return url


def _positive(duration: timedelta) -> timedelta:
    if duration <= timedelta(0):
        raise ValueError("must be longer than nothing")
    return duration


_Period = Annotated[Duration, AfterValidator(_positive)]
_Address = Annotated[str, AfterValidator(_https)]
_Text = Annotated[str, Field(min_length=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PersonSection(_Section):
    role: Role
    password: Annotated[str, AfterValidator(_hash)]
    """scrypt hash; `gridpost console user add` makes it."""


class OidcSection(_Section):
    """Signing in with an OpenID provider, beside the people of this file."""

    issuer: _Address
    client_id: _Text
    client_secret: SecretStr = SecretStr("")
    """Better given by the environment than in the file."""
    address: _Address
    roles: Annotated[dict[str, Role], Field(min_length=1)]
    role_claim: _Text = "groups"
    name_claim: _Text = "preferred_username"
    scopes: tuple[str, ...] = ("openid", "profile")
    label: _Text = "single sign-on"
    ca: Path | None = None
    proxy: str = ""

    def settings(self) -> OidcSettings:
        return OidcSettings(
            self.issuer,
            self.client_id,
            self.client_secret.get_secret_value(),
            self.address,
            dict(self.roles),
            self.role_claim,
            self.name_claim,
            self.scopes,
            self.label,
            "" if self.ca is None else str(self.ca),
            self.proxy,
        )


class ConsoleSection(_Section):
    """With this table the component has a console, on an HTTPS port of its own."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8490
    certificate: Path | None = None
    """Chain (PEM) that browsers trust; without one the component shows its own certificate."""
    key: Path | None = None
    users: dict[str, PersonSection] = Field(default_factory=dict)
    idle: _Period = timedelta(minutes=30)
    longest: _Period = timedelta(hours=12)
    attempts: Annotated[int, Field(ge=1)] = 5
    locked: _Period = timedelta(minutes=15)
    documents: Role = Role.OPERATOR
    oidc: OidcSection | None = None
    lake: Path | None = None
    """A lake of `gridpost pipeline` on this machine: its key figures become a page."""

    @model_validator(mode="after")
    def _whole(self) -> ConsoleSection:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together")
        return self

    def settings(self) -> ConsoleSettings:
        return ConsoleSettings(
            {name: Person(p.role, p.password) for name, p in self.users.items()},
            self.idle,
            self.longest,
            self.attempts,
            self.locked,
            self.documents,
            None if self.oidc is None else self.oidc.settings(),
            self.lake,
        )


def console_in(folder: Path, section: ConsoleSection | None) -> ConsoleSection | None:
    """Relative paths in a file count from its folder."""
    if section is None:
        return None
    oidc = section.oidc
    if oidc is not None:
        oidc = oidc.model_copy(update={"ca": oidc.ca and folder / oidc.ca})
    return section.model_copy(
        update={
            "certificate": section.certificate and folder / section.certificate,
            "key": section.key and folder / section.key,
            "lake": section.lake and folder / section.lake,
            "oidc": oidc,
        }
    )
