"""The console of a broker, joined: what it shows of the running broker, and how it changes the file."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gridpost.assembly.broker_configuration import BrokerConfiguration
from gridpost.assembly.configuration_file import ConfigurationFile, set_value
from gridpost.assembly.settings_file import CONTACT, DURATION, Groups
from gridpost.console.configuring import Setting
from gridpost.core.component import Component, system_inconsistencies
from gridpost.core.identifiers import (
    MessageTypePattern,
    component_code,
    message_type_pattern,
)
from gridpost.core.message_path import Restriction
from gridpost.core.ports import Clock
from gridpost.services.broker.broker import Broker, QueueView
from gridpost.services.directory_client.client import DirectoryClient
from gridpost.transports.amqp10 import AmqpServer

_MOST = "at most; others are refused"
SETTINGS: Groups = (
    CONTACT,
    (
        "Connections",
        (
            Setting("limits.max_connections_per_component", "Connections of one endpoint", _MOST),
            Setting("limits.max_links", "Links of one connection", _MOST),
            Setting("limits.max_message_size", "Largest message", "in bytes"),
            Setting("limits.idle", "Silence before a connection ends", DURATION),
        ),
    ),
    (
        "Queues and disk",
        (
            Setting("queues.remove_after", "Empty queues are removed after", DURATION),
            Setting("store.min_free", "Free space that has to stay", "in bytes"),
            Setting("store.max_used", "Space that queues may take", "in bytes; 0 is no limit"),
        ),
    ),
    ("Journal", (Setting("journal.retention", "Journal", DURATION),)),
)


class ServedBroker:
    """console.broker.Served."""

    def __init__(
        self, broker: Broker, server: AmqpServer, client: DirectoryClient, clock: Clock
    ) -> None:
        self._broker = broker
        self._server = server
        self._client = client
        self._clock = clock

    def queues(self) -> Sequence[QueueView]:
        return self._broker.view()

    async def release(self, queue: str) -> int:
        return await self._broker.queues.release(queue)

    async def health(self) -> Mapping[str, Any]:
        return await self._broker.health()

    def connections(self) -> Sequence[Any]:
        return self._server.connections()

    def components(self) -> Sequence[Component]:
        return list(self._client.directory().components(self._clock.now()))

    def counters(self) -> Mapping[str, int]:
        metrics = self._broker.context.metrics
        return {"stored": metrics.stored, "delivered": metrics.left["delivered"]}


class RestrictionFile:
    """console.broker.RestrictionDesk."""

    def __init__(
        self,
        file: ConfigurationFile[BrokerConfiguration],
        current: Callable[[], BrokerConfiguration],
        apply: Callable[[BrokerConfiguration, str], Awaitable[None]],
        served: ServedBroker,
    ) -> None:
        self._file = file
        self._current = current
        self._apply = apply
        self._served = served

    def current(self) -> tuple[Sequence[str], Sequence[str], str]:
        section = self._current().restriction
        return section.components, section.message_types, self._file.mark()

    def warnings(self, components: Sequence[str], message_types: Sequence[str]) -> Sequence[str]:
        restriction = Restriction(
            frozenset(component_code(c) for c in components),
            tuple(MessageTypePattern(message_type_pattern(t)) for t in message_types),
        )
        known: dict[str, Component] = {c.code: c for c in self._served.components()}
        found = list(
            system_inconsistencies(replace(self._current().entry(), restriction=restriction), known)
        )
        cut_off = sorted(
            {
                str(view.identity)
                for view in self._served.connections()
                if view.identity and not restriction.allows_component(view.identity)
            }
        )
        found += [f"{code} is connected now and would be cut off" for code in cut_off]
        return found

    async def save(
        self, components: Sequence[str], message_types: Sequence[str], mark: str, by: str
    ) -> None:
        def edit(text: str) -> str:
            text = set_value(text, ("restriction", "components"), list(components))
            return set_value(text, ("restriction", "message_types"), list(message_types))

        await self._apply(self._file.change(edit, mark), by)
