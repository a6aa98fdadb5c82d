"""The proof set of a message, from what this endpoint and its directory hold (503 cl. 4.5.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

from gridpost.core.certificate import Certificate, CertificateKind, of_kind
from gridpost.core.component import Component
from gridpost.core.delivery import Side
from gridpost.core.identifiers import ComponentCode
from gridpost.core.message import SIGNATURE, InternalMessage, InternalType
from gridpost.core.ports import UnitOfWork
from gridpost.core.proof_set import ProofSet
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.synchronisation import Answer, Grant, home_directory
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.tracking import processor_value
from gridpost.wire.directory import encode_components
from gridpost.wire.proof_file import DirectoryEntry, ProofFile


class Evidence:
    def __init__(
        self, context: EndpointContext, roots: Callable[[], Sequence[bytes]] = tuple
    ) -> None:
        self._context = context
        self._roots = roots

    async def of_sent(self, message_id: str) -> ProofSet:
        """Everything that is known of a sent message; `missing()` says what is not."""
        message, acknowledgements = await self._collect(Side.SENT, message_id)
        by_kind = {a.metadata.internal_type: a for a in acknowledgements}
        delivery = by_kind.get(InternalType.DELIVERY_ACKNOWLEDGEMENT)
        sender, recipient = message.metadata.sender_code, message.metadata.receiver_code
        return ProofSet(
            message,
            self._signing_certificate(sender, message),
            delivery,
            None if delivery is None else self._signing_certificate(recipient, delivery),
            by_kind.get(InternalType.RECEIVE_ACKNOWLEDGEMENT),
            tuple(dict.fromkeys((*self._issuers(sender), *self._issuers(recipient)))),
        )

    async def of_received(self, message_id: str) -> ProofSet:
        """503 cl. 4.5.4: what a recipient can prove is who issued the message."""
        message, _ = await self._collect(Side.RECEIVED, message_id)
        sender = message.metadata.sender_code
        return ProofSet(
            message, self._signing_certificate(sender, message), issuers=self._issuers(sender)
        )

    async def export(self, side: Side, message_id: str) -> ProofFile:
        """With everything that a verifier without this directory needs."""
        sent = side is Side.SENT
        proof = await (self.of_sent(message_id) if sent else self.of_received(message_id))
        metadata = proof.message.metadata
        used = [*self._used(metadata.sender_code), *self._used(metadata.receiver_code)]
        entries = {entry.code: entry for entry in used}
        return ProofFile(proof, tuple(self._roots()), tuple(entries.values()))

    async def _collect(
        self, side: Side, message_id: str
    ) -> tuple[InternalMessage, list[InternalMessage]]:
        def collect(work: UnitOfWork) -> tuple[InternalMessage, list[InternalMessage]]:
            entry = work.box.find(side, message_id)
            content = work.box.content(side, message_id)
            if entry is None or content is None:
                raise Refusal(
                    Rule.MESSAGE_UNKNOWN,
                    f"no message {message_id} with its document is stored here",
                    "retention may have removed it",
                )
            return InternalMessage(entry.metadata, content), list(
                work.box.acknowledgements(message_id) if side is Side.SENT else ()
            )

        return await self._context.store.read(collect)

    def _signing_certificate(
        self, code: ComponentCode, signed: InternalMessage
    ) -> Certificate | None:
        named = processor_value(signed.metadata, SIGNATURE, "Certificate ID")
        published = self._context.signing_certificates(code, self._context.clock.now())
        if code == self._context.code:
            # Our own are known here even when the directory no longer publishes them.
            published += [s.certificate for s in self._context.keyring.signers()]
        return next((c for c in published if c.certificate_id == named), None)

    def _used(self, code: ComponentCode) -> Iterator[DirectoryEntry]:
        """The entry of `code` and that of its home, with the content they were part of."""
        now, directory = self._context.clock.now(), self._context.directory()
        component = directory.find(code, now)
        home = None if component is None else home_directory(directory, component, now)
        for found in (component, home):
            if found is not None:
                content_id = self._content_id(found)
                grant = Grant(found.component_directory, content_id, timedelta(0))
                yield DirectoryEntry(
                    found.code,
                    found.component_directory,
                    content_id,
                    # As a directory would answer, so that it can be compared with one.
                    encode_components(Answer((grant,), (found,))),
                )

    def _content_id(self, component: Component) -> str:
        subsystem = self._context.directory().subsystems.get(component.component_directory)
        return "" if subsystem is None else subsystem.content_id

    def _issuers(self, code: ComponentCode) -> tuple[bytes, ...]:
        """The INTEGRATED CAs of the home of `code`: the way from its certificates to the root."""
        now = self._context.clock.now()
        directory = self._context.directory()
        component = directory.find(code, now)
        home = None if component is None else home_directory(directory, component, now)
        if home is None:
            return ()
        return tuple(c.der for c in of_kind(home.certificates, CertificateKind.INTEGRATED_CA))
