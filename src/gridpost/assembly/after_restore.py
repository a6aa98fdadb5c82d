"""What a component that came back from a backup says of itself, in its log and in its health."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import structlog

from gridpost.stores.sqlite.snapshot import restored

log = structlog.get_logger(__name__)

Health = Callable[[], Awaitable[dict[str, Any]]]

MISSING = (
    "what was accepted, received, confirmed or acknowledged between these two times is not in this "
    "store; what was still to be sent is sent again, and recipients stop duplicates by message ID; a "
    "message whose acknowledgements are missing ends FAILED when it expires, although it may have arrived"
)


def say_restored(store: Path) -> None:
    found = restored(store)
    if found is not None:
        log.warning("restored from a backup", **asdict(found), missing=MISSING)


def telling_more(
    health: Health, store: Path, more: Callable[[], dict[str, Any]], missing: str = MISSING
) -> Health:
    """The health of a component, what its watch has to say, and from which backup it came."""

    async def told() -> dict[str, Any]:
        answer = {**await health(), **more()}
        found = restored(store)
        return (
            answer
            if found is None
            else {**answer, "restored": {**asdict(found), "missing": missing}}
        )

    return told
