"""What every part of a directory client shares: whose it is, settings, keys, store, clock, network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from gridpost.core.component import ComponentType
from gridpost.core.identifiers import ComponentCode
from gridpost.core.ports import Clock, DirectoryClientStore, HttpsCallers, KeyCabinet


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """What the administrator of an endpoint or broker decides (503 cl. 7.6, 7.7.3)."""

    directories: tuple[ComponentCode, ...] = ()
    """Component-directories to synchronise with, in order; none: the home directory."""
    cycle: timedelta = timedelta(minutes=2)
    first_retry: timedelta = timedelta(seconds=1)
    """After a failure, doubled with each further one up to the cycle."""
    poll: timedelta = timedelta(seconds=30)
    """How often the outcome of a registration is asked for."""
    anticipation: timedelta = timedelta(days=30)
    """How long before the end of a certificate the extension is asked for."""
    proxy: str = ""
    """By which directories are reached; empty: by none."""
    key_bits: int = 2048


@dataclass(slots=True)
class ClientContext:
    code: ComponentCode
    type: ComponentType
    store: DirectoryClientStore
    keys: KeyCabinet
    clock: Clock
    callers: HttpsCallers
    roots: Callable[[], Sequence[bytes]]
    """The trusted ROOT CAs; asked anew, as two count while the root is renewed."""
    settings: ClientSettings = field(default_factory=ClientSettings)
    """Replaced while the component runs; read anew each time."""

    def retries(self) -> tuple[timedelta, timedelta]:
        """The first wait after a failure, and the longest."""
        return self.settings.first_retry, self.settings.cycle
