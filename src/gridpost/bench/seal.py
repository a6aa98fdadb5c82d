"""How much of the time of a seal is cryptography itself.

Raw means the library's own `sign` and `verify` over the same bytes. The two sides of a ratio are
measured in turns, a few milliseconds each, so that a busy machine slows both alike.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import os
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gridpost.bench import Measurement
from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.identifiers import ComponentCode, MessageType, new_message_id
from gridpost.core.instant import Instant
from gridpost.core.message import InternalMessage, InternalType, Metadata
from gridpost.stores.keys.off_loop import key_pool
from gridpost.stores.keys.rsa_operations import KeyOpener, KeySigner, generate
from gridpost.wire.seal import (
    STANDARD,
    assemble,
    open_sealed,
    prepare_signature,
    seal_message,
    sign,
    verify,
)
from gridpost.wire.seal.registry import OAEP_SHA256, SHA_512
from gridpost.wire.x509 import (
    Issuer,
    Validity,
    build_root_ca,
    issue,
    public_key,
    public_key_bytes,
    read_certificate,
)

SMALL = 3_000
LARGE = 1024 * 1024


def measure(seconds: float = 6.0) -> Measurement:
    """Times are in microseconds."""
    party = _Party()
    collecting = gc.isenabled()
    gc.disable()
    try:
        small, ratios = _small(party, seconds / 2)
        large = _large(party, seconds / 2)
    finally:
        if collecting:
            gc.enable()
    share = large["crypto_1m_us"] / large["seal_open_1m_us"]
    return Measurement(
        figures={**small, **large},
        ratios={**ratios, "crypto_share_of_seal_and_open_1m": share},
    )


class _Party:
    """One endpoint that writes to itself."""

    def __init__(self) -> None:
        self.algorithm = STANDARD.signature(SHA_512)
        self.padding = STANDARD.padding(OAEP_SHA256)
        self.signing_key, self.signing = self._certified(CertificateKind.SIGNING)
        self.encryption_key, self.encryption = self._certified(CertificateKind.ENCRYPTION)
        self.signer = KeySigner(self.signing_key, self.signing)
        self.opener = KeyOpener(self.encryption_key, self.encryption)

    def _certified(self, kind: CertificateKind) -> tuple[rsa.RSAPrivateKey, Certificate]:
        ca_key, key = generate(), generate()
        now = datetime.now(UTC)
        algorithm = self.algorithm

        def by_ca(data: bytes) -> bytes:
            return ca_key.sign(data, algorithm.rsa_padding, algorithm.rsa_hash)

        ca_spki = public_key_bytes(ca_key.public_key())
        ca = build_root_ca("BENCH", ca_spki, by_ca, Validity.starting(now, timedelta(days=2)))
        spki = public_key_bytes(key.public_key())
        validity = Validity.starting(now, timedelta(days=1))
        der = issue(kind, "BENCH-1", spki, Issuer(ca, by_ca), validity)
        return key, read_certificate(der, kind)

    def message(self, size: int) -> InternalMessage:
        code = ComponentCode("BENCH-1")
        metadata = Metadata(
            message_id=new_message_id(),
            receiver_code=code,
            message_type=MessageType("BENCH"),
            generated=Instant.of(datetime.now(UTC)),
            expiration_time=None,
            sender_code=code,
            internal_type=InternalType.STANDARD_MESSAGE,
            extension="xml",
            sender_application="Bench",
            ba_message_id="B1",
        )
        return InternalMessage(metadata, os.urandom(size))


def _small(party: _Party, seconds: float) -> tuple[dict[str, float], dict[str, float]]:
    message = party.message(SMALL)
    metadata, content = message.metadata, message.content
    padding, rsa_hash = party.algorithm.rsa_padding, party.algorithm.rsa_hash
    key, public = party.signing_key, public_key(party.signing.der)
    signed = asyncio.run(sign(message, party.signer))
    to_be_signed = prepare_signature(metadata, content).to_be_signed
    value = key.sign(to_be_signed, padding, rsa_hash)
    certificates = [party.signing]

    def raw_sign() -> None:
        key.sign(to_be_signed, padding, rsa_hash)

    def seal_sign() -> None:
        prepared = prepare_signature(metadata, content)
        signature = key.sign(prepared.to_be_signed, padding, rsa_hash)
        assemble(prepared, signature, metadata.sender_code)

    def raw_verify() -> None:
        public.verify(value, to_be_signed, padding, rsa_hash)

    def seal_verify() -> None:
        verify(signed, certificates)

    samples = _in_turns(
        {"raw_sign_us": raw_sign, "sign_us": seal_sign}, seconds / 2, calls=10
    ) | _in_turns({"raw_verify_us": raw_verify, "verify_us": seal_verify}, seconds / 2, calls=100)
    times = _medians(samples)
    figures = {
        **times,
        "signs_per_s": 1e6 / times["sign_us"],
        "verifies_per_s": 1e6 / times["verify_us"],
        "signs_per_s_in_threads": asyncio.run(_signs_in_threads(party, message)),
    }
    return figures, {
        "sign_of_raw_rsa": _ratio(samples["raw_sign_us"], samples["sign_us"]),
        "verify_of_raw_rsa": _ratio(samples["raw_verify_us"], samples["verify_us"]),
    }


async def _signs_in_threads(party: _Party, message: InternalMessage, count: int = 400) -> float:
    """As an endpoint does it: through the port, with the private key's work in a pool."""
    with key_pool() as pool:
        signer = KeySigner(party.signing_key, party.signing, pool)
        await sign(message, signer)
        start = time.perf_counter()
        await asyncio.gather(*(sign(message, signer) for _ in range(count)))
        return count / (time.perf_counter() - start)


def _large(party: _Party, seconds: float) -> dict[str, float]:
    message = party.message(LARGE)
    padding, rsa_hash = party.algorithm.rsa_padding, party.algorithm.rsa_hash
    oaep = party.padding.rsa
    sign_key, open_key = party.signing_key, party.encryption_key
    sign_public, seal_public = public_key(party.signing.der), public_key(party.encryption.der)
    session, nonce = os.urandom(32), os.urandom(12)
    cipher = AESGCM(session)
    body = cipher.encrypt(nonce, message.content, b"")
    wrapped = seal_public.encrypt(session, oaep)
    to_be_signed = prepare_signature(message.metadata, message.content).to_be_signed
    value = sign_key.sign(to_be_signed, padding, rsa_hash)

    async def seal_and_open() -> None:
        sealed = await seal_message(message, party.signer, party.encryption)
        await open_sealed(sealed, [party.opener], [party.signing])

    def ciphers() -> None:
        cipher.encrypt(nonce, message.content, b"")
        cipher.decrypt(nonce, body, b"")

    def hashes() -> None:
        hashlib.sha512(message.content).digest()
        hashlib.sha512(message.content).digest()

    def keys() -> None:
        sign_key.sign(to_be_signed, padding, rsa_hash)
        sign_public.verify(value, to_be_signed, padding, rsa_hash)
        seal_public.encrypt(session, oaep)
        open_key.decrypt(wrapped, oaep)

    with asyncio.Runner() as runner:
        samples = _in_turns(
            {
                "seal_open_1m_us": lambda: runner.run(seal_and_open()),
                "aes_1m_us": ciphers,
                "sha512_1m_us": hashes,
                "rsa_1m_us": keys,
            },
            seconds,
            calls=2,
        )
    times = _medians(samples)
    crypto = times["aes_1m_us"] + times["sha512_1m_us"] + times["rsa_1m_us"]
    return {**times, "crypto_1m_us": crypto}


def _in_turns(
    tasks: dict[str, Callable[[], None]], seconds: float, *, calls: int
) -> dict[str, list[float]]:
    """Microseconds per call of each task, the tasks taking turns until the time is up."""
    samples: dict[str, list[float]] = {name: [] for name in tasks}
    for task in tasks.values():
        task()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(next(iter(samples.values()))) < 3:
        for name, task in tasks.items():
            start = time.perf_counter()
            for _ in range(calls):
                task()
            samples[name].append((time.perf_counter() - start) / calls * 1e6)
    return samples


def _medians(samples: dict[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in samples.items()}


def _ratio(raw: list[float], ours: list[float]) -> float:
    """Neighbours in time are compared with each other."""
    return statistics.median(a / b for a, b in zip(raw, ours, strict=True))
