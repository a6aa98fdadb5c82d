"""The configuration file of a broker: its keys, their defaults, and what they must not say."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    model_validator,
)
from pydantic_settings import SettingsConfigDict

from gridpost.assembly.configuration import Duration, Period, Port, read_configuration
from gridpost.assembly.console_configuration import ConsoleSection, console_in
from gridpost.assembly.directory_configuration import Code, ContactSection, read_certificates
from gridpost.assembly.journal_configuration import ExportSection
from gridpost.assembly.postgres_configuration import PostgresSection
from gridpost.assembly.watching_configuration import WatchedConfiguration, watched_in
from gridpost.core.component import Component, ComponentType, Contact, Implementation
from gridpost.core.identifiers import ComponentCode, MessageTypePattern, message_type_pattern
from gridpost.core.message_path import Restriction
from gridpost.core.refusal import Refusal
from gridpost.core.version import INSTALLED
from gridpost.services.broker.settings import BrokerSettings
from gridpost.services.directory_client.context import ClientSettings
from gridpost.stores.rabbitmq import RabbitSettings
from gridpost.stores.sqlite.queues import QueueSettings
from gridpost.transports.amqp091 import Amqp091Client, Amqp091Tls
from gridpost.transports.amqp10 import AmqpLimits

COMPONENT = "broker"
KIB, MIB = 1024, 1024 * 1024


def _amqps(url: str) -> str:
    if not url.startswith("amqps://"):
        raise ValueError(f"'{url}' must begin with amqps:// (503 Table 18)")
    return url


def _pattern(text: str) -> str:
    try:
        return message_type_pattern(text)
    except Refusal as refusal:
        raise ValueError(refusal.message) from None


def _short_store(value: object) -> object:
    return {"kind": value} if isinstance(value, str) else value


Url = Annotated[str, AfterValidator(_amqps)]
Pattern = Annotated[str, AfterValidator(_pattern)]
Count = Annotated[int, Field(ge=1)]
Octets = Annotated[int, Field(ge=0)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ServerSection(_Section):
    host: str = "0.0.0.0"
    port: Port = 5671
    """503 Table 4."""
    urls: Annotated[tuple[Url, ...], Field(min_length=1)]
    """Under which endpoints reach this broker, primary first."""


class RestrictionSection(_Section):
    """503 cl. 5.4: an empty list allows all."""

    components: tuple[Code, ...] = ()
    message_types: tuple[Pattern, ...] = ()


class LimitsSection(_Section):
    """How much one endpoint, and all together, may cost."""

    max_message_size: Count = 65 * MIB
    max_connections: Count = 10_000
    max_connections_per_component: Count = 32
    max_links: Count = 64
    max_sessions: Count = 16
    max_frame_size: Annotated[int, Field(ge=512)] = 128 * KIB
    session_window: Count = 16 * MIB
    credit: Count = 500
    max_unsettled: Count = 2_000
    max_incoming: Count = 128 * MIB
    max_incoming_total: Count = 1024 * MIB
    handshake: Period = timedelta(seconds=15)
    idle: Period = timedelta(seconds=60)

    def amqp(self) -> AmqpLimits:
        return AmqpLimits(
            handshake_seconds=self.handshake.total_seconds(),
            idle_seconds=self.idle.total_seconds(),
            max_connections=self.max_connections,
            max_connections_per_identity=self.max_connections_per_component,
            max_frame_size=self.max_frame_size,
            session_window=self.session_window,
            max_sessions=self.max_sessions,
            max_links=self.max_links,
            max_message_size=self.max_message_size,
            credit=self.credit,
            max_incoming_octets=self.max_incoming,
            max_incoming_octets_total=self.max_incoming_total,
            max_unsettled_sent=self.max_unsettled,
        )


class QueuesSection(_Section):
    remove_after: Duration = timedelta(hours=1)
    """503 cl. 6.3: empty and without a link for so long."""
    upkeep: Period = timedelta(seconds=5)
    window_messages: Count = 1_000
    window_octets: Count = 16 * MIB
    memory_octets: Count = 128 * MIB
    redeliver_after: Period = timedelta(milliseconds=200)
    """Before the second new attempt at a message that its consumer gave back as failed."""
    redeliver_at_most: Period = timedelta(minutes=1)
    """The time doubles with each failure up to this."""
    open_transactions: Count = 16
    transaction_messages: Count = 1_000
    transaction_octets: Count = 64 * MIB


class StoreSection(_Section):
    """`store = "rabbitmq"` is short for a section that says nothing but its kind."""

    kind: Literal["sqlite", "rabbitmq", "postgres"] = "sqlite"
    file_threshold: Count = 256 * KIB
    company: Annotated[Duration, Field(ge=timedelta(0), le=timedelta(seconds=1))] = timedelta(
        milliseconds=6
    )
    min_free: Octets = 256 * MIB
    max_used: Octets = 0
    hard_limit: Octets = 0


class RabbitmqSection(_Section):
    """The RabbitMQ that keeps the queues when `store` is "rabbitmq"; only edges may reach it."""

    urls: Annotated[tuple[Url, ...], Field(min_length=1)]
    """Nodes of one cluster, tried in order."""
    virtual_host: str = "gridpost"
    roots: Path
    """CA certificates (PEM) of RabbitMQ's own certificate."""
    certificate: Path
    """Of the edge (PEM); its common name is the user."""
    key: Path
    prefetch: Count = 100
    heartbeat: Period = timedelta(seconds=10)
    sweep: Period = timedelta(hours=1)
    """How often expired messages are looked for in queues that nobody reads."""


class QueuesPostgresSection(PostgresSection):
    """The database that keeps the queues when `store` is "postgres"."""

    prefetch: Count = 100
    """Messages of one queue that an edge has at a time, at most."""
    look: Period = timedelta(seconds=1)
    """How often an edge looks whether another is dead."""


class SynchronisationSection(_Section):
    directories: tuple[Code, ...] = ()
    """Component-directories to ask, in order; none: the home directory."""
    cycle: Period = timedelta(minutes=2)
    proxy: str = ""


class CertificatesSection(_Section):
    renew_before: Period = timedelta(days=30)


class OperationsSection(_Section):
    host: str = "127.0.0.1"
    port: Port = 5680


class JournalSection(ExportSection):
    retention: Period = timedelta(days=365)


class BrokerJournalSection(JournalSection):
    refused_connections: Count = 100
    """How many connections that were not let in are written down a minute; more are counted."""


class LogSection(_Section):
    messages: bool = False
    """A log line for each message that comes in or goes out, with its correlation id."""


class KeysSection(_Section):
    passphrase: SecretStr | None = None
    """Better given by the environment than in the file."""


class BrokerConfiguration(WatchedConfiguration):
    """`gridpost broker run --config FILE`."""

    model_config = SettingsConfigDict(env_prefix="GRIDPOST_BROKER_")

    component: Literal["broker"]
    code: Code
    home: Path
    """Folder of keys and data; readable by this service only."""
    roots: tuple[Path, ...] = ()
    """ROOT CA certificates (PEM) in place of those of the installation bundle."""
    contact: ContactSection
    server: ServerSection
    restriction: RestrictionSection = RestrictionSection()
    limits: LimitsSection = LimitsSection()
    queues: QueuesSection = QueuesSection()
    store: Annotated[StoreSection, BeforeValidator(_short_store)] = StoreSection()
    rabbitmq: RabbitmqSection | None = None
    postgres: QueuesPostgresSection | None = None
    synchronisation: SynchronisationSection = SynchronisationSection()
    certificates: CertificatesSection = CertificatesSection()
    operations: OperationsSection = OperationsSection()
    journal: BrokerJournalSection = BrokerJournalSection()
    log: LogSection = LogSection()
    keys: KeysSection = KeysSection()
    console: ConsoleSection | None = None
    drain: Period = timedelta(seconds=10)
    """How long transfers that are under way may take when the broker stops."""

    @model_validator(mode="after")
    def _limits_fit(self) -> BrokerConfiguration:
        self.limits.amqp()
        return self

    @model_validator(mode="after")
    def _store_is_described(self) -> BrokerConfiguration:
        if self.store.kind == "rabbitmq" and self.rabbitmq is None:
            raise ValueError('store is "rabbitmq": the section [rabbitmq] has to say where it is')
        if (self.store.kind == "postgres") != (self.postgres is not None):
            raise ValueError('store = "postgres" and the section [postgres] belong together')
        return self

    def passphrase(self) -> bytes | None:
        secret = self.keys.passphrase
        return None if secret is None else secret.get_secret_value().encode()

    def settings(self) -> BrokerSettings:
        queues = self.queues
        return BrokerSettings(
            code=ComponentCode(self.code),
            restriction=self._restriction(),
            queue_idle=queues.remove_after,
            upkeep=queues.upkeep,
            journal_retention=self.journal.retention,
            refused_connections=self.journal.refused_connections,
            window_messages=queues.window_messages,
            window_octets=queues.window_octets,
            memory_octets=queues.memory_octets,
            redeliver_after=queues.redeliver_after,
            redeliver_at_most=queues.redeliver_at_most,
            open_transactions=queues.open_transactions,
            transaction_messages=queues.transaction_messages,
            transaction_octets=queues.transaction_octets,
            log_messages=self.log.messages,
        )

    def queue_settings(self) -> QueueSettings:
        store = self.store
        return QueueSettings(
            file_threshold=store.file_threshold,
            company=store.company,
            min_free=store.min_free,
            max_used=store.max_used,
            hard_limit=store.hard_limit,
        )

    def rabbit_settings(self) -> RabbitSettings:
        assert self.rabbitmq is not None
        return RabbitSettings(
            prefetch=self.rabbitmq.prefetch,
            window_octets=self.queues.window_octets,
            sweep=self.rabbitmq.sweep,
        )

    def rabbit_tls(self) -> Amqp091Tls:
        assert self.rabbitmq is not None
        return Amqp091Tls(self.rabbitmq.roots, self.rabbitmq.certificate, self.rabbitmq.key)

    def rabbit_client(self) -> Amqp091Client:
        section = self.rabbitmq
        assert section is not None
        return Amqp091Client(
            section.urls,
            virtual_host=section.virtual_host,
            tls=self.rabbit_tls().context,
            heartbeat=max(1, round(section.heartbeat.total_seconds())),
            name=f"gridpost {self.code}",
        )

    def client_settings(self) -> ClientSettings:
        return ClientSettings(
            directories=tuple(ComponentCode(c) for c in self.synchronisation.directories),
            cycle=self.synchronisation.cycle,
            poll=min(timedelta(seconds=30), self.synchronisation.cycle),
            anticipation=self.certificates.renew_before,
            proxy=self.synchronisation.proxy,
        )

    def entry(self) -> Component:
        """What the directory is told of this broker (503 Tables 18 and 22)."""
        return Component(
            ComponentCode(self.code),
            ComponentType.BROKER,
            self.contact_of(),
            # The home directory fills in its own code.
            ComponentCode(self.code),
            Implementation(str(INSTALLED), "Gridpost"),
            self.server.urls,
            restriction=self._restriction(),
        )

    def contact_of(self) -> Contact:
        contact = self.contact
        return Contact(contact.organization, contact.person, contact.email, contact.phone)

    def trusted_roots(self) -> tuple[bytes, ...]:
        return tuple(der for file in self.roots for der in read_certificates(file))

    def _restriction(self) -> Restriction:
        return Restriction(
            frozenset(ComponentCode(code) for code in self.restriction.components),
            tuple(MessageTypePattern(t) for t in self.restriction.message_types),
        )


def read_broker_configuration(file: Path) -> BrokerConfiguration:
    """Relative paths in the file count from its folder."""
    configuration = read_configuration(file, BrokerConfiguration)
    folder = file.resolve().parent
    rabbitmq, postgres = configuration.rabbitmq, configuration.postgres
    return configuration.model_copy(
        update={
            "home": folder / configuration.home,
            "roots": tuple(folder / root for root in configuration.roots),
            "rabbitmq": rabbitmq
            and rabbitmq.model_copy(
                update={
                    "roots": folder / rabbitmq.roots,
                    "certificate": folder / rabbitmq.certificate,
                    "key": folder / rabbitmq.key,
                }
            ),
            "postgres": postgres and postgres.beside(folder),
            "console": console_in(folder, configuration.console),
            **watched_in(folder, configuration),
        }
    )
