"""The evidence of 503 cl. 4.5.4: what must be kept to prove origin and receipt, and why.

A proof set needs no encryption key: signing comes before encryption. Checking the signatures in
it is the business of `wire/seal/proof.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gridpost.core.certificate import Certificate
from gridpost.core.message import SIGNATURE, InternalMessage, InternalType


class Fact(Enum):
    """What a proof set is there to prove."""

    ORIGIN = "the sender issued this message"
    RECEIPT = "the recipient received this message"


class Part(Enum):
    """One piece of evidence: which facts need it, and what it contributes."""

    MESSAGE_SIGNATURE = (
        (Fact.ORIGIN,),
        "ties the document and its metadata to the sender's private key",
    )
    SENDER_CERTIFICATE = ((Fact.ORIGIN,), "names the sender that holds this private key")
    ACKNOWLEDGEMENT = (
        (Fact.RECEIPT,),
        "repeats the fingerprint of the message in the recipient's words",
    )
    ACKNOWLEDGEMENT_SIGNATURE = (
        (Fact.RECEIPT,),
        "ties the acknowledged fingerprint to the recipient's private key",
    )
    RECIPIENT_CERTIFICATE = (
        (Fact.RECEIPT,),
        "names the recipient that holds this private key",
    )

    @property
    def facts(self) -> tuple[Fact, ...]:
        return self.value[0]

    @property
    def proves(self) -> str:
        return self.value[1]


@dataclass(frozen=True, slots=True)
class ProofSet:
    """One message with everything that was collected about it.

    `message` holds the clear document. `issuers` are CA certificates (DER) by which a verifier can
    reach a root it trusts. `receive_acknowledgement` is unsigned: it is a claim and proves nothing.
    """

    message: InternalMessage
    sender_certificate: Certificate | None = None
    acknowledgement: InternalMessage | None = None
    recipient_certificate: Certificate | None = None
    receive_acknowledgement: InternalMessage | None = None
    issuers: tuple[bytes, ...] = ()

    def missing(self, *facts: Fact) -> tuple[Part, ...]:
        """What is not there of the evidence for these facts; for all of them when none is named."""
        wanted = facts or tuple(Fact)
        return tuple(
            part
            for part in Part
            if any(fact in wanted for fact in part.facts) and not self._has(part)
        )

    def complete(self, fact: Fact) -> bool:
        return not self.missing(fact)

    def _has(self, part: Part) -> bool:
        acknowledgement = self.acknowledgement
        match part:
            case Part.MESSAGE_SIGNATURE:
                return _is_signed(self.message)
            case Part.SENDER_CERTIFICATE:
                return self.sender_certificate is not None
            case Part.ACKNOWLEDGEMENT:
                # 503 cl. 4.5.4, note: no other kind of acknowledgement is meant.
                return acknowledgement is not None and (
                    acknowledgement.metadata.internal_type is InternalType.DELIVERY_ACKNOWLEDGEMENT
                )
            case Part.ACKNOWLEDGEMENT_SIGNATURE:
                return acknowledgement is not None and _is_signed(acknowledgement)
            case Part.RECIPIENT_CERTIFICATE:
                return self.recipient_certificate is not None


def _is_signed(message: InternalMessage) -> bool:
    return len(message.metadata.processors_named(SIGNATURE)) == 1
