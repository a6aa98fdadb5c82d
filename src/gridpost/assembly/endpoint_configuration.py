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
    is_loopback,
    read_certificates,
)
from gridpost.assembly.old_network_configuration import OldNetworkSection
from gridpost.assembly.postgres_configuration import PostgresSection
from gridpost.assembly.watching_configuration import WatchedConfiguration, watched_in
from gridpost.core.acceptance import DEFAULT_MAXIMUM_DURATION, MaximumDurations
from gridpost.core.channels import Binding, Bindings, Channel, Receiving, meet
from gridpost.core.checks import Stage, WhenDown
from gridpost.core.component import Component, ComponentType, Contact, Implementation
from gridpost.core.identifiers import ComponentCode, MessageTypePattern
from gridpost.core.instant import Instant
from gridpost.core.message_box import Retention
from gridpost.core.message_path import MessagePath, Route, senders_of
from gridpost.core.refusal import Refusal
from gridpost.core.version import INSTALLED
from gridpost.services.directory_client.context import ClientSettings
from gridpost.services.endpoint.amqp_channel import AmqpChannelSettings
from gridpost.services.endpoint.context import EndpointSettings
from gridpost.services.endpoint.line import LineSettings
from gridpost.services.endpoint.probe import ProbeSettings
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


def _icap(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("icap", "icaps") or not parts.hostname:
        raise ValueError("write icap://host:port/service, or icaps:// for TLS")
    if parts.scheme == "icap" and not is_loopback(parts.hostname):
        raise ValueError("documents leave this machine by TLS only: write icaps://")
    return url


Moment = Annotated[datetime, AfterValidator(_aware)]
QueueName = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[\x21-\x7e]+$")]


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
    """Where business applications send and pull: the JSON API and SOAP."""

    host: str = "127.0.0.1"
    port: Port = 8480
    certificate: Path | None = None
    key: Path | None = None
    client_roots: tuple[Path, ...] = ()
    """CAs whose client certificates are looked at; which user one is, stands under users."""
    channels: Annotated[tuple[Literal[Channel.JSON, Channel.SOAP], ...], Field(min_length=1)] = (
        Channel.JSON,
        Channel.SOAP,
    )
    url: str = ""
    """What the WSDL says of where the service is; empty: where it was asked for."""
    body_timeout: Period = timedelta(minutes=5)
    """How long a client may take to hand in one request."""
    soap_requests_per_user: Count = 64
    max_envelope: Count = MIB
    """Of a SOAP request, without its document."""

    @model_validator(mode="after")
    def _guarded(self) -> ApiSection:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together")
        if self.certificate is None and not is_loopback(self.host):
            raise ValueError("without certificate and key the host must be a loopback address")
        if self.certificate is None and self.client_roots:
            raise ValueError("client certificates need HTTPS: give certificate and key")
        return self


class AmqpQueuesSection(_Section):
    outbox: QueueName = "ecp.endpoint.outbox"
    reply: QueueName = "ecp.endpoint.outbox.reply"
    inbox: QueueName = "ecp.endpoint.inbox"
    event: QueueName = "ecp.endpoint.send.event"

    @model_validator(mode="after")
    def _differ(self) -> AmqpQueuesSection:
        names = [self.outbox, self.reply, self.inbox, self.event]
        if len(set(names)) < len(names):
            raise ValueError("the four queues need four names")
        return self


class AmqpSection(_Section):
    """The AMQP channel for business applications."""

    host: str = "127.0.0.1"
    port: Port = 5672
    mechanism: Literal["PLAIN", "EXTERNAL"] = "PLAIN"
    certificate: Path | None = None
    key: Path | None = None
    client_roots: tuple[Path, ...] = ()
    """EXTERNAL: CAs whose client certificates are accepted; whose one is, stands under users."""
    queues: AmqpQueuesSection = AmqpQueuesSection()
    replies: bool = True
    events: bool = True
    keep: Period = timedelta(days=7)
    credit: Count = 500
    max_unsettled: Count = 2_000
    max_connections_per_user: Count = 32

    @model_validator(mode="after")
    def _guarded(self) -> AmqpSection:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together")
        if self.certificate is None and not is_loopback(self.host):
            raise ValueError("without certificate and key the host must be a loopback address")
        if self.mechanism == "EXTERNAL" and (self.certificate is None or not self.client_roots):
            raise ValueError("EXTERNAL needs certificate, key and client_roots")
        if self.mechanism == "PLAIN" and self.client_roots:
            raise ValueError("client_roots are for the mechanism EXTERNAL")
        return self

    def settings(self) -> AmqpChannelSettings:
        names = self.queues
        return AmqpChannelSettings(
            names.outbox,
            names.reply,
            names.inbox,
            names.event,
            self.replies,
            self.events,
            self.keep,
        )


class InSection(_Section):
    """Where received documents go, and the extension of those whose sender gave none."""

    folder: Path
    extension: Annotated[str, Field(pattern="^[A-Za-z0-9-]*$")] = ""

    @model_validator(mode="after")
    def _is_read(self) -> InSection:
        if self.extension in ("tmp", "TMP"):
            raise ValueError("no application reads files with the extension tmp")
        return self


class FoldersSection(_Section):
    """503 cl. 11.2.4: File System Shared Folders."""

    out: Path
    out_error: Path
    out_log: Path
    user: str = "folder"
    """A user of this configuration with the channel folder: its rights count for OUT."""
    default: InSection | None = Field(default=None, alias="in")
    types: dict[Pattern, InSection] = Field(default_factory=dict)
    watch: Literal["inotify", "polling"] = "inotify"
    poll: Period = timedelta(seconds=1)
    rescan: Period = timedelta(seconds=60)
    retry: Period = timedelta(seconds=15)
    at_once: Count = 16
    file_mode: Annotated[str, Field(pattern="^0?[0-7]{3}$")] = "0640"

    @model_validator(mode="after")
    def _apart(self) -> FoldersSection:
        # m11 cl. 5.2.3.2: each kind of file has a folder of its own.
        ins = {section.folder for section in self.ins()}
        kinds = [{self.out}, {self.out_error}, {self.out_log}, ins]
        if len(set().union(*kinds)) < sum(len(kind) for kind in kinds):
            raise ValueError("OUT, OUT_ERROR, OUT_LOG and IN are different folders")
        return self

    def ins(self) -> list[InSection]:
        return [*self.types.values(), *([self.default] if self.default else [])]

    def folders(self) -> list[Path]:
        return [self.out, self.out_error, self.out_log, *(s.folder for s in self.ins())]

    def within(self, folder: Path) -> FoldersSection:
        """With relative paths counted from there."""

        def moved(section: InSection) -> InSection:
            return section.model_copy(update={"folder": folder / section.folder})

        return self.model_copy(
            update={
                "out": folder / self.out,
                "out_error": folder / self.out_error,
                "out_log": folder / self.out_log,
                "default": self.default and moved(self.default),
                "types": {pattern: moved(section) for pattern, section in self.types.items()},
            }
        )


class UserSection(_Section):
    password: Annotated[str, AfterValidator(_hash)] | None = None
    certificate: Annotated[str, Field(pattern="^[0-9A-Fa-f:]{64,95}$")] | None = None
    send: tuple[Pattern, ...] = ("*",)
    receive: tuple[Pattern, ...] = ("*",)
    channels: tuple[Channel, ...] = tuple(Channel)
    operator: bool = False
    """Through the JSON API: may send again, cancel, pause, release and maintain."""

    @model_validator(mode="after")
    def _shows_something(self) -> UserSection:
        # A folder knows its user by the rights of the file system.
        doors = set(self.channels) - {Channel.FOLDER}
        if doors and self.password is None and self.certificate is None:
            raise ValueError("a user needs a password or a certificate")
        return self

    def user(self, name: str) -> User:
        return User(
            name,
            self.password or "",
            self.certificate or "",
            _patterns(self.send),
            _patterns(self.receive),
            frozenset(self.channels),
            self.operator,
        )


class BindingSection(_Section):
    """Through which channel, and to which users, received documents of these types go."""

    message_type: Pattern
    channel: Receiving = Receiving.PULL
    users: tuple[str, ...] = ()


class CheckSection(_Section):
    """A check of documents by somebody else's program."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    message_types: Annotated[tuple[Pattern, ...], Field(min_length=1)] = ("*",)
    before: Annotated[tuple[Stage, ...], Field(min_length=1)] = tuple(Stage)
    command: tuple[str, ...] = ()
    icap: Annotated[str, AfterValidator(_icap)] | None = None
    preview: Annotated[int, Field(ge=0, le=MIB)] = 1024
    ca: Path | None = None
    """CA of an icaps server (PEM) in place of those of the system."""
    timeout: Period = timedelta(seconds=30)
    at_once: Count = 4
    when_down: WhenDown = WhenDown.REFUSE

    @model_validator(mode="after")
    def _one_of_two(self) -> CheckSection:
        if bool(self.command) == (self.icap is not None):
            raise ValueError("a check is either a command or an icap server")
        return self


class EndpointJournalSection(JournalSection):
    content: tuple[Pattern, ...] = ()
    """Message-types whose documents are journalled."""


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


class EndpointKeysSection(KeysSection):
    place: Literal["folder", "store"] = "folder"
    """store: in the database, encrypted with the passphrase, for all processes of the endpoint."""
    folder: Path | None = None
    """A folder that all processes of the endpoint can read; otherwise `keys` in the home."""


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
    api = configuration.api
    if api is not None:
        api = api.model_copy(
            update={
                "certificate": api.certificate and folder / api.certificate,
                "key": api.key and folder / api.key,
                "client_roots": tuple(folder / root for root in api.client_roots),
            }
        )
    amqp = configuration.amqp
    if amqp is not None:
        amqp = amqp.model_copy(
            update={
                "certificate": amqp.certificate and folder / amqp.certificate,
                "key": amqp.key and folder / amqp.key,
                "client_roots": tuple(folder / root for root in amqp.client_roots),
            }
        )
    keys, postgres = configuration.keys, configuration.postgres
    return configuration.model_copy(
        update={
            "keys": keys.model_copy(update={"folder": keys.folder and folder / keys.folder}),
            "postgres": postgres and postgres.beside(folder),
            "amqp": amqp,
            "folders": configuration.folders and configuration.folders.within(folder),
            "home": folder / configuration.home,
            "checks": tuple(
                c.model_copy(update={"ca": c.ca and folder / c.ca}) for c in configuration.checks
            ),
            "roots": tuple(folder / root for root in configuration.roots),
            "api": api,
            "console": console_in(folder, configuration.console),
            "old_network": configuration.old_network and configuration.old_network.beside(folder),
            **watched_in(folder, configuration),
        }
    )


def _patterns(texts: tuple[str, ...]) -> tuple[MessageTypePattern, ...]:
    return tuple(MessageTypePattern(text) for text in texts)
