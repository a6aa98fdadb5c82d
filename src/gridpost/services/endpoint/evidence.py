"""The proof set of a sent message, from what this endpoint and its directory hold (503 cl. 4.5.4)."""

from __future__ import annotations

from gridpost.core.certificate import Certificate, CertificateKind, of_kind
from gridpost.core.delivery import Side
from gridpost.core.identifiers import ComponentCode
from gridpost.core.message import SIGNATURE, InternalMessage, InternalType
from gridpost.core.ports import UnitOfWork
from gridpost.core.proof_set import ProofSet
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.synchronisation import home_directory
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.tracking import processor_value


class Evidence:
    def __init__(self, context: EndpointContext) -> None:
        self._context = context

    async def of_sent(self, message_id: str) -> ProofSet:
        """Everything that is known of a sent message; `missing()` says what is not."""

        def collect(work: UnitOfWork) -> tuple[InternalMessage, list[InternalMessage]]:
            entry = work.box.find(Side.SENT, message_id)
            content = work.box.content(Side.SENT, message_id)
            if entry is None or content is None:
                raise Refusal(
                    Rule.MESSAGE_UNKNOWN,
                    f"no message {message_id} with its document is stored here",
                    "retention may have removed it",
                )
            return InternalMessage(entry.metadata, content), list(
                work.box.acknowledgements(message_id)
            )

        message, acknowledgements = await self._context.store.read(collect)
        by_kind = {a.metadata.internal_type: a for a in acknowledgements}
        delivery = by_kind.get(InternalType.DELIVERY_ACKNOWLEDGEMENT)
        sender, recipient = message.metadata.sender_code, message.metadata.receiver_code
        return ProofSet(
            message,
            self._signing_certificate(sender, message),
            delivery,
            None if delivery is None else self._signing_certificate(recipient, delivery),
            by_kind.get(InternalType.RECEIVE_ACKNOWLEDGEMENT),
            (*self._issuers(sender), *self._issuers(recipient)),
        )

    def _signing_certificate(
        self, code: ComponentCode, signed: InternalMessage
    ) -> Certificate | None:
        named = processor_value(signed.metadata, SIGNATURE, "Certificate ID")
        published = self._context.signing_certificates(code, self._context.clock.now())
        return next((c for c in published if c.certificate_id == named), None)

    def _issuers(self, code: ComponentCode) -> tuple[bytes, ...]:
        """The INTEGRATED CAs of the home of `code`: the way from its certificates to the root."""
        now = self._context.clock.now()
        directory = self._context.directory()
        component = directory.find(code, now)
        home = None if component is None else home_directory(directory, component, now)
        if home is None:
            return ()
        return tuple(c.der for c in of_kind(home.certificates, CertificateKind.INTEGRATED_CA))
