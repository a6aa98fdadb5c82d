"""The configuration file of a bus: contexts, nouns, service levels, and where RabbitMQ is."""

from __future__ import annotations

from datetime import UTC, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from zoneinfo import ZoneInfo

from lxml import etree
from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator
from pydantic_settings import SettingsConfigDict

from gridpost.assembly.bus_links import (
    MIB,
    CallingSection,
    ClaimsSection,
    MadesSection,
    Name,
    RouteSection,
    SourceSection,
    SubscriberSection,
    WebSection,
)
from gridpost.assembly.configuration import Period, Port, read_configuration
from gridpost.assembly.console_configuration import ConsoleSection
from gridpost.assembly.directory_configuration import is_loopback
from gridpost.assembly.journal_configuration import ExportSection
from gridpost.assembly.postgres_configuration import PostgresSection
from gridpost.assembly.watching_configuration import WatchedConfiguration
from gridpost.core.envelope_exchange import Guard
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.bus.reference import Relation
from gridpost.services.bus.settings import BusSettings, Names, NounRules, Sla
from gridpost.transports.amqp091 import Amqp091Client, Amqp091Tls
from gridpost.wire.envelope import Reading
from gridpost.wire.envelope.wsdl import shipped_xsd
from gridpost.wire.xml import Schema, XmlLimits

COMPONENT = "bus"
Count = Annotated[int, Field(ge=1)]

M = TypeVar("M", bound=BaseModel)
_FOLDER = "folder:"

# Classes of the CIM that people use as nouns by mistake (61968-100 cl. 7).
_CLASSES = frozenset(
    {"Meter", "Switch", "Breaker", "UsagePoint", "EndDevice", "MeterReading", "EndDeviceControl",
     "EndDeviceEvent", "Customer", "Asset", "WorkOrder", "Outage"}
)  # fmt: skip


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BusRabbitmqSection(_Section):
    urls: Annotated[tuple[str, ...], Field(min_length=1)]
    virtual_host: str = "/"
    user: str = ""
    """Without a user the certificate says who we are."""
    password: SecretStr | None = None
    roots: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    heartbeat: Annotated[int, Field(ge=5, le=60)] = 30
    patience: Period = timedelta(minutes=5)
    """How long a bus that starts waits for a RabbitMQ that is not ready yet."""

    def client(self) -> Amqp091Client:
        tls = None
        if self.roots is not None:
            tls = Amqp091Tls(self.roots, self.certificate, self.key).context
        return Amqp091Client(
            self.urls,
            virtual_host=self.virtual_host,
            tls=tls,
            user=self.user,
            password="" if self.password is None else self.password.get_secret_value(),
            heartbeat=self.heartbeat,
            name="gridpost bus",
        )


class RelationSection(_Section):
    """The rule of one relation of the reference handlers' objects (61968-100 cl. 6.2.2)."""

    members: Literal["add", "replace"] = "replace"
    """What a change does with the members that it names."""
    noun: str = ""
    """The members are objects of this noun; a link to one that is not known is refused."""


class NounSection(_Section):
    name: Name
    xsd: Path | None = None
    """Without one, payloads are passed on unlooked at; typed services of MeterReadings and
    EndDeviceControls have one of our own."""
    journal_content: bool = False
    streamed: bool = False
    """Handlers take large payloads of it piece by piece; nobody reads them as a whole before."""
    typed: bool = False
    """Serve the strongly typed web services of Annex C; the XSD must be named like the noun."""
    relations: dict[str, RelationSection] = {}
    """By the name of the element; for nouns of the reference handlers."""

    @model_validator(mode="after")
    def _no_class(self) -> NounSection:
        if self.name in _CLASSES:
            raise ValueError(f"'{self.name}' is a class of the CIM; a noun is another word")
        if self.streamed and (self.typed or self.xsd is not None):
            raise ValueError("what is streamed is checked by no schema: not with xsd or typed")
        if self.typed and self.xsd is None and shipped_xsd(self.name) is not None:
            return self
        if self.typed and (self.xsd is None or self.xsd.stem != self.name):
            raise ValueError(f"typed services need xsd = {self.name}.xsd")
        return self


class SlaSection(_Section):
    verb: str = "*"
    noun: str = "*"
    within: Period = timedelta(seconds=30)
    percent: Annotated[float, Field(gt=0, le=100)] = 95.0


class NamesSection(_Section):
    requests: str = Names().requests
    events: str = Names().events
    dead: str = Names().dead


class GuardSection(_Section):
    revisions: frozenset[str] = frozenset()
    user_required: bool = False
    replay_required: bool = False
    replay_window: Period = timedelta(minutes=10)
    nonces_kept: Period = timedelta(days=1)


class BusLimitsSection(_Section):
    message_bytes: Count = 16 * MIB
    """Of an envelope, and of a payload that is read as a whole."""
    payload_bytes: Count = 256 * MIB
    """Of a payload that is streamed, when it is unpacked."""
    prefetch: Count = 64
    deliveries: Count = 5
    """How often a message is tried that takes its process with it."""


class BusOperationsSection(_Section):
    host: str = "127.0.0.1"
    port: Port = 8491

    @model_validator(mode="after")
    def _guarded(self) -> BusOperationsSection:
        if not is_loopback(self.host):
            raise ValueError("operations.host must be a loopback address")
        return self


class BusJournalSection(ExportSection):
    retention: Period = timedelta(days=365)
    keep_exported: Period = timedelta(days=30)
    """Rows that `gridpost journal export` has taken go already after this."""


class BusConfiguration(WatchedConfiguration):
    """`gridpost bus run --config FILE`."""

    model_config = SettingsConfigDict(env_prefix="GRIDPOST_BUS_")

    component: Literal["bus"]
    code: Name
    """The Source of what the bus itself writes."""
    home: Path
    contexts: Annotated[tuple[Name, ...], Field(min_length=1)]
    zone: str = "UTC"
    peer_zone: str = ""
    """Of peers whose times have no offset; empty: such times are refused."""
    rabbitmq: BusRabbitmqSection
    queue_type: Literal["quorum", "classic"] = "quorum"
    reference_handlers: bool = True
    """MeterReadings and EndDeviceControls, kept in the store of the bus."""
    handlers: tuple[str, ...] = ()
    """Python modules with a function `register(service)`."""
    nouns: tuple[NounSection, ...] = ()
    slas: tuple[SlaSection, ...] = ()
    names: NamesSection = NamesSection()
    guard: GuardSection = GuardSection()
    limits: BusLimitsSection = BusLimitsSection()
    operations: BusOperationsSection = BusOperationsSection()
    journal: BusJournalSection = BusJournalSection()
    console: ConsoleSection | None = None
    store: Literal["sqlite", "postgres"] = "sqlite"
    postgres: PostgresSection | None = None
    web: WebSection | None = None
    """Web services, generic, typed and REST; without this section there are none."""
    calling: CallingSection = CallingSection()
    proxy: bool = True
    """Requests by web services that nobody serves here go to the queue of their name, and back."""
    routes: tuple[RouteSection, ...] = ()
    subscribers: tuple[SubscriberSection, ...] = ()
    sources: tuple[SourceSection, ...] = ()
    claims: ClaimsSection | None = None
    mades: MadesSection | None = None

    @model_validator(mode="after")
    def _consistent(self) -> BusConfiguration:
        if (self.store == "postgres") != (self.postgres is not None):
            raise ValueError('store = "postgres" and the section postgres go together')
        if self.console is not None and self.console.certificate is None:
            raise ValueError("console needs certificate and key")
        names = [s.name for s in self.subscribers] + [s.name for s in self.sources]
        if len(set(names)) != len(names):
            raise ValueError("two subscribers or sources have the same name")
        typed = {noun.name for noun in self.nouns if noun.typed}
        for subscriber in self.subscribers:
            if subscriber.form == "typed" and subscriber.noun not in typed:
                raise ValueError(f"subscriber {subscriber.name}: its noun has no typed services")
        for source in self.sources:
            if source.context not in self.contexts:
                raise ValueError(f"the context of source {source.name} is not one of this bus")
        if (
            any(t.to.startswith("mades:") for r in self.routes for t in r.targets)
            and not self.mades
        ):
            raise ValueError("a route leads to mades:, and there is no section mades")
        return self

    def relations(self, noun: str) -> dict[str, Relation]:
        return {
            name: Relation(section.members == "add", section.noun)
            for found in self.nouns
            if found.name == noun
            for name, section in found.relations.items()
        }

    def settings(self) -> BusSettings:
        contexts = frozenset(self.contexts)
        guard = self.guard
        limits = XmlLimits(max_bytes=self.limits.message_bytes)
        return BusSettings(
            name=self.code,
            contexts=contexts,
            guard=Guard(
                contexts,
                guard.revisions,
                guard.user_required,
                guard.replay_required,
                guard.replay_window,
                guard.nonces_kept,
            ),
            names=Names(self.names.requests, self.names.events, self.names.dead),
            slas={(s.verb, s.noun): Sla(s.within, s.percent) for s in self.slas},
            nouns={
                n.name: NounRules(noun_schema(n), n.journal_content, n.streamed) for n in self.nouns
            },
            reading=Reading(limits, ZoneInfo(self.peer_zone) if self.peer_zone else None),
            zone=UTC if self.zone == "UTC" else ZoneInfo(self.zone),
            prefetch=self.limits.prefetch,
            queue_type=self.queue_type,
            delivery_limit=self.limits.deliveries,
            remember=max(guard.nonces_kept, timedelta(days=1)) + guard.replay_window,
            max_bytes=self.limits.message_bytes,
            max_unpacked=self.limits.payload_bytes,
            retries=tuple(pause.total_seconds() for pause in self.calling.retries),
        )


def noun_schema(noun: NounSection) -> Schema | None:
    """The noun's XSD; it must define an element of that name (61968-100 cl. 7)."""
    if noun.xsd is None:
        shipped = shipped_xsd(noun.name) if noun.typed else None
        return None if shipped is None else Schema(f"{noun.name}.xsd", etree.fromstring(shipped))
    try:
        tree = etree.parse(noun.xsd, etree.XMLParser(resolve_entities=False, no_network=True))
        schema = Schema(noun.xsd.name, tree.getroot())
    except (OSError, etree.XMLSyntaxError, etree.XMLSchemaParseError) as error:
        raise Refusal(Rule.USAGE, f"{noun.xsd}: not a usable XSD: {error}") from None
    found = {e.get("name") for e in tree.getroot().iterchildren("{*}element")}
    if noun.name not in found:
        raise Refusal(Rule.USAGE, f"{noun.xsd} defines no element '{noun.name}'")
    return schema


def read_bus_configuration(file: Path) -> BusConfiguration:
    """Relative paths in the file count from its folder."""
    configuration = read_configuration(file, BusConfiguration)
    folder = file.resolve().parent
    postgres = configuration.postgres
    found = _beside(configuration, folder)
    return found.model_copy(update={"postgres": postgres and postgres.beside(folder)})


def _beside(model: M, folder: Path) -> M:
    """Every path of every section, and the places `folder:…`."""
    update: dict[str, Any] = {}
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, Path):
            update[name] = folder / value
        elif isinstance(value, str) and name in ("to", "take") and value.startswith(_FOLDER):
            update[name] = f"{_FOLDER}{folder / value.removeprefix(_FOLDER)}"
        elif isinstance(value, BaseModel) and not isinstance(value, PostgresSection):
            update[name] = _beside(value, folder)
        elif isinstance(value, tuple):
            update[name] = tuple(
                _beside(v, folder) if isinstance(v, BaseModel) else v for v in value
            )
    return model.model_copy(update=update)
