"""For business applications: an endpoint's JSON API as Python calls, blocking or with asyncio.

from gridpost.client import Endpoint

with Endpoint("http://127.0.0.1:8480", user="planning", password=secret) as endpoint:
    message_id = endpoint.send("OTHER-PARTY", "A01", document, key="plan-2026-03-01")
    print(endpoint.status(message_id).status)
"""

from gridpost.client.asynchronous import AsyncEndpoint
from gridpost.client.blocking import Endpoint
from gridpost.client.values import (
    BadDocument,
    Explained,
    HeldBack,
    Hold,
    Message,
    Received,
    StatusEvent,
    TraceLine,
)

__all__ = [
    "AsyncEndpoint",
    "BadDocument",
    "Endpoint",
    "Explained",
    "HeldBack",
    "Hold",
    "Message",
    "Received",
    "StatusEvent",
    "TraceLine",
]
