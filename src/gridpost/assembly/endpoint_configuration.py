"""The configuration file of an endpoint: its keys, their defaults, and what they must not say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator
from pydantic_settings import SettingsConfigDict

from gridpost.assembly.broker_configuration import (
    CertificatesSection,
    Count,
    JournalSection,
    KeysSection,
    OperationsSection,
    Pattern,
    SynchronisationSection,
    Url,
)
from gridpost.assembly.configuration import Configuration, Duration, read_configuration
from gridpost.assembly.directory_configuration import (
    Code,
    ContactSection,
    Period,
    Port,
    is_loopback,
    read_certificates,
)
from gridpost.core.acceptance import DEFAULT_MAXIMUM_DURATION, MaximumDurations
from gridpost.core.component import Component, ComponentType, Contact, Implementation
from gridpost.core.identifiers import ComponentCode, MessageTypePattern
from gridpost.core.instant import Instant
from gridpost.core.message_box import Retention
from gridpost.core.message_path import MessagePath, Route, senders_of
from gridpost.core.refusal import Refusal
from gridpost.core.version import INSTALLED
from gridpost.services.directory_client.context import ClientSettings
from gridpost.services.endpoint.context import EndpointSettings
from gridpost.services.endpoint.line import LineSettings
from gridpost.services.endpoint.upkeep import UpkeepSettings
from gridpost.services.endpoint.users import User
from gridpost.services.operations.passwords import check_hash
from gridpost.transports.amqp10 import SocksProxy

COMPONENT = "endpoint"
MIB = 1024 * 1024

_ALWAYS = datetime(2000, 1, 1, tzinfo=UTC)


def _path(text: str) -> str:
    try:
        return str(Route.parse(text))
    except Refusal as refusal:
        raise ValueError(refusal.message) from None


def _hash(text: str) -> str:
    try:
        check_hash(text)
    except Refusal as refusal:
        raise ValueError(refusal.message) from None
    return text


def _aware(at: datetime) -> datetime:
    if at.tzinfo is None:
        raise ValueError("write the time with its offset, for example 2026-01-01T00:00:00Z")
    return at


def _socks(url: str) -> str:
    parts = urlsplit(url)
    if url and (parts.scheme != "socks5" or not parts.hostname):
        raise ValueError("write socks5://[user:password@]host:port")
    return url


Moment = Annotated[datetime, AfterValidator(_aware)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PathSection(_Section):
    """503 cl. 5.3: how others send messages to this endpoint."""

    message_type: Pattern = "*"
    path: Annotated[str, AfterValidator(_path)]
    senders: tuple[str, ...] = ("*",)
    valid_from: Moment = _ALWAYS
    valid_until: Moment | None = None

    def path_of(self) -> MessagePath:
        return MessagePath(
            MessageTypePattern(self.message_type),
            Route.parse(self.path),
            Instant.of(self.valid_from),
            None if self.valid_until is None else Instant.of(self.valid_until),
            senders_of(self.senders),
        )


class DirectSection(_Section):
    """503 cl. 4.4.1: with this section the endpoint takes direct transfers, on a port of its own."""

    host: str = "0.0.0.0"
    port: Port = 5671
    urls: Annotated[tuple[Url, ...], Field(min_length=1)]


class ExpirationSection(_Section):
    default: Period = DEFAULT_MAXIMUM_DURATION
    by_type: dict[Pattern, Period] = Field(default_factory=dict)


class RetentionSection(_Section):
    sent_metadata: Duration = timedelta(days=30)
    sent_content: Duration = timedelta(days=7)
    received_metadata: Duration = timedelta(days=30)
    received_content: Duration = timedelta(days=7)
    received_ids: Duration = timedelta(days=60)


class ConnectionsSection(_Section):
    """503 cl. 6.4: groups of consumers and producers, and the way out."""

    consumers: Count = 1
    consumers_of: dict[str, Count] = Field(default_factory=dict)
    producers: Count = 1
    producers_to: dict[str, Count] = Field(default_factory=dict)
    credit: Count = 100
    under_way: Count = 256
    arrivals_at_once: Count = 64
    idle: Period = timedelta(seconds=60)
    permanent: tuple[Code, ...] = ()
    proxy: Annotated[str, AfterValidator(_socks)] = ""


class ApiSection(_Section):
    """The JSON API for business applications."""

    host: str = "127.0.0.1"
    port: Port = 8480
    certificate: Path | None = None
    key: Path | None = None
    client_roots: tuple[Path, ...] = ()
    """CAs whose client certificates are looked at; which user one is, stands under users."""

    @model_validator(mode="after")
    def _guarded(self) -> ApiSection:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together")
        if self.certificate is None and not is_loopback(self.host):
            raise ValueError("without certificate and key the host must be a loopback address")
        if self.certificate is None and self.client_roots:
            raise ValueError("client certificates need HTTPS: give certificate and key")
        return self


class UserSection(_Section):
    password: Annotated[str, AfterValidator(_hash)] | None = None
    certificate: Annotated[str, Field(pattern="^[0-9A-Fa-f:]{64,95}$")] | None = None
    send: tuple[Pattern, ...] = ("*",)
    receive: tuple[Pattern, ...] = ("*",)

    @model_validator(mode="after")
    def _shows_something(self) -> UserSection:
        if self.password is None and self.certificate is None:
            raise ValueError("a user needs a password or a certificate")
        return self


class EndpointJournalSection(JournalSection):
    content: tuple[Pattern, ...] = ()
    """Message-types whose documents are journalled."""


class EndpointCertificatesSection(CertificatesSection):
    expiry_warning: Period = timedelta(days=30)


class EndpointConfiguration(Configuration):
    """`gridpost endpoint run --config FILE`."""

    model_config = SettingsConfigDict(env_prefix="GRIDPOST_ENDPOINT_")

    component: Literal["endpoint"]
    code: Code
    home: Path
    """Folder of keys and data; readable by this service only."""
    roots: tuple[Path, ...] = ()
    """ROOT CA certificates (PEM) in place of those of the installation bundle."""
    contact: ContactSection
    paths: tuple[PathSection, ...] = ()
    direct: DirectSection | None = None
    expiration: ExpirationSection = ExpirationSection()
    retention: RetentionSection = RetentionSection()
    priorities: dict[Pattern, int] = Field(default_factory=dict)
    ordered: tuple[Pattern, ...] = ()
    strict_patterns: bool = False
    max_content: Count = 64 * MIB
    connections: ConnectionsSection = ConnectionsSection()
    synchronisation: SynchronisationSection = SynchronisationSection()
    certificates: EndpointCertificatesSection = EndpointCertificatesSection()
    api: ApiSection | None = ApiSection()
    users: dict[str, UserSection] = Field(default_factory=dict)
    operations: OperationsSection = OperationsSection(port=8481)
    journal: EndpointJournalSection = EndpointJournalSection()
    keys: KeysSection = KeysSection(passphrase=None)
    drain: Period = timedelta(seconds=10)

    @model_validator(mode="after")
    def _fits(self) -> EndpointConfiguration:
        self.retention_of()
        return self

    def passphrase(self) -> bytes | None:
        secret: SecretStr | None = self.keys.passphrase
        return None if secret is None else secret.get_secret_value().encode()

    def settings(self) -> EndpointSettings:
        return EndpointSettings(
            durations=MaximumDurations(
                self.expiration.default,
                {MessageTypePattern(p): d for p, d in self.expiration.by_type.items()},
            ),
            strict_patterns=self.strict_patterns,
            max_content=self.max_content,
            priorities={MessageTypePattern(p): n for p, n in self.priorities.items()},
            ordered=_patterns(self.ordered),
            journalled_content=_patterns(self.journal.content),
        )

    def retention_of(self) -> Retention:
        return Retention(**self.retention.model_dump())

    def line_settings(self) -> LineSettings:
        section = self.connections
        return LineSettings(
            consumers=section.consumers,
            consumers_of=dict(section.consumers_of),
            producers=section.producers,
            producers_to=dict(section.producers_to),
            credit=section.credit,
            idle_seconds=section.idle.total_seconds(),
            permanent=section.permanent,
        )

    def upkeep_settings(self) -> UpkeepSettings:
        return UpkeepSettings(
            journal_retention=self.journal.retention,
            expiry_warning=self.certificates.expiry_warning,
        )

    def client_settings(self) -> ClientSettings:
        return ClientSettings(
            directories=tuple(ComponentCode(c) for c in self.synchronisation.directories),
            cycle=self.synchronisation.cycle,
            poll=min(timedelta(seconds=30), self.synchronisation.cycle),
            anticipation=self.certificates.renew_before,
        )

    def proxy(self) -> SocksProxy | None:
        parts = urlsplit(self.connections.proxy)
        if not parts.hostname:
            return None
        return SocksProxy(
            parts.hostname, parts.port or 1080, parts.username or "", parts.password or ""
        )

    def paths_of(self) -> tuple[MessagePath, ...]:
        return tuple(section.path_of() for section in self.paths)

    def entry(self) -> Component:
        """What the directory is told of this endpoint (503 Tables 18 and 21)."""
        return Component(
            ComponentCode(self.code),
            ComponentType.ENDPOINT,
            self.contact_of(),
            # The home directory fills in its own code.
            ComponentCode(self.code),
            Implementation(str(INSTALLED), "Gridpost"),
            # 503 Table 18: without URLs nobody dials this endpoint.
            () if self.direct is None else self.direct.urls,
            paths=self.paths_of(),
        )

    def contact_of(self) -> Contact:
        contact = self.contact
        return Contact(contact.organization, contact.person, contact.email, contact.phone)

    def trusted_roots(self) -> tuple[bytes, ...]:
        return tuple(der for file in self.roots for der in read_certificates(file))

    def users_of(self) -> list[User]:
        return [
            User(
                name,
                section.password or "",
                section.certificate or "",
                _patterns(section.send),
                _patterns(section.receive),
            )
            for name, section in self.users.items()
        ]


def read_endpoint_configuration(file: Path) -> EndpointConfiguration:
    """Relative paths in the file count from its folder."""
    configuration = read_configuration(file, EndpointConfiguration)
    folder = file.resolve().parent
    api = configuration.api
    if api is not None:
        api = api.model_copy(
            update={
                "certificate": api.certificate and folder / api.certificate,
                "key": api.key and folder / api.key,
                "client_roots": tuple(folder / root for root in api.client_roots),
            }
        )
    return configuration.model_copy(
        update={
            "home": folder / configuration.home,
            "roots": tuple(folder / root for root in configuration.roots),
            "api": api,
        }
    )


def _patterns(texts: tuple[str, ...]) -> tuple[MessageTypePattern, ...]:
    return tuple(MessageTypePattern(text) for text in texts)
