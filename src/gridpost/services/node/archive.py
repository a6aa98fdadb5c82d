"""The archive of a node (MADES 1.1 cl. 3.6): final messages go into a file, and only then away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gridpost.core.message import Metadata
from gridpost.core.node import BoxEntry
from gridpost.core.node_ports import NodeStore
from gridpost.core.ports import Clock
from gridpost.services.operations.archive_file import write_archive
from gridpost.wire.mades11 import message as message_form

_AT_ONCE = 500
_BYTES = 32 * 1024 * 1024
"""Of contents in memory at a time, unless a single one is larger."""


@dataclass
class Archive:
    """One ZIP file for each run: per message its header as XML and state, and its content."""

    store: NodeStore
    clock: Clock
    folder: Path

    async def run(self, before: datetime) -> tuple[list[Path], int]:
        """Messages whose final state is older than `before`; the files and how many they hold."""
        total, files = 0, list[Path]()
        while True:
            batch = await self.store.run(lambda unit: unit.final(before, _AT_ONCE, _BYTES))
            if not batch:
                return files, total
            file = self.folder / f"messages-{self.clock.now():%Y%m%dT%H%M%S%f}-{total}.zip"
            await asyncio.to_thread(_write, file, batch)
            files.append(file)
            ids = [entry.message_id for entry, _, _ in batch]
            total += await self._delete(ids)

    async def _delete(self, message_ids: list[str]) -> int:
        return await self.store.run(lambda unit: unit.delete(message_ids))


def _write(file: Path, batch: list[tuple[BoxEntry, Metadata, bytes | None]]) -> None:
    write_archive(file, (part for message in batch for part in _parts(*message)))


def _parts(
    entry: BoxEntry, metadata: Metadata, content: bytes | None
) -> Iterator[tuple[str, bytes]]:
    before, after = message_form.encode(metadata)
    told = {"state": entry.state.value, "transferred_at": entry.transferred_at.isoformat()}
    yield f"{entry.message_id}.json", json.dumps(told).encode()
    yield f"{entry.message_id}.xml", (before + after).encode()
    if content is not None:
        yield f"{entry.message_id}.content", content
