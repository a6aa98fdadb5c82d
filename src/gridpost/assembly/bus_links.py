"""Sections of a bus's configuration about others: web services, routes, adapters, the endpoint."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from gridpost.assembly.configuration import Period, Port
from gridpost.assembly.directory_configuration import is_loopback
from gridpost.core.envelope import EVENT_VERBS, REQUEST_VERBS

MIB = 1024 * 1024
Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,60}$")]
_MAILBOXES = ("folder:", "sql:", "ftp://", "ftps://", "sftp://")


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class WebUserSection(_Section):
    name: Name
    password: SecretStr
    """A hash, as `gridpost console hash` writes it."""


class SecuritySection(_Section):
    """WS-Security (61968-100 cl. 9): X.509 signatures of the SOAP body."""

    verify: bool = False
    """A SOAP message without a good signature is refused."""
    roots: Path | None = None
    """Whoever signs has a certificate of one of these."""
    certificate: Path | None = None
    """Answers and calls are signed with it."""
    key: Path | None = None
    window: Period = timedelta(minutes=5)

    @model_validator(mode="after")
    def _whole(self) -> SecuritySection:
        if self.verify and self.roots is None:
            raise ValueError("verify needs roots")
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key go together")
        return self


class WebSection(_Section):
    """Web services of the bus: generic, typed and REST."""

    host: str = "127.0.0.1"
    port: Port = 8492
    url: str = ""
    """As clients see it, where something stands in front of the bus."""
    certificate: Path | None = None
    key: Path | None = None
    client_roots: Path | None = None
    """Clients show a certificate of one of these."""
    users: tuple[WebUserSection, ...] = ()
    """HTTP Basic; empty: whoever gets a connection may ask."""
    security: SecuritySection = SecuritySection()

    @model_validator(mode="after")
    def _guarded(self) -> WebSection:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key go together")
        if self.certificate is None and not is_loopback(self.host):
            raise ValueError("web.host must be a loopback address, or have a certificate and key")
        if self.client_roots is not None and self.certificate is None:
            raise ValueError("client_roots needs certificate and key")
        return self


class CallingSection(_Section):
    """How the bus itself calls web services."""

    roots: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    timeout: Period = timedelta(seconds=30)
    retries: tuple[Period, ...] = tuple(timedelta(seconds=s) for s in (1, 5, 30, 120, 600))
    """Pauses between attempts; after the last one it is a dead letter."""


class TreatmentSection(_Section):
    xslt: Path | None = None
    """From envelope to envelope."""
    unpack: bool = False
    """The target cannot decompress payloads."""


class RouteTargetSection(_Section):
    to: str
    instance: str = ""
    """Code of the bus that serves it: only while it is alive, and the one with the least load."""

    @model_validator(mode="after")
    def _known(self) -> RouteTargetSection:
        if not self.to.startswith(("queue:", "http://", "https://", "mades:")):
            raise ValueError("a route leads to queue:NAME, http(s)://… or mades:CODE")
        return self


class RouteSection(TreatmentSection):
    verb: str = "*"
    noun: str = "*"
    when: str = ""
    """XPath over the header with the prefix m, as in m:Source = 'EMS'."""
    targets: Annotated[tuple[RouteTargetSection, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _verb(self) -> RouteSection:
        if self.verb != "*" and self.verb not in REQUEST_VERBS:
            raise ValueError(f"'{self.verb}' is not a verb of requests")
        return self


class SubscriberSection(TreatmentSection):
    """Events go to it, one after the other."""

    name: Name
    verb: str = "*"
    noun: str = "*"
    to: str
    """http(s)://…, folder:PATH, sql:TABLE, ftp(s)://… or sftp://…"""
    form: Literal["soap", "xml", "typed"] = "soap"
    """For URLs: PublishEvent of the generic service, the bare envelope, or the noun's Send or
    Receive service of Annex C."""
    password: SecretStr | None = None
    known_hosts: Path | None = None
    key: Path | None = None
    retries: tuple[Period, ...] = tuple(timedelta(seconds=s) for s in (1, 5, 30, 120))

    @model_validator(mode="after")
    def _known(self) -> SubscriberSection:
        if self.verb != "*" and self.verb not in EVENT_VERBS:
            raise ValueError(f"'{self.verb}' is not a verb of events")
        _mailbox(self.to, self.known_hosts, ("http://", "https://"))
        return self


class SourceSection(_Section):
    """An adapter that feeds the bus."""

    name: Name
    take: str
    """folder:PATH, sql:TABLE, ftp(s)://… or sftp://…"""
    context: Name
    every: Period = timedelta(seconds=5)
    verb: str = ""
    noun: str = ""
    """With verb and noun the files are payloads, without them envelopes."""
    xslt: Path | None = None
    password: SecretStr | None = None
    known_hosts: Path | None = None
    key: Path | None = None

    @model_validator(mode="after")
    def _known(self) -> SourceSection:
        if bool(self.verb) != bool(self.noun):
            raise ValueError("verb and noun go together")
        if self.verb and self.verb not in EVENT_VERBS | REQUEST_VERBS:
            raise ValueError(f"'{self.verb}' is not a verb")
        _mailbox(self.take, self.known_hosts, ())
        return self


class ClaimsSection(_Section):
    """Requests above this size wait in a folder that all processes share, not in a queue."""

    folder: Path = Path("claims")
    above: Annotated[int, Field(ge=1)] = 4 * MIB
    keep: Period = timedelta(days=1)


class MadesSection(_Section):
    """The endpoint through which envelopes reach other parties."""

    url: str
    user: str = ""
    password: SecretStr | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    context: Name
    """Of envelopes that come from other parties."""
    request_type: str = "A61968-REQUEST"
    response_type: str = "A61968-RESPONSE"
    every: Period = timedelta(seconds=1)


def _mailbox(to: str, known_hosts: Path | None, more: tuple[str, ...]) -> None:
    allowed = (*more, *_MAILBOXES)
    if not to.startswith(allowed):
        raise ValueError(f"'{to}' begins with none of {', '.join(allowed)}")
    if to.startswith("sftp://") and known_hosts is None:
        raise ValueError("sftp needs known_hosts: the keys of the server")
