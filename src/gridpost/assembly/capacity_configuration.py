"""The configuration file of the capacity service: market, users, limits, and where RabbitMQ is."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import time, timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator
from pydantic_settings import SettingsConfigDict

from gridpost.assembly.configuration import Duration, Period, Port, read_configuration
from gridpost.assembly.console_configuration import ConsoleSection, console_in
from gridpost.assembly.directory_configuration import AdministrationSection, Code, is_loopback
from gridpost.assembly.journal_configuration import ExportSection
from gridpost.assembly.postgres_configuration import PostgresSection
from gridpost.assembly.watching_configuration import WatchedConfiguration, watched_in
from gridpost.core.allocation import Party, Role
from gridpost.core.capacity import Border, Interconnector, Market
from gridpost.core.eic import eic
from gridpost.core.market_time import MarketTime
from gridpost.core.refusal import Refusal
from gridpost.services.capacity.settings import CapacitySettings
from gridpost.transports.amqp091 import Amqp091Client, Amqp091Tls
from gridpost.transports.package_tls import package_context
from gridpost.wire.cmm import Names
from gridpost.wire.cmm.names import user_name

COMPONENT = "capacity"
MIB = 1024 * 1024


def _eic(text: str) -> str:
    try:
        return eic(text)
    except Refusal as refusal:
        raise ValueError(refusal.message) from None


def _user(text: str) -> str:
    try:
        return user_name(text)
    except Refusal as refusal:
        raise ValueError(refusal.message) from None


def _url(text: str) -> str:
    if not text.startswith(("amqps://", "amqp://")):
        raise ValueError(f"'{text}' must begin with amqps://")
    return text


Eic = Annotated[str, AfterValidator(_eic)]
User = Annotated[str, AfterValidator(_user)]
Count = Annotated[int, Field(ge=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RabbitmqSection(_Section):
    urls: Annotated[tuple[Annotated[str, AfterValidator(_url)], ...], Field(min_length=1)]
    virtual_host: str = "cmm"
    user: User = "cmm-service"
    """Common name of the service's own certificate."""
    roots: Path
    package: Path | None = None
    """PKCS#12; or a certificate and a key in PEM."""
    passphrase: SecretStr | None = None
    certificate: Path | None = None
    key: Path | None = None
    heartbeat: Annotated[int, Field(ge=5, le=60)] = 30

    @model_validator(mode="after")
    def _own(self) -> RabbitmqSection:
        if (self.package is None) == (self.certificate is None):
            raise ValueError("give either package, or certificate and key")
        return self

    def context(self) -> Callable[[], ssl.SSLContext]:
        if self.package is None:
            return Amqp091Tls(self.roots, self.certificate, self.key).context
        package = self.package
        secret = "" if self.passphrase is None else self.passphrase.get_secret_value()
        return lambda: package_context(self.roots, package, secret)

    def client(self) -> Amqp091Client:
        return Amqp091Client(
            self.urls,
            virtual_host=self.virtual_host,
            tls=self.context(),
            heartbeat=self.heartbeat,
            name="gridpost capacity",
        )


class ManagementSection(_Section):
    """The HTTP API of RabbitMQ, used by `gridpost capacity users` only."""

    url: str
    user: str
    password: SecretStr
    """Better given by the environment than in the file."""
    roots: Path | None = None


class AuthoritySection(_Section):
    """The operator's CA, made with `gridpost ca init`: it signs the certificates of users."""

    folder: Path
    passphrase: SecretStr | None = None
    validity: Period = timedelta(days=730)


class BorderSection(_Section):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,60}$")]
    interconnectors: Annotated[tuple[tuple[Eic, Eic], ...], Field(min_length=1)]
    """Pairs of delivery areas, the leading one first, all first areas on one side."""
    unit: Duration = timedelta(hours=1)
    common_atc: bool = False
    ramping: Annotated[int, Field(ge=0)] | None = None
    opening_days: Annotated[int, Field(ge=0, le=366)] = 1
    opening_time: time = time(15, 0)
    closure: Duration = timedelta(hours=1)

    def border(self) -> Border:
        return Border(
            self.name,
            tuple(Interconnector(*pair) for pair in self.interconnectors),
            self.unit,
            self.common_atc,
            self.ramping,
            self.opening_days,
            self.opening_time,
            self.closure,
        )


class GroupSection(_Section):
    eic: Eic
    allocation_days: Count = 31
    """Delivery days for which allocation data may be asked in one request."""


class UserSection(_Section):
    name: User
    roles: Annotated[frozenset[Role], Field(min_length=1)]
    balancing_groups: tuple[Eic, ...]
    """The first is meant where a request leaves bmCode empty."""
    borders: frozenset[str] = frozenset()

    def party(self) -> Party:
        return Party(self.name, self.roles, self.balancing_groups, self.borders)


class LimitsSection(_Section):
    items: Count = 1000
    message_bytes: Count = 4 * MIB
    bindings: Count = 200
    allocations: Count = 50_000
    requests: Count = 600
    period: Period = timedelta(minutes=1)
    duplicates: Period = timedelta(hours=24)
    prefetch: Count = 250


class BroadcastsSection(_Section):
    heartbeat: Period = timedelta(seconds=5)
    heartbeat_exchange: Annotated[str, Field(pattern=r"^cmm\.[A-Za-z0-9._-]{1,60}$")] = (
        "cmm.heartbeat"
    )
    heartbeats_always: bool = True
    zipped_responses: frozenset[
        Literal["LoginResp", "AllocationResp", "AtcDataResp", "AllocationDataResp", "ErrorResp"]
    ] = frozenset()


class QueuesSection(_Section):
    request_ttl: Period = timedelta(seconds=10)
    expires: Period = timedelta(seconds=30)
    message_ttl: Period = timedelta(seconds=60)
    max_bytes: Count = 64 * MIB


class OperationsSection(_Section):
    host: str = "127.0.0.1"
    port: Port = 8481

    @model_validator(mode="after")
    def _guarded(self) -> OperationsSection:
        if not is_loopback(self.host):
            raise ValueError("operations.host must be a loopback address")
        return self


class CapacityAdministrationSection(AdministrationSection):
    """The JSON API of operators; only with this table is there one."""

    port: Port = 8482


class JournalSection(ExportSection):
    retention: Period = timedelta(days=365)
    keep_exported: Period = timedelta(days=30)
    """Rows that `gridpost journal export` has taken go already after this."""


class CapacityConfiguration(WatchedConfiguration):
    """`gridpost capacity run --config FILE`."""

    model_config = SettingsConfigDict(env_prefix="GRIDPOST_CAPACITY_")

    component: Literal["capacity"]
    code: Code
    home: Path
    """Folder of the ledger; readable by this service only."""
    store: Literal["sqlite", "postgres"] = "sqlite"
    postgres: PostgresSection | None = None
    zone: str
    """Time zone of the market, like Europe/Brussels."""
    rabbitmq: RabbitmqSection
    management: ManagementSection | None = None
    authority: AuthoritySection | None = None
    borders: Annotated[tuple[BorderSection, ...], Field(min_length=1)]
    balancing_groups: tuple[GroupSection, ...] = ()
    users: tuple[UserSection, ...] = ()
    limits: LimitsSection = LimitsSection()
    broadcasts: BroadcastsSection = BroadcastsSection()
    queues: QueuesSection = QueuesSection()
    operations: OperationsSection = OperationsSection()
    administration: CapacityAdministrationSection | None = None
    console: ConsoleSection | None = None
    journal: JournalSection = JournalSection()

    @model_validator(mode="after")
    def _whole(self) -> CapacityConfiguration:
        if (self.store == "postgres") != (self.postgres is not None):
            raise ValueError('store = "postgres" and the section [postgres] belong together')
        if self.console is not None and self.console.certificate is None:
            raise ValueError("console: give certificate and key, there are no others here")
        return self

    @model_validator(mode="after")
    def _consistent(self) -> CapacityConfiguration:
        borders = [border.name for border in self.borders]
        groups = [group.eic for group in self.balancing_groups]
        users = [user.name for user in self.users]
        for what, names in (("border", borders), ("balancing group", groups), ("user", users)):
            if len(set(names)) != len(names):
                raise ValueError(f"a {what} is named twice")
        if self.rabbitmq.user in users:
            raise ValueError("the service's own user cannot be a client")
        for user in self.users:
            unknown = {*user.balancing_groups} - {*groups} | user.borders - {*borders}
            if unknown:
                raise ValueError(
                    f"{user.name} names {', '.join(sorted(unknown))}, which is unknown"
                )
        try:
            self.market()
        except Refusal as refusal:
            raise ValueError(refusal.message) from None
        return self

    def market(self) -> Market:
        return Market(MarketTime.of(self.zone), [border.border() for border in self.borders])

    def names(self) -> Names:
        return Names(heartbeat=self.broadcasts.heartbeat_exchange)

    def settings(self) -> CapacitySettings:
        return CapacitySettings(
            market=self.market(),
            parties={user.name: user.party() for user in self.users},
            groups={group.eic: group.allocation_days for group in self.balancing_groups},
            names=self.names(),
            heartbeat=self.broadcasts.heartbeat,
            heartbeats_always=self.broadcasts.heartbeats_always,
            request_ttl=self.queues.request_ttl,
            queue_expires=self.queues.expires,
            message_ttl=self.queues.message_ttl,
            queue_bytes=self.queues.max_bytes,
            prefetch=self.limits.prefetch,
            max_items=self.limits.items,
            max_bytes=self.limits.message_bytes,
            max_bindings=self.limits.bindings,
            max_allocations=self.limits.allocations,
            rate_limit=self.limits.requests,
            rate_period=self.limits.period,
            duplicate_window=self.limits.duplicates,
            zipped=frozenset(self.broadcasts.zipped_responses),
            journal_retention=self.journal.retention,
            journal_exported=self.journal.keep_exported,
        )


def read_capacity_configuration(file: Path) -> CapacityConfiguration:
    """Relative paths in the file count from its folder."""
    configuration = read_configuration(file, CapacityConfiguration)
    folder = file.resolve().parent
    rabbitmq = configuration.rabbitmq
    found = {
        name: folder / path
        for name in ("roots", "package", "certificate", "key")
        if (path := getattr(rabbitmq, name)) is not None
    }
    update: dict[str, object] = {
        "home": folder / configuration.home,
        "rabbitmq": rabbitmq.model_copy(update=found),
        "postgres": configuration.postgres and configuration.postgres.beside(folder),
        "console": console_in(folder, configuration.console),
        **watched_in(folder, configuration),
    }
    administration = configuration.administration
    if administration is not None:
        update["administration"] = administration.model_copy(
            update={
                "certificate": administration.certificate and folder / administration.certificate,
                "key": administration.key and folder / administration.key,
            }
        )
    management, authority = configuration.management, configuration.authority
    if management is not None and management.roots is not None:
        update["management"] = management.model_copy(update={"roots": folder / management.roots})
    if authority is not None:
        update["authority"] = authority.model_copy(update={"folder": folder / authority.folder})
    return configuration.model_copy(update=update)
