"""503 cl. 8.3: what certificates of an endpoint are used for, and by whom they are issued."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gridpost.core.certificate import CertificateKind, select
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.keys.rsa_operations import KeyOpener, KeySigner
from gridpost.wire.seal import (
    encrypt,
    seal_message,
    sign,
    verify,
)
from gridpost.wire.x509 import (
    Validity,
)
from support.messages import CONTENT, message
from support.pki import NOW, YEAR, TestPki, shared_pki
from support.sealing import e1, e2, e3, opened, refused, sealed

DAY = timedelta(days=1)


@pytest.mark.req("503-8.3.3-a", component="endpoint")
async def test_a_message_opens_with_the_encryption_key_of_its_recipient_alone() -> None:
    transfer = await sealed()
    assert (await opened(transfer)).message.content == CONTENT
    for kind, key in e2().keys.items():
        if kind is not CertificateKind.ENCRYPTION:
            await refused(
                transfer, Rule.SEAL_SESSION_KEY, openers=[KeyOpener(key, e2().encryption)]
            )


@pytest.mark.req("503-8.3.3-b", component="endpoint")
async def test_a_signature_verifies_with_the_published_certificate_alone() -> None:
    signed = await sign(message(), e1().signer)
    assert verify(signed, e1().certificates).certificate == e1().signing
    other = replace(e3().signing, certificate_id=e1().signing.certificate_id)
    with pytest.raises(Refusal) as caught:
        verify(signed, [other])
    assert caught.value.rule is Rule.SEAL_SIGNATURE_VALUE


@pytest.mark.req("503-8.3.3-c", component="endpoint")
@pytest.mark.req("503-8.4.2-a")
async def test_certificates_of_an_external_ca_work_once_the_directory_has_them() -> None:
    """No root of the external CA is configured anywhere: the directory's word is enough."""
    external = TestPki(root="EXTERNAL", directory="EXT").component("E1", key_name="external")
    to_internal = await seal_message(message(), external.signer, e2().encryption)
    assert (
        await opened(to_internal, certificates=external.certificates)
    ).message.content == CONTENT
    to_external = await seal_message(message(), e1().signer, external.encryption)
    assert (await opened(to_external, openers=[external.opener])).message.content == CONTENT


@pytest.mark.req("503-8.3.3-d")
async def test_an_expired_certificate_encrypts_nothing() -> None:
    signed = await sign(message(), e1().signer)
    expired = shared_pki().component("E2", validity=Validity(NOW - YEAR, NOW - DAY))
    assert select(expired.certificates, CertificateKind.ENCRYPTION, NOW) is None
    with pytest.raises(Refusal) as caught:
        encrypt(signed, expired.encryption)
    assert caught.value.rule is Rule.NO_ENCRYPTION_CERTIFICATE
    # It expired while the message waited for its transfer.
    with pytest.raises(Refusal):
        encrypt(signed, e2().encryption, at=e2().encryption.not_after + DAY)


@pytest.mark.req("503-8.3.3-e")
async def test_an_expired_certificate_signs_nothing() -> None:
    used: list[bytes] = []

    class Watched(KeySigner):
        async def sign(self, data: bytes, algorithm: str = "SHA-512") -> bytes:
            used.append(data)
            return await super().sign(data, algorithm)

    expired = shared_pki().component("E1", validity=Validity(NOW - YEAR, NOW - DAY))
    signer = Watched(expired.keys[CertificateKind.SIGNING], expired.signing)
    with pytest.raises(Refusal) as caught:
        await seal_message(message(), signer, e2().encryption)
    assert caught.value.rule is Rule.NO_SIGNING_CERTIFICATE
    assert used == []
