"""503 cl. 9.3: how the algorithms of a network change, endpoint by endpoint."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives import hashes

from gridpost.core.certificate import CertificateKind
from gridpost.core.message import ENCRYPTION, SIGNATURE
from gridpost.core.refusal import Rule
from gridpost.stores.keys.rsa_operations import KeySigner
from gridpost.wire.seal import (
    DEFAULT,
    STANDARD,
    ContentCipher,
    Profile,
    Suite,
    open_sealed,
    seal_message,
)
from gridpost.wire.seal.registry import GCM
from support.messages import CONTENT, message
from support.sealing import e1, e2, entry, refused, sealed, with_entry

# -- 503 cl. 9.3

_GCM = STANDARD.cipher("AES-256", GCM)
_SHA3 = replace(
    STANDARD.signature("SHA-512"),
    name="SHA3-512",
    new_hash=hashlib.sha3_512,
    rsa_hash=hashes.SHA3_512(),
    method_uris=("http://www.w3.org/2007/05/xmldsig-more#rsa-sha3-512",),
    digest_uris=("http://www.w3.org/2007/05/xmldsig-more#sha3-512",),
)
NEW = STANDARD.adding(
    _SHA3, ContentCipher("AES-256-NEXT", GCM, 32, _GCM.encrypt, _GCM.decrypt, True)
)
INSTALLED = Profile(
    signatures=DEFAULT.signatures | {"SHA3-512"}, ciphers=DEFAULT.ciphers | {"AES-256-NEXT"}
)
SWITCHED_ON = replace(INSTALLED, send=Suite(signature="SHA3-512", cipher="AES-256-NEXT"))


async def exchange(sender: Profile, recipient: Profile) -> tuple[str, str]:
    """The algorithms that the message names, once its recipient has read it."""
    signer = KeySigner(e1().keys[CertificateKind.SIGNING], e1().signing, registry=NEW)
    transfer = await seal_message(message(), signer, e2().encryption, sender, NEW)
    arrived = await open_sealed(transfer, [e2().opener], e1().certificates, recipient, NEW)
    assert arrived.message.content == CONTENT
    return entry(transfer, SIGNATURE, "Algorithm"), entry(transfer, ENCRYPTION, "Cipher")


@pytest.mark.req("503-9.3-a")
async def test_the_metadata_says_by_which_algorithms_a_message_is_read() -> None:
    assert await exchange(INSTALLED, INSTALLED) == ("SHA-512", "AES-256")
    assert await exchange(SWITCHED_ON, INSTALLED) == ("SHA3-512", "AES-256-NEXT")
    unknown = with_entry(await sealed(), SIGNATURE, "Algorithm", "SHA-1024")
    await refused(unknown, Rule.SEAL_ALGORITHM_UNKNOWN)


@pytest.mark.req("503-9.3-b")
async def test_a_new_algorithm_is_received_before_it_is_sent() -> None:
    assert await exchange(SWITCHED_ON, INSTALLED) == ("SHA3-512", "AES-256-NEXT")
    # The one that received it still sends with the old ones.
    assert await exchange(INSTALLED, SWITCHED_ON) == ("SHA-512", "AES-256")


@pytest.mark.req("503-9.3-c")
async def test_sending_is_switched_on_endpoint_by_endpoint() -> None:
    outcomes = {
        name: await exchange(profile, INSTALLED)
        for name, profile in {"E1": SWITCHED_ON, "E2": INSTALLED, "E3": INSTALLED}.items()
    }
    assert outcomes == {
        "E1": ("SHA3-512", "AES-256-NEXT"),
        "E2": ("SHA-512", "AES-256"),
        "E3": ("SHA-512", "AES-256"),
    }
