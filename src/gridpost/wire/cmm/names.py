"""What things are called on the broker (CMM 3.1, 3.2, 4.4.1), and what a client may touch of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gridpost.core.identifiers import clip
from gridpost.core.refusal import Refusal, Rule

MANAGEMENT_KEY = "cmm.request.management"
INQUIRY_KEY = "cmm.request.inquiry"

# RabbitMQ takes 255 octets for a name; ours add up to 20.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}", re.ASCII)
_REQUEST = "cmm.request."


def user_name(text: str) -> str:
    """A user: the common name of its certificate, and a part of names on the broker."""
    if not _NAME.fullmatch(text):
        raise Refusal(
            Rule.REFERENCE_DATA,
            f"'{clip(text)}' is not a user name: up to 100 letters, digits and . _ @ -",
        )
    return text


@dataclass(frozen=True, slots=True)
class Permissions:
    configure: str
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class Names:
    """The heartbeat's exchange is printed in two ways, so it can be set."""

    heartbeat: str = "cmm.heartbeat"
    response: str = "cmm.response"
    request_queue: str = "cmm.requestQueue"

    def request(self, user: str) -> str:
        return f"{_REQUEST}{user}"

    def user_of(self, exchange: str) -> str | None:
        """CMM 4.3: who asks is known by the exchange alone."""
        return exchange[len(_REQUEST) :] if exchange.startswith(_REQUEST) else None

    def response_queue(self, user: str) -> str:
        return f"cmm.responseQueue.{user}"

    def broadcast_queue(self, user: str) -> str:
        return f"cmm.broadcastQueue.{user}"

    def atc(self, border: str) -> str:
        return f"cmm.atc.{border}"

    def allocation(self, group: str) -> str:
        return f"cmm.allocation.{group}"

    def client_permissions(self, user: str) -> Permissions:
        own = escaped(user)
        return Permissions(
            configure="^$",
            write=rf"^cmm\.request\.{own}$",
            read=rf"^cmm\.(response|broadcast)Queue\.{own}$",
        )

    def service_permissions(self) -> Permissions:
        ours = r"^cmm\."
        return Permissions(ours, ours, ours)


def escaped(user: str) -> str:
    """For RabbitMQ's regular expressions, in which '.' and '-' could mean more than themselves."""
    return re.sub(r"([^A-Za-z0-9_@])", r"\\\1", user)
