"""Mversion: in which version of MADES two components may talk (503 cl. 9.2, MADES 1.1 cl. 4)."""

from __future__ import annotations

from dataclasses import dataclass

from gridpost.core.refusal import Refusal, Rule

MADES_1 = 1
MADES_2 = 2
INSTALLED = MADES_2


def parse_mades_version(text: str) -> int | None:
    """The Mversion in a directory entry; None when it says nothing usable. `1.1` is version 1."""
    major = text.strip().split(".", 1)[0]
    return int(major) if major.isascii() and major.isdigit() and len(major) <= 4 else None


def understands(installed: int, message: int) -> bool:
    """An N-component processes messages of N and N-1 (MADES 1.1 cl. 4.1.2, 503 cl. 9.2)."""
    return installed - 1 <= message <= installed


def check_message(installed: int, message: int) -> None:
    if not understands(installed, message):
        raise Refusal(
            Rule.MESSAGE_VERSION_UNSUPPORTED,
            f"the message complies with MADES version {message}; this component understands "
            f"{max(installed - 1, 1)} to {installed}",
        )


def version_for(recipient: int | None, *, sender: int = INSTALLED) -> int:
    """503 cl. 9.2: compose what the recipient understands.

    `recipient` is the highest version it complies with, and the one it prefers.
    """
    if recipient is None:
        raise Refusal(Rule.VERSION_UNKNOWN, "the MADES version of the recipient is unknown")
    version = min(sender, recipient)
    if not understands(sender, version) or not understands(recipient, version):
        raise Refusal(
            Rule.VERSIONS_TOO_FAR_APART,
            f"the recipient complies with MADES version {recipient}, this endpoint with {sender}",
        )
    return version


@dataclass(frozen=True, slots=True)
class Versions:
    """MADES 1.1 Table 12: everybody whose version matters when an old-style message is sent."""

    sender: int
    sender_node: int
    recipient: int | None
    recipient_node: int
    business_type_minimum: int = MADES_1


def old_version_for(versions: Versions) -> int:
    """MADES 1.1 cl. 4.2.4: the version of a message between nodes, or the reason of Table 13."""
    v = versions
    if v.recipient is None:
        raise Refusal(Rule.VERSION_UNKNOWN, "the MADES version of the recipient is unknown")
    if abs(v.recipient - v.sender) > 1:
        raise Refusal(
            Rule.VERSIONS_TOO_FAR_APART,
            f"the recipient has MADES version {v.recipient}, the sender {v.sender}",
        )
    if abs(v.recipient_node - v.sender) > 1:
        raise Refusal(
            Rule.RECIPIENT_NODE_VERSION,
            f"the node of the recipient has MADES version {v.recipient_node}, "
            f"the sender {v.sender}",
        )
    if abs(v.sender_node - v.recipient) > 1:
        raise Refusal(
            Rule.SENDER_NODE_VERSION,
            f"the node of the sender has MADES version {v.sender_node}, "
            f"the recipient {v.recipient}",
        )
    if v.business_type_minimum > min(v.sender, v.recipient):
        raise Refusal(
            Rule.BUSINESS_TYPE_VERSION,
            f"the business-type needs MADES version {v.business_type_minimum}; "
            f"the sender has {v.sender}, the recipient {v.recipient}",
        )
    return min(v.sender, v.recipient)


def node_accepts_endpoint(node: int, endpoint: int) -> bool:
    """MADES 1.1 cl. 4.2.1, 4.2.2."""
    return node - 1 <= endpoint <= node


def nodes_synchronise(own: int, peer: int) -> bool:
    """MADES 1.1 cl. 4.2.1."""
    return abs(own - peer) <= 1
