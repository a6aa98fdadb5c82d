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
from gridpost.assembly.configuration import Duration, Period, Port, read_configuration
from gridpost.assembly.console_configuration import ConsoleSection, console_in
from gridpost.assembly.directory_configuration import (
    Code,
    ContactSection,
    read_certificates,
)
from gridpost.assembly.endpoint_channels_configuration import (
    MIB,
    AmqpSection,
    ApiSection,
    BindingSection,
    CheckSection,
    FoldersSection,
    UserSection,
    patterns_of,
)
from gridpost.assembly.old_network_configuration import OldNetworkSection
from gridpost.assembly.postgres_configuration import PostgresSection
from gridpost.assembly.seal_configuration import Peer, SealSection
from gridpost.assembly.token_configuration import TokenPlace
from gridpost.assembly.watching_configuration import WatchedConfiguration, watched_in
from gridpost.core.acceptance import DEFAULT_MAXIMUM_DURATION, MaximumDurations
from gridpost.core.certificate import CertificateKind
from gridpost.core.channels import Binding, Bindings, Channel, Receiving, meet
from gridpost.core.component import Component, ComponentType, Contact, Implementation
from gridpost.core.identifiers import ComponentCode, MessageTypePattern
from gridpost.core.instant import Instant
from gridpost.core.message_box import Retention
from gridpost.core.message_path import MessagePath, Route, senders_of
from gridpost.core.node import PurgeStrategy
from gridpost.core.refusal import Refusal
from gridpost.core.version import INSTALLED
from gridpost.services.directory_client.context import ClientSettings
from gridpost.services.endpoint.context import EndpointSettings
from gridpost.services.endpoint.line import LineSettings
from gridpost.services.endpoint.probe import ProbeSettings
from gridpost.services.endpoint.upkeep import UpkeepSettings
from gridpost.services.endpoint.users import User
from gridpost.transports.amqp10 import SocksProxy

COMPONENT = "endpoint"

_ALWAYS = datetime(2000, 1, 1, tzinfo=UTC)


def _path(text: str) -> str:
    try:
        return str(Route.parse(text))
    except Refusal as refusal:
        raise ValueError(refusal.message) from None


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
    by_type: dict[str, PurgeStrategy] = Field(default_factory=dict)
    """MADES 1.1 cl. 3.6: of these message-types only the content goes, or nothing."""


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
    exactly_once: bool = False
    """503 cl. 6.3: settle second on the links that this endpoint opens (AMQP rcv-settle-mode)."""
    proxy: Annotated[str, AfterValidator(_socks)] = ""


class EndpointJournalSection(JournalSection):
    content: tuple[Pattern, ...] = ()
    """Message-types whose documents are journalled."""


class EndpointLogSection(_Section):
    messages: bool = True
    """A log line for each step of each message, with its correlation id."""


class EndpointCertificatesSection(CertificatesSection):
    expiry_warning: Period = timedelta(days=30)


class ProbeSection(_Section):
    """The partner to whom `/health/deep` sends a tracing message."""

    partner: Code
    message_type: str = "HEALTH"
    timeout: Period = timedelta(seconds=30)

    def settings(self) -> ProbeSettings:
        return ProbeSettings(self.partner, self.message_type, self.timeout.total_seconds())


class EndpointOperationsSection(OperationsSection):
    port: Port = 8481
    probe: ProbeSection | None = None


class TokenSection(TokenPlace):
    """A PKCS#11 token that makes and holds private keys; they never leave it."""

    kinds: Annotated[
        tuple[Literal[CertificateKind.SIGNING, CertificateKind.ENCRYPTION], ...],
        Field(min_length=1),
    ] = (CertificateKind.SIGNING, CertificateKind.ENCRYPTION)


class EndpointKeysSection(KeysSection):
    place: Literal["folder", "store"] = "folder"
    """store: in the database, encrypted with the passphrase, for all processes of the endpoint."""
    folder: Path | None = None
    """A folder that all processes of the endpoint can read; otherwise `keys` in the home."""
    token: TokenSection | None = None


class EndpointConfiguration(WatchedConfiguration):
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
    seals: dict[Peer, SealSection] = Field(default_factory=dict)
    """By the code of the peer; `*` counts for all who are not named."""
    max_content: Count = 64 * MIB
    connections: ConnectionsSection = ConnectionsSection()
    synchronisation: SynchronisationSection = SynchronisationSection()
    certificates: EndpointCertificatesSection = EndpointCertificatesSection()
    api: ApiSection | None = ApiSection()
    users: dict[str, UserSection] = Field(default_factory=dict)
    amqp: AmqpSection | None = None
    folders: FoldersSection | None = None
    bindings: tuple[BindingSection, ...] = ()
    checks: tuple[CheckSection, ...] = ()
    operations: EndpointOperationsSection = EndpointOperationsSection()
    journal: EndpointJournalSection = EndpointJournalSection()
    log: EndpointLogSection = EndpointLogSection()
    keys: EndpointKeysSection = EndpointKeysSection()
    store: Literal["sqlite", "postgres"] = "sqlite"
    """postgres: several processes of this endpoint may share the message box."""
    postgres: PostgresSection | None = None
    console: ConsoleSection | None = None
    drain: Period = timedelta(seconds=10)
    old_network: OldNetworkSection | None = None
    """A network of MADES 1.1 in which this endpoint lives as well, or only."""

    @model_validator(mode="after")
    def _fits(self) -> EndpointConfiguration:
        self.retention_of()
        self._bindings_fit()
        names = [section.name for section in self.checks]
        if len(set(names)) < len(names):
            raise ValueError("every check has a name of its own")
        if (self.store == "postgres") != (self.postgres is not None):
            raise ValueError('store = "postgres" and the section [postgres] belong together')
        if self.keys.place == "store" and (self.postgres is None or self.keys.passphrase is None):
            raise ValueError(
                'keys.place = "store" needs store = "postgres" and a keys.passphrase: '
                "private keys are never in a database unencrypted"
            )
        if self.folders is not None:
            user = self.users.get(self.folders.user)
            if user is None or Channel.FOLDER not in user.channels:
                raise ValueError(
                    f"folders.user is {self.folders.user}, who is no user with the channel folder: "
                    f'add [users.{self.folders.user}] with channels = ["folder"]'
                )
        return self

    def _bindings_fit(self) -> None:
        """One message-type, one receiving channel; and every named user can have what it is given."""
        try:
            bindings = self.bindings_of()
        except Refusal as refusal:
            raise ValueError(f"{refusal.message}: {refusal.details}") from None
        users = {user.name: user for user in self.users_of()}
        for section in self.bindings:
            for name in section.users:
                if name not in users:
                    raise ValueError(f"{section.message_type} is bound to {name}, who is no user")
                if not any(meet(p, section.message_type) for p in users[name].receive):
                    raise ValueError(
                        f"{section.message_type} is bound to {name}, who may not receive it"
                    )
                if not any(c.receiving is section.channel for c in users[name].channels):
                    raise ValueError(
                        f"{section.message_type} is bound to {name} through the channel "
                        f"{section.channel}, which is closed to {name}"
                    )
        for user in users.values():
            doors = {channel.receiving for channel in user.channels}
            for pattern in user.receive:
                taken = {binding.channel for _, binding in bindings.within(pattern)}
                if pattern != "*" and not taken & doors:
                    raise ValueError(
                        f"{user.name} receives {pattern}, which is bound to the channel "
                        f"{', '.join(sorted(taken))}: a message-type has one receiving channel"
                    )

    def keys_folder(self) -> Path:
        return self.keys.folder or self.home / "keys"

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
            ordered=patterns_of(self.ordered),
            journalled_content=patterns_of(self.journal.content),
            log_messages=self.log.messages,
            profiles={peer: section.profile() for peer, section in self.seals.items()},
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
            proxy=self.synchronisation.proxy,
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
        return [section.user(name) for name, section in self.users.items()]

    def bindings_of(self) -> Bindings:
        return Bindings(
            Binding(MessageTypePattern(b.message_type), b.channel, b.users) for b in self.bindings
        )

    def receiving(self) -> frozenset[Receiving]:
        """The receiving channels that this configuration opens."""
        opened = {
            Receiving.PULL: self.api is not None,
            Receiving.AMQP: self.amqp is not None,
            Receiving.FOLDER: self.folders is not None,
        }
        return frozenset(channel for channel, is_open in opened.items() if is_open)


def read_endpoint_configuration(file: Path) -> EndpointConfiguration:
    """Relative paths in the file count from its folder."""
    configuration = read_configuration(file, EndpointConfiguration)
    folder = file.resolve().parent
    keys, postgres = configuration.keys, configuration.postgres
    return configuration.model_copy(
        update={
            "keys": keys.model_copy(update={"folder": keys.folder and folder / keys.folder}),
            "postgres": postgres and postgres.beside(folder),
            "amqp": configuration.amqp and configuration.amqp.within(folder),
            "folders": configuration.folders and configuration.folders.within(folder),
            "home": folder / configuration.home,
            "checks": tuple(
                c.model_copy(update={"ca": c.ca and folder / c.ca}) for c in configuration.checks
            ),
            "roots": tuple(folder / root for root in configuration.roots),
            "api": configuration.api and configuration.api.within(folder),
            "console": console_in(folder, configuration.console),
            "old_network": configuration.old_network and configuration.old_network.beside(folder),
            **watched_in(folder, configuration),
        }
    )
