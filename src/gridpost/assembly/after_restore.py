"""What a component that came back from a backup says of itself, in its log and in its health."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

import structlog

from gridpost.stores.sqlite.snapshot import restored

log = structlog.get_logger(__name__)

Health = Callable[[], Awaitable[dict[str, Any]]]

_MESSAGES = (
    "what was accepted, received, confirmed or acknowledged between these two times is not in this "
    "store; what was still to be sent is sent again, and recipients stop duplicates by message ID; a "
    "message whose acknowledgements are missing ends FAILED when it expires, although it may have arrived"
)
_MISSING = MappingProxyType(
    {
        "broker": "messages that were accepted between these two times are gone; messages that were "
        "delivered meanwhile are delivered again, and recipients stop duplicates by message ID",
        "bus": "requests that were done between these two times are unknown to this store, with what "
        "they changed: one that comes again is done again; replies, events and callbacks that were "
        "still to be sent are sent again; what waits in RabbitMQ is not part of a backup",
        "capacity": "what was allocated between these two times is not in this ledger although it was "
        "confirmed: every border was halted when the service started; reconcile with the pipeline's "
        "tables or with the participants, adjust the offers, then resume",
        "node": "messages that were uploaded between these two times are gone, and so are registrations, "
        "revocations and changes: they have to be repeated; messages that were downloaded meanwhile are "
        "given once more, and endpoints stop duplicates by message ID",
        "component-directory": "registrations, revocations and changes between these two times have to "
        "be repeated; components push their own entries again",
    }
)


def missing_of(component: str) -> str:
    """What is not in a store that came back."""
    return _MISSING.get(component, _MESSAGES)


def say_restored(store: Path, component: str = "") -> None:
    found = restored(store)
    if found is not None:
        log.warning("restored from a backup", **asdict(found), missing=missing_of(component))


def restored_health(store: Path, component: str = "") -> dict[str, Any]:
    """What health tells of it: nothing, unless the store came back."""
    found = restored(store)
    if found is None:
        return {}
    return {"restored": {**asdict(found), "missing": missing_of(component)}}


def telling_more(
    health: Health, store: Path, more: Callable[[], dict[str, Any]], component: str = ""
) -> Health:
    """The health of a component, what its watch has to say, and from which backup it came."""

    async def told() -> dict[str, Any]:
        return {**await health(), **more(), **restored_health(store, component)}

    return told
