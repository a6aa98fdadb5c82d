"""The configuration file of a MADES 1.1 node: its keys, their defaults, and what they must not say."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator
from pydantic_settings import SettingsConfigDict

from gridpost.assembly.configuration import Period, Port, read_configuration
from gridpost.assembly.console_configuration import ConsoleSection, console_in
from gridpost.assembly.directory_configuration import (
    Code,
    ContactSection,
    KeysSection,
    Url,
    is_loopback,
    read_certificates,
)
from gridpost.assembly.journal_configuration import ExportSection
from gridpost.assembly.watching_configuration import WatchedConfiguration, watched_in
from gridpost.core.component import Contact
from gridpost.core.node import NODE_MVERSION, Priorities, PurgeStrategy, Purging
from gridpost.services.node.settings import NodeSettings

COMPONENT = "node"
MIB = 1024 * 1024
Count = Annotated[int, Field(ge=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NodeServerSection(_Section):
    host: str = "0.0.0.0"
    port: Port = 8450
    urls: Annotated[tuple[Url, ...], Field(min_length=1, max_length=2)]
    """Under which endpoints and nodes reach this node: primary, and secondary if there is one."""
    max_connections: Count = 1000


class TransfersSection(_Section):
    """MADES 1.1 cl. 5.3.3.1: the network governance decides these."""

    max_messages: Count = 500
    max_size: Annotated[int, Field(ge=1024)] = 32 * MIB
    """Bytes of contents in one reply, unless a single message is larger."""
    max_content: Annotated[int, Field(ge=1024)] = 64 * MIB
    max_envelope: Annotated[int, Field(ge=1024)] = 16 * MIB
    max_request: Annotated[int, Field(ge=1024)] = 96 * MIB


class NodeDirectorySection(_Section):
    token_validity: Period = timedelta(hours=1)
    ttl: Period = timedelta(minutes=5)
    cycle: Period = timedelta(minutes=5)
    proxy: str = ""
    certificate_validity: Period = timedelta(days=730)
    renewal: Period = timedelta(days=30)
    """How long before its end the node's own certificate is replaced."""


class MessagesSection(_Section):
    default_priority: int = 0
    priorities: dict[str, int] = Field(default_factory=dict)
    default_purge: PurgeStrategy = PurgeStrategy.CONTENT
    purge: dict[str, PurgeStrategy] = Field(default_factory=dict)
    purge_after: Period = timedelta(days=7)
    upkeep_cycle: Period = timedelta(seconds=30)


class NodeJournalSection(ExportSection):
    retention: Period = timedelta(days=365)


class NodeOperationsSection(_Section):
    host: str = "127.0.0.1"
    port: Port = 8451

    @model_validator(mode="after")
    def _guarded(self) -> NodeOperationsSection:
        if not is_loopback(self.host):
            raise ValueError(
                "operations.host must be a loopback address, because whoever reaches it may read "
                "without a password: from elsewhere use the console, which has users and TLS, "
                "or a tunnel to this machine"
            )
        return self


class NodeConfiguration(WatchedConfiguration):
    """`gridpost node run --config FILE`."""

    model_config = SettingsConfigDict(env_prefix="GRIDPOST_NODE_")

    component: Literal["node"]
    code: Code
    home: Path
    roots: Annotated[tuple[Path, ...], Field(min_length=1)]
    """ROOT CA certificates (PEM) that are trusted; two while the ROOT CA is renewed."""
    contact: ContactSection
    server: NodeServerSection
    transfers: TransfersSection = TransfersSection()
    directory: NodeDirectorySection = NodeDirectorySection()
    messages: MessagesSection = MessagesSection()
    operations: NodeOperationsSection = NodeOperationsSection()
    keys: KeysSection = KeysSection()
    journal: NodeJournalSection = NodeJournalSection()
    console: ConsoleSection | None = None

    def passphrase(self) -> bytes | None:
        secret: SecretStr | None = self.keys.passphrase
        return None if secret is None else secret.get_secret_value().encode()

    def trusted_roots(self) -> tuple[bytes, ...]:
        return tuple(der for file in self.roots for der in read_certificates(file))

    def settings(self, mversion: int = NODE_MVERSION) -> NodeSettings:
        contact, messages = self.contact, self.messages
        return NodeSettings(
            code=self.code,
            contact=Contact(contact.organization, contact.person, contact.email, contact.phone),
            urls=self.server.urls,
            mversion=mversion,
            token_validity=self.directory.token_validity,
            ttl=self.directory.ttl,
            synchronisation_cycle=self.directory.cycle,
            max_messages=self.transfers.max_messages,
            max_transfer=self.transfers.max_size,
            max_content=self.transfers.max_content,
            max_envelope=self.transfers.max_envelope,
            priorities=Priorities(messages.default_priority, messages.priorities),
            purging=Purging(messages.default_purge, messages.purge),
            purge_after=messages.purge_after,
            upkeep_cycle=messages.upkeep_cycle,
            journal_retention=self.journal.retention,
        )


def read_node_configuration(file: Path) -> NodeConfiguration:
    """Relative paths in the file count from its folder."""
    configuration = read_configuration(file, NodeConfiguration)
    folder = file.resolve().parent
    return configuration.model_copy(
        update={
            "home": folder / configuration.home,
            "roots": tuple(folder / root for root in configuration.roots),
            "console": console_in(folder, configuration.console),
            **watched_in(folder, configuration),
        }
    )
