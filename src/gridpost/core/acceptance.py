"""Whether a sender endpoint accepts a message from an application (503 cl. 5.5), and for how long.

All conditions are checked before a message exists: a refusal here leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from gridpost.core.certificate import Certificate, CertificateKind, select
from gridpost.core.component import Component, ComponentType
from gridpost.core.identifiers import ComponentCode, MessageTypePattern, matches
from gridpost.core.message_path import Route, find_path
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.synchronisation import Directory

DEFAULT_MAXIMUM_DURATION = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Accepted:
    """What the directory said at the moment of acceptance."""

    recipient: Component
    route: Route
    encryption_certificate: Certificate


def accept(
    directory: Directory,
    *,
    sender: ComponentCode,
    recipient: ComponentCode,
    message_type: str,
    at: datetime,
) -> Accepted:
    """The conditions of 503 cl. 5.5, in their order."""
    own = _entry(directory, sender, at)
    entry = _entry(directory, recipient, at)
    if entry.type is not ComponentType.ENDPOINT:
        raise Refusal(
            Rule.RECIPIENT_NOT_ENDPOINT,
            f"{recipient} is a {entry.type}: messages can be sent to endpoints only",
        )
    certificate = select(entry.certificates, CertificateKind.ENCRYPTION, at)
    if certificate is None:
        raise Refusal(
            Rule.NO_ENCRYPTION_CERTIFICATE,
            f"{recipient} has no valid encryption certificate",
            f"ask the administrator of {recipient} to renew it",
        )
    path = find_path(
        entry.paths,
        message_type=message_type,
        sender=sender,
        sender_takes_connections=own.takes_connections,
        recipient=recipient,
        at=at,
    )
    if path.route.broker is not None:
        _check_broker(directory, path.route.broker, sender, recipient, message_type, at)
    return Accepted(entry, path.route, certificate)


def _entry(directory: Directory, code: ComponentCode, at: datetime) -> Component:
    entry = directory.find(code, at)
    if entry is not None:
        return entry
    if directory.lapsed(code, at):
        raise Refusal(
            Rule.DIRECTORY_DATA_LAPSED,
            f"what is known of {code} is no longer valid",
            "no component-directory has been reached for longer than the granted time-to-live",
        )
    raise Refusal(Rule.RECIPIENT_UNKNOWN, f"no component {code} exists in the directory")


def _check_broker(
    directory: Directory,
    code: ComponentCode,
    sender: ComponentCode,
    recipient: ComponentCode,
    message_type: str,
    at: datetime,
) -> None:
    broker = directory.find(code, at)
    if broker is None or broker.type is not ComponentType.BROKER or broker.restriction is None:
        raise Refusal(
            Rule.BROKER_UNKNOWN,
            f"the message-path of {recipient} names {code}, which is not a known broker",
        )
    # 503 cl. 5.4: a restriction can block the found route; it never leads to another one.
    if not broker.restriction.allows_component(sender):
        raise Refusal(Rule.BROKER_REFUSES_SENDER, f"broker {code} does not admit {sender}")
    if not broker.restriction.allows_component(recipient):
        raise Refusal(Rule.BROKER_REFUSES_RECIPIENT, f"broker {code} does not admit {recipient}")
    if not broker.restriction.allows_message_type(message_type):
        raise Refusal(
            Rule.BROKER_REFUSES_MESSAGE_TYPE, f"broker {code} lets no {message_type} pass"
        )


@dataclass(frozen=True, slots=True)
class MaximumDurations:
    """503 cl. 5.7: how long a delivery may take, by message-type; there is always a default."""

    default: timedelta = DEFAULT_MAXIMUM_DURATION
    by_type: Mapping[MessageTypePattern, timedelta] | None = None

    def __post_init__(self) -> None:
        for duration in (self.default, *(self.by_type or {}).values()):
            if duration <= timedelta(0):
                raise ValueError(f"a maximum duration must be positive, not {duration}")

    def of(self, message_type: str) -> timedelta:
        """The identical message-type, else the longest pattern, else the default."""
        by_type = self.by_type or {}
        fitting = [p for p in by_type if matches(p, message_type)]
        best = max(fitting, key=lambda p: (p == message_type, len(p)), default=None)
        return self.default if best is None else by_type[best]

    def expiration(self, message_type: str, accepted_at: datetime) -> datetime:
        """The count starts when the sender endpoint accepts the message."""
        return accepted_at + self.of(message_type)
