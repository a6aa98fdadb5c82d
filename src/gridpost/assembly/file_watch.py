"""503 cl. 10: a changed configuration file is taken over; one with a mistake is warned of and left alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import structlog

from gridpost.core.refusal import Refusal

log = structlog.get_logger(__name__)

LOOK_SECONDS = 2.0


def watch_file(file: Path, changed: Callable[[], Awaitable[None]]) -> Coroutine[Any, Any, None]:
    """Until cancelled. Whatever is written from this call on is taken over, not from a first look on."""
    return _watch(file, _state(file), changed)


async def _watch(file: Path, seen: Sequence[int], changed: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        now = _state(file)
        if now == seen:
            continue
        seen = now
        try:
            await changed()
            log.info("configuration reloaded", file=str(file))
        except Refusal as refusal:
            log.warning(
                "configuration not reloaded",
                refusal=refusal.id,
                reason=refusal.message,
                details=refusal.details,
            )


def _state(file: Path) -> Sequence[int]:
    try:
        status = file.stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino
