"""A message or acknowledgement that was downloaded from the home node: opened, stored and answered.

As in the new network, with the keys and the directory of this one. `arrive` returns when everything
it leads to is stored; only then may the download be confirmed (MADES 1.1 cl. 3.8).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import structlog

from gridpost.core.acknowledgement import compose, fingerprint_content
from gridpost.core.delivery import Side
from gridpost.core.identifiers import new_message_id
from gridpost.core.journal import refusal_row
from gridpost.core.message import (
    SIGNATURE,
    InternalMessage,
    InternalType,
    Metadata,
    SealedMessage,
)
from gridpost.core.message_path import OLD_NETWORK
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.version import understands
from gridpost.services.endpoint.arrival import Arrival
from gridpost.services.endpoint.old_network.network import OldNetwork
from gridpost.services.endpoint.tracking import processor_value
from gridpost.wire.mades11.compression import expand
from gridpost.wire.seal.opening import Opened

log = structlog.get_logger(__name__)


class OldArrival(Arrival):
    def __init__(self, network: OldNetwork) -> None:
        super().__init__(network.context)
        self._network = network

    async def take(self, metadata: Metadata, body: bytes) -> None:
        """Refuses, and has stored nothing, when the home node cannot be asked now."""
        now = self._context.clock.now()
        acknowledgement = metadata.internal_type.is_acknowledgement
        expires = metadata.expiration_time
        if metadata.receiver_code != self._context.code:
            return await self._log(metadata, Refusal(
                Rule.RECEIVER_NOT_QUEUE,
                f"this is {self._context.code}; the message is for {metadata.receiver_code}",
            ), now)  # fmt: skip
        # Cl. 3.11.3: the sender's endpoint has said so already.
        if expires is not None and expires.at <= now:
            return await self._log(metadata, Refusal(
                Rule.MESSAGE_EXPIRED,
                f"{metadata.internal_type} {metadata.message_id} arrived after its expiration time",
            ), now)  # fmt: skip
        if not understands(self._network.settings.mversion, metadata.message_mversion):
            refusal = Refusal(
                Rule.MESSAGE_VERSION_UNSUPPORTED,
                f"the message complies with MADES version {metadata.message_mversion}, "
                f"this endpoint with {self._network.settings.mversion}",
            )
            if acknowledgement:
                return await self._log(metadata, refusal, now)
            # Answered in our own version: nobody on the way understands the other one either.
            known = replace(metadata, message_mversion=self._network.settings.mversion)
            return await self._refuse(known, refusal, OLD_NETWORK, now)
        await self._learn(metadata)
        sealed = SealedMessage(metadata, body)
        if acknowledgement:
            return await self._acknowledged(sealed, OLD_NETWORK, now)
        return await self._message(sealed, OLD_NETWORK, now)

    async def _learn(self, metadata: Metadata) -> None:
        """Cl. 3.16.4.2: what the checks below look up is fetched from the home node first.

        And what evidence needs: whom both parties have their certificates from.
        """
        directory = self._network.directory
        await directory.component(self._context.code)
        sender = await directory.component(metadata.sender_code)
        if sender is not None:
            named = processor_value(metadata, SIGNATURE, "Certificate ID")
            await directory.signing(metadata.sender_code, named)
            await self._network.meet(sender)

    async def _open(self, sealed: SealedMessage, now: datetime) -> Opened:
        opened = await super()._open(sealed, now)
        size, limit = len(opened.message.content), self._context.settings.max_content
        if size > limit:
            # Cl. 3.5.5: the target of a transfer checks that it can keep what comes.
            raise Refusal(
                Rule.CONTENT_TOO_LARGE,
                f"the document has {size} bytes; this endpoint accepts {limit}",
            )
        # What cannot be unpacked is no document: its sender learns it now, not an application later.
        self._document(opened.message)
        return opened

    def _document(self, message: InternalMessage) -> bytes:
        return expand(message, self._context.settings.max_content)

    def _compose(
        self, kind: InternalType, original: Metadata, content: bytes, now: datetime
    ) -> InternalMessage:
        made = compose(kind, original, content, message_id=new_message_id(), now=now)
        organization = self._network.settings.organization
        return replace(made, metadata=replace(made.metadata, sender_description=organization))

    async def _answer(self, opened: Opened, now: datetime) -> InternalMessage:
        """Cl. 3.10.3: an acknowledgement may have to wait for the signing device (VERIFYING).

        The message itself does not: it is stored and offered, and `Uploading` signs what it sends.
        """
        try:
            return await super()._answer(opened, now)
        except Refusal as refusal:
            if refusal.rule is not Rule.KEY_TOKEN:
                raise
            original = opened.message.metadata
            self._network.uploading.not_signed(Side.RECEIVED, original.message_id, refusal)
            log.warning(
                "acknowledgement waits for the signing device",
                message_id=original.message_id, reason=refusal.message, id=refusal.id,
            )  # fmt: skip
            return self._compose(
                InternalType.DELIVERY_ACKNOWLEDGEMENT,
                original,
                fingerprint_content(opened.fingerprint),
                now,
            )

    async def _log(self, metadata: Metadata, refusal: Refusal, now: datetime) -> None:
        row = refusal_row(
            refusal,
            now,
            peer=metadata.sender_code,
            message_id=metadata.message_id,
            security=refusal.rule is not Rule.MESSAGE_EXPIRED,
        )
        await self._context.store.run(lambda work: work.journal.append(row))
