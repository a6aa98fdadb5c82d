"""503 cl. 5.5: what becomes of a message from E1, in a directory that a test describes."""

from __future__ import annotations

from gridpost.core.acceptance import accept
from gridpost.core.component import Component
from gridpost.core.identifiers import (
    ComponentCode,
)
from gridpost.core.refusal import Refusal
from support.builders import (
    NOW,
    broker,
    directory,
    endpoint,
    path,
)


def outcome(*components: Component, recipient: str = "E2", kind: str = "BP1-A") -> str:
    """The route by which E1's message is accepted, or the rule that refused it."""
    known = directory(endpoint("E1"), *components)
    try:
        accepted = accept(
            known,
            sender=ComponentCode("E1"),
            recipient=ComponentCode(recipient),
            message_type=kind,
            at=NOW,
        )
    except Refusal as refusal:
        return refusal.rule.name
    return str(accepted.route)


E2 = endpoint("E2", path("BP1-*"))


B1 = broker("B1")
