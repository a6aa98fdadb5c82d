"""The services of one endpoint, joined: everything between its store and its network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from gridpost.assembly.checks import check_rules
from gridpost.assembly.endpoint_channels_configuration import ApiSection
from gridpost.assembly.endpoint_configuration import EndpointConfiguration
from gridpost.assembly.old_network import old_network
from gridpost.assembly.reloading import say_restart_needed
from gridpost.assembly.spool import spooling
from gridpost.core.identifiers import ComponentCode
from gridpost.core.journal import AdministrationRow
from gridpost.core.message_path import OLD_NETWORK
from gridpost.core.ports import Clock, KeyCabinet, Store
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.directory_client.client import DirectoryClient
from gridpost.services.endpoint.amqp_channel import AmqpChannel
from gridpost.services.endpoint.archive import MessageArchive
from gridpost.services.endpoint.arrival import Arrival
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.direct import DirectDoor
from gridpost.services.endpoint.dispatch import Dispatcher, DispatchLimits
from gridpost.services.endpoint.enquiry import Enquiry
from gridpost.services.endpoint.events import Events
from gridpost.services.endpoint.evidence import Evidence
from gridpost.services.endpoint.expiry import Expiry
from gridpost.services.endpoint.explaining import Explaining
from gridpost.services.endpoint.handover import Handover
from gridpost.services.endpoint.inbound import Inbound
from gridpost.services.endpoint.json_api import ClientChain, JsonApi
from gridpost.services.endpoint.line import Dial
from gridpost.services.endpoint.lines import Lines
from gridpost.services.endpoint.metrics import EndpointMetrics
from gridpost.services.endpoint.old_network.network import OldNetwork
from gridpost.services.endpoint.operating import Operating, told
from gridpost.services.endpoint.peers import Peers
from gridpost.services.endpoint.probe import Probe
from gridpost.services.endpoint.request_counts import RequestCounts
from gridpost.services.endpoint.soap_api import (
    OLD_SERVICE,
    SERVICE,
    ByName,
    Described,
    SoapApi,
)
from gridpost.services.endpoint.soap_operations import SoapOperations
from gridpost.services.endpoint.soap_operations11 import SoapOperations11
from gridpost.services.endpoint.submission import Submission
from gridpost.services.endpoint.transfer import Transfer
from gridpost.services.endpoint.upkeep import Upkeep
from gridpost.services.endpoint.users import Users
from gridpost.services.operations.message_log import LoggingStore

NEED_A_RESTART = (
    "code", "home", "roots", "direct.host", "direct.port", "connections", "api", "amqp", "folders",
    "operations", "journal.landing", "journal.export_every", "journal.export_rows", "keys", "store",
    "postgres", "console.host", "console.port", "drain", "alerts", "clock", "syslog",
)  # fmt: skip
"""Keys that are read when the endpoint starts and not after that."""


class EndpointCore:
    def __init__(
        self,
        configuration: EndpointConfiguration,
        store: Store,
        keys: KeyCabinet,
        clock: Clock,
        client: DirectoryClient,
        dial: Dial,
        client_chain: ClientChain,
        *,
        shared: bool = False,
    ) -> None:
        """`shared`: other processes of this endpoint use the same store."""
        self._client = client
        self._configuration = configuration
        context = EndpointContext(
            ComponentCode(configuration.code),
            LoggingStore(store, lambda: self.context.settings.log_messages),
            keys,
            clock,
            client.directory,
            configuration.settings(),
            shared=shared,
        )
        context.checking.change(check_rules(configuration.checks))
        self.context = context
        self.submission = Submission(context)
        self.handover = Handover(context)
        self.enquiry = Enquiry(context)
        self.evidence = Evidence(context, self._roots)
        self.archive = MessageArchive(context, self.evidence, configuration.home / "archive")
        self.events = Events(context.signals)
        peers = Peers(clock, client.directory, client.roots)
        connections = configuration.connections
        self.inbound = Inbound(context, Arrival(context), connections.arrivals_at_once)
        self.door = DirectDoor(context, peers, self.inbound)
        self.lines = Lines(
            context,
            peers,
            self.inbound,
            dial,
            settings=configuration.line_settings(),
            own_paths=lambda: self._configuration.paths_of(),
        )
        transfer = Transfer(context, self.lines)
        self.dispatcher = Dispatcher(
            context,
            transfer,
            closed=self.lines.closed,
            limits=DispatchLimits(under_way=connections.under_way, drain=configuration.drain),
        )
        self.lines.on_open = self.dispatcher.opened
        self.old: OldNetwork | None = None
        if configuration.old_network is not None:
            old = self.old = old_network(configuration.old_network, configuration, context)
            self.submission.ways.second = transfer.second = old
            old.on_open = lambda: self.dispatcher.opened(OLD_NETWORK)
        self._expiry = Expiry(context, configuration.retention_of())
        self.upkeep = Upkeep(
            context,
            self._expiry,
            keys.certificates,
            configuration.upkeep_settings(),
        )
        if self.old is not None:
            self.upkeep.other_certificates = self.old.certificates
        self.users = Users(configuration.users_of(), configuration.bindings_of())
        self.amqp = (
            None
            if configuration.amqp is None
            else AmqpChannel(
                context, self.users, self.submission, self.handover, configuration.amqp.settings()
            )
        )
        self.views: dict[str, Callable[[], Any]] = {}
        """What channels add to the health."""
        if self.amqp is not None:
            self.views["amqp"] = self.amqp.views
        if self.old is not None:
            self.views["old_network"] = lambda: _nodes(self.old)
        self.operating = Operating(context, self.submission, self.dispatcher)
        self.explaining = Explaining(
            context,
            self.enquiry,
            self.lines.views,
            lambda message_type: self.users.bindings.of(message_type).channel,
            self.old,
            keys.certificates,
        )
        self.api = JsonApi(
            context,
            self.users,
            self.submission,
            self.handover,
            self.enquiry,
            self.explaining,
            self.evidence,
            self.events,
            client_chain,
            self.operating,
        )
        self.registry = CollectorRegistry()
        self._certificates = keys.certificates
        probe = configuration.operations.probe
        self.probe = Probe(
            context, self.submission, self.health, None if probe is None else probe.settings()
        )
        self.metrics = EndpointMetrics(self.registry, context.signals)
        api = configuration.api or ApiSection()
        counts = RequestCounts(self.registry)
        served = (context, self.users, self.submission, self.handover, self.enquiry)

        def soap(operations: ByName, service: Described) -> SoapApi:
            return SoapApi(
                context,
                self.users,
                operations,
                client_chain,
                spooling(configuration.home / "spool"),
                counts,
                url=api.url if service is SERVICE else "",
                requests_per_user=api.soap_requests_per_user,
                max_envelope=api.max_envelope,
                service=service,
            )

        self.soap = soap(SoapOperations(*served), SERVICE)
        self.old_soap = soap(SoapOperations11(*served), OLD_SERVICE)

    @property
    def configuration(self) -> EndpointConfiguration:
        return self._configuration

    async def reconfigure(self, configuration: EndpointConfiguration, by: str) -> None:
        """503 cl. 10: changed parameters count without a restart; ports and folders need one."""
        if configuration == self._configuration:
            return
        if self._client.copy.home is not None:
            await self._client.configuration.change(configuration.entry(), by=by)
        before, self._configuration = self._configuration, configuration
        self._client.configure(configuration.client_settings())
        say_restart_needed(before, configuration, NEED_A_RESTART)
        self.context.settings = configuration.settings()
        if self.old is not None and configuration.old_network is not None:
            organization = configuration.contact.organization
            self.old.context.settings = self.context.settings
            self.old.settings = configuration.old_network.settings(organization)
        if configuration.checks != before.checks:
            self.context.checking.change(check_rules(configuration.checks))
        self.users.change(configuration.users_of(), configuration.bindings_of())
        self.api.check()
        if self.amqp is not None:
            self.amqp.check()
        self._expiry.retention = configuration.retention_of()
        self.upkeep.settings = configuration.upkeep_settings()
        self.lines.wake()
        row = AdministrationRow(
            self.context.clock.now(),
            actor=by,
            action="settings changed",
            target=configuration.code,
            before=_told(before),
            after=_told(configuration),
        )
        await self.context.store.run(lambda work: work.journal.append(row))

    def _roots(self) -> Sequence[bytes]:
        """Of all networks that this endpoint is in."""
        more = () if self.old is None else self.old.roots()
        return tuple(dict.fromkeys((*self._client.roots(), *more)))

    def directory_changed(self) -> None:
        """503 cl. 6.4 and 8.6: lines and visitors are looked at again."""
        self.lines.wake()
        self.door.check()
        self.dispatcher.wake()

    async def health(self) -> dict[str, Any]:
        """Proves that the store answers."""
        now = self.context.clock.now()
        await self.context.store.read(lambda work: work.box.next_due(now))
        ending = self.upkeep.ending()
        synchronised = self._client.synchroniser.state
        pushed = self._client.configuration.state
        return {
            "ok": True,
            "connections": len(self.lines.views()),
            "transfers": self.dispatcher.under_way,
            "arrivals": self.inbound.under_way,
            **{name: view() for name, view in self.views.items()},
            "maintenance": self.context.holding.current.maintenance is not None,
            "holds": told(self.context.holding.current.all),
            "checks": self.context.checking.view(),
            "expiring": [
                {"kind": c.kind, "id": c.certificate_id, "not_after": c.not_after.isoformat()}
                for c in ending
            ],
            "directory": {
                "succeeded_at": _time(synchronised.succeeded_at),
                "reason": synchronised.reason,
                "push_pending": pushed.pending,
                "push_reason": pushed.reason,
            },
        }

    async def archive_now(self, form: dict[str, Any]) -> dict[str, Any]:
        """Cl. 3.14.1 of MADES 1.1, for whoever may act on the operations listener."""
        try:
            age = timedelta(seconds=float(form.get("older_than_seconds") or 0))
        except (TypeError, ValueError, OverflowError):
            raise Refusal(Rule.USAGE, "'older_than_seconds' is no number of seconds") from None
        by = f"operator:{str(form.get('by') or 'unknown')[:100]}"
        done = await self.archive.run(self.context.clock.now() - age, by)
        return {"files": list(done.files), "messages": done.messages}

    async def measure(self) -> None:
        """Brings figures that describe a state up to date."""
        self.metrics.state(
            await self.context.store.read(lambda work: work.box.tally()),
            self.context.clock.now(),
            self.lines.views(),
            self._certificates(),
            self._client.synchroniser.state.succeeded_at,
        )

    def connections(self) -> list[dict[str, Any]]:
        return [
            {
                "peer": view.peer,
                "connected": view.connected,
                "listening": view.listening,
                "under_way": view.under_way,
                "reason": view.reason,
            }
            for view in self.lines.views()
        ]


def _nodes(old: OldNetwork | None) -> list[dict[str, Any]]:
    return [] if old is None else [asdict(line) for line in old.lines()]


def _told(configuration: EndpointConfiguration) -> str:
    """What an auditor may read: no secrets, and no hashes of them."""
    people = {"__all__": {"password"}}
    return configuration.model_dump_json(
        exclude={"keys": True, "users": people, "console": {"users": people}}
    )


def _time(at: Any) -> str | None:
    return None if at is None else str(at.isoformat())
