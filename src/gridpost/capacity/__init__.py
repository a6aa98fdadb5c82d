"""A client of the Capacity Management Module for applications: ask for capacity, follow broadcasts.

`CapacityClient` blocks, `AsyncCapacityClient` is for asyncio; both do the same.
"""

from gridpost.capacity.asynchronous import AsyncCapacityClient
from gridpost.capacity.blocking import CapacityClient
from gridpost.capacity.settings import ClientSettings, read_client_settings
from gridpost.capacity.values import (
    AllocationsChanged,
    AllocationsRecovered,
    AtcChanged,
    ConnectionLost,
    Event,
    Heartbeat,
    LoggedIn,
    Result,
    ServiceDown,
    Wanted,
)
from gridpost.core.allocation import AllocationType

__all__ = [
    "AllocationType",
    "AllocationsChanged",
    "AllocationsRecovered",
    "AsyncCapacityClient",
    "AtcChanged",
    "CapacityClient",
    "ClientSettings",
    "ConnectionLost",
    "Event",
    "Heartbeat",
    "LoggedIn",
    "Result",
    "ServiceDown",
    "Wanted",
    "read_client_settings",
]
