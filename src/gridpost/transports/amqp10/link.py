"""What both directions of a link share: its terminus as the peer asked for it, and how it ends.

A link ends for its handler the moment either side closes it. Proton's object lives on until both
sides have, because a peer may go on sending until it has read our DETACH.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gridpost.core.links import Attachment
from gridpost.core.refusal import Refusal
from gridpost.transports.amqp10.conditions import render
from gridpost.transports.amqp10.engine import lib, set_condition, symbols, text

if TYPE_CHECKING:
    from gridpost.transports.amqp10.connection import AmqpConnection

RECEIVER_SETTLES_SECOND = lib.PN_RCV_SECOND
SENDER_SETTLES = lib.PN_SND_SETTLED


class Link:
    """One end of a link. `_pn` is None once proton's object is freed."""

    __slots__ = ("_pn", "attachment", "connection", "live", "session")

    def __init__(self, connection: AmqpConnection, pn: Any, attachment: Attachment) -> None:
        self.connection = connection
        self._pn = pn
        self.session = lib.pn_link_session(pn)
        self.attachment = attachment
        self.live = True

    def close(self, refusal: Refusal | None = None) -> None:
        """DETACH, with the reason when there is one; the handler is told at once."""
        if not self.live or self._pn is None:
            return
        self.live = False
        if refusal is not None:
            set_condition(lib.pn_link_condition(self._pn), *render(refusal))
            self.connection.note(refusal)
        lib.pn_link_close(self._pn)
        self.connection.touch()
        self._ended()

    def lost(self) -> None:
        """The peer closed the link, or everything below it is gone."""
        if self.live:
            self.live = False
            self._ended()

    def free(self) -> None:
        """Both sides are done with it: answer the peer's DETACH and let go."""
        pn, self._pn = self._pn, None
        if pn is not None:
            lib.pn_link_close(pn)
            lib.pn_link_free(pn)

    def gone(self) -> None:
        """The connection is gone and frees everything itself."""
        self.lost()
        self._pn = None

    def on_event(self, delivery: Any) -> None:
        raise NotImplementedError

    def _ended(self) -> None:
        raise NotImplementedError


def attachment_of(pn: Any) -> Attachment:
    """What the peer's ATTACH asks for: the source if it consumes, the target if it produces."""
    if lib.pn_link_is_sender(pn):
        terminus = lib.pn_link_remote_source(pn)
    else:
        terminus = lib.pn_link_remote_target(pn)
    return Attachment(
        name=text(lib.pn_link_name(pn)) or "",
        address=text(lib.pn_terminus_get_address(terminus)),
        dynamic=lib.pn_terminus_is_dynamic(terminus),
        exactly_once=lib.pn_link_remote_rcv_settle_mode(pn) == RECEIVER_SETTLES_SECOND,
        presettled=lib.pn_link_remote_snd_settle_mode(pn) == SENDER_SETTLES,
        capabilities=symbols(lib.pn_terminus_capabilities(terminus)),
    )


def answer(pn: Any, max_message_size: int) -> None:
    """ATTACH with the termini that the peer asked for: a confirmation that they are as it wants."""
    lib.pn_terminus_copy(lib.pn_link_source(pn), lib.pn_link_remote_source(pn))
    lib.pn_terminus_copy(lib.pn_link_target(pn), lib.pn_link_remote_target(pn))
    lib.pn_link_set_snd_settle_mode(pn, lib.pn_link_remote_snd_settle_mode(pn))
    lib.pn_link_set_rcv_settle_mode(pn, lib.pn_link_remote_rcv_settle_mode(pn))
    if lib.pn_link_is_receiver(pn):
        lib.pn_link_set_max_message_size(pn, max_message_size)
    lib.pn_link_open(pn)


def refuse(pn: Any, refusal: Refusal) -> None:
    """AMQP 2.6.3: ATTACH without the terminus that was asked for, then DETACH with the reason."""
    lib.pn_terminus_copy(lib.pn_link_source(pn), lib.pn_link_remote_source(pn))
    lib.pn_terminus_copy(lib.pn_link_target(pn), lib.pn_link_remote_target(pn))
    own = lib.pn_link_source(pn) if lib.pn_link_is_sender(pn) else lib.pn_link_target(pn)
    lib.pn_terminus_set_type(own, lib.PN_UNSPECIFIED)
    lib.pn_link_open(pn)
    set_condition(lib.pn_link_condition(pn), *render(refusal))
    lib.pn_link_close(pn)
