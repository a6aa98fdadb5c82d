"""The archive of an endpoint (MADES 1.1 cl. 3.6): finished messages go into a file, and only then away.

One ZIP file holds a batch. Of each message it has what the box knew (`SIDE-ID.json`), and the proof
as `gridpost proof export` makes it (`SIDE-ID.proof`); where retention has taken the document already,
header and acknowledgements.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from gridpost.core.delivery import Side, TraceEntry
from gridpost.core.journal import AdministrationRow
from gridpost.core.message import InternalMessage
from gridpost.core.message_box import BoxEntry
from gridpost.core.ports import UnitOfWork
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.evidence import Evidence
from gridpost.services.operations.archive_file import write_archive
from gridpost.wire import proof_file
from gridpost.wire.mades import metadata as metadata_form

_AT_ONCE = 200
_BYTES = 32 * 1024 * 1024
"""Of documents in memory at a time, unless a single one is larger."""


@dataclass(frozen=True, slots=True)
class Archived:
    files: tuple[str, ...]
    messages: int


class MessageArchive:
    def __init__(self, context: EndpointContext, evidence: Evidence, folder: Path) -> None:
        self._context = context
        self._evidence = evidence
        self._folder = folder
        self._alone = asyncio.Lock()

    async def run(self, before: datetime, by: str) -> Archived:
        """Everything that was final by then. What cannot be written stays where it is."""
        files: list[str] = []
        total = 0
        async with self._alone:
            while batch := await self._batch(before):
                parts = [part for entry in batch for part in await self._parts(entry)]
                now = self._context.clock.now()
                file = self._folder / f"messages-{now:%Y%m%dT%H%M%S%f}-{len(files)}.zip"
                try:
                    await asyncio.to_thread(write_archive, file, parts)
                except OSError as error:
                    raise Refusal(
                        Rule.STORE_FULL, f"{file} cannot be written: {error.strerror or error}",
                        f"{total} messages were archived before",
                    ) from None  # fmt: skip
                files.append(str(file))
                gone = await self._discard(batch, by, file.name)
                total += gone
                if not gone:
                    break  # a transfer needs them again: another time
        return Archived(tuple(files), total)

    async def _batch(self, before: datetime) -> list[BoxEntry]:
        found = await self._context.store.read(lambda work: work.box.finished(before, _AT_ONCE))
        batch: list[BoxEntry] = []
        size = 0
        for entry in found:
            size += entry.size
            if batch and size > _BYTES:
                break
            batch.append(entry)
        return batch

    async def _parts(self, entry: BoxEntry) -> list[tuple[str, bytes]]:
        side, message_id = entry.delivery.side, entry.message_id
        name = f"{side.value}-{message_id}"
        trace = await self._context.store.read(lambda work: work.box.trace(side, message_id))
        parts = [(f"{name}.json", json.dumps(_told(entry, trace), indent=1).encode())]
        try:
            exported = await self._evidence.export(side, message_id)
        except Refusal as refusal:
            if refusal.retryable:
                raise
            # Retention has taken the document: nothing can be proven of it any more.
            return [*parts, *await self._left(entry, name)]
        return [*parts, (f"{name}.proof", await asyncio.to_thread(proof_file.encode, exported))]

    async def _left(self, entry: BoxEntry, name: str) -> list[tuple[str, bytes]]:
        side, message_id = entry.delivery.side, entry.message_id

        def look(work: UnitOfWork) -> tuple[bytes | None, Sequence[InternalMessage]]:
            sent = side is Side.SENT
            return (
                work.box.content(side, message_id),
                work.box.acknowledgements(message_id) if sent else (),
            )

        content, acknowledgements = await self._context.store.read(look)
        parts = [(f"{name}.xml", metadata_form.encode(entry.metadata).encode())]
        if content is not None:
            parts.append((f"{name}.content", content))
        for number, found in enumerate(acknowledgements):
            told = metadata_form.encode(found.metadata).encode()
            parts.append((f"{name}.acknowledgement-{number}.xml", told))
            parts.append((f"{name}.acknowledgement-{number}.content", found.content))
        return parts

    async def _discard(self, batch: Sequence[BoxEntry], by: str, file: str) -> int:
        ids = {
            side: [e.message_id for e in batch if e.delivery.side is side] for side in Side
        }  # fmt: skip

        def work(unit: UnitOfWork) -> int:
            gone = sum(unit.box.discard(side, found) for side, found in ids.items())
            now = self._context.clock.now()
            unit.journal.append(
                AdministrationRow(now, by, "messages archived", file, after=str(gone))
            )
            return gone

        return await self._context.store.run(work)


def _told(entry: BoxEntry, trace: Sequence[TraceEntry]) -> dict[str, Any]:
    metadata, delivery = entry.metadata, entry.delivery
    return {
        "messageID": entry.message_id,
        "side": delivery.side.value,
        "state": delivery.state.value,
        "sender": metadata.sender_code,
        "receiver": metadata.receiver_code,
        "messageType": metadata.message_type,
        "internalType": metadata.internal_type.value,
        "baMessageID": metadata.ba_message_id,
        "senderApplication": metadata.sender_application,
        "conversationID": entry.conversation_id,
        "generated": metadata.generated.text,
        "expires": delivery.expires_at.isoformat(),
        "size": entry.size,
        "route": str(entry.route),
        "fingerprint": entry.fingerprint.hex(),
        "trace": [{k: _plain(v) for k, v in asdict(line).items()} for line in trace],
    }


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value
