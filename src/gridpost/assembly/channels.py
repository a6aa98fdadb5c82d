"""The channels of an endpoint that have a listener or folders of their own, from its configuration."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from gridpost.assembly.endpoint_channels_configuration import AmqpSection, FoldersSection
from gridpost.assembly.endpoint_configuration import EndpointConfiguration
from gridpost.assembly.endpoint_parts import EndpointCore
from gridpost.assembly.renewed_files import RenewedFiles
from gridpost.core.identifiers import MessageTypePattern
from gridpost.core.ports import Clock
from gridpost.services.endpoint.amqp_channel import AmqpChannel
from gridpost.services.endpoint.folders import FolderHealth, FolderSettings, InPlace
from gridpost.services.endpoint.folders_in import FolderIn
from gridpost.services.endpoint.folders_log import FolderLog
from gridpost.services.endpoint.folders_out import FolderOut
from gridpost.services.endpoint.service import Duty
from gridpost.stores.folders import DiskInFolder, DiskLogFolder, DiskOutFolder
from gridpost.transports.amqp10 import AmqpLimits, AmqpServer, TlsCredentials
from gridpost.transports.amqp10.tls import server_context
from gridpost.transports.folder_watch import FolderWatch

_DISK_THREADS = 8
_MESSAGE_ROOM = 64 * 1024
"""What travels with a document on the AMQP channel: properties."""


class FolderChannel:
    """File System Shared Folders, on the disk of this machine."""

    def __init__(self, section: FoldersSection, core: EndpointCore) -> None:
        self._section = section
        self._pool = ThreadPoolExecutor(_DISK_THREADS, thread_name_prefix="gridpost-folders")
        mode = int(section.file_mode, 8)
        context, users = core.context, core.users
        settings = FolderSettings(
            section.user,
            section.at_once,
            section.retry.total_seconds(),
            {
                MessageTypePattern(pattern): InPlace(
                    DiskInFolder(one.folder, self._pool, mode), one.extension or self._extension
                )
                for pattern, one in section.types.items()
            },
            None
            if section.default is None
            else InPlace(
                DiskInFolder(section.default.folder, self._pool, mode), section.default.extension
            ),
        )
        self.health = FolderHealth(context.clock)
        logs = DiskLogFolder(section.out_log, self._pool, mode)
        self.out = FolderOut(
            context,
            users,
            core.submission,
            DiskOutFolder(section.out, section.out_error, self._pool, mode),
            logs,
            self.health,
            settings,
        )
        self.log = FolderLog(context, logs, self.health, settings)
        self.into = FolderIn(context, users, core.handover, self.health, settings)
        self.watch = FolderWatch(
            section.out,
            self.out.wake,
            polling=section.watch == "polling",
            poll_seconds=section.poll.total_seconds(),
            rescan_seconds=section.rescan.total_seconds(),
        )

    @property
    def _extension(self) -> str:
        """503 cl. 11.2.4: a type without a default extension has the general one."""
        return self._section.default.extension if self._section.default else ""

    def duties(self) -> list[Duty]:
        return [
            Duty("folder log", self.log.run),
            Duty("folder in", self.into.run),
            Duty("folder out", self.out.run),
            Duty("folder watch", self.watch.run),
        ]

    def check(self) -> list[str]:
        return folder_doubts(self._section)

    def view(self) -> dict[str, Any]:
        return {
            "problems": self.health.view(),
            "not_deleted": self.out.waiting,
            "inotify": self.watch.listening,
        }

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def folder_doubts(section: FoldersSection) -> list[str]:
    """503 cl. 11.2.4: what the administrator is warned of."""
    found = []
    for folder in dict.fromkeys(section.folders()):
        if not folder.is_dir():
            found.append(f"the shared folder {folder} does not exist")
        elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            found.append(f"the shared folder {folder} cannot be written by this user")
    return found


@asynccontextmanager
async def amqp_channel(
    configuration: EndpointConfiguration, channel: AmqpChannel | None, clock: Clock
) -> AsyncIterator[int | None]:
    section = configuration.amqp
    if section is None or channel is None:
        yield None
        return
    largest = configuration.max_content + _MESSAGE_ROOM
    limits = AmqpLimits(
        max_message_size=largest,
        max_incoming_octets=2 * largest,
        max_incoming_octets_total=max(1024 * 1024 * 1024, 2 * largest),
        credit=section.credit,
        max_unsettled_sent=section.max_unsettled,
        max_connections_per_identity=section.max_connections_per_user,
    )
    server = AmqpServer(container=configuration.code, clock=clock, limits=limits)
    port = await server.listen(
        section.host,
        section.port,
        channel,
        tls=_credentials(section),
        password=channel.password if section.mechanism == "PLAIN" else None,
    )
    try:
        yield port
    finally:
        seconds = configuration.drain.total_seconds()
        await server.drain(seconds)
        await channel.drain(seconds)


def _credentials(section: AmqpSection) -> RenewedFiles[TlsCredentials] | None:
    certificate, key = section.certificate, section.key
    if certificate is None or key is None:
        return None

    def read() -> TlsCredentials:
        chain = certificate.read_bytes()
        found = TlsCredentials(
            chain,
            key.read_bytes(),
            b"\n".join(file.read_bytes() for file in section.client_roots) or chain,
            ask_client=section.mechanism == "EXTERNAL",
        )
        # Fails unless they belong together.
        server_context(found)
        return found

    return RenewedFiles((certificate, key, *section.client_roots), read)
