"""The archive of a node (MADES 1.1 cl. 3.6): final messages go into a file, and only then away."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from gridpost.core.message import Metadata
from gridpost.core.node import BoxEntry
from gridpost.core.node_ports import NodeStore
from gridpost.core.ports import Clock
from gridpost.wire.mades11 import message as message_form

_AT_ONCE = 500


@dataclass
class Archive:
    """One ZIP file for each run: per message its header as XML and state, and its content."""

    store: NodeStore
    clock: Clock
    folder: Path

    async def run(self, before: datetime) -> tuple[Path | None, int]:
        """Messages whose final state is older than `before`; the file and how many it holds."""
        total, file = 0, None
        while True:
            batch = await self.store.run(lambda unit: unit.final(before, _AT_ONCE))
            if not batch:
                return file, total
            file = self.folder / f"messages-{self.clock.now():%Y%m%dT%H%M%S%f}-{total}.zip"
            await asyncio.to_thread(_write, file, batch)
            ids = [entry.message_id for entry, _, _ in batch]
            total += await self._delete(ids)

    async def _delete(self, message_ids: list[str]) -> int:
        return await self.store.run(lambda unit: unit.delete(message_ids))


def _write(file: Path, batch: list[tuple[BoxEntry, Metadata, bytes | None]]) -> None:
    """Complete, read back and safe on the disk before it has its name."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    with ZipFile(part, "w", ZIP_DEFLATED) as archive:
        for entry, metadata, content in batch:
            before, after = message_form.encode(metadata)
            told = {"state": entry.state.value, "transferred_at": entry.transferred_at.isoformat()}
            archive.writestr(f"{entry.message_id}.json", json.dumps(told))
            archive.writestr(f"{entry.message_id}.xml", before + after)
            if content is not None:
                archive.writestr(f"{entry.message_id}.content", content)
    with ZipFile(part) as archive:
        bad = archive.testzip()
        if bad is not None:
            raise OSError(f"{part}: {bad} cannot be read back")
    with part.open("rb+") as written:
        os.fsync(written.fileno())
    part.rename(file)
    handle = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
