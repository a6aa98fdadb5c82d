"""Proof sets, checked by someone who has nothing but the set and the roots it trusts."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest

from gridpost.core.certificate import CertificateKind
from gridpost.core.identifiers import ComponentCode
from gridpost.core.message import InternalMessage, InternalType
from gridpost.core.proof_set import Fact, ProofSet
from gridpost.wire.seal import Standing, fingerprint, sign, verify_proof
from gridpost.wire.seal.proof import NO_SEPARATORS, RECEIVED_UNSIGNED
from gridpost.wire.x509 import issue, read_certificate
from support.messages import CONTENT, acknowledgement, message, metadata
from support.pki import TestPki, rsa_key, shared_pki, spki
from support.sealing import e1, e2, e3


async def proof(**changes: object) -> ProofSet:
    signed = await sign(message(), e1().signer)
    digest = base64.b64encode(fingerprint(signed.metadata, CONTENT))
    acknowledged = await sign(acknowledgement(digest), e2().signer)
    complete = ProofSet(
        signed,
        e1().signing,
        acknowledged,
        e2().signing,
        acknowledgement(b"RECEIVED", internal_type=InternalType.RECEIVE_ACKNOWLEDGEMENT),
        (shared_pki().integrated_ca,),
    )
    return replace(complete, **changes)


def roots() -> list[bytes]:
    return [shared_pki().root]


async def test_a_complete_set_proves_origin_and_receipt_without_any_key() -> None:
    evidence = await proof()
    verdict = verify_proof(evidence, roots())
    assert verdict.origin.proven
    assert verdict.receipt.proven
    assert (verdict.origin.party, verdict.origin.signer) == ("E1", "E1")
    assert (verdict.receipt.party, verdict.receipt.signer) == ("E2", "E2")
    assert verdict.digest == fingerprint(metadata(), CONTENT)
    assert verdict.origin.claimed_at == evidence.message.metadata.generated


async def test_what_is_only_claimed_is_called_so() -> None:
    verdict = verify_proof(await proof(), roots())
    assert verdict.received_claimed_at is not None
    assert RECEIVED_UNSIGNED in verdict.notes
    assert NO_SEPARATORS in verdict.notes
    without = verify_proof(await proof(receive_acknowledgement=None), roots())
    assert without.received_claimed_at is None
    assert RECEIVED_UNSIGNED not in without.notes
    stranger = acknowledgement(
        b"x",
        internal_type=InternalType.RECEIVE_ACKNOWLEDGEMENT,
        sender_code=ComponentCode("E3"),
    )
    other = verify_proof(await proof(receive_acknowledgement=stranger), roots())
    assert other.received_claimed_at is None


async def test_a_verifier_that_does_not_know_the_root_is_told_so() -> None:
    strange_root = TestPki(root="elsewhere").root
    for trusted, evidence in (
        ([strange_root], await proof()),
        ([], await proof()),
        (roots(), await proof(issuers=())),
    ):
        verdict = verify_proof(evidence, trusted)
        assert verdict.origin.standing is Standing.ISSUER_NOT_TRUSTED
        assert verdict.receipt.standing is Standing.ISSUER_NOT_TRUSTED
        assert not verdict.origin.proven


async def test_an_external_root_can_be_trusted_beside_the_systems() -> None:
    external = TestPki(root="EXTERNAL", directory="EXT")
    sender = external.component("E1", key_name="E1 external")
    signed = await sign(message(), sender.signer)
    evidence = ProofSet(signed, sender.signing, issuers=(external.integrated_ca,))
    assert verify_proof(evidence, roots()).origin.standing is Standing.ISSUER_NOT_TRUSTED
    assert verify_proof(evidence, roots(), [external.root]).origin.proven


async def test_a_trusted_certificate_of_someone_else_proves_nothing_about_the_sender() -> None:
    signed = await sign(message(), e3().signer)
    evidence = await proof(message=signed, sender_certificate=e3().signing)
    verdict = verify_proof(evidence, roots())
    assert verdict.origin.standing is Standing.OTHER_NAME
    assert "E3" in verdict.origin.reason
    lying = replace(e3().signing, subject_code="E1")
    verdict = verify_proof(replace(evidence, sender_certificate=lying), roots())
    assert verdict.origin.standing is Standing.OTHER_NAME


async def test_a_certificate_that_may_not_sign_is_not_trusted_for_it() -> None:
    key = rsa_key("E1 SIGNING")
    pki = shared_pki()
    der = issue(CertificateKind.ENCRYPTION, "E1", spki(key), pki.issuer, pki.validity)
    posing = read_certificate(der, CertificateKind.SIGNING, e1().signing.certificate_id)
    verdict = verify_proof(await proof(sender_certificate=posing), roots())
    assert verdict.origin.standing is Standing.ISSUER_NOT_TRUSTED
    assert "may not sign" in verdict.origin.reason


async def test_an_altered_document_is_not_proven() -> None:
    evidence = await proof()
    altered = InternalMessage(evidence.message.metadata, CONTENT + b"!")
    verdict = verify_proof(replace(evidence, message=altered), roots())
    assert verdict.origin.standing is Standing.NOT_PROVEN
    assert verdict.receipt.standing is Standing.NOT_PROVEN
    assert "fingerprint" in verdict.receipt.reason


async def test_altered_metadata_is_not_proven() -> None:
    evidence = await proof()
    changed = replace(evidence.message.metadata, sender_application="Other")
    altered = replace(evidence, message=InternalMessage(changed, CONTENT))
    assert verify_proof(altered, roots()).origin.standing is Standing.NOT_PROVEN
    endless = replace(evidence.message.metadata, sender_application="x" * 100_000)
    verdict = verify_proof(replace(evidence, message=InternalMessage(endless, b"")), roots())
    assert verdict.origin.standing is Standing.NOT_PROVEN
    assert verdict.digest == b""


@pytest.mark.parametrize(
    "change",
    [
        {"related_message_id": "another"},
        {"sender_code": ComponentCode("E3")},
        {"receiver_code": ComponentCode("E3")},
    ],
)
async def test_an_acknowledgement_of_something_else_proves_no_receipt(
    change: dict[str, object],
) -> None:
    digest = base64.b64encode(fingerprint(metadata(), CONTENT))
    other = await sign(acknowledgement(digest, **change), e2().signer)
    verdict = verify_proof(await proof(acknowledgement=other), roots())
    assert verdict.receipt.standing is Standing.NOT_PROVEN
    assert verdict.origin.proven


@pytest.mark.parametrize("content", [b"DELIVERED", b"", base64.b64encode(bytes(64))])
async def test_another_fingerprint_proves_no_receipt(content: bytes) -> None:
    other = await sign(acknowledgement(content), e2().signer)
    verdict = verify_proof(await proof(acknowledgement=other), roots())
    assert verdict.receipt.standing is Standing.NOT_PROVEN


async def test_the_fingerprint_may_be_written_in_other_ways() -> None:
    digest = fingerprint(metadata(), CONTENT)
    for content in (digest, digest.hex().encode(), base64.encodebytes(digest)):
        ack = await sign(acknowledgement(content), e2().signer)
        assert verify_proof(await proof(acknowledgement=ack), roots()).receipt.proven


async def test_a_forged_acknowledgement_proves_no_receipt() -> None:
    digest = base64.b64encode(fingerprint(metadata(), CONTENT))
    forged = await sign(acknowledgement(digest), e3().signer)
    verdict = verify_proof(await proof(acknowledgement=forged), roots())
    assert verdict.receipt.standing is Standing.NOT_PROVEN


async def test_missing_evidence_is_named() -> None:
    verdict = verify_proof(ProofSet(message()), roots())
    assert verdict.origin.standing is Standing.INCOMPLETE
    assert verdict.origin.reason == "missing: message signature, sender certificate"
    assert "acknowledgement signature" in verdict.receipt.reason
    assert verdict.digest == fingerprint(metadata(), CONTENT)


async def test_a_certificate_that_cannot_be_read_proves_nothing() -> None:
    broken = replace(e1().signing, der=b"junk")
    verdict = verify_proof(await proof(sender_certificate=broken), roots())
    assert verdict.origin.standing is Standing.NOT_PROVEN
    assert verdict.origin.fact is Fact.ORIGIN
